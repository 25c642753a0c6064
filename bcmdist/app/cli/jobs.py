"""The commands for background jobs: `submit`, `jobs`, `status`, `logs`, `cancel`, `resume`.

`status --watch` shows a job and its model live: redrawn in place on a terminal, otherwise printed line by line.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence

import click

from bcmdist.api.requests import REQUESTS, located, request_of
from bcmdist.app.cli.fit import fit
from bcmdist.app.cli.options import (
    Command,
    chosen_place,
    chosen_tls,
    json_option,
    runtime_options,
    security_shown,
    tls_options,
)
from bcmdist.app.cli.output import one_line, readable, report
from bcmdist.app.cli.predict import forecast, predict, score
from bcmdist.app.cli.revision import forget, ingest, merge, refit
from bcmdist.app.finite import finite
from bcmdist.app.journal import Journal
from bcmdist.errors import BcmdistError
from bcmdist.runtime.portion import Portion

EVERY_SECONDS = 0.5
BAR, BLOCKS, CURVE = 24, "▁▂▃▄▅▆▇█", 40  # characters
LOG_LINES = 5
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
CLEAR = "\x1b[2J"


class ModelLines:
    """Describes the model in a directory as lines of text; read again only after a new commit."""

    def __init__(self, url: str):
        self._url, self._head, self._lines = url, -1, list[tuple[str, str]]()

    def now(self) -> list[tuple[str, str]]:
        """Return pairs of name and value: [] while there is no model, the last ones while the model cannot be read."""
        from bcmdist.api.mixture import opened  # quick start
        from bcmdist.committee.mixture_commits import contents_of, is_mixture
        from bcmdist.storage.commits import open_store

        try:
            head = contents_of(self._url).number if is_mixture(self._url) else open_store(self._url).head()
            if head != self._head:
                with opened(self._url) as fitted:
                    self._lines, self._head = model_summary(fitted), head
        except (BcmdistError, OSError):  # the model may not be complete yet
            pass
        return self._lines


def model_summary(fitted) -> list[tuple[str, str]]:
    """Describe a commit by pairs of name and text: rows, learning curve, drift, calibration and relevance."""
    from bcmdist.app import figures  # quick start
    from bcmdist.committee.growth import capacity

    snapshot, state = fitted.predictive.snapshot, fitted.predictive.state
    lines = [("rows absorbed", f"{snapshot.committee.total.rows:,} in commit {state}")]
    if points := capacity(snapshot):
        most = f" of at most {points['most']:,}" if "most" in points else ""
        lines.append(("capacity", f"{points['points']:,} query points{most}, {points['first']:,} at the beginning"))
    found = figures.drift(snapshot)
    if found["curve"]:
        scores = [point["log_score"] for point in found["curve"]]
        lines.append(("learning curve", f"{spark(scores)} {readable(scores[-1])} nats a row before they were absorbed"))
        lines.append(("drift", found["drift"]["verdict"]))
    left = None if fitted.predictive.several > 1 else figures.calibration(snapshot)["left_out"]
    if left:
        share = left["shares"][left["levels"].index(0.95)]
        lines.append(("calibration", f"95 % intervals held {share:.1%} of {left['rows']:,} rows left out"))
    relevance = figures.relevance(fitted)
    if relevance:
        lines.append(("relevance", _relevance(relevance)))
    return lines


def _relevance(found):
    shares = found["parts"][0]["share"]
    order = sorted(range(len(shares)), key=lambda k: -shares[k])[:5]
    return ", ".join(f"{found['columns'][k]} {shares[k]:.2g}" for k in order)


def spark(values: Sequence[float]) -> str:
    """Draw the last `CURVE` values as block characters of different heights."""
    shown = values[-CURVE:]
    low, high = min(shown), max(shown)
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round(top * (value - low) / (high - low)) if high > low else top // 2] for value in shown)


def job_lines(status: dict) -> list[tuple[str, str]]:
    """Describe the status of a job by pairs of name and text."""
    lines = [("job", f"{status['id']}  {status['command']}  {status['state']}")]
    if status["waiting"]:
        lines.append(("waiting", status["waiting"].removeprefix("waiting ")))
    if status["partitions"]:
        done, total = status["partitions_done"], status["partitions"]
        lines.append((status["stage"], f"[{'#' * (BAR * done // total):.<{BAR}}] {done:,}/{total:,} partitions"))
    if status["rows_per_second"]:
        lines.append(("speed", f"{status['rows_per_second']:,.0f} rows a second"))
    lines += [(name, str(status[name])) for name in ("worker_failures", "error", "message") if status[name]]
    return lines


def watch(journal: Journal, line_of: Callable[[dict], str]) -> None:
    """Show a job live until it has ended. Ctrl-C ends the display, not the job.

    Parameters
    ----------
    line_of : formats an event of the journal as one line
    """
    from bcmdist.app import jobs  # quick start

    model, terminal, before = ModelLines(jobs.status(journal).get("model", "")), sys.stdout.isatty(), list[str]()
    if terminal:
        click.echo(CLEAR, nl=False)
    while True:
        status = jobs.status(journal)
        pairs = job_lines(status) + model.now()
        width = max(len(name) for name, _ in pairs)
        lines = [one_line(f"{name:{width}}  {value}") for name, value in pairs]
        if terminal:
            _draw([*lines, "", *map(line_of, journal.events[-LOG_LINES:])])
        else:
            for line in lines:
                if line not in before:
                    click.echo(line)
        before = lines
        if status["state"] not in jobs.OPEN:
            return
        time.sleep(EVERY_SECONDS)
        journal.news()


def _draw(lines):
    """Draw lines from the top of the screen, cut to its width and height."""
    wide, tall = shutil.get_terminal_size()
    shown = [f"{line[: wide - 1]}{CLEAR_LINE}" for line in lines[: tall - 1]]
    click.echo(HOME + "\n".join(shown) + "\n" + CLEAR_BELOW, nl=False)


FOLLOW_SECONDS = 0.5


def _default_directory() -> str:
    """Default directory of jobs, below the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "bcmdist", "jobs")


jobs_option = click.option(
    "--jobs",
    "directory",
    envvar="BCMDIST_JOBS",
    metavar="DIR",
    default=_default_directory,
    help="Directory of jobs, which the scheduler's machine shares [default: $BCMDIST_JOBS or ~/.local/state/bcmdist].",
)


def _params(option):
    """The click parameters that a decorator adds to a command."""
    return option(lambda: None).__click_params__


@click.group()
def submit() -> None:
    """Submit a command as a background job to a Dask cluster.

    Takes the options of that command; the result is in `bcmdist status ID`. All machines must see data, model and the
    jobs directory under the same path or URL. Prints the job's id once its coordinator runs next to the scheduler; this
    machine is then no longer needed. See `bcmdist jobs --help`.

    Example: bcmdist submit fit train.zarr --model model --scheduler tcp://HOST:8786 --json
    """


def _submitting(command, kind):
    """Return a command with the options of `command` that submits the request as a job."""

    def callback(directory, scheduler, share, workers, serial, tls_ca, tls_cert, tls_key, as_json, **options):
        if scheduler is None:
            raise click.UsageError("expected --scheduler ADDRESS of the cluster that is to do the job")
        place = chosen_place(scheduler, workers, serial, share)
        portion = Portion(place.get("share"), place.get("workers"))
        tls = chosen_tls(scheduler, tls_ca, tls_cert, tls_key)
        from bcmdist.api.carry_out import check  # quick start
        from bcmdist.app import jobs

        request = request_of(kind, options)
        check(request)
        request = located(request)
        with _machine(scheduler, tls) as machine:
            journal = jobs.submit(directory, request, machine, portion)
        report({"id": journal.id, **_brief(journal), "scheduler": scheduler, "jobs": journal.storage.url}, as_json)

    text = command.help.replace("Example: bcmdist", "Example: bcmdist submit") + " --scheduler tcp://HOST:8786"
    params = [one for one in command.params if one.name not in ("picture", "metrics")]  # of the process that asks
    named = {one.name for one in params}
    params += [one for one in _params(runtime_options) if one.name not in named]
    params += _params(jobs_option)
    return type(command)(command.name, params=params, callback=callback, help=text)


for command in (fit, ingest, predict, score, forecast, forget, merge, refit):
    submit.add_command(_submitting(command, REQUESTS[str(command.name)]))


def _machine(address, tls):
    from bcmdist.runtime.dask.scheduler import SchedulerMachine  # quick start

    return SchedulerMachine(address, security=security_shown(tls))


@click.command("jobs", cls=Command)
@jobs_option
@json_option
def list_jobs(directory, as_json) -> None:
    """List jobs, oldest first.

    Example: bcmdist jobs
    """
    from bcmdist.app import jobs  # quick start

    summaries = jobs.listed(directory)
    if as_json:
        click.echo(json.dumps(finite({"jobs": summaries, "directory": directory})))
        return
    for one in summaries:
        done = f"{one['stage']} {one['partitions_done']}/{one['partitions']}" if one.get("stage") else ""
        done = one.get("waiting") or done
        place = one["message"] if one["state"] == "unreadable" else one.get("out") or one.get("model", "")
        click.echo(one_line(f"{one['id']}  {one.get('command', ''):8} {one['state']:12} {done:24} {place}"))


@click.command(cls=Command)
@click.argument("job", metavar="ID")
@click.option("--watch", "live", is_flag=True, help="Show the job and its model live until the job has ended.")
@jobs_option
@json_option
def status(job, live, directory, as_json) -> None:
    """Show a job: its state, progress, speed, lost workers, and its result or error.

    With --watch also rows, learning curve, drift, calibration and relevance of its model, updated whenever they
    change; with --watch --json it waits and prints the final state.

    Example: bcmdist status ID --json
    """
    from bcmdist.app import jobs  # quick start

    journal = jobs.open_job(directory, job)
    if live and not as_json:
        watch(journal, _line)
        return
    while live and jobs.status(journal)["state"] in jobs.OPEN:
        time.sleep(FOLLOW_SECONDS)
        journal.news()
    figures = jobs.status(journal)
    report(figures, as_json, {name: value for name, value in figures.items() if value not in (None, {}, [])})


@click.command(cls=Command)
@click.argument("job", metavar="ID")
@click.option("--follow", is_flag=True, help="Keep printing until the job has ended.")
@jobs_option
@json_option
def logs(job, follow, directory, as_json) -> None:
    """Print what happened to a job, one line per event.

    Example: bcmdist logs ID --follow
    """
    from bcmdist.app import jobs  # quick start

    journal, shown = jobs.open_job(directory, job), 0
    while True:
        if not as_json:
            for event in journal.events[shown:]:
                click.echo(_line(event))
            shown = len(journal.events)
        if not follow or jobs.status(journal)["state"] not in jobs.OPEN:
            break
        time.sleep(FOLLOW_SECONDS)
        journal.news()
    if as_json:
        click.echo(json.dumps({"id": job, "events": journal.events}))


def _line(event):
    facts = {n: v for n, v in event.items() if n not in ("event", "at", "by") and v not in (None, {})}
    text = ", ".join(f"{name} {readable(value)}" for name, value in facts.items() if name != "message")
    return one_line("  ".join(filter(None, [event["at"], f"{event['event']:12}", text, facts.get("message")])))


@click.command(cls=Command)
@click.argument("job", metavar="ID")
@jobs_option
@json_option
def cancel(job, directory, as_json) -> None:
    """Stop a job; what it has committed stays, and `resume` continues from there.

    Example: bcmdist cancel ID
    """
    from bcmdist.app import jobs  # quick start

    journal = jobs.open_job(directory, job)
    jobs.cancel(journal)
    report({"id": job, **_brief(journal)}, as_json)


@click.command(cls=Command)
@click.argument("job", metavar="ID")
@click.option("--scheduler", metavar="ADDRESS", help="Cluster that continues it [default: as before].")
@click.option("--share", type=float, metavar="F", help="Largest share of its worker threads [default: as before].")
@click.option("--workers", type=int, help="Largest number of its workers [default: as before].")
@tls_options
@jobs_option
@json_option
def resume(job, scheduler, share, workers, tls_ca, tls_cert, tls_key, directory, as_json) -> None:
    """Continue a job that was interrupted, cancelled or failed, from what it has committed.

    Example: bcmdist resume ID --scheduler tcp://HOST:8786
    """
    from bcmdist.app import jobs  # quick start

    journal = jobs.open_job(directory, job)
    jobs.refuse_finished(journal)
    scheduler = scheduler or jobs.asked_scheduler(journal)
    tls = chosen_tls(scheduler, tls_ca, tls_cert, tls_key)
    with _machine(scheduler, tls) as machine:
        jobs.resume(journal, machine, Portion(share, workers))
    report({"id": job, **_brief(journal), "scheduler": scheduler}, as_json)


def _brief(journal):
    from bcmdist.app import jobs  # quick start

    status = jobs.status(journal)
    return {name: status[name] for name in ("command", "state", "model", "out") if name in status}


COMMANDS = (submit, list_jobs, status, logs, cancel, resume)
