"""Jobs: what was asked for and what became of it, kept in storage and nowhere else.

    JOBS/ID/request.json            a command and its arguments, as on the command line
    JOBS/ID/events/00000001.json    what happened, in numbered events that are never changed

All writers of a job, the client that submits or cancels and the coordinator that does the work, share one log. An event
is put, if absent, at the number after the last one that its writer has read; where the number is taken, the writer
reads on first. So a coordinator that is no longer the newest (its last `started` is not the last `started`) cannot
write an event without having learned that. On retry an event may stand twice and means the same; of two coordinators
the older ends at its next event, and what both have committed counts once; with the loss of a coordinator the log ends,
and `resume` starts another one, which continues from the commits of the model. Clocks are for people only.
"""

import datetime
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from bcmdist import __version__
from bcmdist.errors import BcmdistError, JobDamaged, JobNotFound, JobRefused, UnsafeData, WorkerCannotRead
from bcmdist.storage.disk import open_file, read_file
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
REQUEST = {"command": str, "arguments": list, "places": dict}  # entries of records, with their types
EVENT = {"event": str, "at": str}
EVENTS: dict[str, dict] = {
    "started": {"host": str, "pid": int, "by": str},
    "quarantined": {"key": str},
    "finished": {"result": dict},
}
OPEN = ("submitted", "running")  # somebody is, or ought to be, at work
OUTPUT = "output.txt"  # what a coordinator prints, beside its events on a local disk
ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-z]{4}")
LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # none that are mistaken for others
START_SECONDS = 60
CANCEL_SECONDS = 10
POLL_SECONDS = 0.2


class Machine(Protocol):
    """The machine of a scheduler."""

    address: str

    def run(self, function, *arguments) -> Any:
        """Run a function there."""


class Journal:
    """The request and the events of one job, as far as they have been read."""

    def __init__(self, storage: Storage, job: str):
        self.storage = storage
        self.id = job
        self.events: list[dict] = []

    @property
    def request(self) -> dict:
        """What was asked for: `command`, `arguments`, `places`, `software`."""
        return self._read("request.json", REQUEST)

    @property
    def output(self) -> str | None:
        """Path of what coordinators print, where there is a disk for it."""
        return None if "://" in self.storage.url else str(Path(self.storage.url, self.id, OUTPUT))

    def news(self) -> list[dict]:
        """Events that have been written since the last call."""
        known = len(self.events)
        while True:
            try:
                event = self._read(self._name(len(self.events) + 1), EVENT)
            except FileNotFoundError:
                return self.events[known:]
            self.events.append(event)

    def put(self, event: str, **facts) -> bool:
        """Write the event after the last one read; False where there is a newer one."""
        line = {"event": event, "at": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), **facts}
        name = self._name(len(self.events) + 1)
        self.refuse_links(name)
        if not self.storage.put_if_absent(f"{self.id}/{name}", json.dumps(line).encode()):
            return False
        self.events.append(line)
        return True

    def append(self, event: str, **facts):
        """Write an event after whatever others write."""
        self.news()
        while not self.put(event, **facts):
            self.news()

    def since_asked(self) -> list[dict]:
        """Events from the newest `submitted` or `resumed` on."""
        asked = [k for k, e in enumerate(self.events) if e["event"] in ("submitted", "resumed")]
        return self.events[asked[-1] :] if asked else []

    def refuse_links(self, name):
        """Raise `UnsafeData` where a name within the job leads somewhere else: it would be written there."""
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

    def _read(self, name, wanted):
        """A record of the job: a JSON object with at least the wanted entries, by their types."""
        self.refuse_links(name)
        data = self.storage.get(f"{self.id}/{name}")
        try:
            found = json.loads(data)
            entries = wanted | EVENTS.get(found["event"], {}) if wanted is EVENT else wanted
            if not all(isinstance(found[entry], kind) for entry, kind in entries.items()):
                raise TypeError(", ".join(f"{entry} {found[entry]!r}" for entry in entries))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise JobDamaged(
                f"{self.storage.url}/{self.id}/{name}: expected a record of a job, found something else "
                f"({type(error).__name__}: {error}); remove this job's directory"
            ) from error
        return found

    def _name(self, number):
        return f"events/{number:08d}.json"


def job_ids(directory) -> list[str]:
    """All jobs of a directory, oldest first by the clocks of those who submitted them."""
    return [name for name in open_storage(directory).names("") if ID.fullmatch(name)]


def open_job(directory, job: str) -> Journal:
    """A job and its events so far.

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


def listed(directory) -> list[dict]:
    """How all jobs of a directory stand; of one that cannot be read, why."""
    return [_status_or_reason(directory, job) for job in job_ids(directory)]


def _status_or_reason(directory, job):
    try:
        return status(open_job(directory, job))
    except (BcmdistError, OSError) as error:
        return {"id": job, "state": "unreadable", "error": type(error).__name__, "message": str(error)}


def submit(directory, command: str, arguments: list[str], places: dict[str, str], machine: Machine) -> Journal:
    """Write a request and start its coordinator.

    Parameters
    ----------
    directory : of all jobs, which the scheduler's machine must share
    command : fit, ingest or predict
    arguments : as on the command line, with absolute paths
    places : what they name, such as `model` or `out`

    Raises
    ------
    WorkerCannotRead, JobRefused
    """
    storage = open_storage(directory)
    _refuse_unshared(storage, machine)
    request = {"command": command, "arguments": arguments, "places": places, "software": __version__}
    job = _new_id()
    while not storage.put_if_absent(f"{job}/request.json", json.dumps(request).encode()):
        job = _new_id()
    journal = Journal(storage, job)
    journal.append("submitted", scheduler=machine.address)
    _start(journal, machine)
    return journal


def resume(journal: Journal, machine: Machine):
    """Start another coordinator of a job, which continues from what was committed.

    Raises
    ------
    JobRefused
        The job has finished, or its coordinator is at work.
    WorkerCannotRead
    """
    _refuse_unshared(journal.storage, machine)
    journal.news()
    refuse_finished(journal)
    started = _last(journal.since_asked(), "started")
    at_work = started and machine.run(runs, started["host"], started["pid"], journal.id)
    if at_work and status(journal)["state"] in OPEN:
        raise JobRefused(
            f"job {journal.id}: expected one without a coordinator, {started['host']} {started['pid']} is at work on "
            f"it; wait for it, or `bcmdist cancel {journal.id}` first"
        )
    journal.append("resumed", scheduler=machine.address)
    _start(journal, machine)


def refuse_finished(journal: Journal):
    """Raise `JobRefused` where there is nothing to resume."""
    if status(journal)["state"] == "finished":
        raise JobRefused(
            f"job {journal.id}: expected one that is not complete, it has finished; `bcmdist status {journal.id}` "
            "shows its result"
        )


def cancel(journal: Journal):
    """Ask the coordinator of a job to stop, and wait a moment until it has; where there is none, say it in its place.

    Raises
    ------
    JobRefused
        The job has ended already.
    """
    state, coordinator = (status(journal)[name] for name in ("state", "coordinator"))
    if state == "cancelled":
        return
    if state in ("finished", "failed"):
        raise JobRefused(f"job {journal.id}: expected one that runs, it has {state}; there is nothing to cancel")
    if state == "interrupted" or coordinator is None:
        journal.append("cancelled")
        return
    journal.append("cancel")
    deadline = time.monotonic() + CANCEL_SECONDS
    while status(journal)["state"] in OPEN and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        journal.news()


def status(journal: Journal) -> dict:
    """How a job stands by its events, and by a look at its coordinator's process if that is on this machine."""
    request, events = journal.request, journal.since_asked()
    state = next((STATES[e["event"]] for e in reversed(events) if e["event"] in STATES), "submitted")
    started, told = _last(events, "started"), _last(events, "progress") or {}
    ended = _last(events, "finished", "failed", "interrupted") or {}
    if state == "running" and started and runs(started["host"], started["pid"], journal.id) is False:
        state = "interrupted"
        ended = {"error": "CoordinatorLost", "message": f"its coordinator is gone: `bcmdist resume {journal.id}`"}
    asked = [e for e in journal.events if "scheduler" in e]
    result = ended.get("result", {})
    seconds = ended.get("seconds_by_stage") or told.get("seconds_by_stage", {})
    return {
        "id": journal.id,
        "command": request["command"],
        "state": state,
        "stage": told.get("stage"),
        "partitions_done": told.get("partitions_done"),
        "partitions": told.get("partitions"),
        "rows_per_second": _rate(result) or told.get("rows_per_second"),
        "seconds_by_stage": seconds,
        "worker_failures": sum(e["event"] == "worker lost" for e in journal.events),
        "quarantined": [e["key"] for e in events if e["event"] == "quarantined"],
        "coordinators": sum(e["event"] == "started" for e in journal.events),
        "coordinator": f"{started['host']} {started['pid']}" if started else None,
        "scheduler": asked[-1]["scheduler"] if asked else None,
        "submitted": journal.events[0]["at"] if journal.events else None,
        "heard": journal.events[-1]["at"] if journal.events else None,
        **request["places"],
        "result": result or None,
        "error": ended.get("error"),
        "message": ended.get("message"),
    }


def _rate(result):
    return result["rows"] / result["seconds"] if result.get("seconds") and "rows" in result else None


def _last(events, *names):
    return next((e for e in reversed(events) if e["event"] in names), None)


def runs(host, pid, job) -> bool | None:
    """Whether a coordinator is at work; None where that cannot be seen from this machine."""
    import psutil

    if host != socket.gethostname():
        return None
    try:
        process = psutil.Process(pid)
        line = process.cmdline()  # empty for an instant when the process has just begun
        return (not line or job in line) and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _new_id():
    moment = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return f"{moment}-{''.join(secrets.choice(LETTERS) for _ in range(4))}"


def _refuse_unshared(storage, machine):
    """Raise where the scheduler's machine does not see this very directory."""
    name, text = f"canary/{secrets.token_hex(8)}", secrets.token_hex(8)
    storage.put_if_absent(name, text.encode())
    try:
        host, found = machine.run(_read, storage.url, name)
    finally:
        storage.remove(name)
    if found != text:
        raise WorkerCannotRead(
            f"jobs: expected a directory that the scheduler's machine {host} ({machine.address}) shares, it finds "
            f"{found or 'nothing'} in {storage.url}; name another one by --jobs or BCMDIST_JOBS"
        )


def _read(url, name):
    try:
        return socket.gethostname(), open_storage(url).get(name).decode()
    except OSError:
        return socket.gethostname(), ""


def _start(journal, machine):
    """Start a coordinator and wait until it says so."""
    host, pid = machine.run(spawn, journal.storage.url, journal.id)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        alive = machine.run(runs, host, pid, journal.id)
        journal.news()
        if len(journal.since_asked()) > 1:
            return
        if not alive:
            break
        time.sleep(POLL_SECONDS)
    said = machine.run(_last_line, journal.output) if journal.output else "nothing"
    raise JobRefused(
        f"job {journal.id}: expected its coordinator to start on {host} within {START_SECONDS} s, it has ended or is "
        f"silent, and said {said!r}; see {journal.output or 'the logs of the scheduler'}, then "
        f"`bcmdist resume {journal.id}`"
    )


def spawn(url, job):
    """Start a coordinator on this machine as a process that outlives the one that starts it; host and process id."""
    journal = Journal(open_storage(url), job)
    journal.refuse_links(OUTPUT)
    with _appended(journal.output) as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bcmdist.app.coordinator", url, job],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    threading.Thread(target=process.wait, daemon=True).start()  # or it would stay as a zombie
    return socket.gethostname(), process.pid


def _appended(path):
    """What a coordinator prints goes to the end of a file, or nowhere."""
    if path is None:
        return open(os.devnull, "ab")
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def _last_line(path):
    lines = read_file(path).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "nothing"
