import itertools
import json

import numpy as np
import pytest

from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.experts.evidence import local_evidence
from bcmdist.learning.evidence.cached import CachedObjective
from bcmdist.learning.search import EFFORTS, learn
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from problems import make_kernel, regression_problem


class Killed(Exception):
    """Stands for a lost machine."""


class Exact:
    """An objective that dies after some evaluations."""

    reasons = ()

    def __init__(self, problem, lives=10_000, identity="exact"):
        self.problem, self.lives, self.identity = problem, lives, identity

    def __call__(self, kernel, likelihood):
        if self.lives == 0:
            raise Killed
        self.lives -= 1
        try:
            return local_evidence(kernel, Mean("constant"), likelihood, self.problem.X, self.problem.obs)
        except NotPositiveDefinite:
            return -np.inf, np.zeros(len(kernel.theta) + 1)


@pytest.fixture
def problem(rng):
    return regression_problem(rng, rows=40)


def climb(objective):
    return learn(lambda _: objective, "se", Gaussian(0.5), inputs=2, effort=EFFORTS["quick"])


def test_a_killed_run_resumes_where_it_was(problem, tmp_path):
    """Killed again and again, torn each time: the same optimum bit for bit, and nothing is evaluated twice."""
    path = tmp_path / "learning.jsonl"
    whole = CachedObjective(Exact(problem), tmp_path / "whole.jsonl")
    expected = climb(whole)
    assert whole.computed > 15
    computed = 0
    for _ in itertools.count():
        some = CachedObjective(Exact(problem, lives=7), path)
        try:
            found = climb(some)
            break
        except Killed:
            assert some.computed == 7
            computed += 7
            with open(path, "ab") as file:
                file.write(b'{"at": {"objective": "exact", "kern')
    assert computed + some.computed == whole.computed
    np.testing.assert_array_equal(found.kernel.theta, expected.kernel.theta)
    np.testing.assert_array_equal(found.likelihood.noise_variance, expected.likelihood.noise_variance)
    assert found.objective == expected.objective
    again = CachedObjective(Exact(problem, lives=0), path)
    assert climb(again).objective == expected.objective
    assert again.computed == 0


def test_every_bit_returns(problem, tmp_path):
    kernel, path = make_kernel("se").with_theta(np.array([0.1, 1 / 3, -np.pi])), tmp_path / "log"
    likelihood = Gaussian(np.nextafter(0.1, 1))
    first = CachedObjective(Exact(problem), path)(kernel, likelihood)
    value, gradient = CachedObjective(Exact(problem, lives=0), path)(kernel, likelihood)
    assert value == first[0]
    np.testing.assert_array_equal(gradient, first[1])
    gradient[:] = 0.0  # an optimiser that works in place changes nothing
    np.testing.assert_array_equal(CachedObjective(Exact(problem, lives=0), path)(kernel, likelihood)[1], first[1])


def test_failures_are_remembered_in_plain_json(problem, tmp_path):
    kernel, path = parse_kernel("se", inputs=2).with_theta(np.array([60.0, 9.0, 9.0])), tmp_path / "log"
    assert CachedObjective(Exact(problem), path)(kernel, Gaussian(1e-12))[0] == -np.inf
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["value"] is None
    value, gradient = CachedObjective(Exact(problem, lives=0), path)(kernel, Gaussian(1e-12))
    assert value == -np.inf
    np.testing.assert_array_equal(gradient, np.zeros(4))


def test_another_objective_or_place_is_evaluated(problem, tmp_path):
    kernel, path = make_kernel("se"), tmp_path / "log"
    CachedObjective(Exact(problem), path)(kernel, Gaussian(0.1))
    other = CachedObjective(Exact(problem, identity="other rows"), path)
    other(kernel, Gaussian(0.1))
    other(kernel, Gaussian(np.nextafter(0.1, 1)))
    other(make_kernel("matern32"), Gaussian(0.1))
    assert other.computed == 3
    changed = CachedObjective(Exact(problem, lives=0), path)
    changed(kernel, Gaussian(0.1))
    changed.objective.identity = "later rows"
    with pytest.raises(Killed):
        changed(kernel, Gaussian(0.1))


def test_a_log_elsewhere_is_refused(problem):
    with pytest.raises(InvalidOption, match="expected a path on a local disk, got 's3://bucket/log'"):
        CachedObjective(Exact(problem), "s3://bucket/log")
