"""Messages of partitions, with the ledger entries that say whose they are."""

from dataclasses import dataclass

import numpy as np

from bcmdist.calibration import HeldOutRows
from bcmdist.committee import Belief, Committee
from bcmdist.ep import ep_pass, repeated_message, sites_to_array
from bcmdist.expert import conditional_message, expert_message, running_message
from bcmdist.message import Message
from bcmdist.model import Model
from bcmdist.prediction import predict_latent
from bcmdist.store import RUNNING, BlobReference, Entry, Reference, open_store
from bcmdist.tasks.loading import load_array, load_model, load_sites, load_values
from bcmdist.tasks.targets import model_observations, model_rows


@dataclass(frozen=True)
class Contribution:
    """Messages of some partitions, with the ledger entries that say whose they are."""

    message: Message
    entries: dict[str, Entry]
    objective: float = 0.0
    """of later passes: the experts' part of the log joint density at their modes"""

    def __add__(self, other: "Contribution") -> "Contribution":
        assert not self.entries.keys() & other.entries.keys(), "a partition would count twice"
        objective = self.objective + other.objective
        return Contribution(self.message + other.message, self.entries | other.entries, objective)


@dataclass(frozen=True)
class Expert:
    """The message of a partition under a prepared model, times the partition's weight."""

    model: Reference
    at: BlobReference | None = None
    """shared values given which rows are linearised; None: each expert at its own mode"""

    def __call__(self, part, rows):
        model = load_model(self.model)
        X, obs = model_rows(model, part, rows)
        at = self.at.digest if self.at else ""
        entry = Entry(part.key, rows.digest, part.rows, part.weight, at)
        if self.at is None:
            message, objective = expert_message(model.query, model.likelihood, X, obs), 0.0
        else:
            found = conditional_message(model.query, model.likelihood, X, obs, load_values(self.at, model))
            message, objective = found.message, found.objective
        if part.weight != 1.0:
            message, objective = message.weighted(part.weight), objective * part.weight
        return Contribution(message, {part.key: entry}, objective)


@dataclass(frozen=True)
class RunningExpert:
    """The message of a partition linearised under the belief of the moment; its order in the stream matters."""

    model: Reference
    mean: BlobReference
    factor: BlobReference

    def __call__(self, part, rows):
        model = load_model(self.model)
        X, obs = model_rows(model, part, rows)
        belief = Belief(load_array(self.mean), np.asfortranarray(load_array(self.factor)))
        message = running_message(model.query, model.likelihood, X, obs, belief)
        return Contribution(message, {part.key: Entry(part.key, rows.digest, part.rows, 1.0, RUNNING)})


@dataclass(frozen=True)
class EPExpert:
    """The message of a partition by expectation propagation, times the partition's weight.

    A partition without sites is heard for the first time. One with sites makes its next pass where a
    `total` of all messages is given, and repeats its last message where none is. Sites are stored as a
    blob; storing them twice stores the same.
    """

    model: Reference
    eta: BlobReference | None = None
    precision: BlobReference | None = None
    step: float = 1.0
    """of the way from a pass's old sites to its new ones; all experts move at once, and may overshoot"""

    def __call__(self, part, rows):
        model = load_model(self.model)
        X, obs = model_rows(model, part, rows)
        store = open_store(self.model.url)
        sites = load_sites(BlobReference(self.model.url, part.sites), part.rows) if part.sites else None
        if sites is not None and self.eta is None:
            message, name = repeated_message(model.query, X, sites), part.sites
        else:
            total = self._total()
            if total is not None and part.weight < 1.0:  # the cavity leaves out one whole copy of the rows
                total -= repeated_message(model.query, X, sites).weighted(part.weight - 1.0)
            message, sites = ep_pass(model.query, model.likelihood, X, obs, total, sites, step=self.step)
            name = store.put_arrays({"": sites_to_array(sites)})[""]
        entry = Entry(part.key, rows.digest, part.rows, part.weight, sites=name)
        return Contribution(message.weighted(part.weight), {part.key: entry})

    def _total(self):
        if self.eta is None or self.precision is None:
            return None
        return Message(load_array(self.eta), np.asfortranarray(load_array(self.precision)), 0.0, 0)


def per_process(model: Model, mean):
    """Shared values (S,), or (C, S) for C processes, however the committee stores them."""
    return mean if model.likelihood.processes == 1 else mean.reshape(model.likelihood.processes, -1)


@dataclass(frozen=True)
class HeldOut:
    """Latent predictions and classes at rows that a belief has not heard, to calibrate with."""

    model: Reference
    eta: BlobReference
    precision: BlobReference

    def __call__(self, part, rows):
        model = load_model(self.model)
        committee = Committee(Message(load_array(self.eta), np.asfortranarray(load_array(self.precision)), 0.0, 0))
        obs = model_observations(model, part, rows.obs)
        mean, variance = predict_latent(model.query, committee.posterior, model.scaling.inputs(rows.X))
        return HeldOutRows(mean, variance, obs.y, obs.weight)
