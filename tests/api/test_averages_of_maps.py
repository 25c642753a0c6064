"""Averages of fields over blocks of cells, as `coarsen` forms them."""

import numpy as np
import pytest

from bcmdist import Settings
from bcmdist.errors import DataNotFound, InvalidOption

xr = pytest.importorskip("xarray", reason="grids: pip install 'bcmdist[grids]'")

import bcmdist.xarray  # noqa: E402, F401


@pytest.fixture
def field(rng):
    """A field with a gap and cell areas, (9, 12), and a model of it."""
    lat, lon = np.linspace(40.0, 48.0, 9), np.linspace(0.0, 11.0, 12)
    f = np.sin(lat[:, None]) + np.cos(lon / 2.0) + 0.1 * rng.standard_normal((9, 12))
    f[3:5, 4:7] = np.nan
    area = np.cos(np.deg2rad(lat))
    area[0] = 0.0
    data = xr.Dataset(
        {"t": (("lat", "lon"), f, {"units": "K"}), "area": (("lat",), area)}, coords={"lat": lat, "lon": lon}
    )
    settings = Settings(kernel="se", learn=False, query=20, rows_per_expert=40, partition="spatial", effort="quick")
    return data, data.bcm.fit("t", ["lon", "lat"], settings)


def test_blocks_are_those_of_coarsen(field):
    data, gbcm = field
    found = data.bcm.average(gbcm, lat=4, lon=5, weights="area", above=[1.0])
    assert dict(found.sizes) == {"lat": 3, "lon": 3}
    assert set(found) == {"t", "t_standard_error", "t_above1"}
    whole = data.bcm.predict(gbcm, latent=True)
    weights = data.area * xr.ones_like(whole.t_latent)
    sums = [one.coarsen(lat=4, lon=5, boundary="pad").sum() for one in (whole.t_latent * weights, weights)]
    np.testing.assert_allclose(found.t, sums[0] / sums[1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.lon, [2.0, 7.0, 10.5])
    lat, lon = (v.ravel() for v in np.meshgrid(data.lat[:4], data.lon[5:10], indexing="ij"))
    X, area = np.column_stack([lon, lat]), np.repeat(data.area.values[:4], 5)
    one = gbcm.predict_average(X, np.zeros(20), weights=area)
    assert found.t_standard_error.values[0, 1] == pytest.approx(one["sd"][0], rel=1e-8)
    assert found.t.attrs["cell_methods"] == "lat: lon: mean"
    assert found.t.attrs["units"] == "K"


def test_blocks_without_cells_are_gaps(field):
    data, gbcm = field
    found = data.bcm.average(gbcm, lat=1, weights="area")
    assert dict(found.sizes) == {"lat": 9, "lon": 12}
    assert np.isnan(found.t.values[0]).all()
    assert np.isfinite(found.t.values[1:]).all()


def test_probabilities_of_cells(field):
    data, gbcm = field
    found = data.bcm.predict(gbcm, above=[1.0]).t_above1
    assert found.shape == (9, 12)
    assert ((found >= 0.0) & (found <= 1.0)).all()


@pytest.mark.parametrize("windows", [{}, {"depth": 2}, {"lat": 0}, {"lat": 1.5}])
def test_windows_are_checked(field, windows):
    data, gbcm = field
    with pytest.raises(InvalidOption, match="data: expected"):
        data.bcm.average(gbcm, **windows)
    with pytest.raises(DataNotFound, match="weights"):
        data.bcm.average(gbcm, lat=2, weights="size")
