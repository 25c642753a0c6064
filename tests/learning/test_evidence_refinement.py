"""Support points and hyper-parameters in turns (HPEV of Quinonero-Candela's thesis): never lower, the same anywhere."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import partitions
from bcmdist.errors import InvalidOption
from bcmdist.learning import evidence_refinement
from bcmdist.learning.evidence.objectives import CommitteeObjective
from bcmdist.learning.evidence_refinement import (
    INDEPENDENT_STEPS,
    JOINT_STEPS,
    POLISH_STEPS,
    TURN_STEPS,
    TURNS,
    IndependentRowsObjective,
    alternated,
    most_steps,
)
from bcmdist.learning.point import Point, prior_center, theta_of
from bcmdist.learning.query_selection import select_points
from bcmdist.learning.search import PRIOR_SD
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.scaling import Scaling, scaling_to_array
from bcmdist.storage.commits import BlobReference, open_store
from problems import make_kernel

pytestmark = pytest.mark.usefixtures("unlimited_learning")
QUERY, JITTER = 12, 1e-8
SCALING = Scaling(np.zeros(1), np.ones(1), 0.0, 1.0)
ASKED = Settings(
    partition="chunks", kernel="se", objective="committee", query=QUERY, rows_per_expert=60, effort="quick"
)


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: rounding could turn the choice between two rows that are as good."""
    with threadpool_limits(1, user_api="blas"):
        yield


def rows_of_two_kinds(rng, rows=180):
    """Inputs (n, 1) and targets that vary fast in the middle and slowly elsewhere: where points are matters."""
    X = rng.uniform(-2, 2, (rows, 1))
    return X, np.sin(12 * X[:, 0]) * np.exp(-4 * X[:, 0] ** 2) + 0.05 * rng.standard_normal(rows)


@pytest.fixture
def case(make_data, tmp_path, rng):
    """A function of a residual that makes an objective about random points, and one that chooses points."""
    X, y = rows_of_two_kinds(rng)
    parts = partitions(open_data(make_data(X=X, y=y)), 60)
    store = open_store(tmp_path / "model")
    scaling = BlobReference(store.storage.url, store.put_arrays({"s": scaling_to_array(SCALING)})["s"])
    where = {"scaling": scaling, "mean": "zero", "store": store, "points": X[:QUERY], "jitter": JITTER}

    def make(residual):
        if residual == "block":
            return CommitteeObjective(SerialRuntime(), parts, **where)
        return IndependentRowsObjective(SerialRuntime(), parts, residual=residual, **where)

    def choose(kernel, likelihood, turn):
        known = {"targets": y[:, None], "noise": likelihood.noise(unweighted(y))}
        return select_points(X, QUERY, kernel=kernel, method="hpev-sgev", seed=turn, **known)

    return make, choose, str(tmp_path / "log.jsonl")


START = Point("se", make_kernel("se", inputs=1, lengthscale=0.3), Gaussian(0.05), -np.inf)


def penalised(objective, point):
    """What a search climbs: the log evidence, and the log prior of the hyper-parameters."""
    gap = (theta_of(point) - prior_center(point, 1)) / PRIOR_SD
    return objective(point.kernel, point.likelihood)[0] - 0.5 * gap @ gap


@pytest.mark.slow
@pytest.mark.parametrize("residual", ["none", "diagonal", "block"])
def test_what_is_kept_never_falls(case, residual):
    """More turns end at least as high, from the first on, at the points that the objective is left with."""
    make, choose, log = case
    reached = []
    for turns in (1, 2, 4):
        objective = make(residual)
        best, evaluations = alternated(objective, START, choose, log, turns=turns, steps=4)
        assert best.objective == pytest.approx(penalised(objective, best), rel=1e-12)  # evaluated again
        assert evaluations >= turns
        reached.append(best.objective)
    assert np.all(np.diff(reached) >= 0)
    # Random points stood where hardly anything varies; a block has rows of its own that tell what they do not.
    if residual != "block":
        assert reached[-1] > reached[0] + 5.0


def test_a_turn_that_ends_lower_is_forgotten(case):
    make, _, log = case
    asked = []

    def far(kernel, likelihood, turn):
        asked.append((kernel, turn))
        return 100.0 + np.arange(QUERY)[:, None]

    still, turned = make("none"), make("none")
    one, _ = alternated(still, START, far, log, turns=1, steps=4)
    best, _ = alternated(turned, START, far, log, turns=3, steps=4)
    assert best.objective == one.objective
    np.testing.assert_array_equal(best.kernel.theta, one.kernel.theta)
    np.testing.assert_array_equal(turned.points, still.points)
    assert [turn for _, turn in asked] == [1, 2]  # other candidates each time,
    for kernel, _ in asked:  # at the best hyper-parameters
        np.testing.assert_array_equal(kernel.theta, one.kernel.theta)


def test_a_turn_that_fails_is_forgotten(case):
    """Points that are all the same have no covariance to factor."""
    make, _, log = case
    objective = make("none")
    first = objective.points
    best, _ = alternated(objective, START, lambda *_: np.zeros((3, 1)), log, turns=2, steps=2)
    assert np.isfinite(best.objective)
    np.testing.assert_array_equal(objective.points, first)


@pytest.fixture
def fast(make_data, rng):
    X, y = rows_of_two_kinds(rng, 300)
    return make_data("fast.zarr", X=X, y=y)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hpev-sgev", "hpev-sggp"])
@pytest.mark.parametrize("expert", ["sor", "fitc", "bcm"])
def test_turns_raise_the_evidence(fast, expert, method):
    """Over rows chosen once at what blocks of rows have learned."""
    once = {"hpev-sgev": "evidence", "hpev-sggp": "sggp"}[method]
    settings = replace(ASKED, expert=expert, query_method=method)
    turned = GBCM.fit(fast, settings)
    still = GBCM.fit(fast, replace(settings, query_method=once, objective="local"))
    assert turned.info()["log_evidence"] > still.info()["log_evidence"] + 1
    assert turned.info()["query"] == QUERY
    assert turned.model.shared.residual == still.model.shared.residual
    assert turned.facts["evaluations"] > still.facts["evaluations"]


@pytest.mark.slow
def test_the_augmented_expert_takes_the_points_of_what_it_augments(fast):
    """Support and hyper-parameters are those of the reduced-rank process; as in the thesis predictions are not."""
    settings = replace(ASKED, query_method="hpev-sgev", noise="constant")
    plain, star = (GBCM.fit(fast, replace(settings, expert=name)) for name in ("sor", "rrgp_star"))
    np.testing.assert_array_equal(plain.model.shared.points, star.model.shared.points)
    np.testing.assert_array_equal(plain.model.shared.kernel.theta, star.model.shared.kernel.theta)
    assert plain.model.likelihood.noise_variance == star.model.likelihood.noise_variance
    assert (plain.model.shared.residual, star.model.shared.residual) == ("none", "augmented")
    far = np.array([[6.0]])
    assert plain.predict(far)["variance"] < 1e-3 * star.predict(far)["variance"]


@pytest.mark.slow
def test_few_random_points_do_not_end_in_noise(make_data, rng, monkeypatch):
    """HPEV-rand: what the exact process calls noise is far less than what so few points leave."""
    X = rng.standard_normal((200, 8))
    angles = 0.2 * X.cumsum(axis=1)
    y = np.hypot(np.cos(angles).sum(axis=1), np.sin(angles).sum(axis=1))
    settings = replace(ASKED, expert="sor", query_method="random", query=32, rows_per_expert=200)
    path = make_data("arm.zarr", X=X, y=y / y.std() + 0.05 * rng.standard_normal(200))
    found = GBCM.fit(path, settings)
    assert found.score(path)["nmse"] < 0.1
    monkeypatch.setattr(evidence_refinement, "NOISE_FACTORS", (1.0,))
    assert found.info()["log_evidence"] > GBCM.fit(path, settings).info()["log_evidence"]


@pytest.mark.parametrize("expert", ["sor", pytest.param("bcm", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_cluster_takes_the_same_turns(fast, cluster, expert):
    settings = replace(ASKED, expert=expert, query_method="hpev-sgev")
    here, there = (GBCM.fit(fast, settings, runtime=runtime) for runtime in (SerialRuntime(), cluster))
    np.testing.assert_array_equal(here.model.shared.points, there.model.shared.points)
    # A sum in another order, which ends of climbs magnify.
    np.testing.assert_allclose(here.model.shared.kernel.theta, there.model.shared.kernel.theta, rtol=1e-6)


@pytest.mark.parametrize("couples", [True, False])
def test_steps_are_planned(couples):
    assert most_steps("hpev-sgev", "normal", couples=couples) == TURNS["normal"] * TURN_STEPS["normal"]
    assert most_steps("random", "quick", couples=False) == INDEPENDENT_STEPS["quick"]
    assert most_steps("optimised", "normal", couples=couples) == (POLISH_STEPS if couples else JOINT_STEPS["normal"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "local"}, "expected objective committee with hpev-sgev, got local; give --objective committee"),
        ({"partition": "spatial"}, "objective: expected local or subset with spatial cells"),
        ({"task": "counts"}, "query_method: expected kmeans or pivoted with negative_binomial, got hpev-sgev"),
        ({"expert": "sor", "likelihood": "probit", "task": "classification"}, "sor or rrgp_star with normal errors"),
        ({"query_from": "new.zarr"}, "query_from: expected query_method kmeans or optimised"),
    ],
)
def test_what_has_no_turns_is_refused(changes, message):
    with pytest.raises(InvalidOption, match=message):
        replace(ASKED, query_method="hpev-sgev", **changes)
