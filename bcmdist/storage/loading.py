"""What tasks carry instead of models: references to immutable content, so that caching is safe."""

import json
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bcmdist.committee.committee import Belief, Committee
from bcmdist.data.dataset import open_data
from bcmdist.errors import ModelDamaged, NotFinite
from bcmdist.experts.ep import Sites, sites_from_array
from bcmdist.experts.expert import zero_message
from bcmdist.experts.message import Message
from bcmdist.model import model as models
from bcmdist.model.model import Model
from bcmdist.model.scaling import Scaling, scaling_from_array
from bcmdist.model.soundness import check_belief, check_edges, check_fit, check_ledger, sound_model
from bcmdist.prediction.calibration import Calibration, calibration_from
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.local.halos import Arrangement, Sizes
from bcmdist.storage.commits import CELL_DATA, BlobReference, Commit, Reference, open_store
from bcmdist.storage.fields import check_array


@dataclass(frozen=True)
class Fitted:
    """What predictions need."""

    model: Model
    belief: Belief
    calibration: Calibration | None = None

    def latent(self, X):
        """Mean and variance of f at scaled inputs X (n, D); see `predict_latent`.

        Raises
        ------
        NotFinite
        """
        return finite_latent(*predict_latent(self.model.query, self.belief, X))


def finite_latent(mean, variance):
    """A belief about f as it is; `NotFinite` where it is none."""
    for name, values in (("mean", mean), ("variance", variance)):
        _refuse(name, values, ~np.isfinite(values))
    return mean, variance


def refuse_nan(predictions):
    """Raise `NotFinite` where a predicted quantity is no number; moments of heavy tails may be infinite."""
    for name, values in predictions.items():
        _refuse(name, values, np.isnan(values))


def _refuse(name, values, wrong):
    if wrong.any():
        place = np.argwhere(wrong)[0]
        raise NotFinite(
            f"prediction: expected numbers, got {name} {values[tuple(place)]} at row {place[0]} of {len(values)} "
            f"({int(wrong.sum())} such); check that inputs are in the range of the training data, else "
            "restore the model from a copy"
        )


@lru_cache(maxsize=2)
def load_scaling(reference: BlobReference) -> Scaling:
    """The scaling behind a reference."""
    return scaling_from_array(open_store(reference.url).get_array(reference.digest))


def load_model(reference: Reference) -> Model:
    """The prepared model of a commit."""
    record = load_record(reference)
    names = (name for name in (*models.ARRAYS, *models.CELL_ARRAYS) if name in record["arrays"])
    hashes = tuple((name, record["arrays"][name]) for name in names)
    return _model(reference.url, hashes, json.dumps(record["facts"].get("model")))


@lru_cache(maxsize=2)
def _model(url, hashes, facts) -> Model:
    """A model by its content: commits that share it share the factor in memory."""
    store = open_store(url)
    return sound_model({name: store.get_array(digest) for name, digest in hashes}, json.loads(facts), url)


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
    model, found = load_model(reference), {name: record["arrays"].get(name) for name in ("eta", "precision")}
    arrays = {name: store.get_array(digest) for name, digest in found.items() if digest}
    check_belief(arrays, record["facts"], model, _place(reference))
    return committee_from(arrays, record["facts"])


@lru_cache(maxsize=4)
def load_arrangement(reference: Reference) -> Arrangement:
    """The arrangement of a commit with spatial partitions."""
    check_fit(load_record(reference)["facts"]["fit"], load_model(reference), _place(reference))
    cells, model = load_record(reference)["facts"]["fit"]["cells"], load_model(reference)
    assert model.cells is not None, "a model of spatial partitions has cells"
    edges = open_store(reference.url).get_array(cells["edges"])
    data = open_data(f"{reference.url}/{CELL_DATA}", x=model.x_name, y=model.y_name)
    check_edges(edges, model.cells.cells, data.rows, _place(reference))
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


def load_values(reference: BlobReference, model: Model):
    """Shared values given which rows are linearised, (S,), or (C, S) for C processes."""
    values, query, processes = load_array(reference), model.query, model.likelihood.processes
    stored = zero_message(query, model.likelihood).eta.shape
    shape = (processes, query.shared) if processes > 1 else (query.shared,)
    where = f"{reference.url}: blob {reference.digest[:12]}"
    check_array(values, where, "shared values", shape=shape if values.shape == shape else stored)
    return values.reshape(shape)


def load_sites(reference: BlobReference, rows) -> Sites:
    """The sites of a partition of so many rows."""
    array = open_store(reference.url).get_array(reference.digest)
    check_array(array, f"{reference.url}: blob {reference.digest[:12]}", "sites", shape=(2, rows + 1))
    return sites_from_array(array)


def sound_committee(url, commit: Commit) -> tuple[Model, Committee]:
    """Model and committee of a commit.

    Raises
    ------
    ModelDamaged
        It cannot be one, whatever its checksums say (`bcmdist.model.soundness`).
    """
    where = f"{url}: commit {commit.number}"
    model = sound_model(commit.arrays, commit.facts.get("model"), where)
    check_belief(commit.arrays, commit.facts, model, where)
    check_ledger(commit.ledger, commit.facts, where)
    return model, committee_from(commit.arrays, commit.facts)


def _place(reference):
    return f"{reference.url}: commit {reference.number}"


def committee_from(arrays, facts) -> Committee:
    """The committee that a commit's arrays and facts describe."""
    precision = np.asfortranarray(arrays["precision"])
    return Committee(Message(arrays["eta"], precision, facts["evidence"], facts["rows"]))
