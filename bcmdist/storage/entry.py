"""Entries of the ledger: one for each absorbed partition, under a key that names its rows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bcmdist.storage.fields import Count, NotNegative, Number

# `Entry.at` of a message that is linearised at the posterior of its moment, so that it depends on earlier partitions.
RUNNING = "running"
# `Entry.digest` of a range of rows whose partitions are no longer known (`bcmdist.committee.compaction`).
COMPACTED = "0" * 64
# Scores of a partition before it is absorbed, in the order of `Entry.arrival`: for numeric targets, and for classes.
NUMBER_SCORES = ("log_score", "coverage95", "pit_mean")
CLASS_SCORES = ("log_score", "accuracy")
KEY = re.compile(r"(?P<array>.*)\[(?P<start>\d+):(?P<stop>\d+)\]", re.DOTALL)  # a path may hold newlines


@dataclass(frozen=True, eq=False)
class ResidualRecord:
    """Standardised residuals at some rows of a partition."""

    places: np.ndarray
    """(k, D + 1): scaled inputs, and log of the predictive variance there"""
    committee: np.ndarray | None = None
    """(k,): residuals of the committee's leave-one-out predictions"""
    local: np.ndarray | None = None
    """(k,): residuals of local leave-one-out predictions; if present, the variance in `places` is the local one"""

    def __len__(self) -> int:
        return len(self.places)

    def of(self, method: str) -> np.ndarray | None:
        """Return the residuals of a prediction method; None if there are none."""
        return {"committee": self.committee, "local": self.local}.get(method)

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of residuals of the committee and of local prediction."""
        return (0 if self.committee is None else len(self.committee)), (0 if self.local is None else len(self.local))

    def table(self) -> np.ndarray:
        """Return places and both kinds of residuals, (k, D + 3); missing residuals are 0."""
        missing = np.zeros(len(self.places))
        both = (missing if one is None else one for one in (self.committee, self.local))
        return np.column_stack([self.places, *both])


@dataclass(frozen=True)
class Entry:
    """One entry of the ledger: a partition that the committee has absorbed."""

    key: str
    digest: str
    rows: Count
    weight: NotNegative = 1.0
    at: str = ""
    """where the message is linearised: "" at its own mode, `RUNNING` at the posterior of the moment, otherwise given
    the shared values in the blob of this hash"""
    state: str = ""
    """hash of the blob with the expert's state: Gaussian sites of its rows (expectation propagation), or true inputs
    drawn from their posterior (`bcmdist.model.input_errors`)"""
    position: Count | None = None
    """number of rows of the source up to the end of the partition, if the source numbers its rows"""
    arrival: tuple[Number, ...] = ()
    """scores of the predictions of its rows before it was absorbed (`bcmdist.prediction.errors.drift`)"""
    excess_loss: tuple[Number, ...] = ()
    """how much worse than expected these predictions were (`bcmdist.prediction.scoring.excess_loss`)"""
    densities: NotNegative | None = None
    """number of target densities in the product that is its evidence, where counted: `Likelihood.densities`"""
    query: Count = 0
    """number of the query set through which it was absorbed, in order of their appearance (`Model.earlier`)"""
    copy: str = ""
    """hash of the blob with a copy of its rows, for local predictions (`bcmdist.committee.row_copies`)"""
    residuals: ResidualRecord | None = field(default=None, compare=False, repr=False)
    """residuals at some of its rows; stored separately (`bcmdist.storage.residual_records`)"""

    @property
    def compacted(self) -> bool:
        """Whether it stands for several partitions, of which only the range of their rows is known."""
        return self.digest == COMPACTED


STORED = tuple(name for name in Entry.__dataclass_fields__ if name != "residuals")
"""fields of an entry in the order of a stored line"""


def names_location(key: str) -> bool:
    """Whether a key contains a path or URL, where rows can be read; keys of a portable model do not."""
    return key.startswith("/") or "://" in key


def named_range(key: str) -> tuple[str, int, int]:
    """Return the array, start and stop of a key."""
    match = KEY.fullmatch(key)
    assert match, "keys are made by Partition.key"
    return match["array"], int(match["start"]), int(match["stop"])


def absorbed_pieces(weights: Mapping[str, float], array) -> np.ndarray:
    """Return start, stop and weight (pieces, 3) of the partitions of one array, ascending.

    weights : weight of each partition by its key
    """
    found = [(KEY.fullmatch(key), weight) for key, weight in weights.items()]
    pieces = [(int(m["start"]), int(m["stop"]), weight) for m, weight in found if m and m["array"] == array]
    return np.array(sorted(pieces), dtype=float).reshape(-1, 3)
