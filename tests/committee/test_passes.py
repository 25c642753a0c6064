"""Passes: from the GBCM as published to the Laplace approximation of the whole PITC model (SYSTEMS I.5)."""

import itertools

import numpy as np
import pytest
import zarr

from bcmdist import GBCM, Settings
from bcmdist.committee.committee import Committee, next_mean
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import Observations
from bcmdist.data.partition import partitions
from bcmdist.errors import BcmdistWarning, DataChanged, InvalidOption, ModelDamaged
from bcmdist.experts.expert import conditional_message, expert_message, running_message
from bcmdist.experts.laplace import laplace_mode
from bcmdist.experts.message import zero_message
from bcmdist.model.likelihoods import Bernoulli, InverseGaussian, NegativeBinomial, Poisson, StudentT, Weibull
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.storage.commits import ModelStore
from problems import make_kernel, regression_problem, split

BLOCKS = split(72, [15, 30, 44, 60])


def make_problem(rng, likelihood):
    p = regression_problem(rng, rows=72)
    event = None
    match likelihood.name:
        case "bernoulli":
            y = (p.obs.y + 0.4 * rng.standard_normal(72) > 0) * 1.0
        case "weibull":
            y, event = rng.exponential(np.exp(p.obs.y)), (rng.uniform(size=72) < 0.7) * 1.0
        case "student_t":
            y = p.obs.y + (rng.uniform(size=72) < 0.2) * rng.normal(1.0, 2.0, 72)
        case "inverse_gaussian":
            y = rng.wald(np.exp(p.obs.y), 1.0)
        case _:
            y = rng.poisson(np.exp(p.obs.y)).astype(float)
    return p.X, Observations(y, np.ones(72), event=event), p.Xq


def first_pass(query, likelihood, X, obs):
    messages = [expert_message(query, likelihood, X[b], obs[b]) for b in BLOCKS]
    return Committee(sum(messages, zero_message(query, likelihood)))


def next_pass(query, likelihood, X, obs, committee):
    mean = committee.posterior.mean
    absorbed = [conditional_message(query, likelihood, X[b], obs[b], mean) for b in BLOCKS]
    objective = sum(h.objective for h in absorbed) - 0.5 * mean @ mean
    return Committee(sum((h.message for h in absorbed), zero_message(query, likelihood))), objective


def dense_pitc_laplace(query, likelihood, X, obs):
    """Mean and covariance of the whitened query values, and log evidence, by (n, n) algebra."""
    V = query.design(X)
    K = V @ V.T
    for b in BLOCKS:
        K[b, b] = query.kernel.cross(X[b], X[b])
    f = laplace_mode(K, obs, likelihood)
    w, s = likelihood.curvature(obs, f), likelihood.score(obs, f)
    T = np.linalg.inv(K + np.diag(1.0 / w))
    evidence = (
        likelihood.log_density(obs, f).sum() - 0.5 * s @ f - 0.5 * np.linalg.slogdet(np.eye(72) + w[:, None] * K)[1]
    )
    return V.T @ s, np.eye(V.shape[1]) - V.T @ T @ V, evidence


@pytest.mark.parametrize(
    "likelihood", [Bernoulli(), Poisson(), NegativeBinomial(2.0), Weibull(1.5)], ids=lambda one: one.name
)
def test_limit_is_the_dense_solution(rng, likelihood):
    """Errors in posterior standard deviations: about half a one after pass 1, 1e-8 after pass 5."""
    X, obs, Xq = make_problem(rng, likelihood)
    query = prepare(Xq, kernel=make_kernel("se"), mean=Mean("zero"))
    mean, covariance, evidence = dense_pitc_laplace(query, likelihood, X, obs)
    sd = np.sqrt(np.diag(covariance))
    committee = first_pass(query, likelihood, X, obs)
    errors = [np.abs((committee.posterior.mean - mean) / sd).max()]
    for _ in range(5):
        committee, _ = next_pass(query, likelihood, X, obs, committee)
        errors.append(np.abs((committee.posterior.mean - mean) / sd).max())
    assert errors[0] > 0.01  # GBCM as published is not the limit
    assert errors[-1] <= 1e-8
    assert errors[2] <= errors[1] ** 1.5  # quadratic on the way
    L = np.linalg.inv(committee.posterior.factor)
    assert np.abs(L.T @ L - covariance).max() <= 1e-8
    assert committee.log_evidence == pytest.approx(evidence, rel=1e-8)


@pytest.mark.parametrize("likelihood", [StudentT(0.01, 3.0), InverseGaussian(1.0)], ids=lambda one: one.name)
def test_passes_are_newtons_where_weights_are_expected_ones(rng, likelihood):
    """Fisher scoring would take dozens; the limit is where the scores pull as much as the prior."""
    X, obs, Xq = make_problem(rng, likelihood)
    query = prepare(Xq, kernel=make_kernel("se"), mean=Mean("zero"))
    committee, changes = first_pass(query, likelihood, X, obs), []
    values = committee.posterior.mean
    for _ in range(12):
        absorbed = [conditional_message(query, likelihood, X[b], obs[b], values) for b in BLOCKS]
        committee = Committee(sum((h.message for h in absorbed), zero_message(query, likelihood)))
        moved = next_mean(committee, sum((h.step for h in absorbed), zero_message(query, likelihood)))
        changes.append(committee.posterior.length(moved - values))
        values = moved
    assert changes[-1] <= 1e-8
    small = [c for c in changes if 1e-7 < c < 0.03]
    assert all(b <= max(a**1.5, 1e-8) for a, b in itertools.pairwise(small))  # quadratic in the end
    np.testing.assert_allclose(committee.posterior.mean, values, atol=1e-8)  # where Fisher scoring rests too


def test_objective_rises_and_is_highest_at_the_limit(rng):
    X, obs, Xq = make_problem(rng, Poisson())
    query = prepare(Xq, kernel=make_kernel("se"), mean=Mean("constant"))
    committee, objectives = first_pass(query, Poisson(), X, obs), []
    for _ in range(5):
        committee, objective = next_pass(query, Poisson(), X, obs, committee)
        objectives.append(objective)
    assert np.all(np.diff(objectives) >= -1e-10 * np.abs(objectives[0]))


def test_length_bounds_the_move_of_every_prediction(rng):
    X, obs, Xq = make_problem(rng, Bernoulli())
    query = prepare(Xq, kernel=make_kernel("se"), mean=Mean("zero"))
    belief = first_pass(query, Bernoulli(), X, obs).posterior
    move = rng.standard_normal(query.size)
    V = query.design(rng.uniform(-3, 3, (50, 2)))
    sd = np.linalg.norm(np.linalg.solve(belief.factor, V.T), axis=0)
    assert np.all(np.abs(V @ move) <= belief.length(move) * sd * (1 + 1e-12))


def test_running_belief_comes_closer_than_own_modes(rng):
    X, obs, Xq = make_problem(rng, Bernoulli())
    query = prepare(Xq, kernel=make_kernel("se", variance=4.0), mean=Mean("zero"))
    mean, covariance, _ = dense_pitc_laplace(query, Bernoulli(), X, obs)
    running = Committee(zero_message(query, Bernoulli()))
    for b in BLOCKS:
        running = running.absorb(running_message(query, Bernoulli(), X[b], obs[b], running.posterior))
    sd = np.sqrt(np.diag(covariance))
    gap = {
        "own": np.abs((first_pass(query, Bernoulli(), X, obs).posterior.mean - mean) / sd).max(),
        "running": np.abs((running.posterior.mean - mean) / sd).max(),
    }
    assert gap["running"] < gap["own"]


# --- By the facade ---

GIVEN = Settings(partition="chunks", task="classification", kernel="se", learn=False, query=20, rows_per_expert=50)


def settings(**changes):
    from dataclasses import replace

    return replace(GIVEN, **changes)


def test_fit_refines_until_the_committee_rests(classes, tmp_path):
    path, X, _ = classes
    gbcm = GBCM.fit(path, settings(passes="auto"), model=tmp_path / "model")
    changes = [entry["change"] for entry in gbcm.facts["passes"][1:]]
    assert changes[-1] <= 1e-3 < changes[0]
    assert gbcm.commit == 3 + len(changes)  # every pass is committed, then the loss at rows left out
    further = gbcm.refine(most=len(changes) + 2, tolerance=-1.0)
    np.testing.assert_allclose(further.predict(X)["probability"], gbcm.predict(X)["probability"], atol=1e-5)


def test_refining_is_continued_after_it_was_cut_short(classes, tmp_path):
    path, *_ = classes
    whole = GBCM.fit(path, settings(passes="auto"), model=tmp_path / "whole")
    part = GBCM.fit(path, settings(), model=tmp_path / "part").refine(most=2)
    rest = GBCM.load(part.url).refine()
    np.testing.assert_allclose(rest.committee.total.eta, whole.committee.total.eta, rtol=1e-12)
    assert len(rest.facts["passes"]) == len(whole.facts["passes"])


@pytest.mark.slow
def test_passes_go_on_for_as_long_as_they_pay(rng, tmp_path):
    """Outliers on one side, and tails too heavy for expected weights: predictions moved by more than a deviation."""
    X = rng.uniform(-2, 2, (120, 2))
    y = np.sin(2 * X[:, 0]) + 0.05 * rng.standard_normal(120) + (rng.random(120) < 0.3) * rng.normal(2.0, 3.0, 120)
    given = {"kernel.variance": 3.0, "kernel.lengthscale": 0.8}
    given |= {"likelihood.noise_variance": 0.003, "likelihood.degrees_of_freedom": 2.2}
    heavy = settings(task="regression", likelihood="student_t", set=given, query=30, passes="auto")
    gbcm = GBCM.fit((X, y), heavy, model=tmp_path / "model")
    assert gbcm.info()["converged"] is True
    further = gbcm.refine(most=len(gbcm.facts["passes"]) + 5, tolerance=-1.0)
    told, limit = gbcm.predict(X), further.predict(X)
    assert np.all(np.abs(told["mean"] - limit["mean"]) <= 1e-3 * np.sqrt(limit["variance"]))


@pytest.mark.slow
def test_passes_that_come_no_closer_end_with_a_warning(classes, tmp_path):
    path, *_ = classes
    gbcm = GBCM.fit(path, settings(), model=tmp_path / "model")
    assert gbcm.info()["converged"] is None
    assert gbcm.refine(most=2).info()["converged"] is False
    with pytest.warns(BcmdistWarning, match=r"expected passes until no prediction moves .* come no closer; take"):
        gbcm.newest().refine(tolerance=0.0)


def test_what_is_heard_after_the_passes_is_refined_too(classes, make_data, tmp_path):
    _, X, y = classes
    first, rest = make_data("first.zarr", X=X[:150], y=y[:150]), make_data("rest.zarr", X=X[150:], y=y[150:])
    gbcm = GBCM.fit(first, settings(passes="auto"), model=tmp_path / "model")
    more = gbcm.partial_fit(rest)
    assert more.facts["passes"][-1] == {"pass": 1}
    refined = more.refine()
    assert len(refined.facts["passes"]) > len(more.facts["passes"])
    assert {entry.at for entry in refined.ledger} == {refined.facts["linearised_at"]}
    again = more.facts["passes"][-1]["pass"] + 1
    assert refined.facts["passes"][len(more.facts["passes"])]["pass"] == again


@pytest.mark.slow
def test_dask_passes_are_the_serial_ones(classes, tmp_path, cluster):
    path, *_ = classes
    serial = GBCM.fit(path, settings(passes="auto"), model=tmp_path / "serial")
    dask = GBCM.fit(path, settings(passes="auto"), model=tmp_path / "dask", runtime=cluster)
    np.testing.assert_allclose(dask.committee.total.precision, serial.committee.total.precision, atol=1e-10)


def test_gaussian_likelihood_needs_one_pass(wave):
    path, *_ = wave
    gbcm = GBCM.fit(
        path, Settings(partition="chunks", kernel="se", learn=False, query=20, rows_per_expert=60, passes="auto")
    )
    assert gbcm.facts["passes"] == [{"pass": 1}]


def test_a_commit_that_has_heard_rows_in_no_pass(classes, tmp_path):
    path, *_ = classes
    gbcm = GBCM.fit(path, settings(), model=tmp_path / "model")
    forged = gbcm.snapshot.successor(gbcm.committee, [], passes=())
    with pytest.raises(ModelDamaged, match="commit 3: expected a pass in which partitions were absorbed, found none"):
        GBCM(forged).refine()


@pytest.mark.slow
def test_a_step_that_lowers_the_objective_is_halved(classes, tmp_path):
    """Start the passes at a belief that is far out: full steps from there overshoot."""
    path, X, _ = classes
    gbcm = GBCM.fit(path, settings(), model=tmp_path / "model")
    calm = GBCM.fit(path, settings(passes="auto"), model=tmp_path / "calm")
    total = gbcm.committee.total
    wild = gbcm.snapshot.successor(Committee(type(total)(40.0 * total.eta, total.precision, 0.0, total.rows)), [])
    refined = GBCM(wild).refine()
    np.testing.assert_allclose(refined.predict(X)["probability"], calm.predict(X)["probability"], atol=1e-4)


def test_running_belief_depends_on_order_and_says_so(classes, tmp_path):
    path, *_ = classes
    gbcm = GBCM.fit(path, settings(linearise="running"), model=tmp_path / "model")
    own = GBCM.fit(path, settings(), model=tmp_path / "own")
    assert not np.allclose(gbcm.committee.total.eta, own.committee.total.eta)
    assert gbcm.ledger[0].at == "running"
    with pytest.raises(InvalidOption, match="this model linearises at the running belief"):
        gbcm.forget([gbcm.ledger[0].key])


def test_partitions_are_linearised_in_groups_of_a_tenth_of_those_before(unlisted, tmp_path, monkeypatch):
    gbcm = GBCM.prepare(unlisted, settings(linearise="running"), model=tmp_path / "model")
    parts, groups = partitions(open_data(unlisted), 8), []
    computed = Snapshot.messages_of
    monkeypatch.setattr(
        Snapshot,
        "messages_of",
        lambda self, task, some, *args, **how: groups.append(len(some)) or computed(self, task, some, *args, **how),
    )
    once = gbcm.absorb(parts)
    assert sum(groups) == len(parts) == len(once.ledger) == 29
    assert groups == [1] * 20 + [2] * 4 + [1]
    again = GBCM.prepare(unlisted, settings(linearise="running"), model=tmp_path / "again").absorb(parts[:12])
    np.testing.assert_allclose(again.absorb(parts[12:]).committee.total.eta, once.committee.total.eta, rtol=1e-10)


@pytest.fixture
def unlisted(tmp_path, rng):
    """A data set without a manifest, whose chunks the survey of a fit writes down; its path."""
    group = zarr.open_group(tmp_path / "unlisted.zarr", mode="w")
    X = rng.uniform(-2, 2, (240, 2))
    group.create_array("X", data=X, chunks=(50, 2))
    group.create_array("y", data=np.where(np.sin(2 * X[:, 0]) > 0, 2, 1), chunks=(50,))
    return str(tmp_path / "unlisted.zarr")


def test_what_was_surveyed_is_read_once_however_many_partitions_are_heard(unlisted, tmp_path, monkeypatch):
    read = []
    for name in ("get_segment", "get_array"):
        own = getattr(ModelStore, name)
        monkeypatch.setattr(ModelStore, name, lambda store, digest, own=own: read.append(digest) or own(store, digest))
    gbcm = GBCM.prepare(unlisted, settings(linearise="running"), model=tmp_path / "model")
    parts, facts = partitions(open_data(unlisted), 8), gbcm.snapshot.facts
    assert facts.survey.chunks is not None
    del read[:]
    absorbed = gbcm.absorb(parts)
    assert len(absorbed.ledger) == len(parts) > 20
    assert (read.count(facts.survey.surveyed), read.count(facts.survey.chunks)) == (1, 1)


def test_rows_that_change_while_they_are_heard_in_turn_are_noticed(unlisted, tmp_path):
    gbcm = GBCM.prepare(unlisted, settings(linearise="running"), model=tmp_path / "model")
    zarr.open_group(unlisted)["y"][100:] = 1
    with pytest.raises(DataChanged, match=r"expected the rows that were surveyed .* from key y/c/"):
        gbcm.absorb(partitions(open_data(unlisted), gbcm.snapshot.facts.survey.rows_per_expert))


# --- Expectation propagation behind the same interface ---


@pytest.mark.slow
def test_ep_passes_by_the_facade(classes, tmp_path):
    path, X, _ = classes
    laplace = GBCM.fit(path, settings(passes="auto"), model=tmp_path / "laplace")
    ep = GBCM.fit(path, settings(passes="auto", approximation="ep"), model=tmp_path / "ep")
    changes = [entry["change"] for entry in ep.facts["passes"][1:]]
    assert changes[-1] <= 1e-3
    gap = np.abs(ep.predict(X)["probability"] - laplace.predict(X)["probability"]).max()
    assert 1e-4 < gap < 0.1  # another approximation of the same posterior


def test_ep_first_passes_add_and_subtract(classes, tmp_path):
    path, *_ = classes
    gbcm = GBCM.fit(path, settings(approximation="ep"), model=tmp_path / "model")
    key = gbcm.ledger[0].key
    part = gbcm.reweight({key: 2.0}).reweight({key: 1.0})
    np.testing.assert_allclose(part.committee.total.precision, gbcm.committee.total.precision, atol=1e-9)
    less = part.forget([key])
    again = less.partial_fit(path)
    np.testing.assert_allclose(again.committee.total.precision, gbcm.committee.total.precision, atol=1e-6)


def test_ep_is_refused_where_it_does_not_apply():
    with pytest.raises(InvalidOption, match="approximation: expected laplace with softmax, got ep"):
        Settings(partition="chunks", likelihood="softmax", approximation="ep")
