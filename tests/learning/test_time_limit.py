"""The time of a search: what is cut short is noted, and what remains is a model."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.api.advice import of_time
from bcmdist.learning import prepare, time_limit
from bcmdist.learning.time_limit import SECONDS, TimeLimit

SHORT = Settings(kernel="auto", query=20, rows_per_expert=60, effort="quick", seconds=1e-3)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(time_limit.time, "monotonic", lambda: now.seconds)
    return now


def test_a_step_ends_with_its_share_of_the_time(clock):
    limit = TimeLimit(10.0, clock.seconds)
    limit.begin("first", 0.4)
    clock.seconds = 103.9
    assert not limit.passed()
    assert limit.to_json() is None
    clock.seconds = 104.0
    assert limit.passed()
    limit.begin("second", 0.5)
    assert not limit.passed()
    assert limit.to_json() == {"seconds": 10.0, "steps": ["first"], "gain_per_second": None}


def test_a_climb_ends_with_its_gain_a_second(clock):
    limit = TimeLimit(10.0, clock.seconds)
    limit.begin("climb", 1.0)
    callback = limit.stop_when_passed()
    for seconds, loss in ((101.0, 50.0), (105.0, 30.0)):
        clock.seconds = seconds
        callback(SimpleNamespace(fun=loss))
    clock.seconds = 110.0
    with pytest.raises(StopIteration):
        callback(SimpleNamespace(fun=21.0))
    assert limit.gain_per_second == pytest.approx(29.0 / 9.0, rel=1e-15)  # of one division


@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_a_search_without_time_gives_a_model_and_says_what_it_left_out(wave, tmp_path, partition):
    """Nothing but single evaluations of the starts is made: the same on every machine."""
    path, X, *_ = wave
    one, two = (GBCM.fit(path, replace(SHORT, partition=partition), model=tmp_path / name) for name in "ab")
    cut = one.predictive.snapshot.facts.learning.unfinished
    steps = {"first lengthscales", "a lengthscale for each input", "other kernels", "sums of kernels", "further rounds"}
    assert set(cut.steps) == steps | ({"choice by rows left out"} if partition == "spatial" else set())
    assert cut.gain_per_second is None
    assert "learning ended after its 0.001 s" in of_time(one.predictive.snapshot)
    a, b = (model.predict(X) for model in (one, two))
    np.testing.assert_array_equal(a["mean"], b["mean"])
    assert np.isfinite(a["variance"]).all()


def test_a_search_within_its_time_is_that_without_limit(wave, tmp_path):
    """And leaves no record; the limits of efforts are those of the help."""
    path, X, *_ = wave
    settings = replace(SHORT, kernel="se", seconds=3600.0)
    limited, free = (
        GBCM.fit(path, one, model=tmp_path / name)
        for name, one in (("a", settings), ("b", replace(settings, effort="quick", seconds=None)))
    )
    assert limited.predictive.snapshot.facts.learning.unfinished is None
    assert of_time(limited.predictive.snapshot) is None
    np.testing.assert_array_equal(limited.predict(X)["mean"], free.predict(X)["mean"])
    assert (SECONDS["quick"], SECONDS["normal"]) == (10.0, 60.0)


def test_the_evidence_of_the_committee_keeps_the_time(wave, tmp_path):
    fitted = GBCM.fit(wave[0], replace(SHORT, kernel="se", expert="fitc"), model=tmp_path / "model")
    assert fitted.predictive.snapshot.facts.learning.unfinished.steps[-1] == "evidence of the committee"


@pytest.mark.parametrize(("objective", "some"), [(None, [0, -1]), ("committee", slice(None))])
def test_many_rows_are_represented_by_evenly_spread_partitions(wave, tmp_path, monkeypatch, objective, some):
    """By default; all of them where the evidence of the whole committee is asked for."""
    seen = []

    def record(case, shared, kernel_name, likelihood, context, log):
        seen.append([[part.start for part in parts] for parts in (context.parts, case.parts)])
        return shared, likelihood

    monkeypatch.setattr(prepare, "refined_by_evidence", record)
    monkeypatch.setattr(prepare, "REFINED_ROWS", 100)
    settings = replace(SHORT, kernel="se", expert="fitc", objective=objective, rows_per_expert=50)
    GBCM.prepare(wave[0], settings, model=tmp_path / "model")
    ((starts, every),) = seen
    assert len(every) > 2
    assert starts == np.array(every)[some].tolist()
