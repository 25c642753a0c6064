"""Registry of pictures by the names that `--what` accepts, and `plot`.

To add a picture, write a function from a `Subject` to a figure, and list it in `PICTURES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bcmdist.api.facade import Facade
from bcmdist.api.pictures import commits, effects, inputs, maps, paper, residuals, scores, variogram
from bcmdist.api.pictures.curves import drift
from bcmdist.api.pictures.subject import Subject
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.groups import Location
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.datasets import judged, open_scored_rows
from bcmdist.prediction.errors.drift import MOST_ARRIVALS, arrivals
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.threads import one_thread

# Larger data sets are sampled down to about so many rows, always the same ones.
MOST_ROWS = 20_000


@dataclass(frozen=True)
class Picture:
    """A kind of picture."""

    draw: Callable[[Subject], Any]
    text: str
    """what it shows, as the object of "to draw" in an error"""
    with_data: bool = True
    """whether it needs rows with targets"""
    of_one: bool = False
    """whether it needs a single committee, not a mixture"""


def _calibration(subject: Subject) -> Any:
    return scores.calibration(subject.judged.scores())


def _drift(subject: Subject) -> Any:
    return drift(_arrivals(subject.snapshot))


def _arrivals(snapshot: Snapshot) -> FloatArray:
    table = arrivals(snapshot.ledger.latest_arrivals(MOST_ARRIVALS))
    if not len(table):
        raise InvalidOption(
            f"--what drift: expected a model that has ingested partitions, {snapshot.url} has not; ingest some, or "
            "choose another picture"
        )
    return table


PICTURES = {
    "learning": Picture(commits.learning, "scores of its commits against rows absorbed", of_one=True),
    "calibration": Picture(_calibration, "the calibration of intervals or probabilities"),
    "relevance": Picture(inputs.relevance, "how much each input matters", with_data=False),
    "residuals": Picture(residuals.residuals, "observed against predicted values, or a confusion matrix"),
    "drift": Picture(
        _drift,
        "how well arrivals were predicted before they were absorbed (of a mixture, by its first member)",
        with_data=False,
    ),
    "effects": Picture(
        effects.effects, "each term of the kernel that is a function of one column", with_data=False, of_one=True
    ),
    "variogram": Picture(
        variogram.variogram,
        "half the mean squared difference of targets against the distance between rows",
        of_one=True,
    ),
    "map": Picture(maps.plane, "predictions along the coordinates, or the inputs that matter most", with_data=False),
}


@one_thread()
def plot(
    of: Facade,
    out: Location,
    runtime: Runtime,
    *,
    what: str | None = None,
    data: Location | None = None,
    x: str | None = None,
    y: str | None = None,
    method: str | None = None,
    inputs: str | None = None,
    above: Sequence[float] = (),
) -> str:
    """Write a picture. Return its name in `PICTURES`.

    Parameters
    ----------
    out : a file whose name ends in .png, .svg or .pdf
    what : a name in `PICTURES`; default: "calibration" with data, "relevance" without
    data : path or URL of a data set with targets
    x, y : names of its arrays; default: as in training
    method, inputs : as of `GBCM.predict_zarr`
    above : of a map: thresholds whose probabilities of exceedance it shows, too

    Raises
    ------
    InvalidOption
        There is no such picture, the picture needs data, or there is nothing to draw.
    MissingExtra
    As `GBCM.score`, for the data.
    """
    what = refused(what, data, out, of=of, above=above)
    subject = subject_of(of, runtime, data=data, x=x, y=y, method=method, inputs=inputs)
    subject = replace(subject, above=tuple(above))
    with paper.styled():
        paper.save(PICTURES[what].draw(subject), out)
    return what


def refused(what: str | None, data: Location | None, out: Location, *, of: Facade, above: Sequence[float] = ()) -> str:
    """Validate the arguments of `plot` before any data are read. Return the picture's name.

    Raises
    ------
    InvalidOption, MissingExtra
    """
    what = what or ("relevance" if data is None else "calibration")
    if what not in PICTURES:
        raise InvalidOption(f"--what: expected one of {', '.join(PICTURES)}, got {what!r}; correct it")
    kind = PICTURES[what]
    if above and what != "map":
        raise InvalidOption(f"--above: expected it with --what map, got --what {what}; leave out one of them")
    if kind.with_data and data is None:
        raise InvalidOption(
            f"--what {what}: expected a data set with targets to draw {kind.text}, got none; give --data TEST.zarr"
        )
    if kind.of_one and (several := of.predictive.several) > 1:
        raise InvalidOption(
            f"--what {what}: expected a single committee, {of.url} holds a mixture of {several} sampled ones; name "
            "one of its members/, or choose another picture"
        )
    paper.check(out)
    return what


def subject_of(
    of: Facade,
    runtime: Runtime,
    *,
    data: Location | None = None,
    x: str | None = None,
    y: str | None = None,
    method: str | None = None,
    inputs: str | None = None,
) -> Subject:
    """Return the subject of a picture: the model and, if `data` is given, rows of the data with predictions."""
    method = of.chosen_method(method)
    model = of.predictive
    if data is None:
        return Subject(of, model.snapshot, method)
    opened = open_scored_rows(model, data, x=x, y=y, method=method, inputs=inputs)
    with model.held():
        rows = judged(model, opened, method, runtime, most=MOST_ROWS, inputs=inputs)
    return Subject(of, model.snapshot, method, rows, str(data).rstrip("/").rpartition("/")[2], opened.rows)
