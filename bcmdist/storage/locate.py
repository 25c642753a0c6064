"""Select the storage (disk or object store) for a path or URL."""

from typing import Any

from bcmdist.errors import MissingExtra
from bcmdist.storage.disk import LocalStorage
from bcmdist.storage.interface import Storage
from bcmdist.storage.urls import Location, normal_url, on_objects


def open_storage(url: Location) -> Storage:
    """Return the storage at a path or at the URL of an object store."""
    return open_objects(url) if on_objects(url) else LocalStorage(url)


def open_objects(url: Location) -> Any:
    """Return the `ObjectStorage` at the URL of an object store.

    Raises
    ------
    MissingExtra, InvalidOption
    """
    try:
        from bcmdist.storage import objects  # optional
    except ImportError as error:
        raise MissingExtra(
            f"{url}: expected the package for object stores, found none ({error}); pip install 'bcmdist[cloud]'"
        ) from error
    return objects.open_objects(normal_url(url))
