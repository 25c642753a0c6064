"""Pictures of a model, by the names that `--what` takes.

A further one is a function of a `Subject` that gives a figure, in `PICTURES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bcmdist.api.pictures import commits, inputs, paper, residuals, scores
from bcmdist.api.pictures.curves import drift
from bcmdist.api.pictures.subject import Subject
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.prediction import datasets
from bcmdist.prediction.arrivals.drift import arrivals
from bcmdist.prediction.predictors import chosen_method
from bcmdist.runtime.interface import Runtime

# Of a data set that is larger, about so many rows are looked at, always the same ones.
MOST_ROWS = 20_000


@dataclass(frozen=True)
class Picture:
    """A kind of picture."""

    draw: Callable[[Subject], Any]
    text: str
    """what it shows"""
    with_data: bool = True
    """whether it needs rows with targets"""


def _calibration(subject):
    return scores.calibration(subject.judged.scores())


def _drift(subject):
    return drift(_arrivals(subject.snapshot))


def _arrivals(snapshot):
    table = arrivals(snapshot.ledger)
    if not len(table):
        raise InvalidOption(
            f"--what drift: expected a model that has ingested partitions, {snapshot.url} has not; ingest some, or "
            "choose another picture"
        )
    return table


PICTURES = {
    "learning": Picture(commits.learning, "scores of its commits against rows heard"),
    "calibration": Picture(_calibration, "whether intervals or probabilities can be trusted"),
    "relevance": Picture(inputs.relevance, "how much each input matters", with_data=False),
    "residuals": Picture(residuals.residuals, "observed against predicted, or classes confused"),
    "drift": Picture(_drift, "how well arrivals were predicted before they were heard", with_data=False),
    "map": Picture(inputs.plane, "predictions along the two inputs that matter most", with_data=False),
}


def plot(snapshot: Snapshot, out, runtime: Runtime, *, what=None, data=None, x=None, y=None, method=None) -> str:
    """Write a picture; which it is.

    Parameters
    ----------
    out : a file whose name ends in .png, .svg or .pdf
    what : a name of `PICTURES`; by default "calibration" with data and "relevance" without
    data : path or URL of a data set with targets; x, y : names of its arrays, as in training by default

    Raises
    ------
    InvalidOption
        There is no such picture, it needs data, or there is nothing to draw.
    MissingExtra; of data as `GBCM.score`
    """
    what = refused(what, data, out)
    subject = subject_of(snapshot, runtime, data=data, x=x, y=y, method=method)
    with paper.styled():
        paper.save(PICTURES[what].draw(subject), out)
    return what


def refused(what, data, out) -> str:
    """The picture that is wanted; `InvalidOption` or `MissingExtra` before anything is read."""
    what = what or ("relevance" if data is None else "calibration")
    if what not in PICTURES:
        raise InvalidOption(f"--what: expected one of {', '.join(PICTURES)}, got {what!r}; correct it")
    kind = PICTURES[what]
    if kind.with_data and data is None:
        raise InvalidOption(
            f"--what {what}: expected a data set with targets, which shows {kind.text}; give --data TEST.zarr"
        )
    paper.check(out)
    return what


def subject_of(snapshot: Snapshot, runtime: Runtime, *, data=None, x=None, y=None, method=None) -> Subject:
    """A model and, where data are given, their rows beside its predictions."""
    method = chosen_method(snapshot, method)
    if data is None:
        return Subject(snapshot, method)
    with snapshot.held():
        opened = datasets.open_new_rows(snapshot, data, x=x, y=y or snapshot.model.y_name)
        rows = datasets.judged(snapshot, opened, method, runtime, most=MOST_ROWS)
    return Subject(snapshot, method, rows, str(data).rstrip("/").rpartition("/")[2], opened.rows)
