"""Pictures: each is drawn for each family, needs say so, and axes show what changes."""

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, SerialRuntime, Settings, partitions
from bcmdist.api.pictures import curves, paper, scores
from bcmdist.api.pictures.pictures import PICTURES, subject_of
from bcmdist.api.relevance import lengthscales
from bcmdist.app.cli import plot
from bcmdist.app.cli.main import cli
from bcmdist.data.dataset import open_data
from bcmdist.errors import InvalidOption

pytest.importorskip("matplotlib", reason="pictures: pip install 'bcmdist[plot]'")

QUICK = {"learn": False, "kernel": "se", "query": 20, "rows_per_expert": 60}
WITH_DATA = {name for name, kind in PICTURES.items() if kind.with_data}


def test_the_command_names_every_picture():
    assert tuple(PICTURES) == plot.WHAT


@pytest.fixture
def model(wave):
    """A model of two commits with rows, of which the second was ingested."""
    path, *_ = wave
    kernel = "se(0) + se(1)"  # terms of one column, for effects
    gbcm = GBCM.prepare(path, Settings(**QUICK | {"kernel": kernel})).absorb(partitions(open_data(path), 60)[:2])
    return gbcm.partial_fit(path), path


@pytest.mark.slow
@pytest.mark.parametrize("what", PICTURES)
def test_pictures_of_numbers(what, model, tmp_path):
    gbcm, path = model
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        out = tmp_path / f"a{ending}"
        assert gbcm.plot(out, what=what, data=path) == what
        assert out.read_bytes().startswith(start)
    if what not in WITH_DATA:
        assert gbcm.plot(tmp_path / "b.png", what=what) == what


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("what", ["calibration", "residuals", "relevance", "map"])
def test_pictures_of_classes(what, classes, rng, make_data, tmp_path):
    X = rng.uniform(-2, 2, (240, 2))
    path = make_data(X=X, y=rng.integers(0, classes, 240).astype(np.uint8))
    gbcm = GBCM.fit(path, Settings(**QUICK, task="classification"))
    gbcm.plot(tmp_path / "a.svg", what=what, data=path)
    text = (tmp_path / "a.svg").read_text()
    assert {
        "calibration": "observed share of",
        "residuals": "true class",
        "relevance": "lost when the column is shuffled",
        "map": "X[1]",
    }[what] in text


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_map_of_one_input_is_a_curve(task, rng, make_data, tmp_path):
    X = rng.uniform(-2, 2, (120, 1))
    path = make_data(X=X, y=(np.sin(2 * X[:, 0]) > 0).astype(float))
    gbcm = GBCM.fit(path, Settings(**QUICK, task=task))
    gbcm.plot(tmp_path / "a.svg", what="map", data=path)
    wanted = "95 % of observations" if task == "regression" else "probability"
    assert wanted in (tmp_path / "a.svg").read_text()


def test_names_are_texts_not_formulas(rng, tmp_path):
    pandas = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
    X = pandas.DataFrame(rng.uniform(-2, 2, (120, 2)), columns=["$a_1$", "<script>"])
    gbcm = GBCM.fit((X, np.sin(X["<script>"].to_numpy())), Settings(**QUICK))
    gbcm.plot(tmp_path / "a.svg", what="relevance")
    text = (tmp_path / "a.svg").read_text()
    assert "$a_1$" in text
    assert "&lt;script&gt;" in text
    assert "<script>" not in text


def test_what_a_picture_needs_is_said(model, tmp_path):
    gbcm, path = model
    for what in WITH_DATA:
        with pytest.raises(
            InvalidOption, match=f"--what {what}: expected a data set with targets to draw .*, got none; give"
        ):
            gbcm.plot(tmp_path / "a.png", what=what)
    with pytest.raises(InvalidOption, match=r"--what: expected one of learning, .*, got 'nothing'"):
        gbcm.plot(tmp_path / "a.png", what="nothing")
    with pytest.raises(InvalidOption, match="picture: expected a name that ends in"):
        gbcm.plot(tmp_path / "a.doc")
    once = GBCM.fit(path, Settings(**QUICK))
    with pytest.raises(InvalidOption, match="--what drift: expected a model that has ingested"):
        once.plot(tmp_path / "a.png", what="drift")
    with pytest.raises(InvalidOption, match="--what learning: expected commits that have absorbed different numbers"):
        once.plot(tmp_path / "a.png", what="learning", data=path)
    assert not list(tmp_path.glob("*.png"))


def test_a_model_without_lengthscales_needs_rows(rng, make_data, tmp_path):
    X = rng.uniform(-2, 2, (120, 2))
    path = make_data(X=X, y=X[:, 0])
    gbcm = GBCM.fit(path, Settings(**QUICK | {"kernel": "constant"}))
    with pytest.raises(InvalidOption, match=r"--what relevance: expected a kernel with lengthscales.*--data TEST.zarr"):
        gbcm.plot(tmp_path / "a.png", what="relevance")
    assert gbcm.plot(tmp_path / "a.png", what="relevance", data=path) == "relevance"


def test_the_command(model, tmp_path, monkeypatch):
    gbcm, path = model
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["plot", gbcm.url, "--serial"]).exit_code == 0
    assert (tmp_path / "relevance.png").exists()
    out = tmp_path / "a.png"
    done = CliRunner().invoke(cli, ["plot", gbcm.url, "--serial", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "what     relevance" in done.output
    assert out.exists()
    refused = CliRunner().invoke(cli, ["plot", gbcm.url, "--serial", "--out", str(out), "--what", "residuals"])
    assert refused.exit_code == 1
    assert "give --data TEST.zarr" in refused.stderr
    done = CliRunner().invoke(cli, ["plot", gbcm.url, "--serial", "--out", str(out), "--data", path])
    assert "what     calibration" in done.output


# --- What they show ---


def test_lengthscales_are_in_units_of_the_inputs(wave):
    path, X, _ = wave
    gbcm = GBCM.fit(path, Settings(**QUICK, set={"kernel.lengthscale": [0.5, 2.0]}))
    (part,) = lengthscales(gbcm.snapshot)
    np.testing.assert_allclose(part.original, np.array([0.5, 2.0]) * X.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(part.share, [1.0, 0.25])
    assert not part.shared


@pytest.mark.slow
def test_an_input_that_says_nothing_loses_nothing(rng, make_data):
    X = rng.uniform(-2, 2, (300, 3))
    path = make_data(X=X, y=np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(300))
    given = {"kernel.lengthscale": [0.7, 3.0, 1e4], "likelihood.noise_variance": 0.02}
    gbcm = GBCM.fit(path, Settings(**QUICK | {"query": 60}, set=given))
    subject = subject_of(gbcm, SerialRuntime(), data=path)
    found = subject.losses()
    assert found.mean[0] > found.mean[1] > 0.2
    assert abs(found.mean[2]) < 1e-3  # so long a lengthscale sees nothing of it
    again = subject.losses()
    np.testing.assert_array_equal(found.mean, again.mean)


def test_axes_of_the_learning_curve_show_what_changes(tmp_path, monkeypatch):
    """The share of the larger class lies far below, and does not squash the curve."""
    drawn = []
    monkeypatch.setattr(paper, "save", lambda figure, path: drawn.append(figure))
    accuracy = (0.93, 0.95, 0.97)
    curve = [{"rows": 1000 * 2**k, "accuracy": a, "log_loss": 0.2 - 0.05 * k} for k, a in enumerate(accuracy)]
    curves.learning_curve(tmp_path / "a.png", curve, majority_share=0.55, test_rows=10_000)
    low, high = drawn[0].axes[0].get_ylim()
    assert 0.9 < low < 0.93
    assert 0.97 < high < 1.0
    assert "55.0%" in drawn[0].get_suptitle()


def test_central_intervals_of_an_even_histogram_hold_their_probability():
    levels, held = scores.central(np.full(20, 0.05))
    np.testing.assert_allclose(levels, held, rtol=1e-12)
    np.testing.assert_allclose(levels, np.arange(1, 10) / 10)


def test_intervals_of_shares_are_those_of_wilson():
    """Against scipy's."""
    from scipy.stats import binomtest

    low, high = scores.wilson(np.array([0.0, 3.0, 10.0]), np.array([10.0, 10.0, 10.0]))
    for k, x in enumerate((0, 3, 10)):
        wanted = binomtest(x, 10).proportion_ci(method="wilson")
        assert (low[k], high[k]) == pytest.approx(tuple(wanted), abs=1e-4)  # 1.96 for 1.95996
