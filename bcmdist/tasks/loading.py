"""What tasks carry instead of models: references to immutable content, so that caching is safe."""

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bcmdist import model as models
from bcmdist.arrays import open_data
from bcmdist.calibration import Calibration, calibration_from
from bcmdist.committee import Belief, Committee
from bcmdist.errors import ModelDamaged
from bcmdist.message import Message
from bcmdist.model import Model
from bcmdist.prediction import predict_latent
from bcmdist.scaling import Scaling, scaling_from_array
from bcmdist.store import CELL_DATA, BlobReference, Reference, open_store
from bcmdist.surroundings import Arrangement, Sizes


@dataclass(frozen=True)
class Fitted:
    """What predictions need."""

    model: Model
    belief: Belief
    calibration: Calibration | None = None

    def latent(self, X):
        """Mean and variance of f at scaled inputs X (n, D); see `predict_latent`."""
        return predict_latent(self.model.query, self.belief, X)


@lru_cache(maxsize=2)
def load_scaling(reference: BlobReference) -> Scaling:
    """The scaling behind a reference."""
    return scaling_from_array(open_store(reference.url).get_array(reference.digest))


def load_model(reference: Reference) -> Model:
    """The prepared model of a commit."""
    record = load_record(reference)
    names = (name for name in (*models.ARRAYS, *models.CELL_ARRAYS) if name in record["arrays"])
    hashes = tuple((name, record["arrays"][name]) for name in names)
    return _model(reference.url, hashes, json.dumps(record["facts"]["model"]))


@lru_cache(maxsize=2)
def _model(url, hashes, facts) -> Model:
    """A model by its content: commits that share it share the factor in memory."""
    store = open_store(url)
    return models.from_arrays({name: store.get_array(digest) for name, digest in hashes}, json.loads(facts))


@lru_cache(maxsize=8)
def load_array(reference: BlobReference):
    """The array behind a reference."""
    return open_store(reference.url).get_array(reference.digest)


@lru_cache(maxsize=2)
def load_fitted(reference: Reference) -> Fitted:
    """Model and belief of a commit."""
    calibration = calibration_from(load_record(reference)["facts"]["fit"].get("calibration"))
    return Fitted(load_model(reference), load_committee(reference).posterior, calibration)


def load_committee(reference: Reference) -> Committee:
    """The committee of a commit."""
    store, record = open_store(reference.url), load_record(reference)
    arrays = {name: store.get_array(record["arrays"][name]) for name in ("eta", "precision")}
    return committee_from(arrays, record["facts"])


@lru_cache(maxsize=4)
def load_arrangement(reference: Reference) -> Arrangement:
    """The arrangement of a commit with spatial partitions."""
    cells, model = load_record(reference)["facts"]["fit"]["cells"], load_model(reference)
    assert model.cells is not None, "a model of spatial partitions has cells"
    edges = open_store(reference.url).get_array(cells["edges"])
    data = open_data(f"{reference.url}/{CELL_DATA}", x=model.x_name, y=model.y_name)
    return Arrangement(data, model.cells, edges, Sizes(cells["core"], cells["around"]))


@lru_cache(maxsize=8)
def load_record(reference: Reference) -> dict:
    """The record of a commit."""
    store = open_store(reference.url)
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
