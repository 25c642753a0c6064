"""Held-out rows for calibration: a random quarter of a partition, stratified by class, or each row left out by itself.

The choice of the quarter depends on the partition alone, so that the task that absorbs the other rows and the task that
predicts these agree. It is random since data are often sorted by class: the last rows of a partition, or whole
partitions, would miss most classes.
"""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.committee.absorbed import readable_partitions
from bcmdist.committee.committee import Committee
from bcmdist.committee.loading import load_committee
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.data.rows import Rows
from bcmdist.experts.contributions import Contribution, Expert, load_values
from bcmdist.experts.message import Message
from bcmdist.model.loading import load_model
from bcmdist.model.targets import model_observations, model_rows
from bcmdist.prediction.errors.platt_scaling import HeldOutRows
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import as_absorbed_through, left_out_of_committee
from bcmdist.storage.commits import BlobReference, Reference, load_array

# One row in `HELD_OUT_EVERY` is held out.
HELD_OUT_EVERY = 4
# Approximate number of held-out rows in all; Platt's map has one parameter per class.
CALIBRATION_ROWS = 5000


def held_out_count(part: Partition) -> int:
    """Number of held-out rows of a partition: a quarter, rounded up or down at random."""
    return len(range(_first(_generator(part)), part.rows, HELD_OUT_EVERY))


def held_out_rows(part: Partition, y) -> np.ndarray:
    """Boolean mask (n,) of the held-out rows of a partition with targets y (n,).

    Every fourth row in the order of the targets, ties in random order: m / 4, rounded up or down, of a class of m rows.
    """
    rng = _generator(part)
    first = _first(rng)
    held_out = np.zeros(len(y), dtype=bool)
    held_out[np.lexsort((rng.random(len(y)), y))[first::HELD_OUT_EVERY]] = True
    return held_out


def _generator(part):
    return np.random.default_rng(part.start)


def _first(rng):
    return int(rng.integers(HELD_OUT_EVERY))


def _some(rows: Rows, which) -> Rows:
    """A subset of a partition's rows, with the digest of all of them."""
    return replace(rows, X=rows.X[which], obs=rows.obs[which])


@dataclass(frozen=True)
class ExpertOfTraining:
    """Task: the message of a partition without its held-out rows."""

    model: Reference

    def __call__(self, part, rows) -> Contribution:
        return Expert(self.model)(part, _some(rows, ~held_out_rows(part, rows.obs.y)))


@dataclass(frozen=True)
class HeldOut:
    """Task: latent predictions and classes (`HeldOutRows`) at the held-out rows of a partition.

    The committee with `eta` and `precision` must not have absorbed these rows.
    """

    model: Reference
    eta: BlobReference
    precision: BlobReference

    def __call__(self, part, rows) -> HeldOutRows:
        model, rows = load_model(self.model), _some(rows, held_out_rows(part, rows.obs.y))
        total = Message(load_array(self.eta), np.asfortranarray(load_array(self.precision)), 0.0, 0)
        committee = Committee(total, model.shared.belief)
        obs = model_observations(model, part, rows.obs, rows.X)
        mean, variance = predict_latent(model.shared, committee.posterior, model.scaling.inputs(rows.X))
        return HeldOutRows(mean, variance, obs.y, obs.weight)


@dataclass(frozen=True)
class LeftOutByCommittee:
    """Task: leave-one-out latent predictions and classes at up to `most` rows of a partition."""

    fitted: Reference
    most: int
    at: BlobReference | None = None
    """shared values at which the rows were linearised; None: each expert at its own mode"""

    def __call__(self, part, rows) -> HeldOutRows:
        model = load_model(self.fitted)
        X, obs = model_rows(model, part, rows)
        some = np.linspace(0, len(X) - 1, min(len(X), self.most)).astype(int)
        shared, belief = as_absorbed_through(model, load_committee(self.fitted).posterior, part.query)
        at = load_values(self.at, model) if self.at and shared is model.shared else None
        mean, variance = left_out_of_committee(
            shared, model.likelihood, belief, X, obs, some, weight=part.weight, at=at
        )
        return HeldOutRows(mean, variance, obs.y[some], obs.weight[some])


def some_of(parts: list[Partition], rows) -> list[Partition]:
    """Evenly spread partitions with about `rows` rows in all; at least one, if there are any."""
    if not parts:
        return []
    count = max(1, min(len(parts), round(rows / max(part.rows for part in parts))))
    return [parts[k] for k in np.linspace(0, len(parts) - 1, count).round().astype(int)]


def without_some(snapshot: Snapshot, runtime) -> tuple[list[Partition], Committee]:
    """Choose partitions with held-out rows (`held_out_rows`), and return them and the committee without these rows.

    The message of each whole partition is withdrawn, and that of its other rows is absorbed. The list is empty if
    there are too few rows to hold any out.
    """
    chosen_parts = some_of(readable_partitions(snapshot), CALIBRATION_ROWS * HELD_OUT_EVERY)
    chosen = [part for part in chosen_parts if held_out_count(part)]
    if not chosen:
        return [], snapshot.committee
    whole = snapshot.compute_messages(chosen, runtime, label="calibrate").message
    fitted_part = snapshot.messages_of(ExpertOfTraining(snapshot.reference), chosen, runtime, label="calibrate").message
    return chosen, snapshot.committee.withdraw(whole).absorb(fitted_part)
