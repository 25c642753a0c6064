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


def write_regions(url, lazy) -> int:
    """Compute and write one chunk after the other of a data set whose lazy variables are cut alike; their number.

    Raises
    ------
    DataExists, DiskFull
    """
    names = [name for name, variable in lazy.variables.items() if variable.chunks]
    packing: dict[str, Any] = {"compressors": [ZstdCodec(level=1), Crc32cCodec()]}
    regions = [dict(zip(lazy.chunks, slices, strict=True)) for slices in chunked(_sizes(lazy), lazy.chunks)]
    with new_output(url) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)  # Zarr's specification of v3 names less than xarray
        store: Any = group_store(place)
        how: Any = {"zarr_format": 3, "consolidated": False, "write_empty_chunks": True}
        lazy.to_zarr(store, mode="w-", compute=False, encoding={name: packing for name in names}, **how)
        for region in regions:
            part = lazy.reset_coords()[names].isel(region).compute()
            part = part.drop_vars([name for name in part.coords if name not in names])
            with room_for(place, part.nbytes):
                part.to_zarr(store, region=region, consolidated=False, write_empty_chunks=True)
        zarr.consolidate_metadata(store)
    return len(regions)


def _sizes(lazy):
    return {dim: lazy.sizes[dim] for dim in lazy.chunks}
