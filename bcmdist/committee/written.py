"""What a commit says: written, and compared with the rows that were surveyed."""

import contextlib

import numpy as np

from bcmdist.committee.facts import Facts
from bcmdist.data.checks.manifest import Chunk, from_table
from bcmdist.data.partition import from_key
from bcmdist.data.rows import changed_chunks
from bcmdist.errors import BcmdistError, DataChanged, NotFinite
from bcmdist.storage.commits import ModelStore
from bcmdist.storage.fields import damaged


def write_commit(store: ModelStore, number, model, committee, facts: Facts, *, segments=(), partitions=0, offsets=None):
    """Commit a model, its committee, and what else is known; the reference of the commit.

    Parameters
    ----------
    segments, partitions : hashes of the ledger's segments, and the number of its entries
    offsets : where to read on, by the name of a source

    Raises
    ------
    CommitConflict
    NotFinite
        Messages have ruined the committee.
    """
    arrays, model_facts = model.to_arrays()
    total = committee.total
    if not all(np.all(np.isfinite(part)) for part in (total.eta, total.precision, total.evidence)):
        raise NotFinite(
            f"{store.storage.url}: expected finite messages for commit {number}, got others; nothing was committed: "
            "check that inputs are in the range of the training data, else restore the model from a copy"
        )
    arrays |= {"eta": total.eta, "precision": total.precision}
    all_facts = {"model": model_facts, "fit": facts.to_json(), "evidence": total.evidence, "rows": total.rows}
    all_facts["partitions"] = partitions
    digests = store.put_arrays(arrays, before=store.arrays_before(number))
    return store.commit(number, arrays=digests, facts=all_facts, segments=segments, offsets=offsets or {})


def refuse_changed(entries, surveyed, chunks=None):
    """Raise `DataChanged` where rows differ from what was surveyed under the same key.

    Parameters
    ----------
    chunks : what was read then, by key (`recorded_chunks`): the error names those that are others now
    """
    before = {entry.key: entry.digest for entry in surveyed}
    for entry in entries:
        if before.get(entry.key, entry.digest) != entry.digest:
            raise DataChanged(
                f"{entry.key}: expected the rows that were surveyed ({before[entry.key][:12]}), read others "
                f"({entry.digest[:12]}){_named(entry.key, chunks)}; do not change data that a model is being fitted "
                "to: fit a new --model"
            )


def recorded_chunks(store: ModelStore, facts: Facts) -> dict[str, Chunk]:
    """Chunks, by key, that the survey of a fit read from a data set without a manifest."""
    if facts.chunks is None:
        return {}
    try:
        return from_table(store.get_array(facts.chunks))
    except (ValueError, AttributeError, TypeError) as error:
        raise damaged(f"{store.storage.url}: blob {facts.chunks[:12]}", "lines of chunks", str(error)) from error


def _named(key, chunks):
    """The chunks around a partition that have changed, as text."""
    with contextlib.suppress(BcmdistError):  # it is the first error that counts
        keys = changed_chunks(from_key(key, y=None), chunks) if chunks else []
        return f" from key {', '.join(keys[:3])}" if keys else ""
    return ""
