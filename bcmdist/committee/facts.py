"""Facts of a fit: its settings, diagnostics and measurements, stored with model, committee and ledger in each commit.

They are the part `facts/fit` of a commit's record. Results of later stages of the package, such as calibrations and the
expected surprise of arrivals, are stored here as plain JSON values.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from bcmdist.committee.fading import Weighting


@dataclass(frozen=True)
class Pass:
    """One pass over the data; for a first pass only the number is set."""

    number: int
    """number of passes since first-pass messages were last added, this one included"""
    change: float | None = None
    """length of the move of the posterior mean, in posterior standard deviations"""
    log_evidence: float | None = None
    """log p of all targets after the pass, in nats"""
    halvings: int | None = None
    """number of times the step before this pass was halved"""

    def to_json(self) -> dict[str, Any]:
        """The fields, JSON-ready; of a first pass the number only."""
        number = {"pass": self.number}
        rest = {"change": self.change, "log_evidence": self.log_evidence, "halvings": self.halvings}
        return number if self.change is None else number | rest

    @classmethod
    def from_json(cls, value) -> "Pass":
        """Inverse of `to_json`."""
        return cls(value["pass"], value.get("change"), value.get("log_evidence"), value.get("halvings"))


@dataclass(frozen=True)
class Cells:
    """Spatial cells: their sizes, the location of their rows, and what local prediction needs.

    Fields are in the order in which a fit adds them.
    """

    core: int | None = None
    """approximate number of rows of a cell"""
    around: int | None = None
    """approximate number of rows that a local expert conditions on"""
    array: str | None = None
    """URL of the array of rows in cell order, which their ledger keys name"""
    edges: str | None = None
    """hash of the blob with the index of each cell's first row"""
    halos: str | None = None
    """hash of the blob with the hashes of the halos, by partition"""
    border_jump: float | None = None
    """root mean square difference of the predictions of neighbouring cells at their border, in standard deviations"""
    border_jump_error: float | None = None
    """standard error of `border_jump`, which is measured at a sample of borders"""

    @property
    def surrounded(self) -> bool:
        """Whether local predictions can be made, because a fit has completed all steps."""
        return self.border_jump is not None

    def to_json(self) -> dict[str, Any]:
        """The fields that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, cells: Mapping[str, Any]) -> "Cells":
        """Inverse of `to_json`; fields of other versions are ignored."""
        return cls(**{name.name: cells[name.name] for name in fields(cls) if name.name in cells})


@dataclass(frozen=True)
class Facts:
    """Facts of a fit at one commit; None where unknown or not applicable."""

    job: str
    """hash of the settings and data set of the fit"""
    surveyed: str
    """hash of the ledger segment with the partitions as surveyed"""
    approximation: str
    """"laplace" or "ep" """
    linearise: str
    """"own" or "running" """
    rows_per_expert: int
    query_asked: int
    """number of query points asked for; the fit may use fewer"""
    kernels_tried: dict[str, float | None]
    """log evidence by kernel"""
    at_bounds: list[str]
    """hyper-parameters that ended at a bound"""
    seconds: dict[str, float]
    """time by stage"""
    expert: str = "bcm"
    """name of the expert in its registry: shared variables and residual covariance"""
    passes: tuple[Pass, ...] = ()
    data: str | None = None
    """URL of the training data"""
    evaluations: int | None = None
    """number of evaluations of the evidence while learning"""
    method: str = "committee"
    """default prediction method"""
    fading: Weighting = field(default_factory=Weighting)
    skipped: tuple[str, ...] = ()
    """names of partitions and data sets that failed during ingestion"""
    cells: Cells = field(default_factory=Cells)
    """empty where partitions are not spatial"""
    calibration: dict[str, Any] | None = None
    """`bcmdist.prediction.errors.platt_scaling.Calibration`, with the number of `rows` absorbed when it was fitted; 0
    if it was fitted to another committee"""
    local_calibration: dict[str, Any] | None = None
    """the same for local predictions"""
    recalibration: dict[str, Any] | None = None
    """`bcmdist.prediction.errors.recalibration.Recalibration` if it improves held-out predictions, with the number of
    `rows` absorbed when it was fitted (0: to another committee) and `linearised_at`, where they were linearised"""
    chunks: str | None = None
    """hash of the blob with the chunks that the survey read from data without a manifest"""
    linearised_at: str | None = None
    """hash of the shared values at which the last pass was linearised"""
    halving_loss: dict[str, float] | None = None
    """loss of local predictions with half of the query points, in `nats` per row, and its standard `error`"""
    repeats: dict[str, float] | None = None
    """`share` of rows whose inputs occur more than once, and standard `deviation` of the targets of such rows
    (`bcmdist.learning.survey.Replicates`)"""
    labels: dict[str, int] | None = None
    """number of distinct values of each input that the kernel treats as a category, by input name"""
    whole_targets: int | None = None
    """number of distinct targets, if all are whole numbers and there are few of them"""
    objective: float | None = None
    """log joint density at `linearised_at`"""
    withdrawn_error: float | None = None
    """error that one more pass corrected after partitions were withdrawn, in standard deviations"""
    degrees_estimated: float | None = None
    """estimated degrees of freedom from which the number of query points was chosen"""
    settled: dict[str, Any] | None = None
    """factors by which variances were changed to predict left-out rows best, by name of the variance"""
    decisions: list[dict[str, Any]] | None = None
    """decisions of learning with their criterion and margin (`bcmdist.learning.decisions.Decision`); None in commits of
    versions that did not record them"""
    companions: tuple[str, ...] | None = None
    """names of the companion arrays of the targets in training: weight, exposure, trials or event"""
    between_partitions: float | None = None
    """share of the variance of targets that lies between partitions"""
    expected: dict[str, Any] | None = None
    """expected surprise of arrivals (`bcmdist.prediction.scoring.excess_loss.Expected`)"""
    noise: str | None = None
    """setting for the scale of errors: "constant", "varying" or "auto" """
    spread: dict[str, Any] | None = None
    """scale of errors, from leave-one-out residuals (`bcmdist.prediction.measuring.measurement`)"""
    networks: dict[str, Any] | None = None
    """for an expert with networks: the number of training `rows` and, for each network, its `log_evidence` (of scaled
    targets), `noise_variance` and number of `evaluations`"""
    lag: dict[str, Any] | None = None
    """lag of each source's ingestion at its last commit: `partitions`, `rows` and `seconds` (approximate), and `at`,
    the time of the measurement in seconds since the epoch"""
    deep: dict[str, Any] | None = None
    """for an expert with layers, in units of the scaled targets: number of training `rows`, of `left_out` rows and of
    `evaluations`; for each process its power, the energy reached and the mean log density of the left-out rows
    (`powers`, `energies`, `densities`; no densities without such rows); `density` of the result, the mean over a
    mixture or the best process. For each process with `sites`: `sweeps`; `energy`, None if a cavity is improper; how
    far the last sweep `moved` factors (relative) or means (in standard deviations); the number of rows it `skipped`;
    and `density_tied`, the density before the sweeps"""
    input_errors: dict[str, Any] | None = None
    """for noisy inputs: number of `rows` used for learning; `noise_seen`, the noise variance of scaled targets learned
    before, with inputs taken as exact; the score of each start in `beginnings`, None where it failed, if there were
    several. For the best start: log `densities` of left-out rows by noise level, None where they failed (clean), or the
    number of `rounds` (hmc)"""
    other: dict[str, Any] = field(default_factory=dict)
    """facts written by other versions, by name"""

    def to_json(self) -> dict[str, Any]:
        """The facts that are not None, JSON-ready, by field name."""
        known = {name: getattr(self, name) for name in NAMES if getattr(self, name) is not None}
        known |= {"passes": [entry.to_json() for entry in self.passes]}
        known |= {"cells": self.cells.to_json() or None, "skipped": list(self.skipped)}
        known |= {} if self.companions is None else {"companions": list(self.companions)}
        known |= {"fading": asdict(self.fading) if self.fading.fades else None}
        return self.other | known

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "Facts":
        """The facts of a record whose types were checked (`bcmdist.committee.soundness.check_fit`)."""
        known = {name: value for name, value in facts.items() if name in NAMES and value is not None}
        other = {name: value for name, value in facts.items() if name not in NAMES}
        known |= {"passes": tuple(map(Pass.from_json, facts["passes"]))}
        known |= {name: tuple(known[name]) for name in ("skipped", "companions") if name in known}
        known |= {"cells": Cells.from_json(known["cells"])} if "cells" in known else {}
        known |= {"fading": Weighting(**known["fading"])} if "fading" in known else {}
        return cls(**known, other=other)

    def changed(self, **facts) -> "Facts":
        """A copy with the given fields replaced."""
        return replace(self, **facts)


NAMES = tuple(name.name for name in fields(Facts) if name.name != "other")
