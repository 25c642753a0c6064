"""Relevance vectors of several classes: as many models of two classes as there are classes, in one directory."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from scipy.special import expit
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import unweighted
from bcmdist.data.partition import partitions
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidOption, ModelDamaged
from bcmdist.methods.relevance.dictionaries import Dictionaries
from bcmdist.methods.relevance.method import OneVersusAll
from bcmdist.model.likelihoods import logistic_average
from oracles import central_differences
from problems import assert_same_committee

GIVEN = {"kernel.lengthscale": 0.8}
SETTINGS = Settings(
    expert="rvm",
    kernel="se",
    task="classification",
    learn=False,
    set=GIVEN,
    query=90,
    rows_per_expert=50,
    passes="auto",
)
LEARNED = replace(SETTINGS, learn=True, set={}, query=None, effort="quick")


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: where rounding differs, what is learned does too, within what learning leaves open."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def three(make_data, rng):
    """Three classes, labelled 2, 5 and 9, one of them around the others, sorted by label: path, X (180, 2), y."""
    X = rng.uniform(-2, 2, (180, 2))
    side = np.where(X[:, 0] + 0.2 * rng.standard_normal(180) > 0, 5, 2)
    y = np.where((X**2).sum(axis=1) + 0.3 * rng.standard_normal(180) > 3.0, 9, side)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    assert (np.diff(y) >= 0).all()
    assert len(np.unique(y)) == 3
    return make_data("three.zarr", X=X, y=y), X, y


@pytest.fixture
def fitted(three, tmp_path):
    return GBCM.fit(three[0], SETTINGS, model=tmp_path / "model")


def columns(gbcm, X, c):
    """Of the functions of a class times their prior scales, and of the mean."""
    arrays, _ = gbcm.model.to_arrays()
    Z = (X - arrays["x_mean"]) / arrays["x_scale"]
    gaps = (Z[:, None] - arrays["class_centres"][c]) / arrays["class_lengthscale"]
    bumps = np.exp(-0.5 * (gaps**2).sum(axis=2)) * arrays["class_scale"][c]
    return np.hstack([bumps, gbcm.model.shared.mean.design(Z)])


def test_each_class_is_a_logit_regression_of_its_own(fitted, three, rng):
    """At the mode of weights N(0, 1) of its columns, with the curvature there; probabilities add to 1."""
    _, X, y = three
    gbcm, new = fitted.refine(tolerance=1e-9), rng.uniform(-3, 3, (30, 2))
    found, each, degrees = gbcm.predict(new), [], []
    for c, label in enumerate([2, 5, 9]):
        V, Vs, target = columns(gbcm, X, c), columns(gbcm, new, c), (y == label) * 1.0
        v = gbcm.committee.posterior.mean[c]
        p = expit(V @ v)
        np.testing.assert_allclose(V.T @ (target - p), v, atol=1e-6)
        Sigma = np.linalg.inv(V.T @ ((p * (1 - p))[:, None] * V) + np.eye(V.shape[1]))
        degrees.append(len(Sigma) - np.trace(Sigma))
        variance = np.einsum("ij,jk,ik->i", Vs, Sigma, Vs)
        np.testing.assert_allclose(found["mean"][:, c], Vs @ v, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found["variance"][:, c], variance, rtol=1e-6)
        each.append(logistic_average(Vs @ v, variance))
    expected = np.column_stack(each) / np.sum(each, axis=0)[:, None]
    np.testing.assert_allclose(found["probability"], expected, rtol=1e-6)
    np.testing.assert_allclose(found["probability"].sum(axis=1), 1.0, rtol=1e-12)
    assert set(found["label"]) <= {2, 5, 9}
    seen = gbcm.effective_parameters()  # all that the rows say is seen through the weights
    assert seen["data"] == pytest.approx(np.mean(degrees), rel=1e-6)
    assert seen["query"] == pytest.approx(np.mean(degrees), rel=1e-6)


@pytest.mark.slow
def test_each_class_keeps_what_a_model_of_two_classes_keeps(fitted, three, make_data):
    """The same sample and the same kernel: the relevance vectors of a class are those of its own model."""
    _, X, y = three
    vectors = fitted.info()["relevance_vectors"]
    for c, label in enumerate([2, 5, 9]):
        alone = make_data(f"alone{label}.zarr", X=X, y=(y == label) * 1)
        info = GBCM.fit(alone, replace(SETTINGS, task=None)).info()["relevance_vectors"]
        assert vectors["rows"][c] == info["rows"]
        assert vectors["number"][c] == info["number"]
        np.testing.assert_allclose(vectors["weights"][c], info["weights"], rtol=1e-2)  # of passes to 1e-3


def test_classes_are_told_apart(fitted, three, rng):
    path, _, _ = three
    new = rng.uniform(-2, 2, (500, 2))
    truth = np.where((new**2).sum(axis=1) > 3.0, 9, np.where(new[:, 0] > 0, 5, 2))
    assert np.mean(fitted.predict(new)["label"] == truth) > 0.85
    score, info = fitted.score(path), fitted.info()
    assert score["log_loss"] < 0.6
    assert info["likelihood"] == "one_against_rest"
    assert list(info["classes"]) == [2, 5, 9]
    vectors = json.loads(json.dumps(info))["relevance_vectors"]
    assert len(vectors["number"]) == len(vectors["rows"]) == len(vectors["weights"]) == 3
    assert [len(rows) for rows in vectors["rows"]] == [len(one) for one in vectors["weights"]] == vectors["number"]
    assert max(vectors["number"]) == info["query"] < 40
    assert "basis functions of a class, which the evidence prefers to all 90, suffice for" in info["advice"]


@pytest.mark.slow
def test_a_cluster_gives_the_same(three, fitted, cluster, tmp_path):
    path, X, _ = three
    other = GBCM.fit(path, SETTINGS, model=tmp_path / "cluster", runtime=cluster)
    assert other.info()["relevance_vectors"]["rows"] == fitted.info()["relevance_vectors"]["rows"]
    np.testing.assert_allclose(other.predict(X)["probability"], fitted.predict(X)["probability"], atol=1e-4)
    other.predict_zarr(path, tmp_path / "p.zarr", runtime=cluster)
    written = zarr.open_group(tmp_path / "p.zarr", mode="r")
    np.testing.assert_allclose(written["probability"][:], fitted.predict(X)["probability"], atol=1e-4)
    assert written["class"][:].tolist() == [2, 5, 9]


@pytest.mark.slow
def test_rows_come_and_go_exactly(three, make_data, rng, tmp_path):
    mixed = rng.permutation(180)
    path = make_data("mixed.zarr", X=three[1][mixed], y=three[2][mixed])
    GBCM.prepare(path, replace(SETTINGS, passes="1"), model=tmp_path / "prepared")

    def only(keep, name):
        shutil.copytree(tmp_path / "prepared", tmp_path / name)
        return GBCM.load(tmp_path / name).absorb([partitions(open_data(path), 50)[k] for k in keep])

    whole, first, rest = only([0, 1, 2, 3], "whole"), only([0, 2], "first"), only([1, 3], "rest")
    assert_same_committee(first.merge(rest, tmp_path / "both").committee, whole.committee)
    gone = [entry.key for entry in whole.ledger if "[50:" in entry.key or "[150:" in entry.key]
    assert len(gone) == 2
    assert_same_committee(whole.forget(gone).committee, first.committee)


@pytest.mark.slow
def test_a_class_of_a_few_rows_among_sure_ones(make_data, rng):
    """Classes that do not overlap, and a few rows among them that are of another one."""
    X = np.vstack([rng.normal(4 * c, 0.3, (40, 3)) for c in range(3)] + [rng.normal(4, 0.3, (3, 3))])
    y = np.repeat([0, 1, 2, 3], [40, 40, 40, 3])
    gbcm = GBCM.fit(make_data("sure.zarr", X=X, y=y), SETTINGS)
    found = gbcm.predict(X)
    assert np.mean(found["label"][:120] == y[:120]) > 0.97
    assert np.all(np.isfinite(found["probability"]))


@pytest.mark.slow
def test_weights_stand_still_where_whole_steps_turn_back(real_data):
    """Of the last class of glass against the rest: steps that are never shortened end with all 200 functions."""
    data = np.load(real_data("glass"))
    own = (data["y"] == np.unique(data["y"])[-1]) * 1
    gbcm = GBCM.fit((data["X"], own), replace(SETTINGS, task=None, query=200, set={"kernel.lengthscale": 1.5}))
    assert gbcm.info()["relevance_vectors"]["number"] < 20
    assert np.mean(gbcm.predict(data["X"])["label"] == own) > 0.97


@pytest.mark.slow
def test_other_forms(three):
    gbcm = GBCM.fit(three[0], replace(SETTINGS, rvm_classes="cavity", rows_per_expert=180))
    assert gbcm.score(three[0])["accuracy"] > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wine", "new_thyroid"])
def test_real_classes(real_data, name, tmp_path):
    data = np.load(real_data(name))
    test = np.arange(len(data["y"])) % 3 == 0
    order = np.argsort(data["y"][~test], kind="stable")
    write_dataset(tmp_path / "a.zarr", {"X": data["X"][~test][order], "y": data["y"][~test][order]}, rows_per_chunk=50)
    write_dataset(tmp_path / "t.zarr", {"X": data["X"][test], "y": data["y"][test]}, rows_per_chunk=50)
    gbcm = GBCM.fit(tmp_path / "a.zarr", LEARNED)
    score = gbcm.score(tmp_path / "t.zarr")
    assert score["accuracy"] > 0.9
    assert score["log_loss"] < 0.3
    assert max(gbcm.info()["relevance_vectors"]["number"]) < 30


# --- The likelihood ---


def test_derivatives(rng):
    likelihood, obs, f = OneVersusAll(3), unweighted(rng.integers(0, 3, 5) * 1.0), rng.standard_normal((5, 3))
    obs = replace(obs, weight=rng.uniform(0.5, 2.0, 5))

    def total(flat):
        return likelihood.log_density(obs, flat.reshape(5, 3)).sum()

    def slope(flat):
        return likelihood.score(obs, flat.reshape(5, 3)).sum()

    np.testing.assert_allclose(likelihood.score(obs, f).ravel(), central_differences(total, f.ravel()), atol=1e-8)
    np.testing.assert_allclose(-likelihood.curvature(obs, f).ravel(), central_differences(slope, f.ravel()), atol=1e-8)


def test_probabilities_where_no_class_is_likely():
    p = OneVersusAll(3).class_probability(np.array([[-600.0, -601.0, -602.0]]), np.full((1, 3), 1e-3))
    assert np.all(np.isfinite(p))
    assert p.argmax() == 0


@pytest.mark.slow
def test_it_is_for_relevance_vectors_only(three):
    with pytest.raises(InvalidOption, match="expected the expert rvm with one_against_rest, got bcm; give"):
        Settings(likelihood="one_against_rest")
    with pytest.raises(InvalidOption, match="approximation: expected laplace with one_against_rest, got ep"):
        replace(SETTINGS, likelihood="one_against_rest", approximation="ep")
    with pytest.raises(InvalidOption, match="linearise: expected own with one_against_rest, got running"):
        replace(SETTINGS, likelihood="one_against_rest", linearise="running", passes=None)
    with pytest.raises(InvalidOption, match="got the expert rvm with one_against_rest; use --method committee"):
        GBCM.prepare(three[0], SETTINGS).predict(np.zeros((1, 2)), method="augmented")


def test_joint_predictions_are_of_one_process(fitted):
    with pytest.raises(InvalidOption, match="joint prediction: expected one latent process, got 3 of one_against_rest"):
        fitted.predict_joint(np.zeros((2, 2)))


def test_arrays_that_are_not_of_it_are_refused(fitted):
    arrays, facts = fitted.model.shared.to_arrays()
    for name, wrong in [
        ("class_centres", np.zeros((3, 1, 2))),
        ("class_scale", np.zeros(3)),
        ("class_lengthscale", np.zeros(2)),
    ]:
        with pytest.raises(ModelDamaged, match=name):
            Dictionaries.check_arrays(arrays | {name: wrong}, facts, 2, "here")
    with pytest.raises(ModelDamaged, match="an array class_rows"):
        Dictionaries.check_arrays({name: arrays[name] for name in arrays if name != "class_rows"}, facts, 2, "here")
    with pytest.raises(ModelDamaged, match="scales of at least 0"):
        replace(fitted.model.shared, scale=-fitted.model.shared.scale).check("here")


@pytest.mark.slow
def test_the_command_line(three, tmp_path):
    model, common = str(tmp_path / "m"), ["--serial", "--json"]
    fit = ["fit", three[0], "--model", model, "--expert", "rvm", "--task", "classification", "--query", "40"]
    done = CliRunner().invoke(cli, [*fit, "--effort", "quick", "--rows-per-expert", "60", *common])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["relevance_vectors"]["number"]) == 3
    for command in (["score", model, three[0], *common], ["info", model, "--json"], ["info", model]):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0, done.output
