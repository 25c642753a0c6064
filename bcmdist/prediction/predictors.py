"""Registry of predictors by the name that users choose (`--method`)."""

from bcmdist.committee.cells import outside_in_words, rows_outside
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.registry import Registry
from bcmdist.data.schema import warn
from bcmdist.prediction.fitted import Fitted
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.local.neighbours import LocallyFitted

PREDICTORS: Registry[type[Predictor]] = Registry("method")
PREDICTORS.add("committee", Fitted)
PREDICTORS.add("local", LocallyFitted)


def register_predictor(name: str, predictor: type[Predictor]) -> None:
    """Register a predictor under the name that `method` and `--method` accept.

    The command line finds it if its module is listed in the entry points of `bcmdist.data.registry`. Tasks carry the
    class, so workers must be able to import it.

    Raises
    ------
    InvalidOption
        The name is taken.
    """
    PREDICTORS.add(name, predictor)


def predictor_of(snapshot: Snapshot, method: str | None) -> type[Predictor]:
    """The predictor class of `method`, by default the method of the fit.

    Warns if local prediction cannot use some rows as neighbours.

    Raises
    ------
    InvalidOption
        As in `chosen_method`.
    """
    predictor = PREDICTORS[chosen_method(snapshot, method)]
    if predictor.in_cells:
        warn_of_rows_outside(snapshot)
    return predictor


def warn_of_rows_outside(snapshot: Snapshot) -> None:
    """Emit a `BcmdistWarning` if rows were absorbed after the fit: local prediction does not use them as neighbours."""
    if rows := rows_outside(snapshot):
        warn(f"{snapshot.url}: {outside_in_words(rows, snapshot.committee.total.rows)}")


def chosen_method(snapshot: Snapshot, method: str | None) -> str:
    """`method`, or the method recorded by the fit if it is None.

    Raises
    ------
    InvalidOption
        There is no such method, or the model lacks what it needs.
    """
    method = method or snapshot.facts.method
    PREDICTORS[method].refuse(snapshot)
    return method
