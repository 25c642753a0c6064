"""Refit a model: learn hyper-parameters and query points anew, absorb all rows again, and swap by one commit.

While this goes on, the model serves predictions and absorbs rows as before. The new state is one commit of the same
model; partitions that others have committed meanwhile are absorbed into it, too. Rows that cannot be read again, such
as trimmed entries of a stream, are not part of it, and are counted in a warning. `revert` returns to an earlier state.
"""

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bcmdist.api.comparison.left_out import with_accuracy
from bcmdist.api.requests import RefitOptions
from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Facts, Pass
from bcmdist.committee.fading import Weighting, weights
from bcmdist.committee.growth import why_fixed
from bcmdist.committee.passes import passes_made, readable_partitions, refine
from bcmdist.committee.revision import messages
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.surveyed import refuse_changed
from bcmdist.data.dataset import open_data
from bcmdist.data.observations import joined
from bcmdist.data.partition import Partition
from bcmdist.data.rows import read_all
from bcmdist.data.schema import warn
from bcmdist.data.writing import write_dataset
from bcmdist.errors import CommitConflict, InvalidData, InvalidOption
from bcmdist.experts.message import zero_message
from bcmdist.learning.first_commit import prepared
from bcmdist.learning.settings import Settings
from bcmdist.model.model import Model
from bcmdist.prediction.errors.class_probabilities import calibrated
from bcmdist.prediction.measuring.measurement import measured
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import SCRATCH
from bcmdist.storage.ledger import Entry
from bcmdist.storage.locate import open_storage
from bcmdist.storage.temporary import partial
from bcmdist.storage.urls import on_objects

# Most rows to learn from: learning uses a sample of them in any case, and they are read into memory.
MOST_LEARNED = 100_000
# Commits of others during the last steps after which the new state is committed before errors are measured.
PATIENCE = 3
# Facts that learning finds, by name.
LEARNED = (
    "kernels_tried", "at_bounds", "evaluations", "settled", "decisions", "query_asked", "degrees_estimated", "labels",
    "repeats", "whole_targets", "between_partitions",
)  # fmt: skip
# Facts that hold for the former hyper-parameters only.
OUTDATED = (
    "halving_loss", "query_most", "linearised_at", "objective", "withdrawn_error", "spread", "calibration",
    "local_calibration", "recalibration", "expected", "accuracy",
)  # fmt: skip


def refit(snapshot: Snapshot, options: RefitOptions, runtime: Runtime) -> Snapshot:
    """Learn hyper-parameters and query points anew, absorb the rows again, and commit.

    Raises
    ------
    DataChanged
        Rows differ from those that were absorbed.
    InvalidData
        No row can be read again, or the newest rows lack a class.
    InvalidOption
        A model that cannot be refitted: with spatial cells, another kind of shared variables, EP, noisy inputs, or
        messages that depend on their order.
    """
    _refuse_fixed(snapshot)
    with snapshot.going_on() as snapshot:
        readable = readable_partitions(snapshot)
        rows, whole = sum(part.rows for part in readable), snapshot.committee.total.rows
        if not readable:
            raise InvalidData(f"{snapshot.url}: expected rows that can be read again, found none; fit a new model")
        model, found = _learned(snapshot, readable, options, runtime)
        if rows < whole:
            warn(f"{snapshot.url}: {whole - rows} of {whole} rows cannot be read again and are left out")
        return _swapped(_Absorbed(model, found), snapshot, runtime)


def _refuse_fixed(snapshot):
    why = why_fixed(snapshot)
    if snapshot.model.cells is not None:
        why = "its rows are arranged in spatial cells"
    if why:
        raise InvalidOption(
            f"{snapshot.url}: expected a model that can be refitted, got one that cannot: {why}; fit anew"
        )


# --- Learning ---


def _learned(snapshot, readable, options: RefitOptions, runtime) -> tuple[Model, Facts]:
    """The model of the hyper-parameters and query points learned anew, and the facts of its preparation."""
    scratch = f"{snapshot.url}/{SCRATCH}/refit"
    scratch = f"{scratch}-{uuid.uuid4().hex}" if on_objects(snapshot.url) else partial(scratch)
    old = snapshot.model
    try:
        write_dataset(f"{scratch}/rows.zarr", _columns(old, _chosen(readable, options.newest)), schema=old.schema)
        data = open_data(f"{scratch}/rows.zarr")
        commit = prepared(data, _settings(snapshot, options), f"{scratch}/model", runtime)
        made = Snapshot.load(f"{scratch}/model", commit=commit.number)
    finally:
        open_storage(scratch).remove_all()
    if made.model.classes != old.classes:
        raise InvalidData(
            f"{snapshot.url}: expected rows of the classes {old.classes} to learn from, got {made.model.classes}; give "
            "more --newest rows"
        )
    return replace(made.model, schema=old.schema, x_name=old.x_name, y_name=old.y_name), made.facts


def _chosen(readable: Sequence[Partition], newest) -> list[Partition]:
    """Partitions with about `newest` of the newest rows; by default evenly spread ones of all."""
    if newest is None:
        step = max(1, -(-sum(part.rows for part in readable) // MOST_LEARNED))
        return list(readable[::step])
    after = np.cumsum([part.rows for part in reversed(readable)])
    return list(readable[-1 - int(np.searchsorted(after, min(newest, MOST_LEARNED))) :])


def _columns(model, parts) -> dict[str, np.ndarray]:
    """Rows of partitions as arrays of a data set, with the companions that the likelihood reads."""
    rows = [one for _, one in read_all(parts)]
    obs = rows[0].obs
    for one in rows[1:]:
        obs = joined(obs, one.obs)
    companions = ("weight", *model.likelihood.companions)
    return {"X": np.concatenate([one.X for one in rows]), "y": obs.y} | {n: getattr(obs, n) for n in companions}


def _settings(snapshot, options) -> Settings:
    """The settings of the fit as far as the model tells them, with those that the options change."""
    model, facts = snapshot.model, snapshot.facts
    transform = model.scaling.transform
    settings: dict[str, Any] = {
        "target_transform": "none" if transform is None else transform.kind,
        "warp": "auto" if model.scaling.warping else "none",
        "mean": model.shared.mean.name,
        "approximation": facts.linearisation.approximation,
    }
    return Settings(
        likelihood=model.likelihood.name,
        kernel=options.kernel or model.kernel_name,
        query=options.query or facts.query.query_asked,
        rows_per_expert=facts.survey.rows_per_expert,
        partition="chunks",
        expert=facts.expert,
        noise=facts.errors.noise or "auto",
        precision=model.precision,
        effort=options.effort,
        seed=options.seed,
        **settings,
    )


# --- Absorbing and committing ---


class _Absorbed:
    """The rows of a model under new hyper-parameters: what was absorbed stays while others commit."""

    def __init__(self, model: Model, found: Facts):
        self.model, self.found = model, found
        self.total = zero_message(model.shared, model.likelihood)
        self.entries: dict[str, Entry] = {}
        self.fading: Weighting | None = None

    def of(self, snapshot: Snapshot, runtime) -> Snapshot:
        """The state of a commit under the new hyper-parameters; it remains to be committed."""
        fading = snapshot.facts.fading
        if self.fading is not None:
            self.total = self.total.weighted(self.fading.aged(fading))
        self.fading = fading
        base = self._state(snapshot)
        counts = weights(fading, snapshot.ledger)
        gone = {key: counts_of(fading, entry) for key, entry in self.entries.items() if key not in counts}
        with base.drafted() as readable:
            if gone:
                self.total -= messages(readable, gone, runtime, ledger=list(self.entries.values()))
                self.entries = {key: entry for key, entry in self.entries.items() if key not in gone}
            new = [part for part in readable_partitions(snapshot) if part.key not in self.entries]
            new = [replace(part, state="", query=None) for part in new]
            if new:
                absorbed = readable.compute_messages(new, runtime, label="absorb again")
                refuse_changed(absorbed.entries.values(), snapshot.ledger)
                self.total += absorbed.message
                self.entries |= absorbed.entries
        old = snapshot.absorbed
        entries = [
            replace(entry, weight=old[key].weight, position=old[key].position, arrival=old[key].arrival)
            for key, entry in self.entries.items()
        ]
        order = {entry.key: number for number, entry in enumerate(snapshot.ledger)}
        return self._state(snapshot, sorted(entries, key=lambda entry: order[entry.key]))

    def _state(self, snapshot, entries=()) -> Snapshot:
        learned, facts = self.found.to_json(), snapshot.facts
        changed = {name: learned.get(name) for name in LEARNED} | dict.fromkeys(OUTDATED)
        changed |= {"passes": (Pass(1),), "refits": (facts.learning.refits or 0) + 1, "seconds": self.found.seconds}
        committee = Committee(self.total, self.model.shared.belief)
        return replace(snapshot.changed(committee, entries, rewrite=True, **changed), model=self.model)


def counts_of(fading: Weighting, entry: Entry) -> float:
    """What the rows of an entry count by now."""
    return entry.weight * fading.weight(entry.position)


def _swapped(absorbed: _Absorbed, snapshot: Snapshot, runtime) -> Snapshot:
    """Commit the new state, with the partitions that others commit meanwhile."""
    several = passes_made(snapshot.facts) > 1
    for attempt in itertools.count():
        state = absorbed.of(snapshot, runtime)
        at_once = attempt < PATIENCE and not several
        try:
            state = (_measured(state, runtime) if at_once else state).committed()
        except CommitConflict:
            snapshot = snapshot.newest()
            continue
        if at_once:
            break
        state = _measured(refine(state, runtime) if several else state, runtime).committed_or_newest()
        break
    return state


def _measured(snapshot, runtime) -> Snapshot:
    """The snapshot with class probabilities, errors and accuracy measured, which remain to be committed."""
    with snapshot.drafted() as readable:
        found = calibrated(readable, runtime, since=0)
        return replace(with_accuracy(measured(found, runtime), runtime), draft="")


def revert(snapshot: Snapshot, to: int) -> Snapshot:
    """Commit the state of an earlier commit again, with its ledger and offsets, and return its snapshot.

    Rows that were absorbed after it are absorbed again when their source is read again: stop ingesters that wait for
    rows (`--watch`) before, as these go on where they are.

    Raises
    ------
    InvalidOption
        `to` is not an earlier commit.
    CommitConflict
        Another process has committed meanwhile.
    ModelNotFound
        The commit has been pruned.
    """
    with snapshot.going_on() as snapshot:
        if not 1 <= to < snapshot.commit:
            raise InvalidOption(
                f"--to: expected a commit before the newest, 1 to {snapshot.commit - 1}, got {to}; see `bcmdist info "
                "--history`"
            )
        with Snapshot.opened(snapshot.url, commit=to) as earlier:
            facts = earlier.facts.changed(refits=(snapshot.facts.learning.refits or 0) + 1)
            back = replace(earlier, commit=snapshot.commit, digest=snapshot.digest, facts=facts, pending=True)
            return back.committed()
