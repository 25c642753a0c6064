"""The journal of a job: its request and its events, kept in storage only.

    JOBS/ID/request.json            the request: {"command", "request", "places", "software"}
    JOBS/ID/events/00000001.json    what happened, in numbered events that are never changed

All writers of a job share one log: the clients that submit, resume or cancel it, and its coordinators. A writer puts an
event, if absent, at the number after the last event that the writer has read; if the number is taken, the writer reads
the newer events first. Therefore a coordinator that is no longer the newest (a later `started` is not its own) finds
out before it writes another event. On retry: an event may appear twice, with the same meaning. On duplicate: the older
of two coordinators ends at its next event, and partitions that both have committed count once. On loss of a
coordinator: the log stops, and `resume` starts another coordinator, which continues from the commits of the model.
Times are for people only.
"""

import datetime
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from bcmdist.errors import JobDamaged, JobNotFound, UnsafeData
from bcmdist.storage.fields import Count, Number, converted
from bcmdist.storage.interface import Storage
from bcmdist.storage.locate import open_storage

STATES = {
    "submitted": "submitted",
    "resumed": "submitted",
    "started": "running",
    "finished": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
    "interrupted": "interrupted",
}
"""the state of a job after an event; other events do not change it"""


class Places(msgspec.Struct, forbid_unknown_fields=True):
    """Paths and URLs of a request."""

    ahead: str | UnsetType = UNSET
    data: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    model_a: str | UnsetType = UNSET
    model_b: str | UnsetType = UNSET
    out: str | UnsetType = UNSET
    source: str | UnsetType = UNSET


class StoredRequest(msgspec.Struct):
    """The record of a request."""

    command: str
    request: dict[str, Any]
    places: Places


class Figures(msgspec.Struct):
    """The part of a result that lists of jobs show."""

    rows: Number | None = None
    seconds: Number | None = None


class Event(msgspec.Struct):
    """The fields of all kinds of events; `REQUIRED` has those that a kind must have."""

    event: str
    at: str
    scheduler: str | UnsetType = UNSET
    share: Number | None = None
    workers: Count | None = None
    host: str | UnsetType = UNSET
    pid: Annotated[int, Meta(gt=0, lt=2**31)] | UnsetType = UNSET
    by: str | UnsetType = UNSET
    stage: str | None = None
    partitions_done: Count | None = None
    partitions: Count | None = None
    rows_per_second: Number | None = None
    seconds_by_stage: dict[str, Number] = {}
    key: str | UnsetType = UNSET
    result: Figures | UnsetType = UNSET
    error: str | UnsetType = UNSET
    message: str | UnsetType = UNSET


REQUIRED: dict[str, tuple[str, ...]] = {
    "submitted": ("scheduler",),
    "resumed": ("scheduler",),
    "started": ("host", "pid", "by"),
    "waiting": ("message",),
    "quarantined": ("key",),
    "finished": ("result",),
    "failed": ("error", "message"),
    "interrupted": ("error", "message"),
}
"""fields of an event that its kind requires; other kinds require none"""
OUTPUT = "output.txt"  # output of coordinators, next to the events on a local disk
ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}")


class Journal:
    """The request of one job, and its events read so far."""

    def __init__(self, storage: Storage, job: str):
        self.storage = storage
        self.id = job
        self.events: list[dict] = []

    @property
    def request(self) -> dict:
        """The stored record: `command`, `request`, `places`, `software`."""
        return self._read("request.json", StoredRequest)

    @property
    def output(self) -> str | None:
        """Path of the coordinators' output; None if the jobs are not on a local disk."""
        return None if "://" in self.storage.url else str(Path(self.storage.url, self.id, OUTPUT))

    def news(self) -> list[dict]:
        """Read and return the events written since the last call."""
        before = len(self.events)
        while True:
            try:
                event = self._read(self._name(len(self.events) + 1), Event)
            except FileNotFoundError:
                return self.events[before:]
            self.events.append(event)

    def put(self, event: str, **facts) -> bool:
        """Write an event after the last one read; return False if another writer has written a newer event."""
        line = {"event": event, "at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), **facts}
        name = self._name(len(self.events) + 1)
        self.refuse_links(name)
        if not self.storage.put_if_absent(f"{self.id}/{name}", json.dumps(line).encode()):
            return False
        self.events.append(line)
        return True

    def append(self, event: str, **facts) -> None:
        """Write an event, after reading all newer events by other writers."""
        self.news()
        while not self.put(event, **facts):
            self.news()

    def since_asked(self) -> list[dict]:
        """Events from the last `submitted` or `resumed` on."""
        asked = [k for k, e in enumerate(self.events) if e["event"] in ("submitted", "resumed")]
        return self.events[asked[-1] :] if asked else []

    def refuse_links(self, name) -> None:
        """Raise `UnsafeData` if a path within the job contains a symbolic link, through which other files would be
        written."""
        if "://" in self.storage.url:
            return
        path = self.storage.url
        for part in (self.id, *name.split("/")):
            path = os.path.join(path, part)
            if os.path.islink(path):
                raise UnsafeData(
                    f"{path}: expected a job of this directory, it is a link to {os.readlink(path)}; name the "
                    "directory of that job by --jobs, or remove the link"
                )

    def _read(self, name, kind):
        """Read a record of the job as a JSON object, and check its fields."""
        self.refuse_links(name)
        data = self.storage.get(f"{self.id}/{name}")
        try:
            found = json.loads(data)
            checked = converted(kind, found)
            for field in REQUIRED.get(checked.event, ()) if isinstance(checked, Event) else ():
                if field not in found:
                    raise TypeError(f"expected a field {field}, found nothing")
        except (ValueError, TypeError, RecursionError) as error:
            raise JobDamaged(
                f"{self.storage.url}/{self.id}/{name}: expected a record of a job, found something else "
                f"({type(error).__name__}: {error}); remove this job's directory"
            ) from error
        return found

    def _name(self, number):
        return f"events/{number:08d}.json"


def job_ids(directory) -> list[str]:
    """Return the ids of all jobs of a directory, oldest first by the clocks of the submitting machines."""
    return [name for name in open_storage(directory).names("") if ID.fullmatch(name)]


def open_job(directory, job: str) -> Journal:
    """Open the journal of a job and read its events so far.

    Raises
    ------
    JobNotFound, JobDamaged, UnsafeData
    """
    journal = Journal(open_storage(directory), job)
    try:
        if not ID.fullmatch(job):
            raise FileNotFoundError(job)
        _ = journal.request
    except FileNotFoundError as error:
        raise JobNotFound(
            f"{journal.storage.url}: expected a job {job!r}, there is none; `bcmdist jobs` lists them, --jobs or "
            "BCMDIST_JOBS names another directory"
        ) from error
    journal.news()
    return journal
