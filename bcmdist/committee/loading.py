"""Load and check the committee and facts of a commit, for snapshots and for tasks on workers."""

from functools import lru_cache

import numpy as np

from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Facts
from bcmdist.committee.soundness import check_belief, check_ledger
from bcmdist.experts.message import Message
from bcmdist.model.loading import load_model
from bcmdist.model.model import Model
from bcmdist.model.soundness import sound_model
from bcmdist.storage.commits import Commit, Reference, open_store
from bcmdist.storage.loading import load_record


def load_committee(reference: Reference) -> Committee:
    """Load the committee of a commit.

    Raises
    ------
    ModelDamaged, ModelNotFound
    """
    store, record = open_store(reference.url), load_record(reference)
    model, found = load_model(reference), {name: record["arrays"].get(name) for name in ("eta", "precision")}
    arrays = {name: store.get_array(digest) for name, digest in found.items() if digest}
    check_belief(arrays, record["facts"], model, reference.place)
    return committee_from(arrays, record["facts"], model)


@lru_cache(maxsize=8)
def load_facts(reference: Reference) -> Facts:
    """Load the facts of a commit; cached, for tasks on workers."""
    return Facts.from_json(load_record(reference)["facts"]["fit"])


def sound_committee(url, commit: Commit) -> tuple[Model, Committee]:
    """Model and committee of a commit, checked for consistency.

    Raises
    ------
    ModelDamaged
        The contents are inconsistent although the checksums match (`bcmdist.model.soundness`).
    """
    where = f"{url}: commit {commit.number}"
    model = sound_model(commit.arrays, commit.facts.get("model"), where)
    check_belief(commit.arrays, commit.facts, model, where)
    check_ledger(commit.ledger, commit.facts, model.inputs, where)
    return model, committee_from(commit.arrays, commit.facts, model)


def committee_from(arrays, facts, model: Model) -> Committee:
    """Build the committee from a commit's arrays and facts."""
    precision = np.asfortranarray(arrays["precision"])
    return Committee(Message(arrays["eta"], precision, facts["evidence"], facts["rows"]), model.shared.belief)
