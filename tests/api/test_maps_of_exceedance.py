"""Maps of two coordinates: what they cover, and the probability of exceedance beside mean and standard error."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api.pictures import maps
from bcmdist.api.pictures.pictures import subject_of
from bcmdist.app.cli.main import cli
from bcmdist.errors import InvalidOption

pytest.importorskip("matplotlib", reason="pictures: pip install 'bcmdist[plot]'")


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """A table of coordinates with a covariate, and a model of it."""
    place, rng = tmp_path_factory.mktemp("maps"), np.random.default_rng(0)
    east, north, depth = rng.uniform(0, 10, (3, 150))
    table = pd.DataFrame({"depth": depth, "northing": north, "easting": east})
    table["ore"] = np.sin(east) + 0.1 * depth + 0.1 * rng.standard_normal(150)
    table.to_csv(place / "sites.csv", index=False)
    words = ["--y", "ore", "--model", str(place / "model"), "--kernel", "se", "--query", "40", "--no-learn", "--serial"]
    done = CliRunner().invoke(cli, ["fit", str(place / "sites.csv"), *words])
    assert done.exit_code == 0, done.output
    return place


def test_a_map_is_along_the_coordinates(sites):
    out = sites / "map.svg"
    words = ["--what", "map", "--above", "0.5", "--above", "1", "--data", str(sites / "sites.csv"), "--serial"]
    done = CliRunner().invoke(cli, ["plot", str(sites / "model"), *words, "--out", str(out)])
    assert done.exit_code == 0, done.output
    text = out.read_text()
    for wanted in ("Predictions of ore along easting and northing", "probability of more than 0.5", "more than 1<"):
        assert wanted in text
    assert "standard error of the function" in text


def test_probabilities_of_a_map_are_those_of_predictions(sites):
    gbcm = GBCM.load(sites / "model")
    subject = subject_of(gbcm, SerialRuntime())
    _, _, X = maps._plane(subject).grid(np.array([5.0, 0.0, 0.0]), maps.CELLS)
    assert np.all(X[:, 0] == 5.0)
    found = subject.predicted(X, above=(0.5,))
    fields = {name: values for name, values, *_ in maps._numbers(gbcm.model, found, (0.5,))}
    expected = gbcm.predict(X, above=[0.5])
    np.testing.assert_array_equal(fields["probability of more than 0.5"], expected["above0.5"])
    deviation = next(values for name, values in fields.items() if name.startswith("standard error"))
    np.testing.assert_allclose(deviation, np.sqrt(expected["variance"]))


def test_a_map_of_two_inputs_covers_all_rows(rng, make_data, tmp_path):
    X = rng.uniform(-2, 2, (120, 2))
    path = make_data(X=X, y=np.sin(X[:, 0]))
    gbcm = GBCM.fit(path, Settings(kernel="se", query=30, learn=False))
    of = maps._plane(subject_of(gbcm, SerialRuntime(), data=path))
    np.testing.assert_array_equal([of.low, of.high], [X.min(axis=0), X.max(axis=0)])
    with pytest.raises(InvalidOption, match="--above: expected it with --what map, got --what relevance"):
        gbcm.plot(tmp_path / "a.png", what="relevance", above=[1.0])


def test_a_map_of_classes_has_no_thresholds(rng, make_data, tmp_path):
    X = rng.uniform(-2, 2, (120, 2))
    path = make_data(X=X, y=(X[:, 0] > 0).astype(np.uint8))
    gbcm = GBCM.fit(path, Settings(kernel="se", query=30, learn=False, task="classification"))
    with pytest.raises(InvalidOption, match="--above: expected a model of numbers"):
        gbcm.plot(tmp_path / "a.png", what="map", above=[0.5])
    assert gbcm.plot(tmp_path / "a.png", what="map") == "map"


@pytest.mark.parametrize("centre", [0.0, 180.0, -150.0])
def test_a_region_on_a_sphere_is_drawn_as_one(centre, rng, tmp_path):
    lon, lat = (centre + rng.uniform(-20, 20, 200) + 180) % 360 - 180, rng.uniform(30, 60, 200)
    table, y = pd.DataFrame({"lon": lon, "lat": lat}), np.cos(np.deg2rad(8 * (lon - centre)))
    gbcm = GBCM.fit(table, y, Settings(kernel="se", query=40, learn=False), sphere=("lon", "lat"))
    of = maps._plane(subject_of(gbcm, SerialRuntime()))
    assert abs((of.low + of.high)[0] / 2 - centre) % 360 == pytest.approx(0.0, abs=3.0) or abs(
        (of.low + of.high)[0] / 2 - centre
    ) % 360 == pytest.approx(360.0, abs=3.0)
    assert 25 < of.high[0] - of.low[0] < 60
    assert gbcm.plot(tmp_path / "a.png", what="map", above=[0.0]) == "map"
