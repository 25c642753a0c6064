"""Records of commits: JSON with a checksum, which names the content of a commit by hash, and the history of a model."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from bcmdist import __version__
from bcmdist.errors import ModelDamaged, VersionMismatch
from bcmdist.storage.blobs import canonical_json, sha256
from bcmdist.storage.fields import Blob, CountFromOne, damaged, decode
from bcmdist.storage.residual_records import RESIDUAL_ARRAYS
from bcmdist.storage.segment import SegmentSummary

# Format 1 had no offsets, and no positions in the ledger; format 2 had no names, surprises and densities. Missing
# values are read as empty. Up to format 3 residuals were in lines of the ledger, since 4 in arrays
# (`residual_records`). Format 5 has earlier query sets. Since 6 segments are in columns (`segment`), with summaries.
FORMAT = 6
RESIDUAL_ARRAYS_SINCE = 4
# Arrays that differ between the commits of one model: no part of an identity derived by `identity_of`.
COMMITTEE_ARRAYS = {"eta", "precision"}


class Record(msgspec.Struct):
    """The fields of a record, of which `read_record` checks the types."""

    format: CountFromOne
    arrays: dict[str, Blob]
    """hashes of arrays, by name"""
    segments: list[Blob]
    """hashes of the ledger's segments"""
    facts: dict[str, Any]
    identity: str = ""
    offsets: dict[str, Any] = {}
    summaries: list[SegmentSummary] = []
    """of the segments, in their order; empty where they are not known"""


def record_name(number: int) -> str:
    """Return the name of a record in its storage."""
    return f"commits/{number:08d}.json"


def record_text(
    number: int,
    *,
    identity: str,
    arrays: Mapping[str, str],
    facts: Mapping[str, Any],
    segments: Iterable[str],
    summaries: Iterable[SegmentSummary],
    offsets: Mapping[str, Any],
) -> bytes:
    """Serialise a record; the arguments are as in `ModelStore.commit`."""
    body = {
        "format": FORMAT,
        "identity": identity,
        "number": number,
        "arrays": dict(arrays),
        "facts": facts,
        "segments": list(segments),
        "summaries": [msgspec.to_builtins(one) for one in summaries],
        "offsets": offsets,
        "software": __version__,
    }
    return canonical_json(body | {"checksum": sha256(canonical_json(body))})


def identity_of(record: Mapping[str, Any]) -> str:
    """Return the identity of a record's model: drawn at random at the first commit, kept by later commits and copies.

    For a record of an earlier version, which holds none, it is derived from fields that no later commit changes.
    """
    if record.get("identity"):
        return record["identity"]
    arrays = {name: digest for name, digest in record["arrays"].items() if name not in COMMITTEE_ARRAYS}
    return sha256(canonical_json({"arrays": arrays, "model": record["facts"].get("model")}))[:32]


def model_digest(record: Mapping[str, Any]) -> str:
    """A hash of the model of a record: commits with the same hash differ in their committee and ledger only."""
    other = COMMITTEE_ARRAYS | set(RESIDUAL_ARRAYS)
    arrays = {name: digest for name, digest in record["arrays"].items() if name not in other}
    return sha256(canonical_json([identity_of(record), arrays, record["facts"].get("model")]))


def read_record(number: int, text: bytes, url: str) -> dict[str, Any]:
    """Parse and check a record of the model directory at `url`; return its fields.

    Raises
    ------
    ModelDamaged, VersionMismatch
    """
    other = f"{url}: commit {number}: expected the content of its checksum, found another; restore it from a copy"
    try:
        record = json.loads(text)
        checksum = record.pop("checksum")
        found = sha256(canonical_json(record))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ModelDamaged(other) from error
    if found != checksum or record.get("number") != number or type(record.get("format")) is not int:
        raise ModelDamaged(other)
    if record["format"] > FORMAT:
        raise VersionMismatch(
            f"{url}: expected model format {FORMAT} or older, got {record['format']}; use bcmdist "
            f"{record.get('software', 'of the version that wrote it')} or newer, this is {__version__}"
        )
    where = f"{url}: commit {number}"
    found = decode(Record, record, where)
    if found.summaries and len(found.summaries) != len(found.segments):
        raise damaged(where, f"{len(found.segments)} summaries of segments", f"{len(found.summaries)}")
    return {"offsets": {}} | record | {"summaries": found.summaries}


def history(store) -> list[dict[str, Any]]:
    """Describe every commit of a `ModelStore`, oldest first.

    Keys are `number`, `format`, `rows` and `partitions` (rows and ledger entries absorbed; None if the record does not
    hold them), `offsets`, `operation` (what the commit did, compared with the one before; None if that is pruned),
    `update` (innovation and gain of `ingest --update`, or None), and `date` in ISO 8601: when the record was stored in
    this directory, which may be a copy.
    """
    records = [store.record(number) for number in store.numbers()]
    return [
        {name: record[name] for name in ("number", "format", "offsets")}
        | {name: record["facts"].get(name) for name in ("rows", "partitions")}
        | {"operation": _operation(record, before), "update": _update(record)}
        | {"date": _date(store.storage, record["number"])}
        for before, record in zip([None, *records], records, strict=False)
    ]


def _operation(record, before) -> str | None:
    """What a commit did: prepare, refit (or revert), absorb, forget, or measure."""
    if record["number"] == 1:
        return "prepare"
    if before is None or before["number"] != record["number"] - 1:
        return None
    (rows, refits), (rows_before, refits_before) = _counts(record), _counts(before)
    if refits != refits_before:
        return "refit or revert"
    if rows > rows_before or record["offsets"] != before["offsets"]:
        return "absorb"
    return "forget" if rows < rows_before else "measure"


def _counts(record) -> tuple[int, int]:
    """Numbers of rows absorbed and of refits."""
    facts = record["facts"]
    return facts.get("rows") or 0, (facts.get("fit") or {}).get("refits") or 0


def _update(record) -> dict | None:
    """The record of the update that a commit made; None if it recorded none."""
    update = (record["facts"].get("fit") or {}).get("update")
    return update if update and update.get("commit") == record["number"] else None


def _date(storage, number):
    """Return when a record was stored, in ISO 8601; None if it has been pruned meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        return datetime.fromtimestamp(storage.stored_at(record_name(number)), UTC).isoformat(timespec="seconds")
    return None
