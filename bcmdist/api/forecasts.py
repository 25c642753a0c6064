"""Multi-step forecasts of time series with intervals, by a model whose inputs are lagged values of the series."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import open_data
from bcmdist.data.groups import Location, open_group
from bcmdist.data.outputs import refuse_existing
from bcmdist.data.rows import read_rows
from bcmdist.data.tables.series import Lagged, Lags, lags_of
from bcmdist.data.tables.tables import Named, ending, is_table, open_table
from bcmdist.data.tables.writing import WRITERS, refuse_csv_safe
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.predictive_model import PredictiveModel
from bcmdist.prediction.uncertain import forecast as steps_ahead
from bcmdist.runtime.threads import one_thread

WAYS = (*steps_ahead.STEPS, "montecarlo")


def lags_of_model(snapshot: Snapshot) -> Lags:
    """Return the lags that are the inputs of a model of a series.

    Raises
    ------
    InvalidOption
        The inputs are not lags, or the observation noise is not normal.
    """
    model = snapshot.model
    found = lags_of(model.schema.columns)
    if found is None:
        raise InvalidOption(
            f"{snapshot.url}: expected a model of the last values of a series, got inputs "
            f"{', '.join(model.schema.columns[:4]) or 'without names'}; import the series with --lags and fit to that"
        )
    if not model.normal:
        raise InvalidOption(
            f"{snapshot.url}: expected a model of numbers with normal errors, got {model.error_name}; fit with "
            "--likelihood gaussian and --target-transform none"
        )
    return found


def chosen(model: PredictiveModel, method: str | None, way: str | None) -> tuple[type[Predictor], str]:
    """Return the predictor and the propagation of uncertainty: by default "exact" if available, else "montecarlo".

    Raises
    ------
    InvalidOption
    """
    predictor = model.kind(method)
    if way is not None and way not in WAYS:
        raise InvalidOption(f"inputs: expected {', '.join(WAYS)}, got {way!r}; give one of these")
    return predictor, way if way == "naive" else model.way(method, way)


@dataclass(frozen=True)
class Series:
    """Current state of n series."""

    id: str | None
    """name of the column that identifies series; None for a single series"""
    names: np.ndarray
    """identifiers of the series, (n,)"""
    last: np.ndarray
    """last L values, newest first, (n, L)"""
    inputs: np.ndarray
    """the E further inputs in the last K rows, newest first, (n, K, E)"""

    def inputs_ahead(self, ahead: FloatArray) -> np.ndarray:
        """Further inputs of each step with their lags, (n, steps, E (K + 1)), from future values (n, steps, E)."""
        steps, back = ahead.shape[1], self.inputs.shape[1]
        whole = np.concatenate([self.inputs[:, ::-1], ahead], axis=1)
        lagged = np.stack([whole[:, back - k : back - k + steps] for k in range(back + 1)], axis=-1)
        return lagged.reshape(len(whole), steps, -1)


def last_values(snapshot: Snapshot, data: Location | None = None, *, id: str | None = None) -> Series:
    """Return the last values of series from a table, or from a data set imported from a table with --lags.

    Parameters
    ----------
    data : default: the training data
    id : name of the column that identifies series; default: the coordinate array of a data set

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption
    """
    lags, data = lags_of_model(snapshot), data or snapshot.facts.survey.data
    if data is None:
        raise InvalidOption(
            f"{snapshot.url}: expected a model that knows the rows it was fitted to, it does not; give a table of the "
            "series, or a data set, beside it"
        )
    if is_table(data):
        found = Lagged(_named_table(data), lags, id)
        found.read()
        rows = np.stack([values[::-1] for values in found.last.values()])  # newest first
        return Series(id, np.array(list(found.last)), rows[:, : lags.lags, 0], rows[:, : lags.x_lags, 1:])
    opened = open_data(data, x=snapshot.model.x_name, y=snapshot.model.y_name, schema=snapshot.model.schema)
    group: Any = open_group(data)
    id = id or group.attrs.get("coordinates")
    if id is not None and id not in group:
        raise InvalidOption(f"--id: expected an array {id!r} in {data}, which names series, found none; correct it")
    names = np.zeros(opened.rows, int) if id is None else np.asarray(group[id][...])
    series, back = np.unique(names[::-1], return_index=True)
    last = opened.rows - 1 - back
    order = np.argsort(last)
    X, obs = read_rows(opened, last[order])
    of_rows = X[:, lags.lags :].reshape(len(X), len(lags.x), lags.x_lags + 1).transpose(0, 2, 1)
    return Series(id, series[order], np.column_stack([obs.y, X[:, : lags.lags - 1]]), of_rows[:, : lags.x_lags])


def _named_table(file: Location) -> Named:
    table = open_table(file)
    if not isinstance(table, Named):
        raise InvalidOption(f"{file}: expected a table, got arrays; save a .csv")
    return table


def future_inputs(snapshot: Snapshot, series: Series, ahead: Location | None, steps: int) -> np.ndarray:
    """Return the further inputs of each step, (n, steps, D - L), from the table `ahead` of future rows.

    Raises
    ------
    DataNotFound, InvalidData, InvalidDtype, InvalidOption
    """
    lags = lags_of_model(snapshot)
    if bool(lags.x) != (ahead is not None):
        expected = (
            f"the columns {', '.join(lags.x)} of the rows to come" if lags.x else "none, the model knows no others"
        )
        raise InvalidOption(f"--ahead: expected {expected}, got {ahead or 'none'}; correct it")
    if ahead is None:
        return np.empty((len(series.names), steps, 0))
    if not is_table(ahead):
        raise InvalidOption(f"--ahead: expected a table, got {ahead}; save a .csv or .parquet file")
    found = Lagged(_named_table(ahead), lags, series.id, ahead=True).future_inputs(series.names.tolist(), steps)
    return series.inputs_ahead(found)


def refuse_forecast(
    model: PredictiveModel,
    steps: int,
    out: Location | None,
    method: str | None,
    way: str | None,
    *,
    csv_safe: bool = False,
) -> None:
    """Validate the arguments of a forecast before any work.

    Raises
    ------
    DataExists, InvalidOption
    """
    lags_of_model(model.snapshot)
    chosen(model, method, way)
    if steps < 1:
        raise InvalidOption(f"--steps: expected at least 1, got {steps}; give a positive number")
    if out is not None and ending(out) not in WRITERS:
        raise InvalidOption(f"output: expected {' or '.join(WRITERS)}, got {out}; choose another --out")
    refuse_csv_safe(csv_safe, out)
    if out is not None:
        refuse_existing(out)


@one_thread()
def forecast(
    model: PredictiveModel,
    state: ArrayLike,
    steps: int,
    *,
    known: ArrayLike | None = None,
    method: str | None = None,
    way: str | None = None,
    seed: int = 0,
) -> steps_ahead.Forecast:
    """Forecast `steps` steps of n series; see `bcmdist.prediction.uncertain.forecast`.

    Parameters
    ----------
    state : (n, L), the last values of each series, newest first
    known : (n, steps, D - L), the further inputs of each step, in the model's order
    way : "exact", "taylor", "montecarlo" or "naive": how the uncertainty of predicted values is propagated

    Raises
    ------
    InvalidData, InvalidOption
    """
    lags = lags_of_model(model.snapshot)
    state, further = np.atleast_2d(np.asarray(state, dtype=float)), model.snapshot.model.inputs - lags.lags
    if state.ndim != 2 or state.shape[1] != lags.lags or not np.all(np.isfinite(state)):
        raise InvalidData(
            f"state: expected the last {lags.lags} values of each series, finite, the newest first, got shape "
            f"{state.shape}; correct it"
        )
    shape = (len(state), steps, further)
    known = np.asarray(np.empty(shape) if known is None and not further else known, dtype=float)
    if known.shape != shape or not np.all(np.isfinite(known)):
        raise InvalidData(
            f"known: expected what is known of each step, {', '.join(lags.columns[lags.lags :])}, finite, of shape "
            f"{shape}, got shape {known.shape}; correct it"
        )
    predictor, way = chosen(model, method, way)
    each = [steps_ahead.forecast(predictor.of_snapshot(one), state, known, way, seed=seed) for one in model.snapshots]
    return steps_ahead.mixed(each, model.weights)


def forecast_table(
    model: PredictiveModel,
    data: Location | None = None,
    *,
    steps: int,
    ahead: Location | None = None,
    id: str | None = None,
    method: str | None = None,
    way: str | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return a forecast as columns by name, with one row per series and step.

    Columns: the identifier of the series if there is one, `step` (from 1), `observation_mean`,
    `observation_variance`, `lower95` and `upper95`.

    Raises
    ------
    As `last_values`, `future_inputs` and `forecast`.
    """
    series = last_values(model.snapshot, data, id=id)
    future = future_inputs(model.snapshot, series, ahead, steps)
    found = forecast(model, series.last, steps, known=future, method=method, way=way, seed=seed)
    columns = {} if series.id is None else {series.id: np.repeat(series.names, steps)}
    columns |= {"step": np.tile(np.arange(1, steps + 1), len(series.names))}
    written = {"observation_mean": found.mean, "observation_variance": found.variance}
    written |= {"lower95": found.lower95, "upper95": found.upper95}
    return columns | {name: values.ravel() for name, values in written.items()}
