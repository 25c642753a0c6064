"""The storage behind a path or URL."""

from typing import Any

from bcmdist.errors import MissingExtra
from bcmdist.storage.disk import LocalStorage
from bcmdist.storage.interface import Storage
from bcmdist.storage.urls import normal_url, on_objects


def open_storage(url) -> Storage:
    """The storage behind a path, or behind `s3://BUCKET/PREFIX`."""
    return open_objects(url) if on_objects(url) else LocalStorage(url)


def open_objects(url) -> Any:
    """The `ObjectStorage` behind `s3://BUCKET/PREFIX`.

    Raises
    ------
    MissingExtra, InvalidOption
    """
    try:
        from bcmdist.storage import s3  # optional
    except ImportError as error:
        raise MissingExtra(
            f"{url}: object stores need a package that is not installed ({error}); pip install 'bcmdist[s3]'"
        ) from error
    return s3.open_objects(normal_url(url))
