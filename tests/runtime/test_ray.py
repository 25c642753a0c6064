"""The Ray runtime, on two processes of a Ray of this machine; skipped where Ray is not installed."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from processes import no_hang

from bcmdist.data.partition import Span
from bcmdist.errors import InvalidOption, PoisonChunk, WorkerLost
from bcmdist.testing import check_runtime

# Ray would listen on all addresses of the machine, and reads this when it is imported.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
try:
    import ray

    from bcmdist.runtime.ray import RayRuntime
except ImportError:
    ray = None

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(ray is None, reason="Ray: pip install 'bcmdist[ray]'"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning"),
]
SPANS = [Span(k, k + 1) for k in range(100)]


@contextlib.contextmanager
def local_ray():
    paths = {"PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2]))}  # where tasks of tests are
    options = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False, "runtime_env": {"env_vars": paths}}
    ray.init("local", logging_level="critical", **options)
    try:
        assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
        with RayRuntime() as runtime:
            yield runtime
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class Squares:
    """Squares of the first rows of spans; kills the process of one of them."""

    killing: int = -1

    def __call__(self, span, rows):
        if span.start == self.killing:
            os._exit(1)
        return np.array([1.0, span.start, span.start**2])


def test_the_ray_runtime_conforms():
    with no_hang(240):
        check_runtime(local_ray)


def test_many_batches_and_a_partition_that_kills_its_workers():
    with no_hang(240), local_ray() as runtime:
        k = np.arange(100.0)
        expected = [100.0, k.sum(), (k**2).sum()]
        np.testing.assert_array_equal(runtime.sum(Squares(), SPANS, label="squares"), expected)
        with pytest.raises(WorkerLost, match=r"output\[2:3\]: workers died in 4 runs .*give workers more memory"):
            runtime.sum(Squares(2), SPANS[:3], label="squares")
        outcomes = list(runtime.each([(Squares(2), SPANS[:4])], label="squares"))
        (failed,) = (one for one in outcomes if one.error)
        assert failed.parts == [SPANS[2]]
        assert isinstance(failed.error, PoisonChunk)
        assert sum(one.result[0] for one in outcomes if not one.error) == 3


def test_it_needs_a_connection():
    with pytest.raises(InvalidOption, match=r"expected a connection to Ray, there is none; call ray\.init before"):
        RayRuntime()
