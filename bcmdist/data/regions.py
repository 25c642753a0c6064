"""Write a lazy xarray data set to Zarr region by region, with one region in memory at a time.

Attributes, coordinates and non-lazy variables are written first. The whole output appears under its name, or nothing.
"""

import warnings
from typing import Any

import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from bcmdist.data.groups import group_store
from bcmdist.data.outputs import new_output
from bcmdist.data.tables.grids import chunked
from bcmdist.storage.paths import room_for

# Encoding keys that describe values, independent of their storage (CF).
OF_VALUES = {"units", "calendar", "dtype", "scale_factor", "add_offset", "_FillValue", "grid_mapping", "coordinates"}

# As for all arrays that bcmdist writes.
PACKING: dict[str, Any] = {"compressors": [ZstdCodec(level=1), Crc32cCodec()]}


def write_regions(url, lazy) -> int:
    """Compute and write a data set chunk by chunk; return the number of chunks. Lazy variables have the same chunks.

    Raises
    ------
    DataExists, DiskFull
    """
    lazy = _packed(lazy)
    names = [name for name, variable in lazy.variables.items() if variable.chunks]
    regions = [dict(zip(lazy.chunks, slices, strict=True)) for slices in chunked(_sizes(lazy), lazy.chunks)]
    with new_output(url) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)  # about types that Zarr's v3 specification lacks
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
    """Return the data set as it is to be stored: without the file-specific encodings of its variables, and with
    variable-length texts, which Zarr's v3 specification includes."""
    data = data.copy()
    texts = {name: variable.astype(object) for name, variable in data.variables.items() if variable.dtype.kind == "U"}
    data = data.assign({name: texts[name] for name in texts if name in data.data_vars})
    data = data.assign_coords({name: texts[name] for name in texts if name in data.coords})
    for variable in data.variables.values():
        variable.encoding = {name: value for name, value in variable.encoding.items() if name in OF_VALUES} | PACKING
    return data


def _sizes(lazy):
    return {dim: lazy.sizes[dim] for dim in lazy.chunks}
