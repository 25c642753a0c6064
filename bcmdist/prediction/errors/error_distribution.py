"""The distribution of errors: their scale at each input and their shape, estimated from leave-one-out residuals.

Residuals are stored in ledger entries, so the ledger of a commit determines its error distribution: residuals are added
with a partition, removed when it is forgotten, fade with it, and are joined when committees are merged. Where training
memorises rows, the errors that it has measured itself are used instead (`bcmdist.learning.training_errors`), as facts
of the fit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bcmdist.committee.facts import Facts, TrainedErrors, TrainedScale
from bcmdist.committee.fading import weights
from bcmdist.committee.loading import load_facts
from bcmdist.committee.measurements import GapIndicators, ScaleProcess
from bcmdist.committee.snapshot import Snapshot
from bcmdist.model.kernels import Kernel, finite_metric
from bcmdist.prediction.errors.gap_scale import GapScale, fit_gap_scale
from bcmdist.prediction.errors.heteroscedasticity import Process, VaryingScale, fit_scale, places_of, settle_process
from bcmdist.prediction.errors.scale_mixture import NORMAL, Histogram, Shape, decided_by, fit_shape, histogram
from bcmdist.storage.commits import Reference, load_record, open_store
from bcmdist.storage.entry import Entry
from bcmdist.storage.ledger import Ledger

# Least number of residuals for a shape, and for a scale that varies with the inputs.
LEAST, LEAST_VARYING = 100, 250
# Partitions whose faded weight is at most this are ignored.
FADED = 1e-3
# A varying scale is chosen if its gain exceeds this many standard errors. Under a constant scale this hardly occurs: a
# factor fitted to noise loses at rows that did not contribute to it.
DECISIVE = 1.0


@dataclass(frozen=True)
class ErrorDistribution:
    """Distribution of standardised errors: variance at scaled inputs, and shape after division by its square root."""

    shape: Shape = NORMAL
    scale: VaryingScale | None = None
    """None: constant"""
    gaps: GapScale | None = None
    """further factor of rows with gaps; None without gaps in training"""

    @property
    def constant(self) -> bool:
        """Whether no variance is changed."""
        return self.scale is None and self.gaps is None

    def widening(self, X, variance) -> np.ndarray | float:
        """Factor (n,) on the predictive variance (n,) of observations at scaled inputs X (n, D)."""
        return 1.0 if self.constant else self.factor(places_of(X, variance))

    def factor(self, places) -> np.ndarray:
        """Factor (n,) on the predictive variance of observations at places (n, D + 1)."""
        found = np.ones(len(places)) if self.scale is None else self.scale.factor(places)
        return found if self.gaps is None else found * self.gaps.factor(places)


AS_THE_MODEL_SAYS = ErrorDistribution()


@dataclass(frozen=True)
class Residuals:
    """Standardised leave-one-out residuals, by partition."""

    places: list[np.ndarray]
    """(k, D + 1) each; see `bcmdist.prediction.errors.heteroscedasticity`"""
    errors: list[np.ndarray]
    """(k,) each"""
    weights: list[float]
    """weight of each partition"""

    @property
    def count(self) -> int:
        return sum(map(len, self.errors))

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All residuals as arrays: places (n, D + 1), residuals and weights (n,)."""
        weights = np.repeat(self.weights, [len(one) for one in self.errors])
        return np.concatenate(self.places), np.concatenate(self.errors), weights

    def relative_to(self, scale: GapScale | None) -> "Residuals":
        """The residuals divided by the square roots of the factors of rows with gaps."""
        if scale is None:
            return self
        pairs = zip(self.errors, self.places, strict=True)
        return replace(self, errors=[z / np.sqrt(scale.factor(places)) for z, places in pairs])

    def histogram(self, divided_by: np.ndarray | None = None) -> Histogram:
        """Histogram of all residuals, divided by the square roots of variance factors (n,) if given."""
        _, z, weights = self.arrays()
        return histogram(z if divided_by is None else z / np.sqrt(divided_by), weight=weights)


def residuals_in(
    entries: Iterable[Entry], weights: Mapping[str, float], method: str, left_out_ratio: float = 1.0
) -> Residuals:
    """Residuals of a prediction method in ledger entries, with the weights of their partitions by key.

    Those of rows of the fit are multiplied by `left_out_ratio`; those of arrivals are of rows that training has not
    seen.
    """
    found = Residuals([], [], [])
    for entry in sorted(entries, key=lambda entry: entry.key):
        record = entry.residuals
        errors = None if record is None else record.of(method)
        if record is not None and errors is not None and weights[entry.key] > FADED:
            found.places.append(record.places)
            found.errors.append(errors if entry.arrival else left_out_ratio * errors)
            found.weights.append(weights[entry.key])
    return found


def fit_error_distribution(
    residuals: Residuals, process: Process | None, indicators: GapIndicators | None = None
) -> ErrorDistribution:
    """Fit the error distribution to residuals; with a scale that varies with the inputs if a process is given.

    The model's own distribution is returned for fewer than `LEAST` residuals.
    """
    if residuals.count < LEAST:
        return AS_THE_MODEL_SAYS
    gaps = fit_gap_scale(indicators, *residuals.arrays()) if indicators else None
    residuals = residuals.relative_to(gaps)
    if process is None:
        return ErrorDistribution(fit_shape(residuals.histogram()), gaps=gaps)
    scale, factors = fit_scale(process, *residuals.arrays())
    return ErrorDistribution(fit_shape(residuals.histogram(factors)), scale, gaps)


@dataclass(frozen=True)
class Gain:
    """Gain of a varying over a constant scale in mean log density per residual; a shape is fitted in either case."""

    nats: float
    error: float
    """standard error of the gain"""

    @property
    def decisive(self) -> bool:
        return self.nats > DECISIVE * self.error


def gain_of(residuals: Residuals, process: Process) -> Gain:
    """Gain of a scale that varies as `process`, with each residual's factor predicted from the other residuals."""
    X, z, weights = residuals.arrays()
    constant = fit_shape(residuals.histogram())
    _, factors = fit_scale(process, X, z, weights)
    varying = fit_shape(residuals.histogram(factors))
    gains = varying.log_density(z / np.sqrt(factors)) - 0.5 * np.log(factors) - constant.log_density(z)
    return Gain(*decided_by(gains, weights))


def varying_process(residuals: Residuals, kernel: Kernel, inputs: int) -> tuple[Process, Gain]:
    """The process of a varying scale, with lengthscales in proportion to the kernel's or all equal, and its gain."""
    places, z, _ = residuals.arrays()
    process = settle_process(places, z, [np.full(inputs, np.sqrt(inputs)), finite_metric(kernel, inputs)])
    return process, gain_of(residuals, process)


def trained_errors(residuals: Residuals, kernel: Kernel, inputs: int) -> TrainedErrors | None:
    """The distribution of errors that training has measured; None for fewer than `LEAST`.

    The scale varies with the inputs if that has a decisive gain.
    """
    if residuals.count < LEAST:
        return None
    process, scale = None, None
    if residuals.count >= LEAST_VARYING:
        process, gain = varying_process(residuals, kernel, inputs)
        process = process if gain.decisive else None
    distribution = fit_error_distribution(residuals, process)
    if process is not None and distribution.scale is not None:
        mean, level = distribution.scale.mean.tolist(), distribution.scale.level
        scale = TrainedScale(ScaleProcess(**process.to_json()), mean, level, gain.nats, gain.error)
    shape = distribution.shape
    means = list(shape.means or [0.0] * len(shape.scales))
    return TrainedErrors(residuals.count, list(shape.weights), list(shape.scales), means, scale)


@lru_cache(maxsize=4)
def load_error_distribution(reference: Reference, method: str) -> ErrorDistribution:
    """Load the error distribution of a commit; cached, for tasks on workers."""
    ledger = open_store(reference.url).ledger(load_record(reference))
    return error_distribution_in(load_facts(reference), ledger, method)


def error_distribution_of(snapshot: Snapshot, method: str) -> ErrorDistribution:
    """The error distribution of a snapshot in memory; cached for the commit."""
    commit, distribution = snapshot.read.get(("spread", method), (None, None))
    if commit != snapshot.commit:
        distribution = error_distribution_in(snapshot.facts, snapshot.ledger, method)
        snapshot.read[("spread", method)] = snapshot.commit, distribution
    return distribution


def residuals_of(facts: Facts, ledger: Ledger, method: str) -> Residuals:
    """Residuals of a prediction method in a ledger, with the current weights of their partitions."""
    entries = ledger.recorded.values()
    ratio = facts.errors.left_out_ratio if method == facts.method else None
    return residuals_in(entries, weights(facts.fading, entries), method, ratio or 1.0)


def varying_scale(fact: TrainedScale) -> VaryingScale:
    """From the stored scale."""
    process = Process.from_json(fact.process)
    return VaryingScale(process.shared, np.array(fact.mean), fact.level, process.low, process.high)


def error_distribution_in(facts: Facts, ledger, method: str) -> ErrorDistribution:
    """The error distribution of a prediction method, from the residuals in a ledger."""
    if (trained := facts.errors.trained_errors) and method == facts.method:
        shape = Shape(tuple(trained.weights), tuple(trained.scales), tuple(trained.means))
        return ErrorDistribution(shape, varying_scale(trained.scale) if trained.scale else None)
    scale, residuals = facts.errors.error_scale, residuals_of(facts, ledger, method)
    process = scale.process if scale and method == facts.method else None
    gaps = scale.gaps if scale else None
    return fit_error_distribution(residuals, Process.from_json(process) if process else None, gaps)
