"""Zarr groups and arrays, opened for reading with checked metadata. All reading of Zarr data starts here."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from urllib.parse import unquote

import zarr
from zarr.core.sync import sync
from zarr.storage import LocalStore

from bcmdist.data.archive import SUFFIX, unpacked
from bcmdist.data.checks.checked_store import CheckedStore, safe_name
from bcmdist.data.icechunk import Repository, on_icechunk
from bcmdist.data.schema import MOST_COLUMNS
from bcmdist.data.schemes import reader_of
from bcmdist.data.values import since
from bcmdist.errors import (
    BcmdistError,
    DataDamaged,
    DataNotFound,
    InvalidDtype,
    InvalidOption,
    MissingExtra,
    UnsafeData,
)
from bcmdist.storage.locate import open_objects
from bcmdist.storage.paths import leads_nowhere
from bcmdist.storage.urls import Location, answering, normal_url, on_objects, refuse_secrets

# More rows indicate a mistake or forged metadata.
MOST_ROWS = 10**11


def absolute_url(url: Location) -> str:
    """Return a URL or path in a form that does not depend on the working directory."""
    url = str(url).removeprefix("file://")
    if not url:  # otherwise the working directory and everything in it
        raise InvalidOption("data: expected a path or URL, got ''; give one, '.' for the working directory")
    if url != url.encode(errors="replace").decode():  # keys of partitions are text
        raise InvalidOption(f"data: expected a path of Unicode text, got {url!r}; rename it")
    if on_objects(url):
        return normal_url(url)
    refuse_secrets(url)
    if on_icechunk(url):
        return Repository.of(url).tip().url
    return url if "://" in url else os.path.abspath(url)


def group_store(url: Location) -> zarr.storage.ObjectStore | str:
    """Return the argument with which Zarr opens a URL: an object store's client, or the URL itself."""
    where = absolute_url(url)
    return zarr.storage.ObjectStore(open_objects(where).store) if on_objects(where) else where


def open_group(url: Location) -> zarr.Group:
    """Open a Zarr group for reading; every chunk is checked (`CheckedStore`).

    Raises
    ------
    DataNotFound, InvalidOption, MissingExtra, StorageUnreachable, UnsafeData
    """
    if reader := reader_of(url):
        raise InvalidOption(
            f"data: expected a Zarr data set, {reader.named(str(url))} is a stream; `bcmdist ingest` absorbs it"
        )
    where = absolute_url(url)
    if "\0" in where or ("://" in where and ".." in unquote(where).split("/")):
        raise UnsafeData(f"data: expected a path or URL without NUL and '..', got {where!r}; give the place itself")
    try:
        with answering(url):
            if on_icechunk(where):
                snapshot = Repository.of(where)
                checked = CheckedStore(snapshot.store(), where)
                return zarr.open_group(checked, path=snapshot.group, mode="r", use_consolidated=False)
            if os.path.isdir(where):
                checked = CheckedStore(LocalStore(where, read_only=True))
                return zarr.open_group(checked, mode="r", use_consolidated=False)
            if where.endswith(SUFFIX) and (on_objects(where) or os.path.isfile(where)):
                return zarr.open_group(CheckedStore(unpacked(where), where), mode="r", use_consolidated=False)
            group = zarr.open_group(group_store(where), mode="r", use_consolidated=False)
            return zarr.open_group(CheckedStore(group.store), path=group.path, mode="r", use_consolidated=False)
    except BcmdistError:
        raise
    except ImportError as error:
        raise MissingExtra(f"data: {url} needs a package that is not installed ({error}); pip install it") from error
    except Exception as error:  # any error of zarr
        found = leads_nowhere(where) or f"found none ({type(error).__name__})"
        raise DataNotFound(
            f"data: expected a Zarr group at {url}, {found}; check the path, or make one with "
            "`bcmdist import FILE DATA.zarr`"
        ) from error


def find_array(group, url, name) -> zarr.Array | None:
    """Return an array of a group, of any dtype; None if the group has no array of that name.

    Raises
    ------
    DataDamaged, StorageUnreachable, UnsafeData
    """
    safe_name(name, str(url))
    with _readable(group, url, name):
        array = group.get(name)
        if array is not None:
            array.attrs.asdict()  # raises if they are not valid
    return array if isinstance(array, zarr.Array) else None


@contextlib.contextmanager
def _readable(group, url, name):
    """Convert zarr's errors about the metadata of an array into `DataDamaged`."""
    try:
        with answering(url):
            yield
    except BcmdistError:
        raise
    except Exception as error:
        group.store.refuse_unsafe(f"{group.path}/{name}".lstrip("/"))
        raise DataDamaged(
            f"{url}: the metadata of {name} cannot be read ({error}); restore them from a copy"
        ) from error


def open_array(group, url, name) -> zarr.Array:
    """Return an array of numbers, with plausible metadata and an encoding that is safe to decode.

    Raises
    ------
    DataNotFound, InvalidDtype; also as `find_array`
    """
    array = find_array(group, url, name)
    if array is None:
        with _readable(group, url, name):
            names = sorted(group.array_keys())  # fails if an array is being renamed
        raise DataNotFound(f"{url}: expected an array {name!r}, found {names}; name the array with --x or --y")
    if array.dtype.kind not in "fiub":
        raise InvalidDtype(
            f"{url}: expected real numbers in {name}, got dtype {array.dtype}; convert it to float64 first"
        )
    if units := since(array):
        raise InvalidDtype(
            f"{url}: expected numbers in {name}, got dates ({units}), which count from another day in another file; "
            "store what they mean as numbers, such as the age in days"
        )
    group.store.encoding(array.path)  # raises if the encoding is not supported
    if max(array.shape, default=0) > MOST_ROWS:
        raise UnsafeData(
            f"{url}: expected at most {MOST_ROWS:,} rows and columns in {name}, its metadata declare shape "
            f"{array.shape}; restore them from a copy"
        )
    if max(array.shape[1:], default=0) > MOST_COLUMNS:
        raise UnsafeData(
            f"{url}: expected at most {MOST_COLUMNS:,} columns in {name}, its metadata declare shape {array.shape}; "
            "restore them from a copy, or leave out columns"
        )
    return array


def chunk_keys(array, start, stop) -> Iterator[str]:
    """Return the keys of the chunks (shards, if the array has shards) that contain rows start to stop."""
    shape = array.shards or array.chunks
    along = range(start // shape[0], -(-stop // shape[0]))
    across = itertools.product(*(range(-(-n // size)) for n, size in zip(array.shape[1:], shape[1:], strict=True)))
    return (array.metadata.encode_chunk_key(where) for where in ((k, *c) for c in list(across) for k in along))


def _is_stored(array, key):
    return sync(array.store.exists(f"{array.path}/{key}".lstrip("/")))


def whole_rows(array, start, stop) -> int:
    """Return the end of the stored whole chunks, counted in rows, from the chunk of `start` up to about `stop`."""
    size = chunk_rows(array)
    first, last = start // size, min(-(-stop // size), array.shape[0] // size)
    for chunk in range(first, last):
        if not all(_is_stored(array, key) for key in chunk_keys(array, chunk * size, (chunk + 1) * size)):
            return chunk * size
    return max(first, last) * size


def chunk_rows(array) -> int:
    """Rows per chunk, or per shard if the array has shards."""
    return (array.shards or array.chunks)[0]


def missing_chunks(array, rows, store) -> Iterator[str]:
    """Yield the keys of missing chunks among those of the first `rows` rows."""
    return store.missing(array.path, (f"{array.path}/{key}" for key in chunk_keys(array, 0, rows)))
