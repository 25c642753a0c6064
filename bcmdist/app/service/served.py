"""A served model: its newest state, replaced while requests are running, and a writer that commits rows of requests.

A request keeps the state that it began with until it is answered; a state is closed when its last request is. A newer
commit, by this or another process, therefore interrupts no request.

Each model has one writer: a thread that commits the rows of waiting requests together. After a retry or on duplicate
delivery a request is in the queue twice and its rows are absorbed once. If the process dies, its queue is lost; none of
the queued requests had a response, so that their senders retry.
"""

import contextlib
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixture import Mixture
from bcmdist.app.service.commits_by_name import CommitsByName, ServedState
from bcmdist.app.service.inbox import Inbox, Received
from bcmdist.app.service.loaded import Changes, Loaded, hold, load, newest_version
from bcmdist.app.service.reverts import revert
from bcmdist.app.service.waiting import WaitingRows
from bcmdist.app.service.writer import Writer, not_served
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import BcmdistError, CommitConflict
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.storage.heartbeats import BEAT_SECONDS, Heartbeat, heartbeats

Answer = TypeVar("Answer")
TRIES = 3  # to commit rows: others may replace the model, or a step after the commit may fail
log = logging.getLogger("bcmdist.app.service")


class Waiting:
    """The rows of some requests as a source. Each partition is delivered once; on loss, the senders retry."""

    def __init__(self, name: str, parts: list[Partition]):
        self.name, self.parts = name, list(parts)

    def read(self, after, most) -> list[Delivery]:
        """Return the next deliveries, at most `most`; offsets are not used."""
        taken, self.parts = self.parts[:most], self.parts[most:]
        return [Delivery((part,), None) for part in taken]

    def ack(self, offset, keys) -> None:
        """Do nothing: the senders get a response."""

    def lag(self, after) -> None:
        """Return None: the writer counts waiting rows."""

    def close(self) -> None:
        """Do nothing: no resource is open."""


class Served:
    """A model directory served under a name; methods may be called from any thread."""

    def __init__(self, name: str, url: str, rows_url: str, waiting: WaitingRows):
        self.name, self.url, self._waiting = name, url, waiting
        self._lock, self._changing = threading.Lock(), threading.Lock()
        self._committing = False
        self._users: dict[Loaded, int] = {}
        """number of references to each open state: running requests, and one for the newest state"""
        self._newest = load(url)
        self._users[self._newest] = 1  # reference of this object
        self._changes = Changes(url)
        self.inbox = Inbox(rows_url)
        self.writer = Writer(name, self._absorb, functools.partial(waiting.set, name))
        self.renewed_at = time.time()
        """when the state was last replaced, in seconds since the epoch"""
        self.ingesters: list[Heartbeat] = []
        """newest heartbeat of each source whose ingester should wait for rows"""
        self._looked_at = -math.inf
        """when heartbeats were last read, by `time.monotonic`"""
        self.commits = CommitsByName(name, url, self.using)
        self.look_at_ingesters()

    @contextlib.contextmanager
    def using(self) -> Iterator[Loaded]:
        """Yield the newest state, which stays open within the context; raise `Refused` if the model was closed."""
        with self._lock:
            loaded = self._newest
            if loaded not in self._users:
                raise not_served()
            self._users[loaded] += 1
        try:
            yield loaded
        finally:
            self._leave(loaded)

    def ask(self, question: Callable[[Loaded], Answer]) -> Answer:
        """Apply `question` to the newest state and return its result.

        If that fails and the state has been replaced meanwhile (its files may be gone), try once with the new state.
        """
        try:
            with self.using() as loaded:
                return question(loaded)
        except (BcmdistError, OSError):
            self.renew()
            with self.using() as newest:
                if newest.version == loaded.version:
                    raise
                return question(newest)

    def at(self, commit: str | None) -> ServedState:
        """Return the state of a commit, given by number or alias; None: this model. Errors as of `CommitsByName.at`."""
        return self if commit is None else self.commits.at(commit)

    def revert(self, key: str, asked: int | str) -> tuple[dict, bool]:
        """Return the model to an earlier commit, as a new commit, once for each key; see `reverts.revert`.

        Returns
        -------
        The response, the same for the same request, and whether it was made before.
        """
        with self._changing, self._commits_now():
            self._renewed()
            with self.using() as loaded:
                fitted = loaded.fitted
                storage = self.inbox.storage(fitted)
                answer, before, after = revert(storage, key, asked, fitted, lambda: self._number(asked))
            if after is not None:
                self._take(hold(after))
        return answer, before

    def _number(self, asked) -> int:
        """Return the number of a commit that exists."""
        with self.at(str(asked)).using() as loaded:
            return loaded.fitted.commit

    def _leave(self, loaded):
        with self._lock:
            self._users[loaded] -= 1
            left = self._users[loaded]
            if not left:
                del self._users[loaded]
        if not left:
            loaded.close()

    def _take(self, loaded):
        """Replace the newest state."""
        with self._lock:
            before = self._newest
            self._newest, self._users[loaded], self.renewed_at = loaded, 1, time.time()
        if loaded.fitted.commit <= before.fitted.commit:  # another model, or an older copy of this one
            self.commits.drop()
        self._leave(before)

    def lag(self) -> dict[str, float | None]:
        """Return `rows`, the number of waiting rows, and `seconds`, the age of the oldest.

        Both cover the rows of requests and, as of the newest commit, those in sources. Both are None if the lag of a
        source is unknown or an ingester is dead.
        """
        with self.using() as loaded:
            lags = [one for one in loaded.lag.values() if one is not None]
            unknown = len(lags) < len(loaded.lag) or self.dead_ingesters
        if unknown:
            return {"rows": None, "seconds": None}
        rows, seconds = self._waiting.of(self.name)
        return {
            "rows": rows + sum(one["rows"] for one in lags),
            "seconds": max([seconds, *(one["seconds"] for one in lags)]),
        }

    @property
    def waiting_rows(self) -> int:
        """Rows of requests that wait to be committed, in all processes of the service."""
        return self._waiting.of(self.name)[0]

    @property
    def dead_ingesters(self) -> int:
        """Number of sources whose ingester should wait for rows but is dead."""
        return sum(not one.alive for one in self.ingesters)

    def look_at_ingesters(self) -> None:
        """Read the heartbeats of ingesters, at most once per `BEAT_SECONDS`."""
        if time.monotonic() - self._looked_at >= BEAT_SECONDS:
            with self.using() as loaded:
                self.ingesters = heartbeats(loaded.snapshot.store)
            self._looked_at = time.monotonic()

    def renew(self) -> bool:
        """Load the newest state if it has changed, even if the directory now holds another model.

        Return whether it had changed; False at once while `_absorb` commits, which then takes the new state itself.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch, StorageUnreachable
        """
        if not self._changing.acquire(blocking=not self._committing):  # `_committed` takes the state of its own commit
            return False
        try:
            return self._renewed()
        finally:
            self._changing.release()

    def _renewed(self):
        """As `renew`, for a caller that holds the lock `_changing`."""
        with self.using() as loaded:
            version = loaded.version
        if not self._changes.since(version):
            return False
        changed = newest_version(self.url) != version
        if changed:
            self._take(load(self.url))
        self._changes.confirm(self._newest.version)
        return changed

    def submit(self, key: str, X, y, **companions) -> tuple[dict, Future]:
        """Store the rows of a request, and queue them for the writer unless they are committed already.

        Returns
        -------
        The response, the same for the same request; and a future, done once the rows are committed, with whether that
        was before.

        Raises
        ------
        InvalidOption, InvalidData, InvalidDtype, UnsupportedTarget, ChunkConflict, MemoryLimit
        """
        self.renew()
        with self.using() as loaded:
            received = self.inbox.receive(loaded.fitted, key, X, y, **companions)
            one = loaded.snapshot
            replayed = received.absorbed and one.store.descends(one.identity, one.commit, one.digest)
        if replayed:
            done: Future = Future()
            done.set_result(True)
            return received.answer, done
        return received.answer, self.writer.submit(received)

    def _absorb(self, requests) -> list[bool]:
        """Commit the rows of requests; return for each whether they were committed before.

        Raises
        ------
        CommitConflict
            Another model has replaced the one that the rows were sent to.
        """
        with self._changing, self._commits_now():
            self._renewed()
            added = set[str]()
            for left in reversed(range(TRIES)):
                try:
                    self._commit(requests, added)
                    return _replayed(requests, added)
                except Exception as error:
                    if not left or not self._renewed():  # with the same state it would fail again
                        raise
                    log.warning(
                        "model %s: absorbing rows failed, its newest state is tried: %s",
                        self.name,
                        type(error).__name__,
                    )
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def _commits_now(self):
        """Mark that a commit is in progress, so that `renew` does not wait for it."""
        self._committing = True
        try:
            yield
        finally:
            self._committing = False

    def _commit(self, requests, added: set[str]):
        """Commit the rows of requests that the ledger lacks; add the keys of their partitions to `added`."""
        with self.using() as loaded, SerialRuntime() as runtime:
            fitted = loaded.fitted
            refuse_other_model(fitted, requests)
            holds, all_parts = fitted.snapshot.ledger.holds, (part for request in requests for part in request.parts)
            parts = list(dict.fromkeys(part for part in all_parts if not holds(part.key)))
            if parts:
                options = IngestOptions(same_rows="allow", observe=lambda event: added.update(event.keys))
                after, _ = fitted.ingest(Waiting(self.inbox.url, parts), options, runtime=runtime)
                self._take(hold(after))

    def sweep(self, days: float) -> int:
        """Remove stored rows that the model does not need, as `Inbox.sweep`; return the number of removed files."""
        with self.using() as loaded:
            return self.inbox.sweep(loaded.fitted, days)

    def close(self) -> None:
        """Commit waiting rows and close the model."""
        self.writer.close()
        self.commits.drop()
        self._leave(self._newest)


def _replayed(requests: Iterable[Received], added: set[str]) -> list[bool]:
    """Whether each request, in this order, brought none of the partitions that were added; empties `added`."""
    replayed = []
    for request in requests:
        own = added.intersection(part.key for part in request.parts)
        replayed.append(not own)
        added -= own
    return replayed


def refuse_other_model(gbcm: GBCM | Mixture, requests: Iterable[Received]) -> None:
    """Raise `CommitConflict` if rows were sent to a model with another identity."""
    if any(request.identity != gbcm.snapshot.identity for request in requests):
        raise CommitConflict(
            f"{gbcm.url}: expected the model that rows were sent to, another one has taken its place; send them again"
        )
