"""The ledger: one entry for each partition absorbed, under a key that names its rows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

# Of an entry whose message depends on what was absorbed before it.
RUNNING = "running"
# What is noted of a partition before it is absorbed, in the order of `Entry.arrival`: of numbers, and of classes.
NUMBERS_NOTED = ("log_score", "coverage95", "pit_mean")
CLASSES_NOTED = ("log_score", "accuracy")
KEY = re.compile(r"(?P<array>.*)\[(?P<start>\d+):(?P<stop>\d+)\]", re.DOTALL)  # a path may hold newlines


@dataclass(frozen=True, eq=False)
class ResidualRecord:
    """Standardised residuals at some rows of a partition."""

    places: np.ndarray
    """(k, D + 1): scaled inputs, and the log of the variance predicted there"""
    committee: np.ndarray | None = None
    """(k,): as the committee without the row predicts it"""
    local: np.ndarray | None = None
    """(k,): the same of local prediction, which then is what places are of"""

    def __len__(self) -> int:
        return len(self.places)

    def of(self, method: str) -> np.ndarray | None:
        """Residuals of the predictions of a method; None where it has none."""
        return {"committee": self.committee, "local": self.local}.get(method)

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of residuals of the committee and of local prediction."""
        return (0 if self.committee is None else len(self.committee)), (0 if self.local is None else len(self.local))

    def table(self) -> np.ndarray:
        """Places and both residuals, (k, D + 3); 0 for those that are missing."""
        missing = np.zeros(len(self.places))
        both = (missing if one is None else one for one in (self.committee, self.local))
        return np.column_stack([self.places, *both])


@dataclass(frozen=True)
class Entry:
    """One entry of the ledger: a partition that the committee has absorbed."""

    key: str
    digest: str
    rows: int
    weight: float = 1.0
    at: str = ""
    """where its message is linearised: "" at its own mode, `RUNNING` at the belief of the moment, else given
    the shared values in the blob of this hash"""
    state: str = ""
    """hash of the blob with what its expert keeps: Gaussian sites of its rows (expectation propagation), or their
    true inputs as drawn from their posterior (`bcmdist.model.input_errors`)"""
    position: int | None = None
    """rows of its source up to its end, where they are numbered and count"""
    arrival: tuple[float, ...] = ()
    """how well its rows were predicted before it was absorbed (`bcmdist.prediction.errors.drift`)"""
    surprise: tuple[float, ...] = ()
    """how much worse than expected that was (`bcmdist.prediction.scoring.excess_loss`)"""
    densities: float | None = None
    """densities of targets that its evidence multiplies, where they are counted: `Likelihood.densities`"""
    residuals: ResidualRecord | None = field(default=None, compare=False, repr=False)
    """of some of its rows; no part of the stored entry (`bcmdist.storage.residual_records`)"""


STORED = tuple(name for name in Entry.__dataclass_fields__ if name != "residuals")
"""fields in the order of a stored line"""


def names_location(key) -> bool:
    """Whether a key names a path or URL, where rows can be read: those of a portable model name none."""
    return key.startswith("/") or "://" in key


def named_range(key) -> tuple[str, int, int]:
    """Array, start and stop that a key names."""
    match = KEY.fullmatch(key)
    assert match, "keys are made by Partition.key"
    return match["array"], int(match["start"]), int(match["stop"])


def absorbed_pieces(weights: Mapping[str, float], array) -> np.ndarray:
    """(pieces, 3): start, stop and weight of the partitions of one array, ascending, of weights by key."""
    found = [(KEY.fullmatch(key), weight) for key, weight in weights.items()]
    pieces = [(int(m["start"]), int(m["stop"]), weight) for m, weight in found if m and m["array"] == array]
    return np.array(sorted(pieces), dtype=float).reshape(-1, 3)
