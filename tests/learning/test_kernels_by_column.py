"""Fits with kernels by column: from names in data to stored models, and what learning makes of their terms."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.errors import BcmdistWarning, InvalidOption
from bcmdist.learning.point import Point, moves_of, prior_center
from bcmdist.learning.starts import _spaced
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import make_likelihood

pd = pytest.importorskip("pandas", reason="pandas is not installed")


@pytest.fixture
def frame(rng):
    """Rows of an additive function of a place, an age and an hour, and noise of .1; targets."""
    X = pd.DataFrame(
        {
            "lon": rng.uniform(-2, 2, 240),
            "lat": rng.uniform(-2, 2, 240),
            "age": rng.uniform(0, 80, 240),
            "hour": rng.uniform(0, 96, 240),
        }
    )
    y = np.sin(2 * X.lon) * np.cos(X.lat) + 0.05 * X.age + np.sin(2 * np.pi * X.hour / 24)
    return X, y.to_numpy() + 0.1 * rng.standard_normal(240)


SETTINGS = Settings(
    partition="chunks",
    kernel="matern32(lon, lat) + linear(age) + periodic(hour, period=24)",
    effort="quick",
    query=60,
    mean="constant",
)


def test_a_model_keeps_its_terms(frame, tmp_path):
    gbcm = GBCM.fit(*frame, SETTINGS, model=tmp_path / "model")
    found = GBCM.load(tmp_path / "model")
    assert found.model.kernel_name.startswith("matern32(0, 1) + linear(2) + periodic(3, period=0.8")
    info = found.info()
    assert info["kernel"] == SETTINGS.kernel
    assert set(info["hyperparameters"]) == {
        "kernel.matern32(lon, lat).variance",
        "kernel.matern32(lon, lat).lengthscale",
        "kernel.linear(age).lengthscale",
        "kernel.periodic(hour).variance",
        "kernel.periodic(hour).angle",
        "likelihood.noise_variance",
    }
    X, y = frame
    np.testing.assert_array_equal(found.predict(X)["mean"], gbcm.predict(X)["mean"])
    later = X.assign(hour=X.hour + 24 * 50, age=X.age + 50)  # extrapolates: the cycle repeats, the line goes on
    truth = y + 0.05 * 50
    assert np.sqrt(np.mean((found.predict(later)["mean"] - truth) ** 2)) < 0.3  # noise .1, slope of 240 rows


def test_a_sum_that_learning_chooses_is_told_by_names(frame):
    found = GBCM.fit(*frame, Settings(partition="chunks", query=60)).info()
    tried = found["kernels_tried"]
    assert [name for name in tried if "(age, hour) + " in name]  # coordinates by their names
    assert [name for name in tried if "se(age)" in name]
    decision = next(one for one in found["decisions"] if one["of"] == "kernel")
    assert {decision["taken"], *decision["over"]} <= tried.keys()
    assert found["kernel"] == decision["taken"]


def test_columns_without_a_term_are_named(frame):
    with pytest.warns(BcmdistWarning, match=r"lat, age, hour used by no term of se\(lon\)"):
        GBCM.fit(*frame, Settings(partition="chunks", kernel="se(lon)", effort="quick", query=20, learn=False))


def test_unknown_columns_are_refused(frame):
    with pytest.raises(InvalidOption, match=r"columns of the data \(lon, lat, age, hour\).*got 'ages'"):
        GBCM.fit(*frame, Settings(partition="chunks", kernel="se(ages)", effort="quick"))


def test_hyperparameters_are_set_by_the_names_that_info_prints(frame):
    given = {"kernel.periodic(hour).angle": 0.7, "kernel.matern32(lon, lat).lengthscale": [0.5, 0.6]}
    settings = Settings(partition="chunks", kernel=SETTINGS.kernel, learn=False, set=given, query=40)
    found = GBCM.fit(*frame, settings).info()["hyperparameters"]
    assert found["kernel.periodic(hour).angle"] == [0.7]
    assert found["kernel.matern32(lon, lat).lengthscale"] == [0.5, 0.6]


def test_spatial_cells_and_local_prediction(frame):
    X, y = frame
    settings = Settings(kernel=SETTINGS.kernel, effort="quick", query=60, partition="spatial", rows_per_expert=80)
    gbcm = GBCM.fit(X, y, settings)
    assert np.sqrt(np.mean((gbcm.predict(X)["mean"] - y) ** 2)) < 0.2


def test_terms_on_the_same_columns_start_spaced():
    kernel = parse_kernel("matern12(0, 1) + se(0, 1) + se(1)", inputs=2)
    short, long = _spaced(kernel)
    lengths = [np.exp(one.theta) for one in (short, long)]
    ratio = lengths[0] / lengths[1]
    np.testing.assert_allclose(ratio, [1.0, 0.1, 0.1, 1.0, 10.0, 10.0, 1.0, 1.0])
    assert _spaced(parse_kernel("se(0) + se(1)", inputs=2)) == []
    assert _spaced(parse_kernel("se(0)*se(0)", inputs=2)) == []


def test_levels_share_lengthscales_within_each_term():
    groups = (0, 1, 1, 1)  # a number, and a category of three levels
    kernel = parse_kernel("se(1, 2, 3, 0) + matern32(2, 3)", inputs=4)
    point = Point("", kernel, make_likelihood("gaussian"), -np.inf, groups=groups)
    moves = moves_of(point)
    names = [f"{n}[{k}]" for n, v in kernel.parameters.items() for k in range(len(v))]
    together = [[names[k] for k in np.flatnonzero(column[: len(names)])] for column in moves.T]
    first, second = "se(1, 2, 3, 0).lengthscale", "matern32(2, 3).lengthscale"
    assert [f"{first}[0]", f"{first}[1]", f"{first}[2]"] in together
    assert [f"{first}[3]"] in together
    assert [f"{second}[0]", f"{second}[1]"] in together
    np.testing.assert_allclose(
        np.exp(
            prior_center(
                Point("se(0) + se(1, 2)", parse_kernel("se(0) + se(1, 2)", inputs=3), point.likelihood, 0.0), 3
            )
        )[:5],
        [1.0, 1.0, 1.0, 2**0.5, 2**0.5],
    )
