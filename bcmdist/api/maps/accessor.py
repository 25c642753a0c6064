"""The functions of `bcmdist.api.maps.maps` as methods of data sets."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bcmdist.api.gbcm import GBCM
from bcmdist.api.maps import maps
from bcmdist.api.maps.fields import Model, xarray
from bcmdist.api.requests import PredictionMethod
from bcmdist.api.running import Where
from bcmdist.data.groups import Location
from bcmdist.learning.settings import Settings
from bcmdist.prediction.joint.averages import Of


@xarray.register_dataset_accessor("bcm")
class Accessor:
    """The functions of `bcmdist.xarray` as methods of a data set: ds.bcm.fit, ds.bcm.predict, ...

    Parameters
    ----------
    data : the data set

    Examples
    --------
    >>> import bcmdist.xarray
    >>> grid.bcm.predict(field)["t"].dims
    ('lat', 'lon')
    """

    def __init__(self, data: xarray.Dataset) -> None:
        self._data = data

    def fit(
        self,
        target: str,
        inputs: Sequence[str],
        settings: Settings | None = None,
        *,
        companions: Mapping[str, str] | None = None,
        cyclic: Mapping[str, Sequence[str]] | None = None,
        sphere: tuple[str, str] | None = None,
        model: Location | None = None,
        runtime: Where = None,
    ) -> GBCM:
        """As `bcmdist.xarray.fit`, of this data set."""
        how: dict[str, Any] = {"companions": companions, "cyclic": cyclic, "model": model, "runtime": runtime}
        return maps.fit(self._data, target, inputs, settings, sphere=sphere, **how)

    def predict(
        self,
        model: Model,
        *,
        target: str | None = None,
        method: PredictionMethod | None = None,
        quantiles: Sequence[float] = (),
        above: Sequence[float] = (),
        latent: bool = False,
        chunks: Mapping[str, int] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> xarray.Dataset:
        """As `bcmdist.xarray.predict`, of this data set."""
        how: dict[str, Any] = {"method": method, "quantiles": quantiles, "above": above, "latent": latent}
        return maps.predict(self._data, model, target=target, chunks=chunks, attrs=attrs, **how)

    def fill(
        self, model: Model, *, method: PredictionMethod | None = None, chunks: Mapping[str, int] | None = None
    ) -> xarray.Dataset:
        """As `bcmdist.xarray.fill`, of this data set."""
        return maps.fill(self._data, model, method=method, chunks=chunks)

    def predict_to_zarr(
        self,
        model: Model,
        out: Location,
        *,
        target: str | None = None,
        method: PredictionMethod | None = None,
        quantiles: Sequence[float] = (),
        above: Sequence[float] = (),
        latent: bool = False,
        chunks: Mapping[str, int] | None = None,
        attrs: Mapping[str, Any] | None = None,
    ) -> int:
        """As `bcmdist.xarray.predict_to_zarr`, of this data set."""
        how: dict[str, Any] = {"method": method, "quantiles": quantiles, "above": above, "latent": latent}
        return maps.predict_to_zarr(self._data, model, out, target=target, chunks=chunks, attrs=attrs, **how)

    def average(
        self,
        model: Model,
        *,
        target: str | None = None,
        weights: str | None = None,
        of: Of = "function",
        above: Sequence[float] = (),
        method: PredictionMethod | None = None,
        seed: int = 0,
        **windows: int,
    ) -> xarray.Dataset:
        """As `bcmdist.xarray.average`, of this data set."""
        how: Callable[..., xarray.Dataset] = partial(
            maps.average, target=target, weights=weights, of=of, above=above, method=method, seed=seed
        )
        return how(self._data, model, **windows)

    def on_sphere(self, *, lon: str = "lon", lat: str = "lat") -> xarray.Dataset:
        """As `bcmdist.xarray.on_sphere`, of this data set."""
        return maps.on_sphere(self._data, lon=lon, lat=lat)
