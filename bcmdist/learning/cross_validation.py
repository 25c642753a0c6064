"""Score kernels, means and variances by leave-one-out predictions in neighbourhoods of rows.

    settling    adjusts variances; errors are Gaussian
    deciding    chooses kernel and mean; errors have a fitted distribution; also scores gaps

Both use the same rows. For Gaussian noise `deciding` fits an error distribution
(`bcmdist.prediction.errors.scale_mixture`) to the errors of each candidate, so that a few rare rows do not determine
the choice for all others (on validation rows of cal_housing, kernel and mean chosen this way give NMSE .138 for .158,
and .10 nats a row). `settling` does not, so that rare rows may still raise the noise: otherwise kin40k loses .03 nats a
row.

If the domain has gaps, blocks of their size are left out, too: the neighbours of a single left-out row are as near as
ever, so its error is uninformative about predictions across a gap. Errors in gaps come from a few blocks only, too few
to fit a distribution, and are scored as Gaussian.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist.data.partition import Partition
from bcmdist.learning.blocks.blocks import CellBlocks
from bcmdist.learning.evidence.local_tasks import BlockLeftOut, LeftOut, normal_density
from bcmdist.learning.gap_points import Gaps, gaps_in
from bcmdist.learning.left_out.score import Score
from bcmdist.model.kernels import Kernel, metric
from bcmdist.model.likelihoods import Likelihood
from bcmdist.prediction.errors.scale_mixture import fit_shape
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import BlobReference

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
        """Sizes for a data set of `rows` rows; if one neighbourhood holds all rows, each row is left out once."""
        return self if self.rows < rows else LeftOutSizes(1, rows, 1.0)


# Neighbourhoods in which rows are left out for adjusting variances and choosing the model. They are many and far apart,
# so that rare disagreeing neighbours are among them, and not much smaller than the data of local experts: which kernel
# is better depends on the number of rows (on kin40k Matern 5/2 gains .003 nats on SE with 250 rows, .035 with 1000, .10
# with all 9000). On validation rows of seven sets these sizes do as well as 100 of 250 rows for variances and 20 of
# 1000 for the choice. For labels they are as large as the data of local experts: the best noise of labels depends on
# their number (of the noises tried on mnist, labels left out of 250 rows prefer .03, of 1000 rows .01; experts of 958
# rows err on 2.5 % of validation labels at .05, on 2.3 % at .01).
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
        unit = metric(metric_of, self.near.data.inputs)
        gaps = (
            gaps_in(self.near.sample / unit, self.near.data.rows, GAP_BLOCKS, GAP_ROWS)
            if self.likelihood.normal
            else None
        )
        blocks = self.near.neighbourhoods(metric_of, gaps.shares, GAP_ROWS) if gaps else []
        return Folds(self, near, gaps, blocks, tuple(unit.tolist()))


@dataclass(frozen=True)
class Folds:
    """Neighbourhoods drawn for cross-validation, under any prior mean."""

    validation: ValidationData
    near: list[Partition]
    gaps: Gaps | None
    blocks: list[Partition]
    """neighbourhoods with a gap-sized block to leave out in the centre"""
    unit: tuple[float, ...]

    def under(self, mean: str, trend: CrossValidation | None = None) -> CrossValidation:
        """Return the scores under a prior mean, with the scores under a linear mean attached as `trend`."""

        def noise_score(kernel, likelihood):
            return Score((self._rows(kernel, likelihood, mean, normal_density),))

        def model_score(kernel, likelihood):
            rows = self._rows(kernel, likelihood, mean, densities_of_errors)
            return self._with_gaps(rows, kernel, likelihood, mean)

        return CrossValidation(noise_score, model_score, trend)

    def _rows(self, kernel, likelihood, mean, densities):
        """Leave-one-out log densities of the central rows, (n,)."""
        data = self.validation
        task = LeftOut(data.reference, kernel, mean, likelihood, data.classes, data.sizes.central)
        return left_out_densities(data.runtime, task, self.near, densities)

    def _with_gaps(self, rows, kernel, likelihood, mean):
        """Score of the rows and, if there are gaps, of the left-out blocks."""
        if self.gaps is None:
            return Score((rows,))
        data = self.validation
        task = BlockLeftOut(data.reference, kernel, mean, likelihood, data.classes, self.gaps.radius, self.unit)
        blocks = data.runtime.sum(task, self.blocks, label="gaps").values[0]
        return Score((rows, blocks), (1.0 - self.gaps.share, self.gaps.share))


def densities_of_errors(error, variance) -> np.ndarray:
    """Log densities (n,) of errors with predictive variances, under a fitted distribution; -inf if one failed."""
    if not np.all(np.isfinite(error)):
        return np.full(len(error), -np.inf)
    z = error / np.sqrt(variance)
    return fit_shape(z).log_density(z) - 0.5 * np.log(variance)


def left_out_densities(runtime: Runtime, task: LeftOut, parts, densities=densities_of_errors) -> np.ndarray:
    """Log densities (n,) of left-out rows; `densities` is a function of errors and variances, for normal likelihoods.

    For class labels, of the steepness at which the probabilities are best.
    """
    values = runtime.sum(task, parts, label="judge").values
    return densities(*values) if task.likelihood.normal else values[np.argmax(values.sum(axis=1))]
