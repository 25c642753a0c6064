"""Models and data on S3, or what speaks like it, through obstore.

Endpoint, region and credentials are those of the environment (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, ... as obstore reads them), on every machine its own: nothing of it is ever sent along. Plain
HTTP is spoken only where the endpoint says `http://`. The commit log needs one thing of a store: that of two puts
under the condition "if absent" one fails. Some stores ignore the condition, silently; the first thing that is
written shows it, and nothing else is written then.
"""

import contextlib
import functools
import os
import random
import time
import uuid
from datetime import timedelta

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import S3Store

from bcmdist.errors import InvalidOption, StorageUnreachable, StoreIgnoresConditions
from bcmdist.storage.urls import answering

# Seconds to wait, at most, before a conditional put that was not answered is repeated.
WAITS = (0.2, 1.0, 3.0)
# How often the client repeats what it may, with random waits in between.
RETRIES = 4
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


class ObjectStorage:
    """A prefix of a bucket.

    A put is atomic on an object store, and durable once it is answered; `put_if_absent` makes it under the condition
    that there is nothing (If-None-Match: *).

    On loss of an answer the put is repeated, by us or by the client or a proxy in between, and then fails because of
    itself. So a put that finds its name taken, after a look beforehand found nothing there, compares what is there
    with what it was to write, and has won where these are the same bytes. If somebody else wrote them in the meantime
    both have won, and nothing is wrong: a name says what its bytes mean, so two equal records are one commit, with
    the same state and the same ledger, in which every partition stands once; neither writer was overtaken by anything
    that it does not know. On doubt (what is there has vanished again) the put has lost, which is always safe: losers
    read the log again, and the ledger is a set.

    Parameters
    ----------
    url : of the prefix, as others see it
    store : obstore's client of that prefix
    """

    def __init__(self, url, store):
        self.url, self.store = url, store
        self._keeps_conditions = False

    def __reduce__(self):
        return open_objects, (self.url,)

    def put_if_absent(self, name, data) -> bool:
        if not self._keeps_conditions:
            check_conditions(self)
            self._keeps_conditions = True
        return not self._exists(name) and self.create(name, data)

    def create(self, name, data) -> bool:
        """A conditional put, repeated until it is answered; False where the name is taken by other bytes."""
        with answering(self.url):
            for wait in WAITS:
                try:
                    return self._attempt(name, data)
                except GenericError:  # no answer, and perhaps it is there
                    time.sleep(random.uniform(0, wait))
            return self._attempt(name, data)

    def _attempt(self, name, data):
        try:
            obstore.put(self.store, name, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return self._holds(name, data)
        except FileNotFoundError as error:
            raise StorageUnreachable(f"{self.url}: expected its bucket to exist, there is none; make it") from error
        return True

    def get(self, name) -> bytes:
        with answering(self.url):
            return bytes(obstore.get(self.store, name).bytes())

    def stored_at(self, name) -> float:
        with answering(self.url):
            return obstore.head(self.store, name)["last_modified"].timestamp()

    def names(self, folder) -> list[str]:
        with answering(self.url):
            found = obstore.list_with_delimiter(self.store, folder or None)
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        return sorted({path.rstrip("/").rpartition("/")[2] for path in paths})

    def remove(self, name) -> None:
        with answering(self.url), contextlib.suppress(FileNotFoundError):
            obstore.delete(self.store, name)

    def temporary(self, folder) -> list[str]:
        """None: an object is there wholly or not at all."""
        return []

    def settle(self, folder) -> None:
        """Nothing: what was removed is."""

    def remove_all(self) -> None:
        """Forget every name."""
        with answering(self.url):
            for entries in obstore.list(self.store):
                obstore.delete(self.store, [entry["path"] for entry in entries])

    def _exists(self, name):
        try:
            with answering(self.url):
                obstore.head(self.store, name)
        except FileNotFoundError:
            return False
        return True

    def _holds(self, name, data):
        try:
            return self.get(name) == data
        except FileNotFoundError:
            return False


def check_conditions(storage: ObjectStorage) -> None:
    """Put a canary twice, with different bytes, where the second put must fail; it is removed.

    Raises
    ------
    StoreIgnoresConditions
        It did not.
    """
    name = f"canary/{uuid.uuid4().hex}"
    first, second = storage.create(name, b"first"), storage.create(name, b"second")
    found = storage.get(name)
    storage.remove(name)
    if not first or second or found != b"first":
        raise StoreIgnoresConditions(
            f"{storage.url}: expected the store to refuse a put with `If-None-Match: *` where there is something, it "
            "overwrote it, so that of two writers one would be lost; keep models on AWS S3, MinIO or another store "
            "that honours conditional puts, or on a disk (data sets may stay here)"
        )


def open_objects(url) -> ObjectStorage:
    """The prefix behind `s3://BUCKET/PREFIX`; one client for each URL and environment.

    Raises
    ------
    InvalidOption
    """
    return _opened(url, tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))))


@functools.lru_cache(maxsize=256)
def _opened(url, environment):
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not bucket:
        raise InvalidOption(f"{url}: expected s3://BUCKET/PREFIX, got no bucket; name it")
    endpoint = next((value for name in ENDPOINTS if (value := dict(environment).get(name))), "")
    store = S3Store(
        bucket,
        prefix=prefix or None,
        disable_bulk_delete=True,  # which not all stores know
        client_options={"allow_http": endpoint.startswith("http://"), "connect_timeout": "5s", "timeout": "300s"},
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=60)},
    )
    return ObjectStorage(url, store)
