"""Checks that rows have not changed since they were surveyed, or absorbed under the same key."""

import contextlib
from collections.abc import Iterable, Mapping

from bcmdist.committee.facts import Facts
from bcmdist.data.checks.manifest import Chunk, from_table
from bcmdist.data.partition import from_key
from bcmdist.data.rows import changed_chunks
from bcmdist.errors import BcmdistError, ChunkConflict, DataChanged
from bcmdist.storage.commits import ModelStore
from bcmdist.storage.entry import Entry
from bcmdist.storage.fields import damaged


def refuse_changed(
    entries: Iterable[Entry], surveyed: Iterable[Entry], chunks: Mapping[str, Chunk] | None = None
) -> None:
    """Raise `DataChanged` if the digest of an entry differs from that of the surveyed entry with the same key.

    Parameters
    ----------
    chunks : chunks as they were read by the survey, by key (`recorded_chunks`); the error names changed chunks
    """
    before = {entry.key: entry.digest for entry in surveyed}
    for entry in entries:
        if before.get(entry.key, entry.digest) != entry.digest:
            raise DataChanged(
                f"{entry.key}: expected the rows that were surveyed ({before[entry.key][:12]}), read others "
                f"({entry.digest[:12]}){_named(entry.key, chunks)}; do not change data that a model is being fitted "
                "to: fit a new --model"
            )


def refuse_conflict(found: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raise `ChunkConflict` if a key was absorbed with different rows.

    Parameters
    ----------
    found, known : content hashes by key, as read now and as absorbed
    """
    for key, digest in found.items():
        if before.get(key, digest) != digest:
            raise ChunkConflict(
                f"{key}: expected the rows that were absorbed under this key ({before[key][:12]}), got others "
                f"({digest[:12]}); give changed data another name, or forget the key first"
            )


def recorded_chunks(store: ModelStore, facts: Facts) -> dict[str, Chunk]:
    """Chunks, by key, that the survey of a fit read from a data set without a manifest; empty where none are recorded.

    Raises
    ------
    ModelDamaged
        The recorded table cannot be parsed.
    """
    if facts.survey.chunks is None:
        return {}
    try:
        return from_table(store.get_array(facts.survey.chunks))
    except (ValueError, AttributeError, TypeError) as error:
        raise damaged(f"{store.storage.url}: blob {facts.survey.chunks[:12]}", "lines of chunks", str(error)) from error


def _named(key: str, chunks: Mapping[str, Chunk] | None) -> str:
    """Up to three changed chunks that hold rows of a partition, as text for an error message."""
    with contextlib.suppress(BcmdistError):  # do not hide the error being reported
        keys = changed_chunks(from_key(key, y=None), chunks) if chunks else []
        return f" from key {', '.join(keys[:3])}" if keys else ""
    return ""
