"""Small committees for tests: random problems and the sum over their partitions."""

import itertools
import json
import shutil
from dataclasses import dataclass, replace

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.committee.committee import Committee
from bcmdist.committee.fading import weights
from bcmdist.committee.revision import messages
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import Observations, unweighted
from bcmdist.data.partition import partitions
from bcmdist.data.sources.delivery import Delivery, Listed
from bcmdist.errors import ModelDamaged
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.loading import sound_model
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare

# A fit with spatial cells of a field of two inputs with more detail than its query points show, and such a field.
CELLS = Settings(
    kernel="matern32",
    learn=False,
    set={"kernel.lengthscale": 0.3, "likelihood.noise_variance": 0.01},
    query=30,
    rows_per_expert=200,
    partition="spatial",
    effort="quick",
)


def wiggly(X):
    return 5.0 + np.sin(4 * X[:, 0]) * np.cos(3 * X[:, 1])


@dataclass(frozen=True)
class Problem:
    """Inputs (n, D), targets, query points and new points."""

    X: np.ndarray
    obs: Observations
    Xq: np.ndarray
    Xs: np.ndarray


def regression_problem(rng, *, rows=60, query=9, inputs=2):
    X = rng.uniform(-2, 2, (rows, inputs))
    y = np.sin(2 * X[:, 0]) + 0.3 * X.sum(axis=1) + 0.1 * rng.standard_normal(rows)
    return Problem(X, unweighted(y), rng.uniform(-2, 2, (query, inputs)), rng.uniform(-2.5, 2.5, (11, inputs)))


def class_problem(rng, **sizes):
    p = regression_problem(rng, **sizes)
    return Problem(p.X, unweighted((p.obs.y + 0.4 * rng.standard_normal(len(p.X)) > 0) * 1.0), p.Xq, p.Xs)


def make_kernel(name, inputs=2, variance=1.3, lengthscale=0.9):
    kernel = parse_kernel(name, inputs=inputs)
    values = {
        n: np.full(len(v), lengthscale if n.endswith("lengthscale") else variance) for n, v in kernel.parameters.items()
    }
    return kernel.with_parameters(values)


def split(rows, edges):
    """Slices between edges."""
    edges = [0, *edges, rows]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def make_committee(problem, kernel, likelihood, blocks, *, mean="zero", query=None):
    """Committee of the given row slices about the problem's (or other) query points."""
    prior = prepare(problem.Xq if query is None else query, kernel=kernel, mean=Mean(mean))
    messages = [expert_message(prior, likelihood, problem.X[b], problem.obs[b]) for b in blocks]
    return prior, messages, Committee(sum(messages, zero(prior.size)))


def assert_same_committee(a, b, tolerance=1e-10):
    """Equal up to rounding, on the scale of the largest entry: small entries are sums of large ones."""
    for one, other in [(a.total.precision, b.total.precision), (a.total.eta, b.total.eta)]:
        assert np.abs(one - other).max() <= tolerance * np.abs(one).max()
    assert abs(a.log_evidence - b.log_evidence) <= tolerance * max(1.0, abs(a.total.evidence))
    assert a.total.rows == b.total.rows


def assert_as_in_its_ledger(gbcm):
    """The committee is the sum of the messages of its ledger, each computed from the rows again."""
    snapshot = gbcm.snapshot
    counts = weights(snapshot.facts.fading, snapshot.ledger)
    total = messages(snapshot, counts, SerialRuntime())
    assert_same_committee(gbcm.committee, replace(gbcm.committee, total=total))


GIVEN = Settings(
    kernel="se",
    learn=False,
    set={"kernel.lengthscale": 0.5, "likelihood.noise_variance": 0.01},
    query=40,
    rows_per_expert=50,
    partition="chunks",
)


GIVEN_CLASSES = Settings(
    kernel="se",
    learn=False,
    set={"kernel.variance": 5.0, "kernel.lengthscale": 0.6},
    query=40,
    rows_per_expert=50,
    partition="chunks",
)


class Shuffled(Listed):
    """Partitions in any order and any number of times, with positions in the data set that they are of."""

    def read(self, after, most):
        start = after or 0
        parts = self.parts[start : start + most]
        return [Delivery((part,), start + k, part.stop) for k, part in enumerate(parts, start=1)]


def assert_refused_as_changed(model, change, message):
    """What is stored of a model can be read, and is refused with some words once its arrays were changed."""
    arrays, facts = model.to_arrays()
    facts = json.loads(json.dumps(facts))
    sound_model(arrays, facts, "model")
    with pytest.raises(ModelDamaged, match=message):
        sound_model(change(arrays), facts, "model")


def only(gbcm, path, keep, place):
    """The same prepared model in another directory, which absorbs some partitions of 50 rows only."""
    shutil.copytree(gbcm.url, place)
    return GBCM.load(place).absorb([partitions(open_data(path), 50)[k] for k in keep])
