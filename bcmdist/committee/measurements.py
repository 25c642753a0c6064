"""What is measured of a model and its predictions: parts of the facts of a fit (`bcmdist.committee.facts`)."""

from typing import Annotated, Literal

import msgspec

from bcmdist.committee.record import Record
from bcmdist.storage.fields import Blob, Count, CountFromOne, NotNegative, Number, Positive


class Replicates(Record, frozen=True):
    """Rows with equal inputs (`bcmdist.learning.survey.Replicates`)."""

    share: NotNegative
    """share of rows whose inputs occur more than once"""
    deviation: NotNegative
    """standard deviation of the targets of such rows"""


class QueryLoss(Record, frozen=True):
    """Loss of local predictions with half of the query points."""

    nats: Number
    """per row"""
    error: NotNegative
    """its standard error"""


class Calibration(Record, frozen=True, omit_defaults=True):
    """`bcmdist.prediction.errors.platt_scaling.Calibration`, and when it was fitted."""

    slope: Number
    bias: list[Number]
    """one number a class"""
    rows: Count | None = None
    """number of rows absorbed when it was fitted; 0 if it was fitted to another committee"""


class Recalibration(Record, frozen=True):
    """`bcmdist.prediction.errors.recalibration.Recalibration`, and when it was fitted."""

    slope: Positive
    intercept: Number
    rows: Count
    """number of rows absorbed when it was fitted; 0 if it was fitted to another committee"""
    linearised_at: Blob | None = None
    """hash of the shared values at which predictions were linearised"""


class ScaleProcess(Record, frozen=True):
    """`bcmdist.prediction.errors.heteroscedasticity.Process`."""

    points: list[list[Number]]
    variance: Positive
    lengthscale: list[Positive]
    low: list[Number] | None = None
    high: list[Number] | None = None


class GapIndicators(Record, frozen=True):
    """Inputs that mark rows with gaps, whose errors have a scale of their own (`prediction.errors.gap_scale`)."""

    inputs: Annotated[list[Count], msgspec.Meta(min_length=1)]
    """their numbers, ascending"""
    thresholds: list[Number]
    """scaled values above which each marks a gap"""

    @property
    def count(self) -> int:
        return len(self.inputs)


class ErrorScale(Record, frozen=True):
    """Scale of errors, from leave-one-out residuals (`bcmdist.prediction.measuring.measurement`)."""

    rows: CountFromOne
    """number of rows absorbed when it was measured"""
    gain: Number | None = None
    """gain of a varying over a constant scale, in nats per residual"""
    gain_error: NotNegative | None = None
    """its standard error"""
    process: ScaleProcess | None = None
    """None for a constant scale"""
    gaps: GapIndicators | None = None
    """None without gaps in training"""


class ExpectedLoss(Record, frozen=True):
    """Baseline for the loss of arrivals; fields as in `bcmdist.prediction.scoring.excess_loss.Expected`."""

    partitions: Count
    mean: Number = msgspec.field(name="surprise")
    dispersion: Positive
    samples: Count
    figures: list[Number]


class Accuracy(Record, frozen=True):
    """Loss of leave-one-out predictions of some rows, and that of baselines of the same rows (`api.comparison`)."""

    rows: CountFromOne
    """number of rows that were left out"""
    absorbed: CountFromOne
    """number of rows absorbed when it was measured"""
    loss: Literal["weighted_rmse", "rmse", "log_loss", "deviance"]
    model: Number
    baselines: dict[str, Number]
    """by name"""
    learned_from: CountFromOne
    """number of training rows that the baselines have learned from"""


class OnlineUpdate(Record, frozen=True):
    """The update of the committee by the rows of one commit (`bcmdist.committee.online_update`)."""

    commit: CountFromOne
    """number of that commit"""
    form: Literal["information", "kalman"]
    rows: Count
    """number of rows absorbed"""
    measurements: Count
    """number of independent directions of the shared variables that they measure"""
    innovation: NotNegative
    """mean square of the standardised innovations; about 1 if the rows are as the model predicted"""
    gain: NotNegative
    """mean share, from 0 to 1, of the innovation by which the belief moved"""
    rounding: NotNegative
    """estimated rounding of the covariance in proportion to its smallest eigenvalue"""
