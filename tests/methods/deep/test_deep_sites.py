"""Sites of the expert of deep Gaussian processes: whatever partitions and runtimes, interrupted, and refused."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.api.plan.plan import plan
from bcmdist.errors import InvalidOption
from bcmdist.methods.deep import adam, propagation, training
from oracles import fitc

ASKED = Settings(expert="dgp", units=2, query=10, rows_per_expert=50, effort="quick")
UNTRAINED = replace(ASKED, learn=False, set={"kernel.lengthscale": 0.7, "likelihood.noise_variance": 0.05})
WAYS = ["shared", "partition", "row"]


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: where rounding differs, what is learned does too, within what learning leaves open."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def briefly(monkeypatch):
    """A few iterations and sweeps are enough to compare."""
    monkeypatch.setattr(adam, "ROUND", 4)
    monkeypatch.setitem(adam.STEPS, "quick", 8)
    monkeypatch.setitem(propagation.SWEEPS, "quick", 3)


def layers_of(gbcm):
    """All numbers of layers that are in a model, by name."""
    return gbcm.model.shared.to_arrays()[0]


def assert_same_layers(one, other, rtol):
    for name, array in layers_of(one).items():
        np.testing.assert_allclose(layers_of(other)[name], array, rtol=rtol, atol=rtol * np.abs(array).max())


def told(gbcm):
    return gbcm.info()["deep"]["sites"]


def test_sites_of_one_layer_come_to_the_evidence_of_fitc(wave, monkeypatch):
    """From layers with the posterior of all rows, as training leaves them, where only sites have a way to go."""
    swept_on = training.swept_on

    def from_the_posterior(objective, at, held, way):
        return swept_on(objective, replace(at, shared=objective.absorbed(at.shared)), held, way)

    monkeypatch.setattr(training, "swept_on", from_the_posterior)
    monkeypatch.setitem(propagation.SWEEPS, "quick", 60)
    gbcm = GBCM.fit(wave[0], replace(UNTRAINED, layers=1, units=None, deep_sites="row"))
    X, y = gbcm.model.scaling.inputs(wave[1]), (wave[2] - wave[2].mean()) / wave[2].std()
    value, eta, precision = fitc(gbcm.model.shared.layers[0], X, y, 1.0)
    (found,) = told(gbcm)
    assert found["sweeps"] > 3
    assert found["moved"] <= propagation.TOLERANCE
    assert found["energy"] == pytest.approx(value, abs=0.01 * abs(value))
    posterior = np.linalg.solve(np.eye(len(eta)) + precision, eta)
    np.testing.assert_allclose(gbcm.committee.posterior.mean, posterior, atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_sweeps_raise_the_energy_that_layers_begin_with(wave, monkeypatch, way):
    asked, energies, swept_on = replace(UNTRAINED, deep_sites=way), [], training.swept_on

    def from_the_beginning(objective, at, held, way):
        energies.append(objective(at.shared.layers).value)
        return swept_on(objective, at, held, way)

    monkeypatch.setattr(training, "swept_on", from_the_beginning)
    for count in (1, 6):
        monkeypatch.setitem(propagation.SWEEPS, "quick", count)
        energies.clear()
        (found,) = told(GBCM.fit(wave[0], asked))
        assert found["sweeps"] == count
        energies.append(found["energy"])
    assert energies[0] < energies[1]


@pytest.mark.slow
def test_sites_of_rows_are_the_same_whatever_partitions(wave, monkeypatch):
    """From the same layers: those that are begun with are drawn in the order of partitions."""
    begun, swept_on = [], training.swept_on

    def from_the_first(objective, at, held, way):
        begun.append(at)
        return swept_on(objective, begun[0], held, way)

    monkeypatch.setitem(propagation.SWEEPS, "quick", 3)
    monkeypatch.setattr(training, "swept_on", from_the_first)
    one, other = (GBCM.fit(wave[0], replace(UNTRAINED, deep_sites="row", rows_per_expert=rows)) for rows in (50, 17))
    # Units of columns are sums in another order, too; of sixteen digits the jitter of 1e-6 leaves some ten.
    assert_same_layers(one, other, 1e-9)
    assert told(one)[0]["energy"] == pytest.approx(told(other)[0]["energy"], rel=1e-9)


def test_partitions_that_are_rows_are_rows(wave, monkeypatch):
    """And one partition of all rows is one group."""
    monkeypatch.setitem(propagation.SWEEPS, "quick", 2)
    X, y = wave[1][:30], wave[2][:30]
    for rows, way in ((1, "row"), (30, "shared")):
        asked = replace(UNTRAINED, rows_per_expert=rows)
        one, other = (GBCM.fit((X, y), replace(asked, deep_sites=each)) for each in ("partition", way))
        assert_same_layers(one, other, 1e-10)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_sweeps_that_were_cut_off_go_on(wave, tmp_path, monkeypatch, way):
    """From the last one that was finished, to the same layers."""
    monkeypatch.setitem(propagation.SWEEPS, "quick", 4)
    asked, after, calls = replace(UNTRAINED, deep_sites=way), propagation.Sweeps.after, []
    whole = GBCM.fit(wave[0], asked)

    def cut(self, at):
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(at.sweeps)
        return after(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(propagation.Sweeps, "after", cut)
        with pytest.raises(KeyboardInterrupt):
            GBCM.fit(wave[0], asked, model=tmp_path / "model")

    def counted(self, at):
        calls.append(at.sweeps)
        return after(self, at)

    monkeypatch.setattr(propagation.Sweeps, "after", counted)
    again = GBCM.fit(wave[0], asked, model=tmp_path / "model")
    assert calls == [0, 1, 2, 3]
    assert_same_layers(whole, again, 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_cluster_sweeps_to_the_same_layers(wave, cluster, briefly, way):
    asked = replace(ASKED, deep_sites=way)
    one, other = GBCM.fit(wave[0], asked), GBCM.fit(wave[0], asked, runtime=cluster)
    new = wave[1][:9]
    np.testing.assert_allclose(other.predict(new)["mean"], one.predict(new)["mean"], rtol=1e-10)
    deep = one.info()["deep"]
    assert [found["sweeps"] for found in deep["sites"]] == [3, 3]  # of each power
    assert all(np.isfinite(found["density_tied"]) for found in deep["sites"])


@pytest.mark.slow
def test_classes_have_sites(wave, monkeypatch):
    """By the passes of all experts after them."""
    monkeypatch.setitem(propagation.SWEEPS, "quick", 4)
    X, y = wave[1], (wave[1].prod(axis=1) > 0) * 1.0
    asked = Settings(
        expert="dgp", query=12, rows_per_expert=50, effort="quick", task="classification", likelihood="probit",
        learn=False, set={"kernel.lengthscale": 0.7}, deep_sites="row",
    )  # fmt: skip
    swept = GBCM.fit((X, y), asked)
    assert told(swept)[0]["sweeps"] == 4
    assert np.isfinite(swept.predict(X)["probability"]).all()


@pytest.mark.slow
def test_sweeps_are_planned(wave):
    """Of rows as the longest, and where nothing is learned too."""

    def seconds(asked, way):
        return plan(wave[0], replace(asked, deep_sites=way)).to_json()["projected_seconds"].get("train", 0.0)

    assert seconds(ASKED, "tied") < seconds(ASKED, "shared") < seconds(ASKED, "row")
    assert 0.0 == seconds(UNTRAINED, "tied") < seconds(UNTRAINED, "row")


# --- What is refused ---

REFUSED = [
    ({"expert": "fitc", "deep_sites": "row"}, "deep_sites: expected the expert dgp with it, got fitc; leave it out"),
    ({"deep_sites": "rows"}, "deep_sites: expected one of tied, shared, partition, row, got 'rows'"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_has_no_sites_is_refused_at_once(settings, message):
    with pytest.raises(InvalidOption, match=message):
        replace(ASKED, **({"units": None} | settings))


@pytest.mark.parametrize("query", [10, "auto"])
def test_factors_of_too_many_rows_are_refused(wave, tmp_path, monkeypatch, query):
    """Before anything is done, or once the number of centres is known."""
    monkeypatch.setattr(propagation, "MOST_NUMBERS", 195 * 200)
    message = (
        "expected at most 200 rows with row, of which each has a factor of 195 numbers, got 240; give --deep-sites"
    )
    if query == "auto":
        message = "expected at most .* rows with row, of which each has a factor of"
    with pytest.raises(InvalidOption, match=message):
        GBCM.fit(wave[0], replace(UNTRAINED, deep_sites="row", query=query), model=tmp_path / "model")
    assert query == "auto" or not (tmp_path / "model").exists()
