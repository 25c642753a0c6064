"""Facts: what a fit has found out and has been told, beside its model, its committee and its ledger.

They are the part `facts/fit` of a commit's record. What later rooms of the package find out - calibrations, what is
expected of arrivals - is kept as they have written it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from bcmdist.committee.fading import Weighting


@dataclass(frozen=True)
class Pass:
    """One pass over the data; a first one has nothing to say but its number."""

    number: int
    """passes since messages of a first pass were last added, this one included"""
    change: float | None = None
    """by how much it has moved the belief, in its standard deviations"""
    log_evidence: float | None = None
    halvings: int | None = None
    """of steps up to this pass"""

    def to_json(self) -> dict[str, Any]:
        """Of a first pass its number only."""
        number = {"pass": self.number}
        rest = {"change": self.change, "log_evidence": self.log_evidence, "halvings": self.halvings}
        return number if self.change is None else number | rest

    @classmethod
    def from_json(cls, value) -> "Pass":
        """What `to_json` gives."""
        return cls(value["pass"], value.get("change"), value.get("log_evidence"), value.get("halvings"))


@dataclass(frozen=True)
class Cells:
    """Spatial cells: settled sizes, where their rows are, and what local prediction needs, in the order in which a fit
    adds it."""

    core: int | None = None
    """rows of a core, about"""
    around: int | None = None
    """rows that a local expert sees, about"""
    array: str | None = None
    """URL of the array by which rows in the order of cells are known"""
    edges: str | None = None
    """hash of the blob with the first rows of cells"""
    halos: str | None = None
    """hash of the blob with the hashes of halos, by partition"""
    border_jump: float | None = None
    """how far neighbouring cells disagree at their border, in standard deviations"""
    border_jump_error: float | None = None
    """standard error of that, as some borders are measured"""

    @property
    def surrounded(self) -> bool:
        """Whether local predictions can be made: a fit was there to its end."""
        return self.border_jump is not None

    def to_json(self) -> dict[str, Any]:
        """What is known."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, cells: Mapping[str, Any]) -> "Cells":
        """What `to_json` gives; what other versions have written beside is left out."""
        return cls(**{name.name: cells[name.name] for name in fields(cls) if name.name in cells})


@dataclass(frozen=True)
class Facts:
    """Facts of a fit at one commit; those that are None are not known, or do not apply."""

    job: str
    """hash of what was asked"""
    surveyed: str
    """segment with the partitions as they were surveyed"""
    approximation: str
    """"laplace" or "ep" """
    linearise: str
    """"own" or "running" """
    rows_per_expert: int
    query_asked: int
    kernels_tried: dict[str, float | None]
    """log evidence by kernel"""
    at_bounds: list[str]
    """hyper-parameters that learning has left at a bound"""
    seconds: dict[str, float]
    """by stage"""
    expert: str = "bcm"
    """what experts share and what they do with the rest, by its name"""
    passes: tuple[Pass, ...] = ()
    data: str | None = None
    """URL of the training data"""
    evaluations: int | None = None
    """of the evidence, while learning"""
    method: str = "committee"
    """by which predictions are made unless asked otherwise"""
    fading: Weighting = field(default_factory=Weighting)
    skipped: tuple[str, ...] = ()
    """partitions that ingestion has left out"""
    cells: Cells = field(default_factory=Cells)
    """empty where partitions are not spatial"""
    calibration: dict[str, Any] | None = None
    """`bcmdist.prediction.errors.platt_scaling.Calibration`, and the rows absorbed then; 0 rows where it is of another
    committee"""
    local_calibration: dict[str, Any] | None = None
    recalibration: dict[str, Any] | None = None
    """`bcmdist.prediction.errors.recalibration.Recalibration` where rows left out gain by it, the rows absorbed then, 0
    where it is of another committee, and where they were linearised"""
    chunks: str | None = None
    """hash of the blob with the chunks that the survey has read from data without a manifest"""
    linearised_at: str | None = None
    """hash of the shared values given which the last pass was linearised"""
    halving_loss: dict[str, float] | None = None
    """nats a row by which local predictions are worse with half of the query points, and the standard error of that"""
    repeats: dict[str, float] | None = None
    """`bcmdist.learning.survey.Replicates`: share of rows, and standard deviation of their targets"""
    labels: dict[str, int] | None = None
    """how many values inputs have that the kernel uses as labels, by name"""
    whole_targets: int | None = None
    """how many values targets take, where all are whole numbers and not very many"""
    objective: float | None = None
    """log joint density there"""
    withdrawn_error: float | None = None
    """what one more pass has corrected after partitions were withdrawn, in standard deviations"""
    degrees_estimated: float | None = None
    settled: dict[str, Any] | None = None
    """variances that rows left out have changed, by name"""
    decisions: list[dict[str, Any]] | None = None
    """what learning has decided, who has, and by how much: `bcmdist.learning.decisions.Decision`; None of versions that
    did not note them"""
    companions: tuple[str, ...] | None = None
    """what stood beside the targets in training"""
    between_partitions: float | None = None
    """share of the variance of targets between partitions"""
    expected: dict[str, Any] | None = None
    """`bcmdist.prediction.scoring.excess_loss.Expected`"""
    noise: str | None = None
    """what was asked of the scale of errors: "constant", "varying" or "auto" """
    spread: dict[str, Any] | None = None
    """scale of errors, from residuals of rows left out (`bcmdist.prediction.measuring.measurement`)"""
    networks: dict[str, Any] | None = None
    """of networks: the `rows` they were trained on, and of each its `log_evidence` in units of the scaled targets, its
    `noise_variance` and the `evaluations` it took"""
    lag: dict[str, Any] | None = None
    """by source, how far its ingestion was behind it at its last commit: `partitions`, `rows` and `seconds`, about, and
    `at`, in seconds since the epoch"""
    deep: dict[str, Any] | None = None
    """of layers: the `rows` they were trained on, the `evaluations` it took, and of each process the power, the tied
    energy it has reached and the mean log density of rows that were `left_out`, none without any (`powers`,
    `energies`, `densities`); the mean `density` of those that are mixed; all in units of the scaled targets. Of each
    whose rows have `sites`: the `sweeps`, their `energy`, None where a cavity was none, how far the last sweep `moved`
    factors or means (as a share, in standard deviations), how many rows it `skipped`, and the density before all,
    `density_tied`"""
    input_errors: dict[str, Any] | None = None
    """where inputs were seen with errors: the `rows` that were looked at, the variance of the noise of scaled targets
    `noise_seen` beside inputs as they were seen; by what each of the `beginnings` was judged, None where it failed, of
    which the best counts; of that one, of cleaning the log `densities` of rows left out by level of the
    noise, None where they failed, of draws the `rounds` of these"""
    other: dict[str, Any] = field(default_factory=dict)
    """what other versions have written, by name"""

    def to_json(self) -> dict[str, Any]:
        """The facts that are known, JSON-ready, by the names of their fields."""
        known = {name: getattr(self, name) for name in NAMES if getattr(self, name) is not None}
        known |= {"passes": [entry.to_json() for entry in self.passes]}
        known |= {"cells": self.cells.to_json() or None, "skipped": list(self.skipped)}
        known |= {} if self.companions is None else {"companions": list(self.companions)}
        known |= {"fading": asdict(self.fading) if self.fading.fades else None}
        return self.other | known

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "Facts":
        """The facts of a record, sound by their types (`bcmdist.committee.soundness.check_fit`)."""
        known = {name: value for name, value in facts.items() if name in NAMES and value is not None}
        other = {name: value for name, value in facts.items() if name not in NAMES}
        known |= {"passes": tuple(map(Pass.from_json, facts["passes"]))}
        known |= {name: tuple(known[name]) for name in ("skipped", "companions") if name in known}
        known |= {"cells": Cells.from_json(known["cells"])} if "cells" in known else {}
        known |= {"fading": Weighting(**known["fading"])} if "fading" in known else {}
        return cls(**known, other=other)

    def changed(self, **facts) -> "Facts":
        """The same with other facts, by the names of their fields."""
        return replace(self, **facts)


NAMES = tuple(name.name for name in fields(Facts) if name.name != "other")
