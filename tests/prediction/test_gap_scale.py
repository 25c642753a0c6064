"""Rows with gaps have errors of a scale of their own: its factors, and whole jobs."""

import warnings

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.loading import sound_facts
from bcmdist.committee.measurements import GapIndicators
from bcmdist.data.tables.importing import import_file
from bcmdist.data.tables.roles import Roles
from bcmdist.errors import BcmdistWarning, CommitRefused, ModelDamaged
from bcmdist.prediction.errors.error_distribution import Residuals, fit_error_distribution
from bcmdist.prediction.errors.gap_scale import fit_gap_scale
from bcmdist.prediction.errors.heteroscedasticity import places_of

INDICATORS = GapIndicators([1, 2], [0.5, 0.5])
SET = {"kernel.lengthscale": [0.7, 2.0, 5.0], "likelihood.noise_variance": 0.1}
GIVEN = {"kernel": "se", "learn": False, "set": SET, "query": 60, "rows_per_expert": 300}


def residuals(rng, n, marks, sd):
    """Places, residuals and weights of n rows; `marks` (n, 2) are gaps, `sd` (n,) the deviations."""
    X = np.column_stack([rng.uniform(-2, 2, n), marks])
    return places_of(X, np.full(n, 0.2)), sd * rng.standard_normal(n), np.ones(n)


def deviations(scale, *rows):
    return np.sqrt(scale.factor(np.array([[0.0, *marks, 0.0] for marks in rows])))


def test_the_scale_of_rows_with_gaps_is_found_by_column(rng):
    marks = rng.random((6000, 2)) < (0.1, 0.1)
    marks[:300] = 1.0
    sd = np.where(marks.all(axis=1), 5.0, np.where(marks[:, 0], 3.0, np.where(marks[:, 1], 1.5, 1.0)))
    scale = fit_gap_scale(INDICATORS, *residuals(rng, 6000, marks, sd))
    found = deviations(scale, (0, 0), (1, 0), (0, 1), (1, 1))
    assert found[0] == 1.0
    np.testing.assert_allclose(found, [1.0, 3.0, 1.5, 5.0], rtol=0.15)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sd", [0.5, 1.0, 1.5])
def test_a_few_rows_with_gaps_change_little(sd, seed):
    rng = np.random.default_rng(seed)
    marks = np.zeros((3000, 2))
    marks[:5, 0] = 1.0
    places, z, weights = residuals(rng, 3000, marks, np.where(marks[:, 0], sd, 1.0))
    scale = fit_gap_scale(INDICATORS, places, z, weights)
    np.testing.assert_allclose(deviations(scale, (1, 0), (0, 1), (1, 1)), 1.0, atol=0.05)


def test_a_column_with_few_gaps_has_the_scale_of_all_gaps(rng):
    marks = np.zeros((3000, 2))
    marks[:300, 0], marks[300:304, 1] = 1.0, 1.0
    scale = fit_gap_scale(INDICATORS, *residuals(rng, 3000, marks, np.where(marks.any(axis=1), 3.0, 1.0)))
    first, second, several = deviations(scale, (1, 0), (0, 1), (1, 1))
    np.testing.assert_allclose([first, second, several], 3.0, rtol=0.12)
    assert second == several


@pytest.mark.parametrize("seed", range(3))
def test_gaps_that_explain_nothing_change_little(seed):
    rng = np.random.default_rng(seed)
    marks = rng.random((3000, 2)) < 0.1
    scale = fit_gap_scale(INDICATORS, *residuals(rng, 3000, marks, np.ones(3000)))
    np.testing.assert_allclose(deviations(scale, (1, 0), (0, 1), (1, 1)), 1.0, atol=0.06)


def test_the_shape_is_that_of_errors_in_units_of_their_scale(rng):
    marks = np.column_stack([rng.random(3000) < 0.1, np.zeros(3000)])
    places, z, _ = residuals(rng, 3000, marks, np.where(marks[:, 0], 4.0, 1.0))
    known = Residuals([places], [z], [1.0])
    assert fit_error_distribution(known, None).shape.quantile(0.975) > 2.5
    assert fit_error_distribution(known, None, INDICATORS).shape.quantile(0.975) == pytest.approx(1.96, abs=0.1)


def test_one_kind_of_rows_alone_has_no_factor(rng):
    for marks in (np.zeros((300, 2)), np.ones((300, 2))):
        scale = fit_gap_scale(INDICATORS, *residuals(rng, 300, marks, np.ones(300)))
        np.testing.assert_allclose(deviations(scale, (0, 0), (1, 0), (1, 1)), 1.0, atol=0.05)


# --- Whole jobs ---


def table(rng, rows, share):
    """y = sin(2 a) + .8 b + noise, by name, with gaps in this share of b."""
    a, b = rng.uniform(-2, 2, rows), rng.standard_normal(rows)
    y = np.sin(2 * a) + 0.8 * b + 0.3 * rng.standard_normal(rows)
    return {"a": a, "b": np.where(rng.permutation(rows) < round(share * rows), np.nan, b), "y": y}


def as_inputs(found):
    """Coded inputs (n, 3) of a table: a, b filled and the mark of its gaps."""
    gaps = np.isnan(found["b"])
    return np.column_stack([found["a"], np.where(gaps, 0.0, found["b"]), gaps])


def fitted(found, place, **settings):
    columns = zip(*map(np.ndarray.tolist, found.values()), strict=True)
    lines = [",".join(found), *(",".join(map(repr, row)) for row in columns)]
    (place / "a.csv").write_text("\n".join(lines).replace("nan", "") + "\n")
    import_file(place / "a.csv", str(place / "a.zarr"), roles=Roles("y", missing="indicate"))
    return GBCM.fit(
        str(place / "a.zarr"), Settings(**{"partition": "chunks"} | GIVEN | settings), model=place / "model"
    )


def covered(gbcm, found):
    """Share of rows within their 95 % intervals, without and with gaps."""
    p, gaps = gbcm.predict(as_inputs(found)), np.isnan(found["b"])
    inside = (p["lower95"] < found["y"]) & (found["y"] < p["upper95"])
    return inside[~gaps].mean(), inside[gaps].mean()


@pytest.fixture
def model(rng, tmp_path):
    pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")
    return fitted(table(rng, 900, 0.2), tmp_path, noise="constant")


def test_a_stored_model_knows_its_gaps(model, rng):
    spread = model.facts["spread"]
    assert spread["gaps"]["inputs"] == [2]
    ratios = model.info()["errors"]["gaps"]
    assert list(ratios) == ["b missing"]
    assert ratios["b missing"] == pytest.approx(2.6, abs=0.5)
    assert f"b missing {ratios['b missing']:.2g} times" in model.info()["advice"]
    again, X = GBCM.load(model.snapshot.url), as_inputs(table(rng, 50, 0.5))
    for name, values in model.predict(X).items():
        np.testing.assert_array_equal(again.predict(X)[name], values, err_msg=name)


def test_only_rows_with_gaps_have_the_factor(model, rng):
    found = table(rng, 200, 0.5)
    p, gaps = model.predict(as_inputs(found)), np.isnan(found["b"])
    noise = p["observation_variance"] - p["variance"]
    assert np.ptp(noise[~gaps]) < 1e-9
    ratio = model.info()["errors"]["gaps"]["b missing"]
    said = p["variance"] + noise[~gaps][0]
    np.testing.assert_allclose(p["observation_variance"][gaps], ratio**2 * said[gaps], rtol=1e-6)


def test_a_model_without_the_record_predicts_as_before(model, rng):
    snapshot = model.snapshot
    spread = {name: value for name, value in model.facts["spread"].items() if name != "gaps"}
    old = GBCM(snapshot.changed(spread=spread).committed())
    p = old.predict(as_inputs(table(rng, 50, 0.5)))
    assert np.ptp(p["observation_variance"] - p["variance"]) < 1e-9
    assert old.info()["errors"]["gaps"] is None


def test_rows_that_arrive_count(model, rng):
    before, found = model.info()["errors"], table(rng, 600, 0.5)
    found["y"] = np.where(np.isnan(found["b"]), found["y"] + 3.0 * rng.standard_normal(600), found["y"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BcmdistWarning)  # of drift
        for k in range(0, 600, 30):
            model = model.partial_fit(as_inputs(found)[k : k + 30], found["y"][k : k + 30])
    after = model.info()["errors"]
    assert after["residuals"] > before["residuals"]
    assert after["gaps"]["b missing"] > before["gaps"]["b missing"]


@pytest.mark.parametrize("gaps", [{"inputs": [3], "thresholds": [0.5]}, {"inputs": [2], "thresholds": []}])
def test_damaged_records_are_refused(model, gaps):
    with pytest.raises(CommitRefused, match=r"spread\.gaps"):
        model.snapshot.changed(spread=model.facts["spread"] | {"gaps": gaps}).committed()
    with pytest.raises(ModelDamaged, match=r"spread\.gaps"):
        sound_facts(model.facts | {"spread": model.facts["spread"] | {"gaps": gaps}}, model.model, "here")


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["constant", "auto"])
@pytest.mark.parametrize("partition", ["chunks", "spatial"])
def test_intervals_hold_at_rows_with_gaps(noise, partition, rng, tmp_path):
    pytest.importorskip("pyarrow", reason="tables: pip install 'bcmdist[tables]'")
    gbcm = fitted(table(rng, 3000, 0.1), tmp_path, noise=noise, partition=partition)
    without, with_gaps = covered(gbcm, table(rng, 8000, 0.5))
    assert 0.93 < without < 0.97
    assert 0.93 < with_gaps < 0.97
