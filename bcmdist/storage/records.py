"""The record of a commit: JSON that names by hash what the commit consists of, with a checksum of its own."""

import json
from collections.abc import Iterable, Mapping

from bcmdist import __version__
from bcmdist.errors import ModelDamaged, VersionMismatch
from bcmdist.storage.blobs import canonical_json, sha256
from bcmdist.storage.fields import BLOB, NAMED, SEVERAL, check_fields, each, every

# 1 had no offsets, and no positions in the ledger; 2 no names, surprises and densities. They are read as if they had
# none to tell.
FORMAT = 3
RECORD = {"format": SEVERAL, "arrays": each(BLOB), "segments": every(BLOB), "facts": NAMED, "offsets": NAMED.perhaps}


def record_name(number: int) -> str:
    """Where a record lies."""
    return f"commits/{number:08d}.json"


def record_text(number: int, *, arrays: Mapping[str, str], facts, segments: Iterable[str], offsets) -> bytes:
    """A record; its fields as in `ModelStore.commit`."""
    body = {
        "format": FORMAT,
        "number": number,
        "arrays": dict(arrays),
        "facts": facts,
        "segments": list(segments),
        "offsets": offsets,
        "software": __version__,
    }
    return canonical_json(body | {"checksum": sha256(canonical_json(body))})


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
