"""Storage of models and data on S3 and what speaks like it, Google Cloud Storage and Azure, through obstore.

Endpoint, region, account and credentials come from the environment of each machine (`urls.Provider`, as obstore reads
them) and are never sent to other machines. Plain HTTP is used only if the endpoint begins with `http://`. The commit
log needs conditional puts: of two puts "if absent", one must fail. Some stores silently ignore the condition; a test
before the first write detects this, and nothing else is written then.
"""

import atexit
import contextlib
import functools
import os
import random
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import AzureStore, GCSStore, S3Store

from bcmdist.errors import InvalidOption, StorageUnreachable, StoreIgnoresConditions
from bcmdist.storage.urls import AZURE, GCS, PROVIDERS, S3, Provider, answering

# Longest random waits, in seconds, before an unanswered conditional put is repeated.
WAITS = (0.2, 1.0, 3.0)
# Retries by the client, of requests that it may repeat, with random waits in between.
RETRIES = 4
# Seconds at exit in which the client's own threads let go of Python objects: one that waits for the interpreter lock
# when the interpreter ends aborts the process (exit code 134), after all work is done.
SECONDS_AT_EXIT = 0.1
atexit.register(time.sleep, SECONDS_AT_EXIT)
WRITER = "writer"  # metadata of objects
CLIENTS: dict[Provider, Callable[..., Any]] = {
    S3: functools.partial(S3Store, disable_bulk_delete=True),  # not all stores that speak like S3 support it
    GCS: GCSStore,
    AZURE: AzureStore,
}


class ObjectStorage:
    """A prefix of a bucket, or of a container, as storage.

    On an object store a put is atomic, and durable once the response arrives; `put_if_absent` makes it conditional on
    the name being absent: If-None-Match: * on S3 and Azure, x-goog-if-generation-match: 0 on Google Cloud Storage.

    On loss of a response the put is repeated, by this class, the client or a proxy, and then fails because its own
    first attempt took the name. Therefore each put stores a random number with the object, as metadata: if the name is
    taken, the put has succeeded if the object has its number. In doubt (the name has vanished again, or the store kept
    no metadata) the put fails, which is always safe: a writer that fails reads the log again, and the ledger is a set.

    Parameters
    ----------
    url : URL of the prefix
    store : obstore's client for this prefix
    """

    def __init__(self, url, store):
        self.url, self.store = url, store
        self._keeps_conditions = False

    def __reduce__(self):
        return open_objects, (self.url,)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if not self._keeps_conditions:
            check_conditions(self)
            self._keeps_conditions = True
        return self.create(name, data)

    def create(self, name, data) -> bool:
        """Put if absent, with retries until there is a response; False if another put has taken the name."""
        writer = uuid.uuid4().hex
        with answering(self.url):
            for wait in WAITS:
                try:
                    return self._attempt(name, data, writer)
                except GenericError:  # no response; the object may exist
                    time.sleep(random.uniform(0, wait))
            return self._attempt(name, data, writer)

    def _attempt(self, name, data, writer):
        try:
            self._put(name, data, mode="create", attributes={WRITER: writer})
        except AlreadyExistsError:
            return self._writer(name) == writer
        return True

    def put_own(self, name, data) -> None:
        with answering(self.url):
            self._put(name, data)

    def _put(self, name, data, **how):
        try:
            obstore.put(self.store, name, data, use_multipart=False, **how)
        except FileNotFoundError as error:
            raise StorageUnreachable(f"{self.url}: expected its bucket to exist, found none; create it") from error

    def _writer(self, name):
        """Random number of the put that stored an object; None if there is none."""
        try:
            return obstore.get(self.store, name, options={"head": True}).attributes.get(WRITER)
        except FileNotFoundError:
            return None

    def get(self, name: str) -> bytes:
        with answering(self.url):
            return bytes(obstore.get(self.store, name).bytes())

    def stored_at(self, name) -> float:
        with answering(self.url):
            return obstore.head(self.store, name)["last_modified"].timestamp()

    def names(self, folder: str) -> list[str]:
        with answering(self.url):
            found = obstore.list_with_delimiter(self.store, folder or None)
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        return sorted({path.rstrip("/").rpartition("/")[2] for path in paths})

    def between(self, first: str, end: str) -> dict[str, str]:
        """Return the names from `first` up to `end` in the order of text, in all folders, each with a version.

        A version differs from that of any other object that had the same name. One request lists a thousand names.
        """
        found: dict[str, str] = {}
        before = first[:-1] + chr(ord(first[-1]) - 1)  # the list begins after a name
        with answering(self.url):
            for entries in obstore.list(self.store, offset=before):
                for entry in entries:
                    if entry["path"] >= end:
                        return found
                    if entry["path"] >= first:
                        found[entry["path"]] = f"{entry['e_tag']} {entry['last_modified'].timestamp()} {entry['size']}"
        return found

    def remove(self, name: str) -> None:
        with answering(self.url), contextlib.suppress(FileNotFoundError):
            obstore.delete(self.store, name)

    def temporary(self, folder) -> list[str]:
        """Return an empty list: an object exists completely or not at all."""
        return []

    def settle(self, folder) -> None:
        """Do nothing: all operations are durable."""

    def remove_all(self) -> None:
        """Remove every name."""
        with answering(self.url):
            for entries in obstore.list(self.store):
                obstore.delete(self.store, [entry["path"] for entry in entries])


def check_conditions(storage: ObjectStorage) -> None:
    """Put a temporary entry twice, with different bytes, and check that the second put fails.

    Raises
    ------
    StoreIgnoresConditions
        The second put succeeded, or the first one failed.
    """
    name = f"canary/{uuid.uuid4().hex}"
    first, second = storage.create(name, b"first"), storage.create(name, b"second")
    found = storage.get(name)
    storage.remove(name)
    if not first or second or found != b"first":
        raise StoreIgnoresConditions(
            f"{storage.url}: expected the store to refuse a put of an existing object under the condition that "
            "there is none, got it overwritten, so that the commit of one of two writers could be lost; keep models on "
            "AWS S3, MinIO or another store that honours conditional puts, or on a disk (data sets may stay here)"
        )


def open_objects(url) -> ObjectStorage:
    """Return the storage at a normal URL; clients are cached by URL and the variables that its provider reads.

    Raises
    ------
    InvalidOption
        The URL has no bucket.
    StorageUnreachable
        Variables are missing or wrong.
    """
    names = PROVIDERS[url.partition("://")[0]].environment
    variables = (item for item in os.environ.items() if item[0].startswith(names))
    return _opened(url, tuple(sorted(variables)))


@functools.lru_cache(maxsize=256)
def _opened(url, environment):
    scheme, _, place = url.partition("://")
    provider, (bucket, _, prefix) = PROVIDERS[scheme], place.partition("/")
    if not bucket:
        kind = provider.form.split("/")[2].lower()
        raise InvalidOption(f"{url}: expected {provider.form}, got no {kind}; name it")
    endpoint = next((value for name in provider.endpoints if (value := dict(environment).get(name))), "")
    with answering(url):
        store = CLIENTS[provider](
            bucket,
            prefix=prefix or None,
            client_options={"allow_http": endpoint.startswith("http://"), "connect_timeout": "5s", "timeout": "300s"},
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=60)},
        )
    return ObjectStorage(url, store)
