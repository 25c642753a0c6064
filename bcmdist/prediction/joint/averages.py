"""Averages of f, or of new observations, over groups of points: block kriging.

    average = sum_i w_i f(x_i),   variance = w' cov(f) w

with the joint covariance of `local.joint_moments`: errors of neighbours do not cancel as independent ones.
Groups are computed in batches: groups that lie in the same cells together, otherwise one at a time. So memory depends
on the largest group, and time on the sum over groups of the square of points and rows around them.

For a likelihood that is not normal, and for observations of transformed targets, averages of means of observations have
no closed form: they come from joint samples, with an error of mean and interval of about sd / sqrt(samples). The
noise of transformed targets is normal in these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from scipy.special import ndtri

from bcmdist.data.observations import Observations
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.model import Model
from bcmdist.prediction.exceedance import above_name, refuse_thresholds, upper_tail
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.joint.committee import refuse_large_samples
from bcmdist.prediction.joint.observations import at_rows, sampled_observations, samples_of
from bcmdist.prediction.local.joint_moments import Sums
from bcmdist.prediction.observation import HIGH, LOW
from bcmdist.prediction.scored_rows import marginals, refuse_nan

Of = Literal["function", "observations"]
# Points, and groups, in one batch of groups in the same cells. Arbitrary.
BATCH_POINTS, BATCH_GROUPS = 512, 64
# Joint samples of averages without a closed form.
DRAWS = 1000


@dataclass(frozen=True)
class Groups:
    """Points in groups, with weights that add up to 1 in each."""

    levels: np.ndarray
    """values that name the groups, (G,), ascending"""
    number: np.ndarray
    """number of each point's group, (n,)"""
    weight: np.ndarray
    """(n,)"""

    @property
    def points(self) -> np.ndarray:
        """Number of points of each group, (G,)."""
        return np.bincount(self.number, minlength=len(self.levels))

    def total(self, values) -> np.ndarray:
        """Weighted sums of values (n,) in each group, (G,)."""
        return np.bincount(self.number, self.weight * values, minlength=len(self.levels))


def groups_of(values, rows: int, weights=None, *, name="groups", weights_name="weights") -> Groups:
    """Groups of points by a value of each, (n,): numbers, texts or dates; each number of `weights` (n,) is >= 0.

    Raises
    ------
    InvalidData
        Values are missing or not one for each point, or the weights of a group add up to 0.
    """
    values = np.asarray(values)
    if values.shape != (rows,):
        raise InvalidData(
            f"{name}: expected one value for each of {rows} points, got shape {values.shape}; give a column"
        )
    if not rows:
        raise InvalidData(f"{name}: expected points to average over, got none; give some rows")
    missing = np.flatnonzero(_missing(values))
    if len(missing):
        raise InvalidData(
            f"{name}: expected a group for each point, got none at row {missing[0]} ({len(missing)} such rows); name "
            "one, or leave these rows out"
        )
    try:
        levels, number = np.unique(values, return_inverse=True)
    except TypeError as error:
        raise InvalidData(f"{name}: expected numbers, texts or dates, got several kinds ({error}); use one") from error
    weight = _weights(weights, rows, weights_name)
    totals = np.bincount(number, weight)
    if len(empty := np.flatnonzero(totals <= 0.0)):
        raise InvalidData(
            f"{weights_name}: expected a positive sum in each group, got 0 in {levels[empty[0]]!s:.80}; correct them, "
            "or leave the group out"
        )
    return Groups(levels, number, weight / totals[number])


def _missing(values):
    if values.dtype.kind in "fc":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype.kind == "O":
        return np.array([value is None or value == "" or value != value for value in values.tolist()], dtype=bool)
    return values == "" if values.dtype.kind in "UT" else np.zeros(len(values), bool)


def _weights(weights, rows, name):
    try:
        found = np.ones(rows) if weights is None else np.broadcast_to(np.asarray(weights, dtype=float), rows)
    except ValueError as error:
        raise InvalidData(f"{name}: expected {rows} numbers, got something else ({error}); correct them") from error
    if len(wrong := np.flatnonzero(~(np.isfinite(found) & (found >= 0.0)))):
        raise InvalidData(
            f"{name}: expected finite numbers, at least 0, got {found[wrong[0]]} at row {wrong[0]}; correct it"
        )
    return found


def refuse_averages(model: Model, of: str, above: Sequence[float], draws: int) -> None:
    """Raise `InvalidOption` where averages, or probabilities of thresholds, are not defined."""
    refuse_thresholds(model, above)
    if of not in ("function", "observations"):
        raise InvalidOption(f"--of: expected 'function' or 'observations', got {of!r:.80}; give one of these")
    if isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 2:
        raise InvalidOption(f"--draws: expected at least 2 samples, got {draws!r:.80}; give more")
    if model.likelihood.categorical or model.likelihood.processes > 1:
        raise InvalidOption(
            f"averages: expected a model of numbers, got {model.likelihood.name}; average the probabilities that "
            "`predict` gives"
        )
    if of == "function" and model.scaling.transform:
        raise InvalidOption(
            "averages: expected observations of transformed targets, got the function, whose average is that of "
            f"{model.error_name}; give --of observations, or fit with --target-transform none"
        )


def average(
    predictor: Predictor,
    X,
    groups: Groups,
    obs: Observations,
    *,
    of: Of = "function",
    above: Sequence[float] = (),
    draws: int = DRAWS,
    seed: int = 0,
    allowed_bytes: float,
) -> dict[str, np.ndarray]:
    """Averages over groups of points X (n, D) in original units: columns (G,) by name, in original units.

    `group`, `points`, `mean`, `sd`, `lower95`, `upper95`, and for example `above2.5`, the probability that the average
    is above 2.5, for 2.5 in `above`. Where there are several outputs, points of each are averaged apart, and `output`
    names it.

    Parameters
    ----------
    obs : exposure and trials of the observations, in original units
    of : average f, or means of observations given f where the likelihood is not normal; or new observations, whose
        noise is independent between points
    draws, seed : samples of averages without a closed form

    Raises
    ------
    MemoryLimit, NotFinite
    """
    model = predictor.model
    inputs, names = model.scaling.inputs(X), dict[str, np.ndarray]()
    if model.scaling.outputs:
        groups, names["output"] = of_each_output(groups, model.scaling.outputs.number(X), model.outputs)
    closed = model.likelihood.normal and not model.scaling.transform
    columns = {
        name: np.empty(len(groups.levels)) for name in ("mean", "sd", "lower95", "upper95", *map(above_name, above))
    }
    rng = np.random.default_rng(seed)
    for some, points in _batches(predictor.cells(inputs), groups):
        part = Groups(groups.levels[some], np.searchsorted(some, groups.number[points]), groups.weight[points])
        if closed:
            found = _normal(predictor, inputs[points], part, of, above)
        else:
            refuse_large_samples(model.shared, len(points), draws, allowed_bytes)
            averages = _sampled(predictor, inputs[points], part, obs[points], of, draws, rng)
            found = _of_samples(averages, above)
        for name, values in found.items():
            columns[name][some] = values
    refuse_nan(columns)
    return {"group": groups.levels, **names, "points": groups.points, **columns}


def of_each_output(groups: Groups, number, outputs: Sequence[str]) -> tuple[Groups, np.ndarray]:
    """Groups of points of one output each, and the names of these outputs, (G,): outputs have different units.

    Parameters
    ----------
    number : number of the output of each point, (n,)

    Raises
    ------
    InvalidData
        The weights of an output add up to 0 in a group.
    """
    found, place = np.unique(groups.number * len(outputs) + number, return_inverse=True)
    levels, names = groups.levels[found // len(outputs)], np.array(outputs, dtype=object)[found % len(outputs)]
    totals = np.bincount(place, groups.weight)
    if len(empty := np.flatnonzero(totals <= 0.0)):
        raise InvalidData(
            f"weights: expected a positive sum of each output in each group, got 0 of {names[empty[0]]!s:.80} in "
            f"{levels[empty[0]]!s:.80}; correct them, or leave these rows out"
        )
    return Groups(levels, place, groups.weight / totals[place]), names


def _batches(cells, groups) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield numbers of groups, ascending, with the points in them: groups in the cells of another, while small."""
    order = np.argsort(groups.number, kind="stable")
    points = np.split(order, np.cumsum(groups.points)[:-1])
    each = [frozenset(np.unique(cells[mine]).tolist()) for mine in points]
    batch: list[int] = []
    covered: frozenset = frozenset()
    for g in sorted(range(len(each)), key=lambda g: (min(each[g]), -len(each[g]))):
        size = sum(len(points[k]) for k in batch) + len(points[g])
        if batch and (not each[g] <= covered or size > BATCH_POINTS or len(batch) == BATCH_GROUPS):
            yield _batch(batch, points)
            batch = []
        covered = covered if batch else each[g]
        batch.append(g)
    yield _batch(batch, points)


def _batch(batch, points):
    return np.sort(batch), np.sort(np.concatenate([points[g] for g in batch]))


def _normal(predictor, inputs, groups, of, above):
    """Columns of averages with a normal distribution, by name."""
    (obs, scaling), units = at_rows(predictor.model, inputs), predictor.model.likelihood.units
    found, weight = marginals(predictor, inputs, obs), groups.weight * units.latent_length(scaling.y_scale)
    sums = Sums(groups.number, weight * found.shrink, len(groups.levels))
    variance = np.diag(predictor.joint(inputs, sums)[1]).copy()
    if of == "observations":
        variance += np.bincount(groups.number, weight**2 * found.noise, minlength=len(groups.levels))
    mean, sd = groups.total(scaling.original("mean", found.mean, units)), np.sqrt(variance)
    columns = {"mean": mean, "sd": sd, "lower95": mean + ndtri(LOW) * sd, "upper95": mean + ndtri(HIGH) * sd}
    return columns | {above_name(t): upper_tail(mean, sd, t) for t in above}


def _sampled(predictor, inputs, groups, obs, of, draws, rng) -> np.ndarray:
    """Samples of the averages, (draws, G), in original units."""
    model: Any = predictor.model
    f, found = samples_of(predictor, inputs, draws, rng)
    if of == "observations":
        values = sampled_observations(model, inputs, obs, f, found, rng)
    else:
        likelihood, units = cast(OneProcess, model.likelihood), model.likelihood.units
        values = likelihood.distribution(model.scaling.observations(obs, units, inputs), f.T).mean().T
        values = at_rows(model, inputs)[1].original("observation_mean", values, units)
    weights = np.zeros((len(inputs), len(groups.levels)))
    weights[np.arange(len(inputs)), groups.number] = groups.weight
    return values @ weights


def _of_samples(averages, above):
    low, high = np.quantile(averages, [LOW, HIGH], axis=0)
    columns = {"mean": averages.mean(axis=0), "sd": averages.std(axis=0, ddof=1), "lower95": low, "upper95": high}
    return columns | {above_name(t): (averages > t).mean(axis=0) for t in above}
