"""Rows held out to calibrate with: a random quarter of a partition, of each of its classes.

Which rows they are follows from the partition alone, so that whoever absorbs the others and whoever predicts these
agree. Stores are often sorted by class: the last rows of a partition, or whole partitions, would say nothing of most
classes.
"""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.committee.committee import Committee
from bcmdist.committee.passes import readable_partitions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.data.rows import Rows
from bcmdist.experts.contributions import Contribution, Expert
from bcmdist.experts.message import Message
from bcmdist.model.loading import load_model
from bcmdist.model.targets import model_observations
from bcmdist.prediction.errors.platt_scaling import HeldOutRows
from bcmdist.prediction.latent import predict_latent
from bcmdist.storage.commits import BlobReference, Reference
from bcmdist.storage.loading import load_array

# One row in so many is held out.
HELD_OUT_EVERY = 4
# Rows held out to calibrate with, at most; Platt's map has one parameter per class.
CALIBRATION_ROWS = 5000


def held_out_count(part: Partition) -> int:
    """How many rows of a partition are held out; of a single row, every so often that one."""
    return len(range(_first(_generator(part)), part.rows, HELD_OUT_EVERY))


def held_out_rows(part: Partition, y) -> np.ndarray:
    """Which rows of a partition are held out, given its targets (n,): True for these, (n,).

    Every fourth of the rows in the order of their targets, with equal ones in random order: of a class of m rows
    m / 4 rounded up or down.
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
    """Some rows of a partition, which keep the digest of all."""
    return replace(rows, X=rows.X[which], obs=rows.obs[which])


@dataclass(frozen=True)
class ExpertOfTraining:
    """The message of a partition without the rows that are held out."""

    model: Reference

    def __call__(self, part, rows) -> Contribution:
        return Expert(self.model)(part, _some(rows, ~held_out_rows(part, rows.obs.y)))


@dataclass(frozen=True)
class HeldOut:
    """Latent predictions and classes at the rows that are held out of a partition, by a belief that has not absorbed
    them."""

    model: Reference
    eta: BlobReference
    precision: BlobReference

    def __call__(self, part, rows) -> HeldOutRows:
        model, rows = load_model(self.model), _some(rows, held_out_rows(part, rows.obs.y))
        said = Message(load_array(self.eta), np.asfortranarray(load_array(self.precision)), 0.0, 0)
        committee = Committee(said, model.shared.belief)
        obs = model_observations(model, part, rows.obs)
        mean, variance = predict_latent(model.shared, committee.posterior, model.scaling.inputs(rows.X))
        return HeldOutRows(mean, variance, obs.y, obs.weight)


def some_of(parts: list[Partition], rows) -> list[Partition]:
    """Partitions of about so many rows together, evenly spread; one at least where there are any."""
    if not parts:
        return []
    count = max(1, min(len(parts), round(rows / max(part.rows for part in parts))))
    return [parts[k] for k in np.linspace(0, len(parts) - 1, count).round().astype(int)]


def without_some(snapshot: Snapshot, runtime) -> tuple[list[Partition], Committee]:
    """Partitions that rows are held out of (`held_out_rows`), and the committee as if it had not absorbed these.

    What the whole of such a partition has said is withdrawn, which is exact, and the rest is absorbed again. No
    partitions where there are too few rows to hold one out.
    """
    spread = some_of(readable_partitions(snapshot), CALIBRATION_ROWS * HELD_OUT_EVERY)
    chosen = [part for part in spread if held_out_count(part)]
    if not chosen:
        return [], snapshot.committee
    whole = snapshot.compute_messages(chosen, runtime, label="calibrate").message
    rest = snapshot.messages_of(ExpertOfTraining(snapshot.reference), chosen, runtime, label="calibrate").message
    return chosen, snapshot.committee.withdraw(whole).absorb(rest)
