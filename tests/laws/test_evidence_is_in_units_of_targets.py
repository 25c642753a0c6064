"""The log evidence that is reported is of targets in their own unit, whatever was absorbed, forgotten or weighed."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from bcmdist import GBCM, Settings
from bcmdist.committee.passes import log_evidence
from bcmdist.storage.entry import Entry

GIVEN = Settings(kernel="se", mean="zero", learn=False, query=20, rows_per_expert=40)


def fit(make_data, name, *, likelihood="gaussian", task=None, passes="1", **columns):
    from dataclasses import replace

    path = make_data(name, rows_per_chunk=40, **columns)
    return GBCM.fit(path, replace(GIVEN, likelihood=likelihood, passes=passes))


@pytest.fixture
def rows(rng):
    X = rng.uniform(-2, 2, (120, 2))
    return X, np.exp(np.sin(X[:, 0]) + 0.3 * rng.standard_normal(120))


def test_of_one_partition_it_is_that_of_the_targets(make_data, rng):
    X = rng.uniform(-2, 2, (30, 2))
    y = 200.0 + 50.0 * rng.standard_normal(30)
    weight = rng.uniform(0.5, 3.0, 30)
    gbcm = fit(make_data, "one.zarr", X=X, y=y, weight=weight)
    scaled, kernel = gbcm.model.scaling.inputs(X), gbcm.model.query.kernel
    noise = np.diag(gbcm.model.likelihood.noise_variance / weight)
    covariance = gbcm.model.scaling.y_scale**2 * (kernel.cross(scaled, scaled) + noise)
    exact = multivariate_normal(np.full(30, gbcm.model.scaling.y_mean), covariance).logpdf(y)
    assert gbcm.info()["log_evidence"] == pytest.approx(exact, rel=1e-9)


UNITS = ["gaussian", "student_t", "gamma", "inverse_gaussian", "weibull"]


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", UNITS)
@pytest.mark.parametrize("passes", ["1", "auto"])
def test_a_larger_unit_costs_its_log_for_each_density(make_data, rows, rng, likelihood, passes):
    X, y = rows
    weight, event = rng.uniform(0.5, 3.0, 120), (rng.random(120) < 0.7) * 1.0
    more = {"weight": weight} | ({"event": event} if likelihood == "weibull" else {})
    shift = 3.0 if likelihood in ("gaussian", "student_t") else 0.0
    one = fit(make_data, "one.zarr", likelihood=likelihood, passes=passes, X=X, y=y, **more)
    ten = fit(make_data, "ten.zarr", likelihood=likelihood, passes=passes, X=X, y=10.0 * y + shift, **more)
    densities = {"gaussian": 120.0, "weibull": weight @ event}.get(likelihood, weight.sum())
    gap = ten.info()["log_evidence"] - one.info()["log_evidence"]
    assert gap == pytest.approx(-densities * np.log(10.0), rel=1e-6)
    if passes == "auto" and likelihood != "gaussian":
        assert one.info()["passes"][-1]["log_evidence"] == one.info()["log_evidence"]


@pytest.mark.slow
def test_families_are_compared_in_one_unit(make_data, rows):
    """Right-skewed targets of a large unit: of scaled targets, whose mean is 1 or whose deviation is, all was mixed."""
    X, y = rows
    told = [fit(make_data, f"{n}.zarr", likelihood=n, X=X, y=y).info()["log_evidence"] for n in ("gamma", "gaussian")]
    other = [
        fit(make_data, f"{n}-3.zarr", likelihood=n, X=X, y=1e3 * y).info()["log_evidence"]
        for n in ("gamma", "gaussian")
    ]
    assert other[0] - other[1] == pytest.approx(told[0] - told[1], abs=1e-6)


@pytest.mark.slow
def test_it_follows_what_is_heard_weighed_and_forgotten(make_data, rows, rng):
    X, y = rows
    columns = {"X": X, "y": 100.0 * y, "event": (rng.random(120) < 0.7) * 1.0}
    gbcm = fit(make_data, "all.zarr", likelihood="weibull", **columns)
    keys, whole = [entry.key for entry in gbcm.ledger], gbcm.info()["log_evidence"]
    back = gbcm.reweight({keys[0]: 2.0}).reweight({keys[0]: 1.0})
    assert back.info()["log_evidence"] == pytest.approx(whole, rel=1e-9)
    double = gbcm.reweight({keys[0]: 2.0})
    events = columns["event"][:40].sum()
    scaled = double.committee.log_evidence - gbcm.committee.log_evidence
    gap = double.info()["log_evidence"] - whole
    assert gap == pytest.approx(scaled - events * np.log(gbcm.model.scaling.y_scale), rel=1e-9)
    gbcm = gbcm.newest().reweight({keys[0]: 1.0}).forget([keys[0]])
    left = gbcm.info()["log_evidence"] - gbcm.committee.log_evidence
    assert left == pytest.approx(-columns["event"][40:].sum() * np.log(gbcm.model.scaling.y_scale), rel=1e-9)


@pytest.mark.slow
def test_a_ledger_that_does_not_count_densities(make_data, rows):
    """As models of before have them: rows of Gaussian targets are one each, of others nobody knows."""
    X, y = rows
    for likelihood in ("gaussian", "gamma"):
        gbcm = fit(make_data, f"{likelihood}.zarr", likelihood=likelihood, X=X, y=y)
        old = [Entry(e.key, e.digest, e.rows) for e in gbcm.ledger]
        told = log_evidence(gbcm.model, gbcm.snapshot.facts, old, gbcm.committee)
        assert told == (gbcm.info()["log_evidence"] if likelihood == "gaussian" else None)
