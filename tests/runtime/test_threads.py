"""One BLAS thread for each task of this process; what the process had before is given back."""

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
import threadpoolctl
from click.testing import CliRunner
from sklearn.cluster import KMeans

from bcmdist import HMC, GBCMRegressor, Mixture, Settings, plan, sample_posterior, write_dataset
from bcmdist.api.gbcm import GBCM
from bcmdist.app import doctor
from bcmdist.app.cli.main import cli
from bcmdist.learning.query_selection import select_points
from bcmdist.linalg.routines import Routines
from bcmdist.model.kernels import parse_kernel
from bcmdist.runtime.threads import one_thread

pytestmark = pytest.mark.alone

QUICK = Settings(kernel="se", learn=False, query=20, rows_per_expert=60)
SECONDS = 20  # until a thread that waits has waited in vain


def numbers(api="blas"):
    """Of threads, of the libraries of this process, as this thread sees them."""
    return {one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == api}


@pytest.fixture
def two_threads():
    """Whatever the number of cores and the variables of this run."""
    with threadpoolctl.threadpool_limits(2):
        yield


# --- Every way in ---


@pytest.fixture
def seen(monkeypatch):
    """Numbers of threads during calls of BLAS and LAPACK."""
    found = set()

    def deferred_interrupts(routine):
        def run(*args, **kwargs):
            found.update(numbers())
            return routine(*args, **kwargs)

        return run

    for name in ("potrf", "trsm", "gemm", "syrk"):
        monkeypatch.setattr(Routines, name, deferred_interrupts(getattr(Routines, name)))
    return found


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (70, 2))
    return X, np.sin(X[:, 0]) + X[:, 1]


@pytest.fixture(scope="module")
def data(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("threads") / "rows.zarr"
    write_dataset(path, dict(zip("Xy", rows, strict=True)), rows_per_chunk=35)
    return path


@pytest.fixture(scope="module")
def model(data):
    return GBCM.fit(data, QUICK, model=data.parent / "model")


@pytest.fixture(scope="module")
def halves(data, rows):
    """Two committees of one prepared model that have absorbed different rows."""
    X, y = rows
    empty = GBCM.prepare(data, settings=QUICK, model=data.parent / "one")
    return [one.partial_fit(X[k::2], y[k::2]) for k, one in enumerate((empty, empty.save(data.parent / "other")))]


@pytest.fixture(scope="module")
def estimator(rows):
    return GBCMRegressor(kernel="se", query=20, partition="chunks", options={"learn": False}).fit(*rows)


def command(*words):
    result = CliRunner().invoke(cli, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.output


def fit_by_command(data, out):
    command("fit", data, "--model", out / "m", "--query", 20, "--no-learn", "--kernel", "se", "--serial")


def sampled(data, out):
    settings = Settings(kernel="se", query=20, rows_per_expert=60)
    sample_posterior(data, settings, model=out / "m", samples=1, chains=1, hmc=HMC(2, 1))


CALLS = {  # by name, with the fixtures that they take
    "fit": (lambda rows, out: GBCM.fit(*rows, QUICK), "rows"),
    "predict": (lambda model, rows, out: model.predict(rows[0]), "model", "rows"),
    "predict_joint": (lambda model, rows, out: model.predict_joint(rows[0]), "model", "rows"),
    "sample": (lambda model, rows, out: model.sample(rows[0], size=2), "model", "rows"),
    "score": (lambda model, rows, out: model.score(*rows), "model", "rows"),
    "calibration": (lambda model, out: model.calibration(), "model"),
    "effective_parameters": (lambda model, out: model.effective_parameters(), "model"),
    "evidence_gradient": (lambda model, out: model.evidence_gradient(), "model"),
    "info": (lambda model, out: GBCM.load(model.url).info(), "model"),
    "merge": (lambda halves, out: halves[0].merge(halves[1], out / "merged").info(), "halves"),
    "mixture": (lambda model, rows, out: Mixture([model]).predict(rows[0]), "model", "rows"),
    "plan": (lambda data, out: plan(data, QUICK), "data"),
    "sample_posterior": (sampled, "data"),
    "estimator's fit": (lambda rows, out: GBCMRegressor(kernel="se", query=20).fit(*rows), "rows"),
    "estimator's predict": (lambda estimator, rows, out: estimator.predict(rows[0]), "estimator", "rows"),
    "estimator's sample_y": (lambda estimator, rows, out: estimator.sample_y(rows[0]), "estimator", "rows"),
    "command fit": (fit_by_command, "data"),
    "command info": (lambda model, out: command("info", model.url, "--calibration"), "model"),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_called_has_one_thread(call, request, tmp_path, seen):
    function, *names = CALLS[call]
    fixtures = [request.getfixturevalue(name) for name in names]
    seen.clear()
    with threadpoolctl.threadpool_limits(2):
        function(*fixtures, tmp_path)
        assert seen == {1}
        assert numbers() == {2}


UNLIMITED = """
import numpy as np, threadpoolctl
import scipy.linalg

def numbers():
    return sorted({one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"})

before = numbers()
import bcmdist
from bcmdist import GBCM, GBCMRegressor, SerialRuntime, Settings
from bcmdist.linalg.routines import Routines
assert numbers() == before

seen, potrf = [], Routines.potrf
Routines.potrf = lambda self, A: [seen.extend(numbers()), potrf(self, A)][1]
X = np.random.default_rng(0).uniform(-2, 2, (120, 2))
model = GBCM.fit(X, X[:, 0], Settings(kernel="se", learn=False, query=10), runtime=SerialRuntime())
estimator = GBCMRegressor(kernel="se", query=10, options={"learn": False}).fit(X, X[:, 0])
model.predict(X), estimator.predict(X)
assert set(seen) == {1}, seen
assert numbers() == before
print("one thread of", before)
"""


@pytest.mark.slow
def test_importing_changes_nothing_and_computing_does_for_as_long_as_it_takes():
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    run = subprocess.run([sys.executable, "-c", UNLIMITED], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("one thread of")


def test_doctor_says_how_many_and_why(two_threads):
    (found,) = [one["found"] for one in [doctor._result(doctor._blas)] if one["ok"]]
    assert "one thread for each task, as several would wait for each other" in found
    assert re.search(r"factored in \d+ ms by one, in \d+ ms by 2, at a load of", found)
    assert numbers() == {2}


# --- The limit ---


def test_limits_may_be_nested(two_threads):
    with one_thread():
        with one_thread():
            assert numbers() == numbers("openmp") == {1}
        assert numbers() == numbers("openmp") == {1}
    assert numbers() == numbers("openmp") == {2}


def test_an_error_ends_a_limit(two_threads):
    with pytest.raises(ZeroDivisionError), one_thread():
        _ = 1 / 0
    assert numbers() == numbers("openmp") == {2}


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_the_last_thread_to_leave_gives_back(two_threads, first_to_leave):
    leave, left, inside = ([threading.Event(), threading.Event()] for _ in range(3))
    found = []

    def work(k):
        with one_thread():
            inside[k].set()
            assert leave[k].wait(SECONDS)
            found.append(numbers())
        left[k].set()

    workers = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for k in (0, 1):
        workers[k].start()
        assert inside[k].wait(SECONDS)
    for k in (first_to_leave, 1 - first_to_leave):
        assert numbers() == {1}
        leave[k].set()
        assert left[k].wait(SECONDS)
        workers[k].join()
    assert found == [{1}, {1}]
    assert numbers() == {2}


def test_many_threads_at_a_time_end_where_they_began(two_threads):
    odd = []

    def work():
        for _ in range(200):
            with one_thread():
                if numbers() != {1}:
                    odd.append(numbers())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert odd == []
    assert numbers() == {2}


def test_a_limit_of_others_is_never_raised():
    with threadpoolctl.threadpool_limits(1), one_thread():
        assert numbers() == {1}
    with threadpoolctl.threadpool_limits(2), one_thread():
        with threadpoolctl.threadpool_limits(1):
            assert numbers() == {1}
        assert numbers() == {1}


def test_k_means_has_one_thread(two_threads, monkeypatch, rng):
    found, fit = [], KMeans.fit
    monkeypatch.setattr(KMeans, "fit", lambda *args, **how: [found.append(numbers("openmp")), fit(*args, **how)][1])
    select_points(rng.standard_normal((60, 2)), 5, kernel=parse_kernel("se", inputs=2))
    assert found
    assert all(one == {1} for one in found)
    assert numbers("openmp") == {2}
