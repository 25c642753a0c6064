"""Score kernels, means and variances by leave-one-out predictions in neighbourhoods of rows.

    noise_score    adjusts variances; errors are Gaussian
    model_score    chooses kernel and mean; errors of single rows have a fitted distribution

Both use the same rows. For Gaussian noise `model_score` fits an error distribution
(`bcmdist.prediction.errors.scale_mixture`) to the errors of each candidate, so that a few rare rows do not determine
the choice for all others. `noise_score` does not, so that rare rows may still raise the noise.

Both leave out blocks of several sizes, too: the neighbours of a single left-out row are as near as ever, so
its error is uninformative about predictions far from rows. Blocks are left out of samples of all rows
(`bcmdist.learning.left_out.blocks`) and, if the domain has gaps, of their size out of dense neighbourhoods. Errors in
blocks come from a few blocks only, too few to fit a distribution, and are scored as Gaussian. Rows and blocks weigh as
far from rows as predictions will be where this is known (`--query-from`).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.learning.blocks.blocks import CellBlocks
from bcmdist.learning.category_lengthscales import COLUMN
from bcmdist.learning.decisions import EVIDENCE, ROWS_LEFT_OUT, Decision
from bcmdist.learning.evidence.local_tasks import BlockLeftOut, BlocksOfSample, LeftOut
from bcmdist.learning.gap_points import Gaps, gaps_in
from bcmdist.learning.left_out.adjust_variances import NoiseAdjusted, noise_adjusted
from bcmdist.learning.left_out.blocks import LEAST_ROWS, SAMPLE_ROWS, SAMPLES, by_size, shares_of
from bcmdist.learning.left_out.density import normal_density
from bcmdist.learning.left_out.score import Score, margin
from bcmdist.learning.point import Point
from bcmdist.model.kernels import Kernel, metric
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import described
from bcmdist.prediction.errors.scale_mixture import fit_shape
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference

Candidate = tuple[Kernel, str, Likelihood]
"""kernel, prior mean and likelihood"""
LeaveOneOutScore = Callable[[Kernel, Likelihood], Score]


@dataclass(frozen=True)
class CrossValidation:
    """Scores of a candidate under one prior mean; all use neighbourhoods that are near in one metric."""

    noise_score: LeaveOneOutScore
    """score by which variances are adjusted"""
    model_score: LeaveOneOutScore
    """score by which kernel and mean are chosen"""
    trend: "CrossValidation | None" = None
    """the same scores under a linear mean, if the mean is still to be chosen"""


# Rows that are one neighbourhood, in units of its usual rows: eight times the work of one, but no overlap.
WHOLE = 2


@dataclass(frozen=True)
class LeftOutSizes:
    """Number and size of neighbourhoods, and the central share of rows that is left out one by one."""

    count: int
    rows: int
    """rows of each neighbourhood"""
    share: float = 0.16
    """share of the rows of a neighbourhood that is left out"""

    @property
    def central(self) -> int:
        """Rows of each neighbourhood that are left out."""
        return max(1, int(self.share * self.rows))

    def among(self, rows: int) -> "LeftOutSizes":
        """Sizes for a data set of `rows` rows: no more neighbourhoods than leave out each row about once; few rows are
        one neighbourhood."""
        if rows <= WHOLE * self.rows:
            return LeftOutSizes(1, rows, 1.0)
        return replace(self, count=min(self.count, -(-rows // self.central)))


# Neighbourhoods in which rows are left out for adjusting variances and choosing the model. They are many and far apart,
# so that rare disagreeing neighbours are among them, and not much smaller than the data of local experts: which kernel
# is better depends on the number of rows. For labels they are as large as the data of local experts: the best noise of
# labels depends on their number.
JUDGED = LeftOutSizes(count=40, rows=500)
JUDGED_LABELS = LeftOutSizes(count=25, rows=1000)
# Number of left-out blocks of the size of gaps, and rows of the neighbourhood of each.
GAP_BLOCKS, GAP_ROWS = 24, 250


@dataclass(frozen=True)
class ValidationData:
    """Data and context of cross-validation, from which `Folds` are drawn."""

    near: CellBlocks
    reference: BlobReference
    """reference of the scaling"""
    runtime: Runtime
    classes: tuple[float, ...] | None
    likelihood: Likelihood

    @property
    def sizes(self) -> LeftOutSizes:
        """Number and size of the neighbourhoods."""
        return (JUDGED_LABELS if self.likelihood.on_labels else JUDGED).among(self.near.data.rows)

    def folds(self, metric_of: Kernel) -> "Folds":
        """Draw folds whose neighbourhoods are near in the metric of a kernel."""
        near = self.near.neighbourhoods(metric_of, np.ones(self.sizes.count), self.sizes.rows)
        unit, rows = metric(metric_of, self.near.data.inputs), self.near.data.rows
        gaps = gaps_in(self.near.sample / unit, rows, GAP_BLOCKS, GAP_ROWS) if self.likelihood.normal else None
        in_gaps = self.near.neighbourhoods(metric_of, gaps.shares, GAP_ROWS) if gaps else []
        count = min(SAMPLES, rows // SAMPLE_ROWS) or int(rows >= LEAST_ROWS)
        shares = np.full(count, min(1.0, SAMPLE_ROWS / rows))
        samples = self.near.neighbourhoods(metric_of, shares, SAMPLE_ROWS) if count else []
        places = None if self.near.places is None else self.near.places / unit
        weights = shares_of(self.near.sample / unit, places, gaps=gaps, blocks=bool(samples))
        return Folds(self, near, tuple(unit.tolist()), gaps, in_gaps, samples, weights)


@dataclass(frozen=True)
class Folds:
    """Neighbourhoods drawn for cross-validation, under any prior mean."""

    validation: ValidationData
    near: list[Partition]
    unit: tuple[float, ...]
    """metric of blocks, (D,)"""
    gaps: Gaps | None = None
    in_gaps: Sequence[Partition] = ()
    """neighbourhoods with a gap-sized block to leave out in the centre"""
    samples: Sequence[Partition] = ()
    """samples of all rows, of which blocks of several sizes are left out"""
    shares: tuple[float, ...] = (1.0,)
    """weights of single rows, of gaps if there are any, and of blocks of each size if they are left out"""

    def under(self, mean: str, trend: CrossValidation | None = None) -> CrossValidation:
        """Return the scores under a prior mean, with the scores under a linear mean attached as `trend`."""

        found: dict[str, tuple[np.ndarray, list[np.ndarray], np.ndarray | None]] = {}

        def score(densities, kernel, likelihood):
            at = json.dumps(described(kernel, likelihood))
            if at not in found:  # a point is scored several times: as a candidate, with its variances, in a comparison
                candidate = kernel, mean, likelihood
                found[at] = self._rows(candidate), self._gaps(candidate), self._blocks(candidate)
            values, gaps, blocks = found[at]
            rows, steepness = densities_of(likelihood, values, densities)
            return Score((rows, *gaps, *([] if blocks is None else by_size(blocks, steepness))), self.shares)

        return CrossValidation(partial(score, normal_density), partial(score, densities_of_errors), trend)

    def _rows(self, candidate: Candidate) -> np.ndarray:
        """Leave-one-out predictions of the central rows, as `RowsLeftOut`."""
        data = self.validation
        task = LeftOut(data.reference, *candidate, data.classes, data.sizes.central)
        return data.runtime.sum(task, self.near, label="judge").values

    def _gaps(self, candidate: Candidate) -> list[np.ndarray]:
        """Log densities of blocks as large as the gaps; [] if there are none."""
        if self.gaps is None:
            return []
        data = self.validation
        task = BlockLeftOut(data.reference, *candidate, data.classes, self.gaps.radius, self.unit)
        return [data.runtime.sum(task, self.in_gaps, label="gaps").values[0]]

    def _blocks(self, candidate: Candidate) -> np.ndarray | None:
        """Log densities of blocks of samples, as `BlocksOfSample`; None if none are left out."""
        if not self.samples:
            return None
        data = self.validation
        task = BlocksOfSample(data.reference, *candidate, data.classes, data.reference, self.unit)
        return data.runtime.sum(task, self.samples, label="blocks").values


def densities_of_errors(error, variance) -> np.ndarray:
    """Log densities (n,) of errors with predictive variances, under a fitted distribution; -inf if one failed."""
    if not np.all(np.isfinite(error)):
        return np.full(len(error), -np.inf)
    z = error / np.sqrt(variance)
    return fit_shape(z).log_density(z) - 0.5 * np.log(variance)


def densities_of(likelihood: Likelihood, values, densities=densities_of_errors) -> tuple[np.ndarray, int]:
    """Log densities (n,) of left-out rows from the values of `RowsLeftOut`.

    For class labels they are those at the steepness (`density.STEEPNESS`) of the best probabilities; its position is
    returned, too, and 0 for other likelihoods.

    Parameters
    ----------
    densities : function of errors and variances, for normal likelihoods
    """
    if likelihood.normal:
        return densities(*values), 0
    best = int(np.argmax(values.sum(axis=1)))
    return values[best], best


# Minimum gain per left-out row for which a model is preferred to the one of largest evidence: about the standard error
# of a difference over the few thousand rows. Not for labels: their evidence treats them as numbers, no tie-breaker.
DECISIVE_NATS = 0.005
# Maximum number of candidates that are optimised further, among those within this gap of the first one: kernels that
# were optimised less than the best one may gain by further steps.
CONTENDERS, HOPELESS_NATS = 2, 0.25


@dataclass(frozen=True)
class Judged:
    """The selected point, with adjusted variances, and the decisions."""

    point: Point
    chosen: NoiseAdjusted
    decisions: tuple[Decision, ...]


def select_model(
    validation: CrossValidation, best: Point, others: list[Point], climbed: Callable[[Point], Point]
) -> Judged:
    """Select the best of a point of largest evidence and of the most promising others.

    Parameters
    ----------
    validation : scores by left-out rows
    best : the point of largest evidence
    climbed : function that searches on from one of the other points
    """
    points = [best, *map(climbed, _promising(validation, best, others))]
    # Compared with adjusted variances: a point with too little noise loses to any other because of a few rows.
    choices = [_noise_adjusted(validation, point) for point in points]
    scores = [validation.model_score(chosen.kernel, chosen.likelihood) for chosen in choices]
    values = [score.value for score in scores]
    values[0] += 0.0 if best.likelihood.on_labels else DECISIVE_NATS
    taken = int(np.argmax(values))
    decisions = [_between(of, points, scores, taken) for of in ("kernel", "lengthscales")]
    decisions.append(_of_variances(validation, points[taken], choices[taken]))
    return Judged(points[taken], choices[taken], tuple(one for one in decisions if one))


def _promising(validation, best, others):
    """Return at most `CONTENDERS` of the other points, the most promising first.

    Points are ranked by left-out rows; for labels, where this would cost as much as the final comparison, by evidence.
    """
    if best.likelihood.on_labels:
        return sorted(others, key=lambda point: point.objective, reverse=True)[:CONTENDERS]
    if not others:
        return []
    least = validation.model_score(best.kernel, best.likelihood).value - HOPELESS_NATS
    values = [validation.model_score(point.kernel, point.likelihood).value for point in others]
    order = np.argsort(values)[::-1][:CONTENDERS]
    return [others[k] for k in order if values[k] >= least]


def _noise_adjusted(validation, point) -> NoiseAdjusted:
    return noise_adjusted(lambda *at: validation.noise_score(*at).total, point.kernel, point.likelihood)


def _between(of, points, scores, taken) -> Decision | None:
    """Compare the selected point with the best of each other kind; None if there was no alternative."""
    kinds = [KINDS[of](point) for point in points]
    best = {kind: max(score.value for k, score in zip(kinds, scores, strict=True) if k == kind) for kind in kinds}
    over = {
        kind: margin(scores[taken], score)
        for kind, score in zip(kinds, scores, strict=True)
        if kind != kinds[taken] and score.value == best[kind]
    }
    better = all(found.nats >= 0.0 for found in over.values())
    return Decision(of, kinds[taken], ROWS_LEFT_OUT if better else EVIDENCE, over) if over else None


def _lengthscales(point):
    """Return how many lengthscales a point has, in words."""
    if point.tied:
        return "one for the inputs as given"
    levels = [group for group in point.groups if group >= 0]  # others are points on a sphere
    if len(set(levels)) < len(levels):
        return COLUMN
    one = all(len(point.kernel.parameters[name]) == 1 for name in point.kernel.lengthscales)
    return "one for all inputs" if one else "one for each input"


KINDS: dict[str, Callable[[Point], str]] = {"kernel": lambda point: point.name, "lengthscales": _lengthscales}


def _of_variances(validation, point, chosen) -> Decision | None:
    """Record the gain of adjusted over learned variances; None if nothing changed."""
    if all(factor == 1.0 for factor in chosen.factors.values()):
        return None
    scores = [validation.noise_score(one.kernel, one.likelihood) for one in (chosen, point)]
    taken = ", ".join(f"{name} x {factor:.3g}" for name, factor in chosen.factors.items())
    return Decision("variances", taken, ROWS_LEFT_OUT, {"as learned": margin(*scores)})
