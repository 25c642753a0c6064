"""Longitude and latitude as points on the unit sphere: distances, gaps, degrees, and the way back."""

import json

import numpy as np
import pytest

from bcmdist.data.schema import Schema
from bcmdist.data.tables.coding import Category, Coding, Number, from_json
from bcmdist.data.tables.column import of_numpy
from bcmdist.data.tables.sphere import Sphere, degrees, points
from bcmdist.errors import InvalidData, InvalidDtype, InvalidOption
from bcmdist.learning.column_roles import coordinate_inputs, numbers_of
from bcmdist.model.kernel_columns import KernelColumns
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.scaling import column_moments, scaling_from

CODING = Coding((Number("age"), Sphere("lon", "lat"), Category("soil", ("clay", "loam"))))
SCHEMA = Schema(CODING.inputs, coding=CODING)


def coded(lon, lat):
    columns = {"lon": of_numpy("lon", np.array(lon)), "lat": of_numpy("lat", np.array(lat))}
    return Coding((Sphere("lon", "lat"),)).numbers(columns, "here", start=100)


def test_chords_are_those_of_great_circles(rng):
    lon, lat = rng.uniform(-180, 360, (2, 50)), rng.uniform(-90, 90, (2, 50))
    chords = np.linalg.norm(points(lon[0], lat[0]) - points(lon[1], lat[1]), axis=1)
    (a, b), d = np.deg2rad(lat), np.deg2rad(lon[1] - lon[0])
    angle = 2 * np.arcsin(np.sqrt(np.sin((b - a) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin(d / 2) ** 2))  # haversine
    np.testing.assert_allclose(chords, 2 * np.sin(angle / 2), atol=1e-14)


def test_there_and_back(rng):
    lon, lat = rng.uniform(-180, 180, 50), rng.uniform(-90, 90, 50)
    np.testing.assert_allclose(degrees(points(lon, lat)), (lon, lat), atol=1e-12)
    np.testing.assert_allclose(coded(lon + 360 * (lon < 0), lat), coded(lon, lat), atol=1e-14)


def test_gaps_stay_gaps():
    found = coded([1.0, np.nan, 2.0], [3.0, 4.0, np.nan])
    assert np.isnan(found).any(axis=1).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("lon", "lat", "error", "text"),
    [
        ([10.0, 10.0], [5.0, 91.0], InvalidData, "latitude from -90 to 90 in 'lat', got 91 at row 101"),
        ([400.0, 10.0], [5.0, 1.0], InvalidData, "longitude from -360 to 360 in 'lon', got 400 at row 100"),
        ([1.0, np.inf], [5.0, 1.0], InvalidData, "got inf at row 101"),
        (["E", "W"], [5.0, 1.0], InvalidDtype, "expected numbers in the inputs, got texts in 'lon'"),
    ],
)
def test_no_degrees(lon, lat, error, text):
    with pytest.raises(error, match=text):
        coded(lon, lat)


def test_the_same_coding_after_json():
    assert from_json(json.loads(json.dumps(CODING.to_json())), "here") == CODING
    assert CODING.columns == ("age", "lon", "lat", "soil")
    assert CODING.inputs[1:4] == ("lon:lat:x", "lon:lat:y", "lon:lat:z")
    assert CODING.descriptions()["lon, lat"].startswith("longitude and latitude in degrees")


def test_distances_do_not_depend_on_directions_after_scaling(rng):
    """A region, where the three inputs vary by very different amounts."""
    X = np.column_stack(
        [rng.uniform(size=80), points(rng.uniform(5, 9, 80), rng.uniform(46, 48, 80)), np.eye(2)[[0, 1] * 40]]
    )
    one = column_moments(np.zeros((1, 1)))
    scaling = scaling_from(column_moments(X), one, one, Gaussian(0.1).units, SCHEMA.groups)
    assert SCHEMA.groups == (0, -2, -2, -2, 4, 4)
    assert len(set(scaling.x_scale[1:4].tolist())) == 1
    assert np.mean(scaling.inputs(X)[:, 1:4] ** 2) == pytest.approx(1.0)


def test_one_point_for_all_rows_is_not_divided():
    X = points(np.full(4, 7.0), np.full(4, 46.0))
    one = column_moments(np.zeros((1, 1)))
    scaling = scaling_from(column_moments(X), one, one, Gaussian(0.1).units, (-1, -1, -1))
    assert scaling.x_scale.tolist() == [1.0, 1.0, 1.0]


def test_kernels_and_coordinates_name_a_point_by_its_columns():
    columns = KernelColumns(6, SCHEMA)
    numbered = columns.numbered("matern32(lon, lat) + linear(age)")
    assert numbered == "matern32(1, 2, 3) + linear(0)"
    assert columns.numbered("matern32(lon)") == "matern32(1, 2, 3)"
    assert columns.shown(numbered) == "matern32(lon, lat) + linear(age)"
    with pytest.raises(InvalidOption, match="got one twice"):
        columns.numbered("se(lat, lat)")
    assert numbers_of(["lon", "lat"], SCHEMA, 6) == numbers_of(["lat"], SCHEMA, 6) == [1, 2, 3]
    assert coordinate_inputs(None, SCHEMA, 6) == (1, 2, 3)
    with pytest.raises(InvalidOption, match=r"expected inputs \(age, lon, lat, soil\), got 'long'"):
        numbers_of(["long"], SCHEMA, 6)
