"""The content of a commit, written after checks that a reader would accept it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Facts
from bcmdist.committee.loading import sound_committee
from bcmdist.errors import NotFinite
from bcmdist.experts.message import Message
from bcmdist.model.model import Model
from bcmdist.model.shared.interface import Arrays
from bcmdist.storage.blobs import canonical_json
from bcmdist.storage.commits import Commit, ModelStore, Reference
from bcmdist.storage.fields import read_back
from bcmdist.storage.ledger import EMPTY, Ledger
from bcmdist.storage.residual_records import residual_arrays, with_residuals


def write_commit(
    store: ModelStore,
    number: int,
    model: Model,
    committee: Committee,
    facts: Facts,
    *,
    ledger: Ledger = EMPTY,
    offsets: dict[str, Any] | None = None,
    identity: str | None = None,
    parent: str | None = None,
    before: Mapping[str, str] | None = None,
) -> tuple[Reference, dict[str, str]]:
    """Write a commit after checking that it can be read back; return its reference, and hashes by name of its arrays.

    Parameters
    ----------
    ledger : of stored segments
    offsets : offset from which to continue reading, by source name
    identity : identifier of the model; a new one by default, for a first commit
    parent : SHA-256 of the record of the previous commit; by default that of whatever commit is there
    before : hashes by name of arrays that are stored already, by default of the previous commit

    Raises
    ------
    CommitConflict
    CommitRefused
        The commit would not pass the checks of a reader.
    NotFinite
        The sum of messages is not finite.
    """
    where = f"{store.storage.url}: commit {number}"
    _refuse_not_finite(committee.total, f"{store.storage.url}: expected finite messages for commit {number}")
    with read_back(where):
        contents = Contents.of(model, committee, ledger, facts)
        made = Commit(
            number=number,
            identity=identity or "",
            arrays=contents.arrays,
            facts=json.loads(canonical_json(contents.facts)),
            ledger=with_residuals(ledger, contents.arrays, where),
            offsets=offsets or {},
        )
        sound_committee(store.storage.url, made)
    arrays = store.put_arrays(contents.arrays, before=before or store.arrays_before(number))
    reference = store.commit(
        number,
        identity=identity,
        parent=parent,
        arrays=arrays,
        facts=contents.facts,
        segments=ledger.digests,
        offsets=offsets or {},
    )
    return reference, arrays


@dataclass(frozen=True)
class Contents:
    """Arrays by name and JSON-ready facts of a commit's record."""

    arrays: Arrays
    facts: dict[str, Any]

    @classmethod
    def of(cls, model: Model, committee: Committee, ledger: Ledger, facts: Facts) -> "Contents":
        arrays, model_facts = model.to_arrays()
        total = committee.total
        arrays |= {"eta": total.eta, "precision": total.precision} | residual_arrays(list(ledger.recorded.values()))
        made = {"model": model_facts, "fit": facts.to_json(), "evidence": total.evidence, "rows": total.rows}
        return cls(arrays, made | {"partitions": len(ledger)})


def _refuse_not_finite(total: Message, expected: str) -> None:
    if not all(np.all(np.isfinite(part)) for part in (total.eta, total.precision, total.evidence)):
        raise NotFinite(
            f"{expected}, got others; nothing was committed: check that inputs are in the range of the training data, "
            "else restore the model from a copy"
        )
