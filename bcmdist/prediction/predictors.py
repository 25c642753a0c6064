"""Predictors by the name by which users choose them (`--method`), and the one that a model is predicted with."""

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
    """Add a way to predict, under the name that `method` and `--method` take.

    The command line knows it where its module is named under the entry points of `bcmdist.data.registry`; tasks carry
    the class, so workers need to be able to import it.

    Raises
    ------
    InvalidOption
        The name is taken.
    """
    PREDICTORS.add(name, predictor)


def predictor_of(snapshot: Snapshot, method: str | None) -> type[Predictor]:
    """The predictor that was asked for, or that of the fit; with a warning about rows that it does not find near by.

    Raises
    ------
    InvalidOption
        As `chosen_method`.
    """
    predictor = PREDICTORS[chosen_method(snapshot, method)]
    if predictor.in_cells:
        warn_of_rows_outside(snapshot)
    return predictor


def warn_of_rows_outside(snapshot: Snapshot) -> None:
    """A `BcmdistWarning` where local prediction does not find some rows around new points."""
    if rows := rows_outside(snapshot):
        warn(f"{snapshot.url}: {outside_in_words(rows, snapshot.committee.total.rows)}")


def chosen_method(snapshot: Snapshot, method: str | None) -> str:
    """The method that was asked for, or the one recorded among the facts of the fit.

    Raises
    ------
    InvalidOption
        There is no such method, or the model lacks what it needs.
    """
    method = method or snapshot.facts.method
    PREDICTORS[method].refuse(snapshot)
    return method
