"""What tasks carry instead of models: references to immutable content, so that caching is safe."""

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bcmdist import model as models
from bcmdist.calibration import Calibration, calibration_from
from bcmdist.committee import Belief, Committee
from bcmdist.errors import ModelDamaged
from bcmdist.message import Message
from bcmdist.model import Model
from bcmdist.scaling import Scaling, scaling_from_array
from bcmdist.store import BlobReference, LocalStorage, ModelStore, Reference


@dataclass(frozen=True)
class Fitted:
    """What predictions need."""

    model: Model
    belief: Belief
    calibration: Calibration | None = None


@lru_cache(maxsize=2)
def load_scaling(reference: BlobReference) -> Scaling:
    """The scaling behind a reference."""
    return scaling_from_array(ModelStore(LocalStorage(reference.url)).get_array(reference.digest))


def load_model(reference: Reference) -> Model:
    """The prepared model of a commit."""
    record = _record(reference)
    hashes = tuple((name, record["arrays"][name]) for name in models.ARRAYS)
    return _model(reference.url, hashes, json.dumps(record["facts"]["model"]))


@lru_cache(maxsize=2)
def _model(url, hashes, facts) -> Model:
    """A model by its content: commits that share it share the factor in memory."""
    store = ModelStore(LocalStorage(url))
    return models.from_arrays({name: store.get_array(digest) for name, digest in hashes}, json.loads(facts))


@lru_cache(maxsize=2)
def load_array(reference: BlobReference):
    """The array behind a reference."""
    return ModelStore(LocalStorage(reference.url)).get_array(reference.digest)


@lru_cache(maxsize=2)
def load_fitted(reference: Reference) -> Fitted:
    """Model and belief of a commit."""
    store, record = ModelStore(LocalStorage(reference.url)), _record(reference)
    arrays = {name: store.get_array(record["arrays"][name]) for name in ("eta", "precision")}
    belief = committee_from(arrays, record["facts"]).posterior
    return Fitted(load_model(reference), belief, calibration_from(record["facts"]["fit"].get("calibration")))


@lru_cache(maxsize=8)
def _record(reference):
    store = ModelStore(LocalStorage(reference.url))
    found = store.reference(reference.number)
    if found != reference:
        raise ModelDamaged(
            f"{reference.url}: expected record {reference.digest[:12]} at commit {reference.number}, found "
            f"{found.digest[:12]}; this machine sees another model under the same path: use a shared one"
        )
    return store.record(reference.number)


def committee_from(arrays, facts) -> Committee:
    """The committee that a commit's arrays and facts describe."""
    precision = np.asfortranarray(arrays["precision"])
    return Committee(Message(arrays["eta"], precision, facts["evidence"], facts["rows"]))
