"""A job and its model as they change, on a terminal: drawn again in place, or told line by line where nobody looks."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence

import click

from bcmdist.app.cli.output import one_line, readable
from bcmdist.app.journal import Journal
from bcmdist.errors import BcmdistError

EVERY_SECONDS = 0.5
BAR, BLOCKS, CURVE = 24, "▁▂▃▄▅▆▇█", 40  # characters
LOG_LINES = 5
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
CLEAR = "\x1b[2J"


class ModelLines:
    """What a model directory shows of itself in lines, read again when there is another commit."""

    def __init__(self, url: str):
        self._url, self._head, self._lines = url, -1, list[tuple[str, str]]()

    def now(self) -> list[tuple[str, str]]:
        """Names and values; nothing while there is no model, and what was known while it cannot be read."""
        from bcmdist.api.gbcm import GBCM  # quick start
        from bcmdist.storage.commits import open_store

        try:
            head = open_store(self._url).head()
            if head != self._head:
                with GBCM.held(self._url) as gbcm:
                    self._lines, self._head = told(gbcm.snapshot), head
        except (BcmdistError, OSError):  # it may be made just now, or be a mixture
            pass
        return self._lines


def told(snapshot) -> list[tuple[str, str]]:
    """Rows, learning curve, drift and calibration of a commit, each with its name."""
    from bcmdist.app import figures  # quick start

    lines = [("rows heard", f"{snapshot.committee.total.rows:,} in commit {snapshot.commit}")]
    found = figures.drift(snapshot)
    if found["curve"]:
        scores = [point["log_score"] for point in found["curve"]]
        lines.append(("learning curve", f"{spark(scores)} {readable(scores[-1])} nats a row before they were heard"))
        lines.append(("drift", found["drift"]["verdict"]))
    left = figures.calibration(snapshot)["left_out"]
    if left:
        share = left["shares"][left["levels"].index(0.95)]
        lines.append(("calibration", f"95 % intervals held {share:.1%} of {left['rows']:,} rows left out"))
    relevance = figures.relevance(snapshot)
    if relevance:
        lines.append(("relevance", _relevance(relevance)))
    return lines


def _relevance(found):
    shares = found["parts"][0]["share"]
    order = sorted(range(len(shares)), key=lambda k: -shares[k])[:5]
    return ", ".join(f"{found['columns'][k]} {shares[k]:.2g}" for k in order)


def spark(values: Sequence[float]) -> str:
    """Values as blocks of different heights, the newest ones last."""
    shown = values[-CURVE:]
    low, high = min(shown), max(shown)
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round(top * (value - low) / (high - low)) if high > low else top // 2] for value in shown)


def job_lines(status: dict) -> list[tuple[str, str]]:
    """How a job stands, each figure with its name."""
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
    """Show a job until it has ended; Ctrl-C leaves it as it is.

    Parameters
    ----------
    line_of : an event of the journal as a line
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
    """Lines from the top of the screen on, as wide as it is."""
    wide, tall = shutil.get_terminal_size()
    shown = [f"{line[: wide - 1]}{CLEAR_LINE}" for line in lines[: tall - 1]]
    click.echo(HOME + "\n".join(shown) + "\n" + CLEAR_BELOW, nl=False)
