"""The ledger: one entry for each absorbed partition, under a key that names its rows.

It is stored in segments, a few immutable blobs, so that a commit does not rewrite all entries. A segment is a JSON list
of entries, each a list of the entry's fields. `put_segment`, `get_segment` and `extended` are methods of `ModelStore`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, get_type_hints

import msgspec
import numpy as np

from bcmdist.errors import ModelDamaged
from bcmdist.storage.blobs import blob_label, canonical_json
from bcmdist.storage.fields import Count, NotNegative, Number, damaged, decode, parse, read_back

# `Entry.at` of a message that is linearised at the posterior of its moment, so that it depends on earlier partitions.
RUNNING = "running"
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


STORED = tuple(name for name in Entry.__dataclass_fields__ if name != "residuals")
"""fields of an entry in the order of a stored line"""


def names_location(key) -> bool:
    """Whether a key contains a path or URL, where rows can be read; keys of a portable model do not."""
    return key.startswith("/") or "://" in key


def named_range(key) -> tuple[str, int, int]:
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


# --- Segments ---

# A line of a segment: the fields of an entry in order, of which the last may be missing. Formats before 4 have places
# of residuals and residuals of the committee, arrays, where later ones have the number of the query set and the copy.
_HINTS = get_type_hints(Entry, include_extras=True)
_HINTS |= {"query": Count | tuple[Number, ...], "copy": str | tuple[Number, ...]}
_Line: Any = msgspec.defstruct(
    "_Line",
    [
        (one.name, _HINTS[one.name], *([] if one.default is MISSING else [one.default]))
        for one in fields(Entry)
        if one.name in STORED
    ],
    array_like=True,
)
# Residuals in formats before 4: places, in `query`, residuals of the committee, in `copy`, and what follows, residuals
# of local prediction.
_LineBefore4: Any = msgspec.defstruct(
    "_LineBefore4", [("local_residuals", tuple[Number, ...], ())], bases=(_Line,), array_like=True
)


def put_segment(store, entries: Sequence[Entry]) -> str:
    """Store ledger entries as one immutable blob, after a trial reading; return its hash.

    Raises
    ------
    CommitRefused
        Readers would not accept the entries.
    """
    where = f"{store.storage.url}: ledger"
    with read_back(where):
        text = canonical_json([[getattr(entry, name) for name in STORED] for entry in entries])
        _lines(text, _Line, where)
    return store._put_blob(text)


def get_segment(store, digest: str, *, residuals=False) -> list[Entry]:
    """Load the ledger entries of a blob, checked against its hash.

    residuals : whether to load the residuals in lines of formats before 4
    """
    where = blob_label(store.storage, digest)
    lines = _lines(store._get_blob(digest), _LineBefore4 if residuals else _Line, where)
    return [_entry(line, where) for line in lines]


def _lines(text, line, where) -> list:
    return decode(list[line], parse(text, where), where, "ledger entry ")


def _entry(line, where) -> Entry:
    stored: dict[str, Any] = {name: getattr(line, name) for name in STORED}
    stored["query"] = line.query if isinstance(line.query, int) else 0
    stored["copy"] = line.copy if isinstance(line.copy, str) else ""
    return Entry(**stored, residuals=_residuals(line, where))


def _residuals(line, where) -> ResidualRecord | None:
    """Return the residuals in a line of a format before 4; None if there are none."""
    if not isinstance(line, _LineBefore4) or not (line.query or line.copy or line.local_residuals):
        return None
    places, of_committee = (value if isinstance(value, tuple) else () for value in (line.query, line.copy))
    committee, local = (np.array(values) if values else None for values in (of_committee, line.local_residuals))
    counts = {len(values) for values in (committee, local) if values is not None}
    if len(counts) != 1 or len(places) % min(counts):
        found = f"{sorted(counts)}, {len(places)}"
        raise damaged(where, f"residuals at places in the ledger entry {line.key}", found)
    return ResidualRecord(np.array(places).reshape(min(counts), -1), committee, local)


def extended(store, segments: Sequence[str], entries: Sequence[Entry], *, after=0) -> tuple[str, ...]:
    """Append entries to the ledger of commit `after`; return the hashes of its segments.

    As in a binary counter, the last segment is merged with the new entries while it has less than twice as many. Then
    each segment is at least twice as long as the next: a ledger of n entries has at most 1 + log2 n segments. An entry
    is rewritten only into a segment at least 1.5 times as long, so at most log n / log 1.5 times.

    Raises
    ------
    CommitConflict
        Other processes have made later commits, and pruned commit `after`.
    """
    while segments and entries:
        try:
            last = store.get_segment(segments[-1])
        except ModelDamaged as error:
            if 0 < after <= store.pruned():
                raise store.taken(after + 1) from error
            raise
        if len(last) >= 2 * len(entries):
            break
        segments, entries = segments[:-1], [*last, *entries]
    return (*segments, store.put_segment(entries)) if entries else tuple(segments)
