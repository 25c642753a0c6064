"""The coordinator of a job: a process beside the scheduler that carries out a request and tells its journal about it.

    python -m bcmdist.app.coordinator JOBS ID

The request is carried out as by the command line, with a Dask runtime that is watched. A second thread writes progress
and reads what others have written: that somebody cancels, or the claim of a later coordinator, interrupts the work as
Ctrl-C would. So does SIGTERM. What has been committed stays; futures that are in flight are cancelled.
"""

import contextlib
import sys
import traceback
import warnings
from typing import Any

from bcmdist.api.carry_out import carry_out
from bcmdist.api.requests import Request, from_json
from bcmdist.app.claim import Claim, Superseded
from bcmdist.app.failures import described
from bcmdist.app.finite import finite
from bcmdist.app.jobs import asked_portion, asked_scheduler
from bcmdist.app.journal import Journal, open_job
from bcmdist.app.watch import Watch, WatchedRuntime
from bcmdist.errors import BcmdistError, BcmdistWarning, SchedulerUnreachable
from bcmdist.runtime.signals import REQUESTS, interruptible


def on_cluster(address, watch: Watch) -> Any:
    """The runtime of a job."""
    from bcmdist.runtime.dask.cluster import DaskRuntime  # quick start

    portion = asked_portion(watch.claim.journal)

    def waits(words):
        watch.tell("waiting", message=words)

    runtime = DaskRuntime(address, **portion.fields(), progress=watch.progress, waits=waits)
    if portion:
        watch.tell("allotted", threads=runtime.threads)
    runtime.watch_workers(lambda worker: watch.tell("worker lost", worker=worker))
    return runtime


def coordinate(journal: Journal, make_runtime=on_cluster) -> None:
    """Run a job to its end, which the journal tells; nothing where it has ended or another coordinator takes it."""
    claim = Claim(journal)
    if not claim.take():
        return
    watch = Watch(claim)
    try:
        with interruptible(*REQUESTS):
            event, facts = _outcome(claim, watch, make_runtime)
        claim.look()
        with contextlib.suppress(OSError):
            watch.flush()
        claim.record(event, **facts, seconds_by_stage={n: round(v, 3) for n, v in watch.seconds.items()})
    except Superseded:
        print("another coordinator has taken this job", flush=True)


def _outcome(claim, watch, make_runtime):
    """The last event of a job, and its facts."""
    try:
        address = asked_scheduler(claim.journal)
        if claim.cancelled:
            return "cancelled", {}
        with watch, _warnings_told(watch):
            request = _request(claim.journal.request)
            figures = carry_out(request, lambda: WatchedRuntime(make_runtime(address, watch), watch))
        if claim.cancelled:  # who watches a source ends well when told to
            return "cancelled", {}
        if figures.get("stopped"):
            raise KeyboardInterrupt
        return "finished", {"result": finite(figures)}
    except KeyboardInterrupt:
        if claim.cancelled:
            return "cancelled", {}
        return "interrupted", _error("Interrupted", "its coordinator was told to end", claim)
    except Exception as error:
        traceback.print_exc()
        if isinstance(error, SchedulerUnreachable) or _lost(error, claim):
            return "interrupted", _error(type(error).__name__, f"scheduler lost: {error}", claim)
        name, message = type(error).__name__, str(error)
        if isinstance(error, OSError) and not isinstance(error, BcmdistError):
            name, message = described(error)
        return "failed", {"error": name, "message": message}


def _error(name, message, claim):
    return {"error": name, "message": f"{message}: resume it by `bcmdist resume {claim.journal.id}`"}


def _lost(error, claim):
    from bcmdist.runtime.dask.scheduler import answers  # quick start

    ours = isinstance(error, BcmdistError)
    return isinstance(error, OSError) and not ours and not answers(asked_scheduler(claim.journal))


def _request(record) -> Request:
    """What a job is to do."""
    if "request" in record:
        return from_json(record["request"])
    from bcmdist.app.cli.jobs import request_of_arguments  # quick start

    return request_of_arguments(record["command"], record["arguments"])


@contextlib.contextmanager
def _warnings_told(watch):
    """What the command line prints as a warning becomes an event."""

    def tell(message, category, filename, lineno, file=None, line=None):
        if issubclass(category, BcmdistWarning):
            watch.tell("warning", message=str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", BcmdistWarning)
        warnings.showwarning = tell
        yield


if __name__ == "__main__":
    coordinate(open_job(*sys.argv[1:]))
