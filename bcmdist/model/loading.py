"""Load models in tasks by reference, with a cache by content."""

import json
from functools import lru_cache

from bcmdist.model.model import COMMITTEE_ARRAYS, Model
from bcmdist.model.scaling import Scaling, scaling_from_array
from bcmdist.model.soundness import sound_model
from bcmdist.storage.commits import BlobReference, Reference, load_record, open_store
from bcmdist.storage.residual_records import RESIDUAL_ARRAYS


@lru_cache(maxsize=2)
def load_scaling(reference: BlobReference) -> Scaling:
    """The scaling at a reference."""
    return scaling_from_array(open_store(reference.url).get_array(reference.digest))


def load_model(reference: Reference) -> Model:
    """The prepared model of a commit."""
    record = load_record(reference)
    names = sorted(set(record["arrays"]) - {*COMMITTEE_ARRAYS, *RESIDUAL_ARRAYS})
    hashes = tuple((name, record["arrays"][name]) for name in names)
    return _model(reference.url, hashes, json.dumps(record["facts"].get("model")))


@lru_cache(maxsize=2)
def _model(url, hashes, facts) -> Model:
    """Model by content: commits with the same model share one copy in memory."""
    store = open_store(url)
    return sound_model({name: store.get_array(digest) for name, digest in hashes}, json.loads(facts), url)
