"""Merge two models: add their messages, then fit calibration and error distributions again.

Calibrations and error distributions belong to the predictions of one committee, so those of two models do not add.
After a merge they are fitted to the rows of both, as at the end of a fit; the order of the two models does not matter.
Rows that cannot be read any more are left out, with a warning.
"""

import os
from typing import Any, TypeVar

from bcmdist.committee.absorbed import readable_partitions
from bcmdist.committee.merge import as_complete, existing_merge, is_complete, larger, sum_of
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.groups import Location
from bcmdist.data.schema import warn
from bcmdist.errors import BcmdistError, InvalidOption, SchedulerUnreachable, StorageUnreachable
from bcmdist.prediction.errors.class_probabilities import calibrated
from bcmdist.prediction.leave_one_out import sites_repeat
from bcmdist.prediction.measuring.measurement import measured, measured_anew
from bcmdist.runtime.interface import Runtime


def merge(
    one: Snapshot, other: Snapshot, model: Location, runtime: Runtime, *, query_most: int | None = None
) -> Snapshot:
    """Merge two committees into the new directory `model`, calibrated with the rows of both (`committee.merge.sum_of`).

    A merge of the same commits that was interrupted is continued; if it is complete, it is returned.

    Raises
    ------
    InvalidOption, ModelsDiffer, ModelExists
    """
    merged = existing_merge(one, other, model, query_most)
    merged = merged or sum_of(one, other, model, query_most=query_most)
    merged = merged.kept(*one.keep, *other.keep)
    if is_complete(merged):
        return merged
    rows, base = merged.committee.total.rows, larger(one, other)
    if "local" in (one.facts.method, other.facts.method):
        warn(
            f"{merged.url}: a merged model makes no local predictions, its {rows} rows count through the committee "
            "only; fit again with all rows for these"
        )
    subject, stay = _looked_at(merged), f"{base.url} ({base.committee.total.rows} of {rows} rows)"
    remedy = "merge again, into another directory, where all rows can be read"
    try:
        readable = sum(part.rows for part in readable_partitions(merged)) if subject else rows
        found = measured_anew(calibrated(merged, runtime), runtime)
    except (SchedulerUnreachable, StorageUnreachable):  # the same merge goes on from the sum
        raise
    except BcmdistError as error:
        warn(f"{merged.url}: {subject} stay those of {stay}, as rows cannot be read; {remedy} ({error})")
        return as_complete(measured(merged, runtime, read=False)).committed_or_newest()
    if not readable:
        warn(f"{merged.url}: none of {rows} rows can be read, {subject} stay those of {stay}; {remedy}")
    elif readable < rows:
        warn(f"{merged.url}: {readable} of {rows} rows can be read, {subject} follow from these alone; {remedy}")
    return as_complete(found).committed_or_newest()


def _looked_at(snapshot: Snapshot) -> str:
    """Name what is fitted to rows after a merge, in words; an empty string where nothing is."""
    facts = snapshot.facts
    fitted = {
        "calibration": "class probabilities",
        "recalibration": "class probabilities" if sites_repeat(facts) else "",
        "errors": "distributions of errors" if facts.errors.noise else "",
    }
    return fitted.get(snapshot.model.likelihood.corrected_by, "")


Loaded = TypeVar("Loaded")


def other_of(other: Any, kind: type[Loaded]) -> Loaded:
    """The model to merge with: of the same kind, `GBCM` or `Mixture`, or loaded from its directory.

    Raises
    ------
    InvalidOption
        It is of another kind.
    ModelNotFound
    """
    if isinstance(other, str | os.PathLike):
        loaded: Loaded = kind.load(other)  # type: ignore[attr-defined]  # both kinds have it
        return loaded
    if not isinstance(other, kind):
        raise InvalidOption(
            f"merge: expected a {kind.__name__} or the directory of one, got {type(other).__name__}; give one"
        )
    return other
