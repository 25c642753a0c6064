"""Options, report and events of an ingestion."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from bcmdist.errors import InvalidOption
from bcmdist.storage.bounds import COUNT, Bounds, option_name, refuse_outside

# Number of commits to keep. Older ones are pruned at the end of an ingestion, and during it whenever as many new ones
# were made, except commits that another process holds.
KEEP_COMMITS = 20


SameRows = Literal["warn", "refuse", "allow"]
"""what to do with a partition whose rows were absorbed under another key, a copy or rows that repeat by nature: absorb
it with a warning, refuse it, or absorb it silently"""
SAME_ROWS = get_args(SameRows)

UpdateForm = Literal["information", "kalman"]
"""how a commit updates the belief about the shared variables: by adding natural parameters, or by Kalman's step of mean
and covariance"""
UPDATE_FORMS = get_args(UpdateForm)

SampleWeights = Literal["equal", "evidence"]
"""weights of a mixture's members after further rows: equal, or in proportion to p(further rows | sample, rows before),
so that the weighted samples represent the posterior given all rows (importance sampling)"""
SAMPLE_WEIGHTS = get_args(SampleWeights)


@dataclass(frozen=True)
class IngestEvent:
    """What happened in an ingestion since its event before: a commit, or a look at a source that had nothing new."""

    source: str
    commit: int
    """newest commit of the model, or of the first member of a mixture"""
    counts: dict[str, int]
    """new partitions, rows, duplicates, same_rows, expired, retries and skipped partitions, as in `IngestReport`"""
    failed: dict[str, int]
    """partitions that failed, skipped or not, by class of their error"""
    seconds: float | None
    """duration of the commit; None where there was nothing to commit"""
    lag: Mapping[str, Any] | None
    """lag behind the source, as `Lag` of `committee.facts`; None where it is unknown"""
    threads: int
    """worker threads in use"""
    keys: tuple[str, ...] = ()
    """ledger keys of the new partitions"""


def never() -> bool:
    """Return False: the default of `IngestOptions.stop`."""
    return False


def unobserved(event: IngestEvent) -> None:
    """Do nothing with an `event`: the default of `IngestOptions.observe`."""


@dataclass(frozen=True)
class IngestOptions:
    """Options of an ingestion.

    Raises
    ------
    InvalidOption
        A value is outside its bounds, or options exclude each other.

    Examples
    --------
    >>> options = bcmdist.IngestOptions(max_partitions=1, same_rows="allow")
    >>> bcmdist.write_dataset("more.zarr", {"X": X + 1.0, "y": y})
    >>> later, report = gbcm.ingest("more.zarr", options)
    >>> report.partitions, report.rows
    (1, 80)
    """

    watch: bool = False
    """wait for more rows until Ctrl-C; only complete partitions are read"""
    max_partitions: Annotated[int | None, "N", COUNT] = None
    """stop after N new partitions"""
    commit_every: Annotated[int | None, "N", COUNT] = None
    """new partitions per commit [default: what arrives in a few seconds]"""
    half_life: Annotated[float | None, "ROWS", Bounds(0.0, 1e15, above=True)] = None
    """rows of the source after which the weight of a row is halved"""
    window: Annotated[int | None, "ROWS", Bounds(1, 10**15)] = None
    """number of newest rows of the source that count; older ones are forgotten"""
    keep: Annotated[int, "N", COUNT] = KEEP_COMMITS
    """commits to keep; older ones are pruned"""
    skip: bool = False
    """skip partitions that fail and record it in the model; by default they are an error after the others"""
    same_rows: SameRows = "warn"
    """what to do with partitions whose rows were absorbed under another name (a copy, a link) and would count twice"""
    grow: bool | None = None
    """make rows that the query points do not explain query points before they are absorbed [default: with --watch, and
    only rows from new places]"""
    grow_share: Annotated[float | None, "F", Bounds(0.0, 1.0, above=True)] = None
    """share of the prior variance, given the query points, above which a row is not explained [default: .02; if --grow
    is not given, twice the largest such share of a first query point, given the others, but from .02 to .5]"""
    query_most: Annotated[int | None, "Q", COUNT] = None
    """largest number of query points [default: as before, 1000 at first]"""
    refit: Literal["never", "auto"] = "never"
    """auto: refit the model, as `bcmdist refit` does, when what arrives is worse than expected; rows wait meanwhile"""
    sample_weights: SampleWeights | None = None
    """of a mixture over hyper-parameters: weights of its samples, equal or by the evidence of the rows absorbed since
    they were drawn [default: as before, equal at first]"""
    update: UpdateForm | None = None
    """how each commit updates the belief, which is recorded with its innovation and gain: information, which adds
    natural parameters, or kalman, the Kalman filter's step of mean and covariance [default: information, no record]"""
    stop: Callable[[], bool] = never
    """asked between partitions"""
    observe: Callable[[IngestEvent], None] = unobserved
    """called after each commit, and while the source has nothing new; must not raise"""

    def __post_init__(self) -> None:
        refuse_outside(self, named=option_name)
        if self.grow is False and (self.grow_share or self.query_most):
            raise InvalidOption("--no-grow: expected no --grow-share or --query-most with it, got one; leave it out")
        if self.sample_weights not in (None, *SAMPLE_WEIGHTS):
            raise InvalidOption(
                f"--sample-weights: expected {' or '.join(SAMPLE_WEIGHTS)}, got {self.sample_weights!r:.80}; give one"
            )
        if self.update not in (None, *UPDATE_FORMS):
            raise InvalidOption(
                f"--update: expected {' or '.join(UPDATE_FORMS)}, got {self.update!r:.80}; give one of these"
            )
        if self.same_rows not in SAME_ROWS:
            raise InvalidOption(
                f"--same-rows: expected one of {', '.join(SAME_ROWS)}, got {self.same_rows!r}; give one of these"
            )


@dataclass
class IngestReport:
    """Result of an ingestion, JSON-ready."""

    partitions: int = 0
    """new partitions that were committed"""
    rows: int = 0
    duplicates: int = 0
    """partitions that were in the ledger before"""
    same_rows: int = 0
    """new partitions with rows that were absorbed under other names; they count twice unless refused"""
    expired: int = 0
    """partitions older than the window when they arrived"""
    retries: int = 0
    """commits repeated because another process committed first"""
    skipped: list[str] = field(default_factory=list)
    """keys of partitions that failed"""
    waiting: int | None = None
    """approximate number of partitions left in the source: incomplete, or claimed by another process"""
