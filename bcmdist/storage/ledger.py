"""The ledger: a line for each partition heard, under a key that names its rows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# Of an entry whose message depends on what was heard before it.
RUNNING = "running"
# What is noted of a partition before it is heard, in the order of `Entry.arrival`: of numbers, and of classes.
NUMBERS_NOTED = ("log_score", "coverage95", "pit_mean")
CLASSES_NOTED = ("log_score", "accuracy")
KEY = re.compile(r"(?P<array>.*)\[(?P<start>\d+):(?P<stop>\d+)\]", re.DOTALL)  # a path may hold newlines


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: a partition that the committee has heard."""

    key: str
    digest: str
    rows: int
    weight: float = 1.0
    at: str = ""
    """where its message is linearised: "" at its own mode, `RUNNING` at the belief of the moment, else given
    the shared values in the blob of this hash"""
    state: str = ""
    """hash of the blob with what its expert keeps: Gaussian sites of its rows (expectation propagation), or their
    inputs as it believes them to be (`bcmdist.experts.inputs`)"""
    position: int | None = None
    """rows of its source up to its end, where they are numbered and count"""
    arrival: tuple[float, ...] = ()
    """how well its rows were predicted before it was heard (`bcmdist.prediction.arrivals.drift`)"""
    surprise: tuple[float, ...] = ()
    """how much worse than expected that was (`bcmdist.prediction.scoring.surprise`)"""
    densities: float | None = None
    """densities of targets that its evidence multiplies, where they are counted: `Likelihood.densities`"""
    places: tuple[float, ...] = ()
    """of some of its rows scaled inputs and the log of the variance predicted there, row after row"""
    residuals: tuple[float, ...] = ()
    """of each of these rows its standardised error, as the committee predicts it that has not heard it"""
    local_residuals: tuple[float, ...] = ()
    """the same of local prediction, which then is what places are of"""

    def residuals_of(self, method: str) -> tuple[float, ...]:
        """Those of the predictions of a method; none are known of others than ours."""
        return {"committee": self.residuals, "local": self.local_residuals}.get(method, ())


ARRIVAL = [*Entry.__dataclass_fields__].index("arrival")  # where what is noted begins in a line


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
