"""A lazy xarray data set written to Zarr region by region, so that one region is in memory at a time.

Its attributes, coordinates and what is not lazy are written first; all of it appears under its name, or nothing.
"""

import warnings
from typing import Any

import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from bcmdist.data.groups import group_store
from bcmdist.data.outputs import new_output
from bcmdist.data.tables.grids import chunked
from bcmdist.storage.paths import room_for

# What an encoding says of values, wherever they lie (CF).
OF_VALUES = {"units", "calendar", "dtype", "scale_factor", "add_offset", "_FillValue", "grid_mapping", "coordinates"}

# As of all our arrays.
PACKING: dict[str, Any] = {"compressors": [ZstdCodec(level=1), Crc32cCodec()]}


def write_regions(url, lazy) -> int:
    """Compute and write one chunk after the other of a data set whose lazy variables are cut alike; their number.

    Raises
    ------
    DataExists, DiskFull
    """
    lazy = _packed(lazy)
    names = [name for name, variable in lazy.variables.items() if variable.chunks]
    regions = [dict(zip(lazy.chunks, slices, strict=True)) for slices in chunked(_sizes(lazy), lazy.chunks)]
    with new_output(url) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)  # Zarr's specification of v3 names fewer types
        store: Any = group_store(place)
        how: Any = {"zarr_format": 3, "consolidated": False, "write_empty_chunks": True}
        lazy.to_zarr(store, mode="w-", compute=False, **how)
        for region in regions:
            part = lazy.reset_coords()[names].isel(region).compute()
            part = part.drop_vars([name for name in part.coords if name not in names])
            with room_for(place, part.nbytes):
                part.to_zarr(store, region=region, consolidated=False, write_empty_chunks=True)
        zarr.consolidate_metadata(store)
    return len(regions)


def _packed(data):
    """The same as it is to be stored: without what encodings say of the files that variables came from, and texts of
    any length, which Zarr's specification of v3 knows."""
    data = data.copy()
    texts = {name: variable.astype(object) for name, variable in data.variables.items() if variable.dtype.kind == "U"}
    data = data.assign({name: texts[name] for name in texts if name in data.data_vars})
    data = data.assign_coords({name: texts[name] for name in texts if name in data.coords})
    for variable in data.variables.values():
        variable.encoding = {name: value for name, value in variable.encoding.items() if name in OF_VALUES} | PACKING
    return data


def _sizes(lazy):
    return {dim: lazy.sizes[dim] for dim in lazy.chunks}
