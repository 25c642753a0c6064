"""The door to xarray, beside that of files (`data.tables.grids`)."""

from bcmdist.errors import MissingExtra

try:
    import xarray
except ImportError as error:
    raise MissingExtra(f"maps: expected xarray ({error}); pip install 'bcmdist[grids]'") from error

__all__ = ["xarray"]
