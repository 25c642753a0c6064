"""Pictures and reports of mixtures, of uncertain inputs and of tables: what is said of a single committee and Zarr."""

import json
from dataclasses import replace

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from bcmdist import GBCM, HMC, SerialRuntime, Settings
from bcmdist.api.mixture import Mixture
from bcmdist.api.pictures.pictures import PICTURES, subject_of
from bcmdist.api.relevance import lengthscales
from bcmdist.api.sampling import sample_posterior
from bcmdist.app.cli.main import cli
from bcmdist.errors import InvalidOption

pytest.importorskip("matplotlib", reason="pictures: pip install 'bcmdist[plot]'")

QUICK = {"learn": False, "kernel": "se", "query": 20, "rows_per_expert": 60}
OF_SEVERAL = [what for what, kind in PICTURES.items() if not kind.of_one and what != "drift"]


@pytest.fixture
def rows(rng):
    """Inputs (120, 2) and a function of the first of them."""
    X = rng.uniform(-2, 2, (120, 2))
    return X, np.sin(2 * X[:, 0])


def mixture_of(path, **settings):
    """Two committees that differ in their lengthscales."""
    given = [{"kernel.lengthscale": [0.5, 2.0]}, {"kernel.lengthscale": [2.0, 8.0]}]
    return Mixture([GBCM.fit(path, Settings(partition="chunks", **QUICK, set=one, **settings)) for one in given])


@pytest.mark.slow
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_mixture_is_drawn_and_reported_on(task, rows, make_data, tmp_path):
    X, f = rows
    path = make_data(X=X, y=f if task == "regression" else (f > 0).astype(np.uint8))
    mixture = mixture_of(path, task=task)
    for what in OF_SEVERAL:
        assert mixture.plot(tmp_path / f"{what}.svg", what=what, data=path) == what
    assert "geometric means over 2 committees" in (tmp_path / "relevance.svg").read_text()
    figures = mixture.report(path, tmp_path / "a.html")
    for name, value in mixture.score(path).items():
        if isinstance(value, float):  # the same sums in another order
            assert figures["scores"][name] == pytest.approx(value, rel=1e-9, nan_ok=True), name
    assert set(figures["baselines"]) == {"mean", "linear least squares", "nearest neighbours", "boosted trees"}
    assert "the mixture of 2 committees, which count alike" in (tmp_path / "a.html").read_text()


def test_a_mixture_of_one_is_reported_on_as_that_one(rows, make_data):
    """Predictions differ by rounding only: of 90 rows, whose errors are normal, as those of members are."""
    X, f = rows
    path = make_data(X=X[:90], y=f[:90])
    one = GBCM.fit(path, Settings(partition="chunks", **QUICK))
    subjects = [subject_of(of, SerialRuntime(), data=path) for of in (one, Mixture([one]))]
    (a, b), (lost, again) = (one.judged.columns for one in subjects), (one.losses() for one in subjects)
    for name in set(a) & set(b):
        np.testing.assert_allclose(a[name], b[name], rtol=1e-6, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(lost.mean, again.mean, rtol=1e-6, atol=1e-9)


def test_lengthscales_of_a_mixture_are_geometric_means(rows, make_data):
    X, f = rows
    mixture = mixture_of(make_data(X=X, y=f))
    (found,), (first,) = mixture.lengthscales(), lengthscales(mixture.members[0].snapshot)
    np.testing.assert_allclose(found.scaled, [1.0, 4.0], rtol=1e-12)
    np.testing.assert_allclose(found.original, 2.0 * first.original, rtol=1e-12)


def test_what_has_no_meaning_for_a_mixture_is_refused_before_any_work(rows, make_data, tmp_path, monkeypatch):
    X, f = rows
    mixture = mixture_of(path := make_data(X=X, y=f))
    monkeypatch.setattr("bcmdist.api.pictures.pictures.subject_of", None)
    for what in ("learning", "effects"):
        with pytest.raises(InvalidOption, match=f"--what {what}: expected a single committee, .* holds a mixture of 2"):
            mixture.plot(tmp_path / "a.png", what=what, data=path)


@pytest.mark.slow
def test_the_commands_on_a_sampled_mixture(rows, make_data, tmp_path):
    X, f = rows
    path, model = make_data(X=X, y=f), str(tmp_path / "m")
    settings = Settings(partition="chunks", kernel="se", mean="zero", query=20, rows_per_expert=60)
    sample_posterior(path, settings, model=model, samples=2, chains=1, hmc=HMC(iterations=6, burn_in=2))
    out = tmp_path / "a.svg"
    done = CliRunner().invoke(cli, ["plot", model, "--serial", "--out", str(out), "--data", path])
    assert done.exit_code == 0, done.output
    assert out.exists()
    command = ["report", model, path, "--serial", "--out", str(tmp_path / "a.html"), "--json"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert any("chains have not mixed" in one for one in json.loads(done.stdout)["remarks"])
    (tmp_path / "a.html").unlink()
    refused = CliRunner().invoke(cli, [*command, "--inputs", "exact"])
    assert refused.exit_code == 1
    assert "inputs: expected an array X_variance beside X" in refused.stderr
    zarr.open_group(path, mode="r+").create_array("X_variance", data=np.full(X.shape, 0.1), chunks=(50, 2))
    done = CliRunner().invoke(cli, [*command, "--inputs", "taylor"])
    assert done.exit_code == 0, done.output
    expected = Mixture.load(model).score(path, inputs="taylor")["mnlp"]
    assert json.loads(done.stdout)["scores"]["mnlp"] == pytest.approx(expected, rel=1e-9)


# --- Inputs that are uncertain ---


@pytest.mark.slow
def test_uncertain_inputs_are_averaged_over_in_reports_too(rows, make_data, tmp_path):
    X, f = rows
    path = make_data(X=X, y=f)
    gbcm = GBCM.fit(path, Settings(partition="chunks", **QUICK))
    zarr.open_group(path, mode="r+").create_array("X_variance", data=np.full(X.shape, 0.1), chunks=(50, 2))
    subject = subject_of(gbcm, SerialRuntime(), data=path)
    rows = subject.judged
    assert rows.uncertainty is not None
    unchanged = gbcm.predictive.predictor(subject.method).score_each([rows[:50], rows[50:]])
    found = np.concatenate([one.columns["log_density"] for one in unchanged])
    np.testing.assert_allclose(found, rows.columns["log_density"], rtol=1e-9)  # as they were, uncertain inputs and all
    for way in ("taylor", "exact"):
        figures = gbcm.report(path, tmp_path / "a.html", inputs=way)
        assert figures["scores"]["mnlp"] == pytest.approx(gbcm.score(path, inputs=way)["mnlp"], rel=1e-9)
    joined = rows[:50] + rows[50:]
    np.testing.assert_array_equal(joined.uncertainty.variance, rows.uncertainty.variance)
    assert (rows[:50] + replace(rows[50:], uncertainty=None)).uncertainty is None


def test_a_way_to_average_needs_uncertain_inputs(rows, make_data, tmp_path, monkeypatch):
    X, f = rows
    gbcm = GBCM.fit(path := make_data(X=X, y=f), Settings(partition="chunks", **QUICK))
    monkeypatch.setattr("bcmdist.api.report.report.subject_of", None)  # no work
    with pytest.raises(InvalidOption, match="inputs: expected an array X_variance beside X"):
        gbcm.report(path, tmp_path / "a.html", inputs="exact")


# --- Tables ---


@pytest.mark.slow
def test_plot_and_report_take_tables(tmp_path, rng):
    pandas = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
    table = pandas.DataFrame({"x": rng.uniform(-2, 2, 120), "kind": rng.choice(["a", "b"], 120)})
    table["y"] = np.sin(2 * table["x"]) + (table["kind"] == "a")
    train, test, model = (str(tmp_path / name) for name in ("train.csv", "test.csv", "m"))
    table[:80].to_csv(train, index=False)
    table[80:].replace({"kind": {"b": "c"}}).to_csv(test, index=False)
    run = CliRunner().invoke
    quick = ["--no-learn", "--kernel", "se", "--query", "20", "--serial"]
    done = run(cli, ["fit", train, "--y", "y", "--model", model, *quick])
    assert done.exit_code == 0, done.output
    out = tmp_path / "a.svg"
    command = ["plot", model, "--serial", "--out", str(out), "--what", "residuals", "--data", test]
    refused = run(cli, [*command, "--unseen", "error"])
    assert refused.exit_code == 1
    assert "expected a level of training in 'kind'" in refused.stderr
    done = run(cli, [*command, "--unseen", "other"])
    assert done.exit_code == 0, done.output
    assert "40 rows of test.csv" in out.read_text()
    page = tmp_path / "a.html"
    done = run(cli, ["report", model, test, "--serial", "--unseen", "other", "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "on test.csv" in page.read_text()
    assert not list(tmp_path.glob("m.partial-*"))
