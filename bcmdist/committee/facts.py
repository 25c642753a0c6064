"""Facts of a fit: its settings, diagnostics and measurements, stored with model, committee and ledger in each commit.

They are the part `facts/fit` of a commit's record, a flat JSON object: the fields of the records below have different
names, so that a record is decoded from the object by its own fields; `name=` is the stored name where it differs.
Measurements of later stages of the package, such as calibrations and the expected loss of arrivals, are stored here
too.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import msgspec

from bcmdist.committee.fading import Weighting
from bcmdist.committee.measurements import (
    Accuracy,
    Calibration,
    ErrorScale,
    ExpectedLoss,
    OnlineUpdate,
    QueryLoss,
    Recalibration,
    Replicates,
    ScaleProcess,
)
from bcmdist.committee.record import Record, json_values
from bcmdist.errors import InvalidOption
from bcmdist.storage.fields import Blob, Count, CountFromOne, NotNegative, Number, Positive, decode

# --- Parts of records ---


class Pass(Record, frozen=True):
    """One pass over the data; for a first pass only the number is set."""

    number: CountFromOne = msgspec.field(name="pass")
    """number of passes since first-pass messages were last added, this one included"""
    change: NotNegative | None = None
    """length of the move of the posterior mean, in posterior standard deviations"""
    log_evidence: Number | None = None
    """log p of all targets after the pass, in nats"""
    halvings: Count | None = None
    """number of times the step before this pass was halved"""

    def to_json(self) -> dict[str, Any]:
        """The fields, JSON-ready; of a first pass the number only."""
        return {"pass": self.number} if self.change is None else msgspec.to_builtins(self)


class Margin(TypedDict):
    """Margin of a choice over an alternative; None where unknown."""

    nats: Number | None
    error: NotNegative | None


class Decision(Record, frozen=True, omit_defaults=True):
    """A decision of learning (`bcmdist.learning.decisions.Decision`)."""

    of: str
    taken: str
    criterion: str = msgspec.field(name="judge")
    over: dict[str, Margin]
    unit: str | None = None


class Lag(TypedDict):
    """Lag of the ingestion of a source at its last commit, JSON-ready."""

    partitions: Count
    rows: Count
    """approximate"""
    seconds: NotNegative
    at: NotNegative
    """time of the measurement in seconds since the epoch"""


# --- Records ---


class Survey(Record, frozen=True):
    """The data set and what was found when it was read."""

    surveyed: Blob
    """hash of the ledger segment with the partitions as surveyed"""
    rows_per_expert: CountFromOne
    data: str | None = None
    """URL of the training data"""
    chunks: Blob | None = None
    """hash of the blob with the chunks that the survey read from data without a manifest"""
    replicates: Replicates | None = msgspec.field(name="repeats", default=None)
    labels: dict[str, Count] | None = None
    """number of distinct values of each input that the kernel treats as a category, by input name"""
    whole_targets: Count | None = None
    """number of distinct targets, if all are whole numbers and there are few of them"""
    companions: list[str] | None = None
    """names of the companion arrays of the targets in training: weight, exposure, trials, ..."""
    between_partitions: Number | None = None
    """share of the variance of targets that lies between partitions"""
    look: list[str] | None = None
    """what the data showed before anything was learned, in sentences"""
    ranges: list[tuple[Number, Number]] | None = None
    """smallest and largest value of each input, (D, 2); None where there are many inputs, and in commits of versions
    that did not record them"""


class Unfinished(Record, frozen=True):
    """What a search for hyper-parameters left out to keep its time."""

    seconds: Number
    """the time that it was given"""
    steps: list[str]
    """steps that were cut short or left out"""
    gain_per_second: Number | None = None
    """rise of the log evidence when a climb was last cut short, in nats a second"""


class Learning(Record, frozen=True):
    """How hyper-parameters were learned."""

    kernels_tried: dict[str, Number | None]
    """log evidence by kernel"""
    at_bounds: list[str]
    """hyper-parameters that ended at a bound"""
    evaluations: Count | None = None
    """number of evaluations of the evidence while learning"""
    variance_factors: dict[str, Any] | None = msgspec.field(name="settled", default=None)
    """factors by which variances were changed to predict left-out rows best, by name of the variance"""
    decisions: list[Decision] | None = None
    """decisions with their criterion and margin; None in commits of versions that did not record them"""
    refits: CountFromOne | None = None
    """number of times that hyper-parameters were replaced, by a refit or by a return to earlier ones"""
    unfinished: Unfinished | None = None
    """what the search left out to keep its time; None if it left out nothing"""


class QuerySize(Record, frozen=True):
    """How the number of query points was chosen."""

    query_asked: CountFromOne
    """number of query points asked for; the fit may use fewer"""
    degrees_estimated: Number | None = None
    """estimated degrees of freedom from which the number of query points was chosen"""
    query_loss: QueryLoss | None = msgspec.field(name="halving_loss", default=None)
    query_most: CountFromOne | None = None
    """largest number of query points, where points were added"""


class Linearisation(Record, frozen=True):
    """How messages approximate likelihoods that are not Gaussian, and the passes over the data."""

    approximation: Literal["laplace", "ep"]
    linearise: Literal["own", "running"]
    passes: tuple[Pass, ...] = ()
    linearised_at: Blob | None = None
    """hash of the shared values at which the last pass was linearised"""
    objective: Number | None = None
    """log joint density at `linearised_at`"""
    withdrawn_error: Number | None = None
    """error that one more pass corrected after partitions were withdrawn, in standard deviations"""


class TrainedScale(Record, frozen=True):
    """Scale of errors that varies with the inputs: `bcmdist.prediction.errors.heteroscedasticity.VaryingScale`."""

    process: ScaleProcess
    mean: list[Number]
    """posterior mean of the shared variables"""
    level: Number
    gain: Number
    """gain over a constant scale, in nats per residual"""
    gain_error: NotNegative
    """its standard error"""


class TrainedErrors(Record, frozen=True):
    """Distribution of standardised errors, measured in training: a mixture of normals."""

    rows: CountFromOne
    """number of errors"""
    weights: list[NotNegative]
    scales: list[Positive]
    means: list[Number]
    scale: TrainedScale | None = None
    """None for a constant scale"""


class Errors(Record, frozen=True):
    """Measured errors of predictions, and corrections by them."""

    noise: Literal["auto", "constant", "varying"] | None = None
    """setting for the scale of errors; None where errors are not measured"""
    error_scale: ErrorScale | None = msgspec.field(name="spread", default=None)
    trained_errors: TrainedErrors | None = None
    """for methods whose training memorises rows; `noise` is None for these"""
    left_out_ratio: Positive | None = None
    """errors at rows left out of training, relative to leave-one-out errors, by which residuals of rows of the fit are
    multiplied; None if they are not larger, or for methods that do not measure it"""
    calibration: Calibration | None = None
    local_calibration: Calibration | None = None
    """the same for local predictions"""
    recalibration: Recalibration | None = None
    """None if it does not improve held-out predictions"""
    expected: ExpectedLoss | None = None
    accuracy: Accuracy | None = None
    """None where no rows could be left out, and in commits of versions that did not measure it"""


class Ingestion(Record, frozen=True):
    """Ingestion of further rows."""

    skipped: list[str] = msgspec.field(default_factory=list)
    """names of partitions and data sets that failed"""
    lag: dict[str, Lag] | None = None
    """by source name"""
    update: OnlineUpdate | None = None
    """the last update that was recorded"""


class Cells(Record, frozen=True, omit_defaults=True):
    """Spatial cells: sizes, location of their rows and what local prediction needs, in the order of a fit."""

    core: CountFromOne | None = None
    """approximate number of rows of a cell"""
    with_halo: CountFromOne | None = msgspec.field(name="around", default=None)
    """approximate number of rows that a local expert conditions on"""
    array: str | None = None
    """URL of the array of rows in cell order, which their ledger keys name"""
    edges: Blob | None = None
    """hash of the blob with the index of each cell's first row"""
    halos: Blob | None = None
    """hash of the blob with the hashes of the halos, by partition"""
    centroids: Blob | None = None
    """hash of the blob with the mean row of each partition, in units of the lengthscales; earlier versions had none"""
    border_jump: NotNegative | None = None
    """root mean square difference of the predictions of neighbouring cells at their border, in standard deviations"""
    border_jump_error: NotNegative | None = None
    """standard error of `border_jump`, which is measured at a sample of borders"""
    home: str | None = None
    """path from this model directory to that with the rows in cell order, edges and halos; None: they are here"""

    @property
    def surrounded(self) -> bool:
        """Whether local predictions can be made, because a fit has completed all steps."""
        return self.border_jump is not None

    @property
    def take_rows(self) -> bool:
        """Whether local predictions use rows that are absorbed after the fit."""
        return self.surrounded and self.centroids is not None

    def to_json(self) -> dict[str, Any]:
        """The fields that are set."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


class Facts(Record, frozen=True):
    """Facts of a fit at one commit; None where unknown or not applicable."""

    job: str
    """hash of what made the model: settings and data set of a fit, or the two commits of a merge"""
    seconds: dict[str, NotNegative]
    """time by stage"""
    survey: Survey
    learning: Learning
    query: QuerySize
    linearisation: Linearisation
    expert: str = "bcm"
    """name of the expert in its registry: shared variables and residual covariance"""
    method: Literal["committee", "local", "augmented"] = "committee"
    """default prediction method"""
    fading: Weighting = Weighting()
    """weights of rows by their position in a source"""
    reports: dict[str, Any] = msgspec.field(default_factory=dict)
    """reports of methods in their types, by name (`declare_report`)"""
    errors: Errors = Errors()
    ingestion: Ingestion = Ingestion()
    cells: Cells = Cells()
    """empty where partitions are not spatial"""
    other: dict[str, Any] = msgspec.field(default_factory=dict)
    """facts written by other versions, by name"""

    def to_json(self) -> dict[str, Any]:
        """The facts that are not None, JSON-ready, as one flat object."""
        records = [msgspec.to_builtins(getattr(self, name)) for name in RECORDS]
        flat = {name: value for record in records for name, value in record.items() if value is not None}
        flat |= {name: msgspec.to_builtins(getattr(self, name)) for name in PLAIN}
        flat |= msgspec.to_builtins(self.reports)
        flat["passes"] = [entry.to_json() for entry in self.linearisation.passes]
        empty = {"cells": not flat["cells"], "fading": not self.fading.fades}
        return self.other | {name: value for name, value in flat.items() if not empty.get(name)}

    @classmethod
    def from_json(cls, flat: Mapping[str, Any], where: str = "facts") -> "Facts":
        """Inverse of `to_json`; null is the same as a missing value.

        Parameters
        ----------
        where : names the commit, for the error

        Raises
        ------
        ModelDamaged
        """
        present = {name: value for name, value in flat.items() if value is not None}
        records = {name: decode(kind, present, where) for name, kind in RECORDS.items()}
        plain = {name: present[name] for name in PLAIN if name in present}
        reports = {name: decode(kind, present[name], where, name) for name, kind in REPORTS.items() if name in present}
        other = {name: value for name, value in flat.items() if name not in NAMES | REPORTS.keys()}
        facts: Facts = decode(cls, {**plain, **records, "reports": reports, "other": other}, where)
        return facts

    def changed(self, **values: Any) -> "Facts":
        """A copy with the given facts replaced, by their names in the flat object.

        Raises
        ------
        ModelDamaged
            A value is not of the declared type.
        """
        if unknown := values.keys() - NAMES - REPORTS.keys():
            raise TypeError(f"facts: expected names of facts, got {', '.join(sorted(unknown))}; correct the names")
        return Facts.from_json(self.to_json() | json_values(values))


RECORDS: dict[str, type[Record]] = {
    "survey": Survey,
    "learning": Learning,
    "query": QuerySize,
    "linearisation": Linearisation,
    "errors": Errors,
    "ingestion": Ingestion,
}
"""records of the facts, by field; they are flat in the stored object"""
PLAIN = ("job", "seconds", "expert", "method", "fading", "cells")
NAMES = frozenset(PLAIN) | {name for kind in RECORDS.values() for name in kind.__struct_encode_fields__}
REPORTS: dict[str, type[Record]] = {}
"""types of the reports of methods, by name in the stored object; other reports stay in `Facts.other`"""


def declare_report(name: str, kind: type[Record]) -> None:
    """Declare the type of a method's report. To declare it again has no effect.

    Raises
    ------
    InvalidOption
        The name is that of another report or fact.
    """
    if name in NAMES or REPORTS.setdefault(name, kind) is not kind:
        raise InvalidOption(f"report: expected a name of its own, {name!r} is that of another fact; choose another")
