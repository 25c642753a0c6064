"""The record of a commit: JSON that names by hash what the commit consists of, with a checksum of its own."""

import json
from collections.abc import Iterable, Mapping

from bcmdist import __version__
from bcmdist.errors import ModelDamaged, VersionMismatch
from bcmdist.storage.blobs import canonical_json, sha256
from bcmdist.storage.fields import check_fields
from bcmdist.storage.kinds import BLOB, NAMED, SEVERAL, TEXT, each, every

# 1 had no offsets, and no positions in the ledger; 2 no names, surprises and densities: they are read as if they were
# empty. Up to 3 residuals stood in lines of the ledger, since 4 in arrays (`residual_records`).
FORMAT = 4
RESIDUAL_ARRAYS_SINCE = 4
RECORD = {
    "format": SEVERAL,
    "identity": TEXT.perhaps,
    "arrays": each(BLOB),
    "segments": every(BLOB),
    "facts": NAMED,
    "offsets": NAMED.perhaps,
}
# Arrays that commits of a model of an earlier version change.
COMMITTEE_ARRAYS = {"eta", "precision"}


def record_name(number: int) -> str:
    """Where a record lies."""
    return f"commits/{number:08d}.json"


def record_text(
    number: int, *, identity: str, arrays: Mapping[str, str], facts, segments: Iterable[str], offsets
) -> bytes:
    """A record; its fields as in `ModelStore.commit`."""
    body = {
        "format": FORMAT,
        "identity": identity,
        "number": number,
        "arrays": dict(arrays),
        "facts": facts,
        "segments": list(segments),
        "offsets": offsets,
        "software": __version__,
    }
    return canonical_json(body | {"checksum": sha256(canonical_json(body))})


def identity_of(record: Mapping) -> str:
    """Which model a record belongs to, wherever its directory lies: drawn at the first commit, kept by all later ones.

    A record of an earlier version names none: it is derived from what no later commit of that model changes.
    """
    if record.get("identity"):
        return record["identity"]
    arrays = {name: digest for name, digest in record["arrays"].items() if name not in COMMITTEE_ARRAYS}
    return sha256(canonical_json({"arrays": arrays, "model": record["facts"].get("model")}))[:32]


def read_record(number: int, text: bytes, url: str) -> dict:
    """The fields of a record of the model directory at `url`, checked.

    Raises
    ------
    ModelDamaged, VersionMismatch
    """
    damaged = f"{url}: commit {number} does not match its checksum; restore it from a copy"
    try:
        record = json.loads(text)
        checksum = record.pop("checksum")
        found = sha256(canonical_json(record))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ModelDamaged(damaged) from error
    if found != checksum or record.get("number") != number or type(record.get("format")) is not int:
        raise ModelDamaged(damaged)
    if record["format"] > FORMAT:
        raise VersionMismatch(
            f"{url}: expected model format {FORMAT} or older, got {record['format']}; use bcmdist "
            f"{record.get('software', 'of the version that wrote it')} or newer, this is {__version__}"
        )
    check_fields(record, RECORD, f"{url}: commit {number}")
    return {"offsets": {}} | record
