"""Submit, resume, cancel and describe background jobs, and start their coordinators.

The state of a job is its journal (`bcmdist.app.journal`). The work is done by its coordinator
(`bcmdist.app.coordinator`), a process on the scheduler's machine.
"""

import datetime
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Protocol

from bcmdist import __version__
from bcmdist.api.request_json import to_json
from bcmdist.api.requests import Request, named_places
from bcmdist.app.journal import OUTPUT, STATES, Journal, job_ids, open_job
from bcmdist.errors import BcmdistError, JobRefused, WorkerCannotRead
from bcmdist.runtime.portion import ALL, Portion
from bcmdist.storage.disk import open_file, read_file
from bcmdist.storage.locate import open_storage

OPEN = ("submitted", "running")  # states of a job that has not ended
LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # without letters that are easily confused
START_SECONDS = 60
CANCEL_SECONDS = 10
POLL_SECONDS = 0.2


class Machine(Protocol):
    """The machine of a scheduler."""

    address: str

    def run(self, function, *arguments) -> Any:
        """Run a function on the scheduler's machine and return its result."""


def listed(directory) -> list[dict]:
    """Return the status of all jobs of a directory; for a job that cannot be read, the reason."""
    return [_status_or_reason(directory, job) for job in job_ids(directory)]


def _status_or_reason(directory, job):
    try:
        return status(open_job(directory, job))
    except (BcmdistError, OSError) as error:
        return {"id": job, "state": "unreadable", "error": type(error).__name__, "message": str(error)}


def submit(directory, request: Request, machine: Machine, portion: Portion = ALL) -> Journal:
    """Store a request as a new job and start its coordinator; return the job's journal.

    Parameters
    ----------
    directory : directory of all jobs, which the scheduler's machine must share
    request : a checked request with absolute paths (`located`)
    machine : machine of the scheduler
    portion : largest portion of the cluster that the job may use

    Raises
    ------
    WorkerCannotRead, JobRefused
    """
    storage = open_storage(directory)
    _refuse_unshared(storage, machine)
    asked, places = to_json(request), named_places(request)
    record = {"command": asked["request"], "request": asked, "places": places, "software": __version__}
    job = _new_id()
    while not storage.put_if_absent(f"{job}/request.json", json.dumps(record).encode()):
        job = _new_id()
    journal = Journal(storage, job)
    journal.append("submitted", scheduler=machine.address, **portion.fields())
    _start(journal, machine)
    return journal


def resume(journal: Journal, machine: Machine, portion: Portion = ALL) -> None:
    """Start another coordinator of a job, which continues from the last commit.

    Parameters
    ----------
    portion : largest portion of the cluster that the job may use; by default as before

    Raises
    ------
    JobRefused
        The job has finished, or its coordinator is running.
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
    journal.append("resumed", scheduler=machine.address, **(portion or asked_portion(journal)).fields())
    _start(journal, machine)


def asked_portion(journal: Journal) -> Portion:
    """Return the portion of the cluster given at the last submit or resume of a job.

    Raises
    ------
    InvalidOption
    """
    asked = next(iter(journal.since_asked()), {})
    return Portion(asked.get("share"), asked.get("workers"))


def asked_scheduler(journal: Journal) -> str:
    """Return the scheduler's address given at the last submit or resume of a job.

    Raises
    ------
    JobRefused
        The client that submitted the job ended before it recorded an address.
    """
    found = status(journal)["scheduler"]
    if found is None:
        raise JobRefused(
            f"job {journal.id}: expected the address of a scheduler in its journal, there is none; name one by "
            f"`bcmdist resume {journal.id} --scheduler ADDRESS`"
        )
    return found


def refuse_finished(journal: Journal) -> None:
    """Raise `JobRefused` if the job has finished, so that there is nothing to resume."""
    if status(journal)["state"] == "finished":
        raise JobRefused(
            f"job {journal.id}: expected one that is not complete, it has finished; `bcmdist status {journal.id}` "
            "shows its result"
        )


def cancel(journal: Journal) -> None:
    """Ask the coordinator of a job to stop, and wait up to `CANCEL_SECONDS` until it has.

    If no coordinator is running, the event "cancelled" is recorded directly.

    Raises
    ------
    JobRefused
        The job has finished or failed already.
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
    """Return the status of a job from its events and, if its coordinator is on this machine, from the process."""
    request, events = journal.request, journal.since_asked()
    state = next((STATES[e["event"]] for e in reversed(events) if e["event"] in STATES), "submitted")
    started, progress = _last(events, "started"), _last(events, "progress") or {}
    ended = _last(events, "finished", "failed", "interrupted") or {}
    if state == "running" and started and runs(started["host"], started["pid"], journal.id) is False:
        state = "interrupted"
        ended = {"error": "CoordinatorLost", "message": f"its coordinator is gone: `bcmdist resume {journal.id}`"}
    asked = [e for e in journal.events if "scheduler" in e]
    newest = _last(events, "waiting", "allotted", "progress", *STATES) or {}
    result = ended.get("result", {})
    seconds = ended.get("seconds_by_stage") or progress.get("seconds_by_stage", {})
    return {
        "id": journal.id,
        "command": request["command"],
        "state": state,
        "waiting": newest.get("message") if newest.get("event") == "waiting" and state == "running" else None,
        "stage": progress.get("stage"),
        "partitions_done": progress.get("partitions_done"),
        "partitions": progress.get("partitions"),
        "rows_per_second": _rate(result) or progress.get("rows_per_second"),
        "seconds_by_stage": seconds,
        "worker_failures": sum(e["event"] == "worker lost" for e in journal.events),
        "quarantined": [e["key"] for e in events if e["event"] == "quarantined"],
        "coordinators": sum(e["event"] == "started" for e in journal.events),
        "coordinator": f"{started['host']} {started['pid']}" if started else None,
        "scheduler": asked[-1]["scheduler"] if asked else None,
        "share": asked[-1].get("share") if asked else None,
        "workers": asked[-1].get("workers") if asked else None,
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
    """Whether a coordinator process is running; None if `host` is another machine."""
    import psutil

    if host != socket.gethostname():
        return None
    try:
        process = psutil.Process(pid)
        line = process.cmdline()  # empty for an instant after the start of the process
        return (not line or job in line) and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


def _new_id():
    moment = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return f"{moment}-{''.join(secrets.choice(LETTERS) for _ in range(4))}"


def _refuse_unshared(storage, machine):
    """Raise `WorkerCannotRead` unless the scheduler's machine sees this very directory."""
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
    """Start a coordinator and wait until it has recorded an event."""
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
    last = machine.run(_last_line, journal.output) if journal.output else "nothing"
    raise JobRefused(
        f"job {journal.id}: expected its coordinator to start on {host} within {START_SECONDS} s, it has ended or is "
        f"silent, and said {last!r}; see {journal.output or 'the logs of the scheduler'}, then "
        f"`bcmdist resume {journal.id}`"
    )


def spawn(url, job) -> tuple[str, int]:
    """Start a coordinator on this machine as a process that outlives its parent; return host name and process id."""
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
    threading.Thread(target=process.wait, daemon=True).start()  # otherwise it stays as a zombie
    return socket.gethostname(), process.pid


def _appended(path):
    """Open the file to which a coordinator's output is appended; the null device if `path` is None."""
    if path is None:
        return open(os.devnull, "ab")
    return os.fdopen(open_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def _last_line(path):
    lines = read_file(path).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "nothing"
