"""Tasks that compute the messages of partitions, together with their ledger entries."""

import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.data.partition import Partition
from bcmdist.data.rows import Rows
from bcmdist.experts.ep import Sites, ep_pass, repeated_message, sites_from_array, sites_to_array
from bcmdist.experts.expert import Linearised, conditional_message, running_message
from bcmdist.experts.message import Message, zero_message
from bcmdist.experts.precision import PRECISIONS
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.likelihoods import Likelihood, OneProcess
from bcmdist.model.loading import load_model
from bcmdist.model.model import Model
from bcmdist.model.query_sets import Lift
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Arrays
from bcmdist.model.targets import model_rows
from bcmdist.storage.arrays import check_array
from bcmdist.storage.commits import BlobReference, Reference, load_array, open_store
from bcmdist.storage.entry import RUNNING, Entry


def load_values(reference: BlobReference, model: Model) -> FloatArray:
    """Shared values at which rows are linearised, (S,), or (C, S) for C processes."""
    values, shared, processes = load_array(reference), model.shared, model.likelihood.processes
    stored = zero_message(shared, model.likelihood).eta.shape
    each = shared.size // max(1, len(shared.members))
    shape = (processes, each) if processes > 1 else (shared.size,)
    where = f"{reference.url}: blob {reference.digest[:12]}"
    check_array(values, where, "shared values", shape=shape if values.shape == shape else stored)
    return values.reshape(shape)


def load_sites(reference: BlobReference, rows: int) -> Sites:
    """EP sites of a partition of `rows` rows."""
    array = open_store(reference.url).get_array(reference.digest)
    check_array(array, f"{reference.url}: blob {reference.digest[:12]}", "sites", shape=(2, rows + 1))
    return sites_from_array(array)


@dataclass(frozen=True)
class Contribution:
    """The sum of the messages of some partitions, with the partitions' ledger entries."""

    message: Message
    entries: dict[str, Entry]
    objective: float = 0.0
    """later passes: the experts' part of the log joint density at their modes"""
    step: Message | None = None
    """later passes: message that gives the next Newton step, where `message` uses expected weights"""
    query: int = 0
    """number of the query set that the messages are about"""

    def __add__(self, other: "Contribution") -> "Contribution":
        assert not self.entries.keys() & other.entries.keys(), "a partition would count twice"
        assert self.query == other.query, "messages about different query sets do not add"
        objective = self.objective + other.objective
        step = None if self.step is None or other.step is None else self.step + other.step
        return Contribution(self.message + other.message, self.entries | other.entries, objective, step, self.query)

    def __sizeof__(self) -> int:
        return sys.getsizeof(self.message) + (0 if self.step is None else sys.getsizeof(self.step))

    def weighted(self, weight: float) -> "Contribution":
        """The same partitions, each counted `weight` times; the ledger entries are unchanged."""
        if weight == 1.0:
            return self
        step = None if self.step is None else self.step.weighted(weight)
        return replace(self, message=self.message.weighted(weight), objective=weight * self.objective, step=step)


def densities_of(likelihood: Likelihood, obs: Observations) -> float | None:
    """Number of densities multiplied in the evidence of some rows; None where the targets have no unit."""
    return float(likelihood.densities(obs).sum()) if likelihood.units.dimensional else None


def query_number(model: Model, part: Partition) -> int:
    """Number of the query set through which a partition is absorbed: that of `part`, or the present one."""
    return len(model.earlier) if part.query is None else part.query


def lifted(message: Message, lift: Lift | None) -> Message:
    """The message about earlier shared variables, as one about the present ones."""
    if lift is None:
        return message
    return replace(message, eta=lift.eta(message.eta), precision=np.asfortranarray(lift.precision(message.precision)))


@dataclass(frozen=True)
class Expert:
    """Task: the message of a partition under a prepared model, times the partition's weight."""

    model: Reference
    at: BlobReference | None = None
    """shared values at which rows are linearised; None: each expert at its own mode"""

    def __call__(self, part: Partition, rows: Rows) -> Contribution:
        present = load_model(self.model)
        model, query = present.through(part.query), query_number(present, part)
        X, obs = model_rows(model, part, rows)
        at = self.at.digest if self.at else ""
        densities = densities_of(model.likelihood, obs)
        entry = Entry(part.key, rows.digest, part.rows, part.weight, at, densities=densities, query=query)
        if self.at is None:
            message_of = PRECISIONS[model.precision]
            found = Linearised(message_of(model.shared, model.likelihood, X, obs), 0.0, None)
        else:
            found = conditional_message(model.shared, model.likelihood, X, obs, load_values(self.at, model))
        if part.weight != 1.0:
            found = found.weighted(part.weight)
        lift = present.lift(part.query)
        step = found.step and lifted(found.step, lift)
        message = lifted(found.message, lift)
        return Contribution(message, {part.key: entry}, found.objective, step, len(present.earlier))


@dataclass(frozen=True)
class RunningExpert:
    """Task: the message of a partition linearised under a belief; the order of the partitions matters."""

    model: Reference
    total: BlobReference
    """eta and precision of the rows absorbed so far, one after the other (`belief_arrays`)"""

    def __call__(self, part: Partition, rows: Rows) -> Contribution:
        model = load_model(self.model)
        X, obs = model_rows(model, part, rows)
        message = running_message(model.shared, model.likelihood, X, obs, _belief(self.model, self.total))
        densities, query = densities_of(model.likelihood, obs), query_number(model, part)
        entry = Entry(part.key, rows.digest, part.rows, 1.0, RUNNING, densities=densities, query=query)
        return Contribution(message, {part.key: entry}, query=len(model.earlier))


def belief_arrays(total: Message) -> Arrays:
    """The arrays that a `RunningExpert` refers to."""
    return {"total": np.concatenate([total.eta.ravel(), total.precision.ravel()])}


@lru_cache(maxsize=2)
def _belief(model: Reference, total: BlobReference) -> Belief:
    shared, numbers = load_model(model).shared, load_array(total)
    like = zero_message(shared, load_model(model).likelihood)
    eta, precision = np.split(numbers, [like.eta.size])
    return shared.belief(eta.reshape(like.eta.shape), precision.reshape(like.precision.shape))


@dataclass(frozen=True)
class EPExpert:
    """Task: the message of a partition by expectation propagation, times the partition's weight.

    A partition without stored sites makes its first pass. A partition with sites makes its next pass where the sum of
    all messages (`eta`, `precision`) is given, and otherwise repeats its last message. Sites are stored as a
    content-addressed blob, so a retry stores the same blob.
    """

    model: Reference
    eta: BlobReference | None = None
    precision: BlobReference | None = None
    step: float = 1.0
    """share of the way from a pass's old sites to its new ones; all experts move at once and may overshoot"""

    def __call__(self, part: Partition, rows: Rows) -> Contribution:
        model = load_model(self.model)
        likelihood = cast(OneProcess, model.likelihood)  # of others, expectation propagation is refused
        X, obs = model_rows(model, part, rows)
        store = open_store(self.model.url)
        sites = load_sites(BlobReference(self.model.url, part.state), part.rows) if part.state else None
        if sites is not None and self.eta is None:
            message, name = repeated_message(model.shared, X, sites), part.state
        else:
            total = self._total()
            # The cavity excludes exactly one copy of the rows.
            if total is not None and sites is not None and part.weight < 1.0:
                total -= repeated_message(model.shared, X, sites).weighted(part.weight - 1.0)
            message, sites = ep_pass(model.shared, likelihood, X, obs, total, sites, step=self.step)
            name = store.put_arrays({"": sites_to_array(sites)})[""]
        densities = densities_of(model.likelihood, obs)
        query = query_number(model, part)
        entry = Entry(part.key, rows.digest, part.rows, part.weight, state=name, densities=densities, query=query)
        return Contribution(message.weighted(part.weight), {part.key: entry}, query=len(model.earlier))

    def _total(self) -> Message | None:
        if self.eta is None or self.precision is None:
            return None
        return Message(load_array(self.eta), np.asfortranarray(load_array(self.precision)), 0.0, 0)
