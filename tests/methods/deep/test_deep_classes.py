"""Deep Gaussian processes of more than two classes, of each of which the last layer has a process."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidOption, UnsupportedTarget
from bcmdist.methods.deep import adam
from bcmdist.methods.deep.classes import log_averages
from bcmdist.methods.deep.rows import through
from problems import assert_refused_as_changed, assert_same_committee

ASKED = Settings(expert="dgp", task="classification", units=2, query=15, rows_per_expert=60, effort="quick")
UNTRAINED = replace(ASKED, learn=False, set={"kernel.lengthscale": 0.7})
LABELS = np.array([2, 5, 9])


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: where rounding differs, what is learned does too, within what learning leaves open."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def briefly(monkeypatch):
    """A few iterations are enough to compare."""
    monkeypatch.setattr(adam, "ROUND", 4)
    monkeypatch.setitem(adam.STEPS, "quick", 8)


def ring(X):
    """Which of three rings around 0 rows are in: no plane parts any two of them."""
    return LABELS[np.digitize(np.hypot(*X.T), [0.45, 0.8])]


@pytest.fixture(scope="module")
def rings(tmp_path_factory):
    """Path of 240 weighted rows, of which one in twenty has any label; X and y."""
    rng = np.random.default_rng(3)
    X, weight = rng.uniform(-1, 1, (240, 2)), rng.uniform(0.5, 2.0, 240)
    y = np.where(rng.uniform(size=240) < 0.05, LABELS[rng.integers(0, 3, 240)], ring(X))
    assert set(y) == set(LABELS)
    path = str(tmp_path_factory.mktemp("rings") / "data.zarr")
    write_dataset(path, {"X": X, "y": y, "weight": weight}, rows_per_chunk=60)
    return path, X, y


@pytest.fixture(scope="module")
def classifier(rings, tmp_path_factory):
    """A round of each power is enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adam, "ROUND", 20)
        patch.setitem(adam.STEPS, "quick", 40)
        return GBCM.fit(rings[0], ASKED, model=tmp_path_factory.mktemp("trained") / "model")


def test_classes_that_no_plane_parts_are_learned(classifier, rng):
    new = rng.uniform(-1, 1, (400, 2))
    found = classifier.predict(new)
    assert found["probability"].shape == (400, 3)
    assert np.mean(found["label"] == ring(new)) > 0.85
    own = found["probability"][np.arange(400), np.searchsorted(LABELS, ring(new))]
    assert np.log(own).mean() > -0.5  # by chance: -1.1
    assert classifier.info()["deep"]["density"] > np.log(1 / 3)


def test_info_says_what_it_is(classifier):
    info = classifier.info()
    assert (info["expert"], info["likelihood"], info["query"]) == ("dgp", "softmax", 15)
    assert list(info["classes"]) == [2, 5, 9]
    assert [(one["units"], one["centres"]) for one in info["layers"]] == [(2, 15), (3, 15)]
    assert (info["deep"]["rows"], info["deep"]["left_out"], info["deep"]["powers"]) == (216, 24, [1.0, 0.5])


def drawn(gbcm, X, draws, rng):
    """Probabilities at a row of scaled inputs, by draws of hidden units, of the last layer and of what that leaves.

    Of f of the mean and the variances that these have, which is taken for normal and its classes for independent.
    """
    first, last = gbcm.model.shared.layers
    belief = gbcm.committee.posterior
    hidden = through([first.stage()], X)[-1]
    h = hidden.mean + np.sqrt(hidden.variance) * rng.standard_normal((draws, first.units))
    scaled = (h[:, None] - last.centres) / np.exp(last.log_lengthscale)
    K = np.exp(last.log_variance - 0.5 * (scaled**2).sum(axis=2))
    b = np.linalg.solve(last.factor, K.T).T
    left = np.maximum(np.exp(last.log_variance) - (b**2).sum(axis=1), 0.0)
    f = np.empty((draws, 3))
    for c, (mean, factor) in enumerate(zip(belief.mean, belief.factor, strict=True)):
        v = mean + np.linalg.solve(factor.T, rng.standard_normal((len(mean), draws))).T
        f[:, c] = (b * v).sum(axis=1) + np.sqrt(left) * rng.standard_normal(draws)
    f = f.mean(axis=0) + f.std(axis=0) * rng.standard_normal(f.shape)
    return softmax(f, axis=1).mean(axis=0)


def test_probabilities_are_those_of_draws(classifier, rng):
    new = rng.uniform(-1, 1, (12, 2))
    found = classifier.predict(new)["probability"]
    expected = [drawn(classifier, row[None], 20_000, rng) for row in classifier.model.scaling.inputs(new)]
    # What centres leave is that of all classes in the mean, with the belief of training in place of the committee's.
    np.testing.assert_allclose(found, expected, atol=0.06)
    assert np.abs(found - expected).mean() < 0.02


def test_committee_believes_what_was_trained(classifier, rings):
    """Sites are where training left the layers, so that rows it has seen are as probable as then."""
    _, X, y = rings
    own = classifier.predict(X)["probability"][np.arange(240), np.searchsorted(LABELS, y)]
    stages = [one.stage() for one in classifier.model.shared.layers]
    rows = through(stages, classifier.model.scaling.inputs(X))[-1]
    trained, _, _ = log_averages(np.searchsorted(LABELS, y) * 1.0, 1.0, rows.mean, rows.variance)
    # Rows that were left out are absorbed too, and no longer a half of what they say (power 1/2).
    assert np.log(own).mean() == pytest.approx(trained.mean(), abs=0.05)


def test_a_stored_model_is_the_same(classifier, rng):
    new = rng.uniform(-1, 1, (9, 2))
    again = GBCM.load(classifier.url)
    for name, value in classifier.predict(new).items():
        np.testing.assert_array_equal(again.predict(new)[name], value)


@pytest.mark.slow
def test_the_cluster_learns_the_same_classes(rings, cluster, rng, briefly):
    one, other = GBCM.fit(rings[0], ASKED), GBCM.fit(rings[0], ASKED, runtime=cluster)
    new = rng.uniform(-1, 1, (9, 2))
    np.testing.assert_allclose(other.predict(new)["probability"], one.predict(new)["probability"], rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{"layers": 1, "units": None}, {"layers": 3}, {"units": 1}])
def test_other_depths(rings, rng, briefly, monkeypatch, asked):
    monkeypatch.setitem(adam.STEPS, "quick", 200)
    gbcm, new = GBCM.fit(rings[0], replace(ASKED, **asked)), rng.uniform(-1, 1, (300, 2))
    found = gbcm.predict(new)
    np.testing.assert_allclose(found["probability"].sum(axis=1), 1.0, rtol=1e-9)
    assert np.mean(found["label"] == ring(new)) > 0.6


def test_estimators_take_them(rings, briefly):
    from bcmdist import GBCMClassifier

    _, X, y = rings
    estimator = GBCMClassifier(expert="dgp", query=15, rows_per_expert=60, effort="quick").fit(X, y)
    assert list(estimator.classes_) == [2, 5, 9]
    assert estimator.predict_proba(X[:5]).shape == (5, 3)


# --- A committee's life: the last layer's messages add ---


@pytest.fixture
def prepared(rings, tmp_path):
    return GBCM.prepare(rings[0], UNTRAINED, model=tmp_path / "prepared"), rings[0]


@pytest.fixture
def fitted(rings, tmp_path):
    return GBCM.fit(rings[0], replace(UNTRAINED, passes="1"), model=tmp_path / "fitted"), rings[0]


def test_hearing_a_source_is_fitting(prepared, fitted):
    gbcm, path = prepared
    absorbed, report = gbcm.ingest(gbcm.source(path))
    assert report.partitions == 4
    assert_same_committee(absorbed.committee, fitted[0].committee)


def test_forgetting_is_never_having_heard(prepared, fitted, tmp_path):
    gbcm, path = fitted
    gone = [entry.key for entry in gbcm.ledger if "[60:" in entry.key]
    assert len(gone) == 1
    after = gbcm.forget(gone)
    parts = partitions(open_data(path), 60)
    absorbed = GBCM.load(shutil.copytree(prepared[0].url, tmp_path / "rest")).absorb([parts[k] for k in (0, 2, 3)])
    assert_same_committee(after.committee, absorbed.committee)
    assert_same_committee(after.absorb(parts).committee, gbcm.committee)


def test_merging_is_hearing_both(prepared, fitted, tmp_path):
    parts = partitions(open_data(prepared[1]), 60)

    def message_task(keep, name):
        return GBCM.load(shutil.copytree(prepared[0].url, tmp_path / name)).absorb([parts[k] for k in keep])

    both = message_task([0, 3], "one").merge(message_task([1, 2], "other"), tmp_path / "both")
    assert_same_committee(both.committee, fitted[0].committee)


# --- What is refused ---

REFUSED = [
    ({"likelihood": "onehot"}, "likelihood: expected gaussian or .* or softmax with .* got onehot; .*--expert bcm"),
    ({"likelihood": "one_against_rest"}, "likelihood: expected the expert rvm with one_against_rest, got dgp"),
    ({"likelihood": "softmax", "approximation": "ep"}, "expected laplace with softmax, got ep|approximation ep: expe"),
    ({"likelihood": "softmax", "objective": "committee"}, "objective: expected local or subset with softmax"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_it_cannot_do_is_refused_at_once(settings, message):
    with pytest.raises(InvalidOption, match=message):
        replace(ASKED, **settings)


def test_targets_that_are_no_labels_are_refused(rng, tmp_path):
    path = tmp_path / "data.zarr"
    write_dataset(str(path), {"X": rng.uniform(-1, 1, (60, 2)), "y": rng.uniform(0, 3, 60)}, rows_per_chunk=60)
    with pytest.raises(UnsupportedTarget, match="whole numbers as class labels in y"):
        GBCM.fit(str(path), ASKED, model=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_class_that_nobody_knew_is_refused(prepared, tmp_path, rng):
    path = tmp_path / "new.zarr"
    write_dataset(str(path), {"X": rng.uniform(-1, 1, (60, 2)), "y": np.full(60, 7)}, rows_per_chunk=60)
    with pytest.raises(UnsupportedTarget, match="expected the classes of the training data"):
        prepared[0].partial_fit(str(path))


DAMAGES = [
    (lambda a: a | {"layer2_mean": a["layer2_mean"][:1].copy()}, r"shape \(3, 15\) in layer2_mean"),
    (lambda a: a | {"layer2_root": a["layer2_root"][:2].copy()}, r"shape \(3, 15, 15\) in layer2_root"),
    (lambda a: {n: v for n, v in a.items() if n != "layer2_mean"}, "expected an array layer2_mean, found none"),
]


@pytest.mark.parametrize(("change", "message"), DAMAGES)
def test_a_model_that_cannot_be_is_refused(prepared, change, message):
    assert_refused_as_changed(prepared[0].model, change, message)
