"""The textbook case beside GSTools: the page says what the results say, and both are the same kriging."""

import json
from pathlib import Path

import numpy as np
import pytest

import bcmdist
import records
from bcmdist import GBCM, Settings

ROOT = Path(bcmdist.__file__).parent.parent
PAGE, RESULTS = ROOT / "examples/guide/textbook.md", ROOT / "tests/benchmarks/results/textbook.json"
ROWS = {
    "gstools": "GSTools, ordinary kriging",
    "bcmdist": "bcmdist, `matern12`",
    "bcmdist_turned": "bcmdist, `matern12` along and across 60 degrees",
    "gstools_drift": "GSTools, external drift",
    "bcmdist_drift": "bcmdist, `matern12(x, y) + linear(drift)`",
}
FIELD = {
    "gstools": "GSTools, ordinary kriging of 3,000 rows",
    "gpboost": "GPBoost, Vecchia approximation",
    "muygps": "MuyGPyS",
    "bcmdist": "bcmdist",
}


@pytest.mark.skipif(not PAGE.is_file(), reason="the guide: not beside the package")
def test_the_page_says_what_the_results_say():
    found, text = json.loads(RESULTS.read_text()), PAGE.read_text()
    assert set(found["methods"]) == set(ROWS)
    for name, scores in found["methods"].items():
        figures = [scores[by][score] for by in ("random", "strips") for score in ("rmse", "coverage95")]
        assert f"| {ROWS[name]} | {' | '.join(f'{one:.3f}' for one in figures)} |" in text
    both = found["agreement"]
    assert f"differ by at most {both['mean']:.1e}, variances by {both['variance']:.1e}" in text
    along, across = found["methods"]["bcmdist_turned"]["parameters"]["lengths_km"]
    assert f"lengthscales of {along:.1f} km along the river and {across:.1f} across" in text
    evidence, best = found["turned"]["log_evidence"], found["turned"]["best"]
    gain = evidence[str(best)] - evidence["0"]
    assert f"it is {best} degrees from east, where the log evidence is {gain:.1f} above that along the axes" in text


@pytest.mark.skipif(not PAGE.is_file(), reason="the guide: not beside the package")
def test_the_field_is_that_of_the_benchmarks():
    found, text = records.load("heaton_small"), PAGE.read_text()
    for method, title in FIELD.items():
        figures = [f"{records.median(found[method], name):.3f}" for name in ("rmse", "crps", "coverage95")]
        assert f"| {title} | {' | '.join(figures)} |" in text


@pytest.mark.parametrize(
    ("kernel", "kind", "factor"), [("matern12", "Exponential", 1.0), ("matern32", "Matern", 2**0.5)]
)
def test_the_same_hyperparameters_give_the_same_kriging(kernel, kind, factor, rng):
    gstools = pytest.importorskip("gstools", reason="kriging by a peer: pip install gstools")
    places, new = rng.uniform(0, 3, (120, 2)), rng.uniform(0, 3, (40, 2))
    y = np.sin(2 * places[:, 0]) + np.cos(places[:, 1]) + 0.2 * rng.standard_normal(120)
    own = {"nu": 1.5} if kind == "Matern" else {}
    model = getattr(gstools, kind)(dim=2, var=0.8, len_scale=0.9, nugget=0.04, **own)
    mean, variance = gstools.krige.Simple(model, places.T, y, mean=y.mean(), exact=False)(new.T)
    given = {
        "kernel.variance": 0.8 / y.std() ** 2,
        "kernel.lengthscale": (factor * 0.9 / places.std(axis=0)).tolist(),
        "likelihood.noise_variance": 0.04 / y.std() ** 2,
    }
    how = {"partition": "chunks", "target_transform": "none", "noise": "constant", "warp": "none"}
    found = GBCM.fit(places, y, Settings(kernel=kernel, mean="zero", learn=False, set=given, query=120, **how)).predict(
        new
    )
    assert np.abs(found["mean"] - mean).max() < 1e-8
    assert np.abs(found["observation_variance"] - variance).max() < 1e-8
