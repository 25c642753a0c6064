"""Where a model directory lies: named byte strings that are written once, durably.

A name is put if it is absent: of two writers one wins, and nothing is overwritten.
"""

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Protocol

from bcmdist.errors import InvalidOption, MissingExtra, StorageUnreachable

OBJECTS = "s3://"


class Storage(Protocol):
    """Named byte strings that are written once. Names are relative, with `/` between parts."""

    url: str

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write durably; False, and no effect, where the name is taken."""

    def get(self, name: str) -> bytes:
        """The bytes; FileNotFoundError where there are none."""

    def names(self, folder: str) -> list[str]:
        """Sorted last parts of the names in a folder."""

    def remove(self, name: str) -> None:
        """Forget a name, and folders that it leaves empty; no error where there is none."""

    def remove_all(self) -> None:
        """Forget every name."""


class LocalStorage:
    """A directory: temporary file, fsync, link (which fails if taken), unlink, fsync of the directory."""

    def __init__(self, root):
        if "://" in str(root) or not str(root):
            raise InvalidOption(
                f"model: expected a path on a disk that all workers share, or s3://BUCKET/PREFIX, got {str(root)!r}; "
                "give one"
            )
        self.url = os.path.abspath(root)

    def put_if_absent(self, name, data):
        path = Path(self.url, name)
        if path.exists():
            return False
        _make_directory(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        sync_directory(path.parent)
        return True

    def get(self, name):
        return Path(self.url, name).read_bytes()

    def names(self, folder):
        path = Path(self.url, folder)
        return sorted(n for n in os.listdir(path) if not n.startswith(".tmp-")) if path.is_dir() else []

    def remove(self, name):
        path = Path(self.url, name)
        path.unlink(missing_ok=True)
        for folder in (path.parent, Path(self.url)):
            with contextlib.suppress(OSError):  # not empty, or gone
                folder.rmdir()

    def remove_all(self):
        shutil.rmtree(self.url, ignore_errors=True)


def _make_directory(path):
    """Make a directory and its parents, each entry durable."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path):
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_storage(url) -> Storage:
    """The storage behind a path, or behind `s3://BUCKET/PREFIX`."""
    return open_objects(url) if on_objects(url) else LocalStorage(url)


def on_objects(url) -> bool:
    """Whether a URL is one of an object store, where there are no directories."""
    return str(url).startswith(OBJECTS)


def open_objects(url):
    """The `ObjectStorage` behind `s3://BUCKET/PREFIX`.

    Raises
    ------
    MissingExtra, InvalidOption
    """
    try:
        from bcmdist import objects
    except ImportError as error:
        raise MissingExtra(
            f"{url}: object stores need a package that is not installed ({error}); pip install 'bcmdist[s3]'"
        ) from error
    return objects.open_objects(normal_url(url))


def normal_url(url) -> str:
    """`s3://BUCKET/PREFIX` without empty parts, so that one place has one name."""
    parts = str(url).removeprefix(OBJECTS).split("/")
    return OBJECTS + "/".join(part for part in parts if part)


@contextlib.contextmanager
def answering(url):
    """Says which URL it was where an object store does not answer, or refuses.

    Raises
    ------
    StorageUnreachable
    """
    try:
        yield
    except Exception as error:
        if type(error).__module__ != "obstore.exceptions":
            raise
        line = re.split(": <[?]xml|\n", str(error))[0]
        code = "".join(re.findall("<Code>(.*?)</Code>", str(error))[:1])  # what S3 answers with
        raise StorageUnreachable(
            f"{url}: expected the object store to answer, got {line} {code}; check that it "
            "runs and holds the bucket, and AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY on this machine"
        ) from error
