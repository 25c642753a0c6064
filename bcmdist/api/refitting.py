"""Refit a model: learn hyper-parameters and query points anew, absorb all rows again, and swap by one commit.

While this goes on, the model serves predictions and absorbs rows as before. The new state is one commit of the same
model; partitions that others have committed meanwhile are absorbed into it, too. Rows that cannot be read again, such
as trimmed entries of a stream, are not part of it, and are counted in a warning. `revert` returns to an earlier state.

A model with spatial cells keeps them, and the scaling of its inputs, in which they are cut; halos are found again.
"""

import functools
import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bcmdist.api.comparison.left_out import with_accuracy
from bcmdist.api.requests import RefitOptions
from bcmdist.committee.absorbed import readable_partitions
from bcmdist.committee.cells import cells_directory
from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Cells, Facts, Pass
from bcmdist.committee.fading import Weighting, weights
from bcmdist.committee.growth import why_fixed
from bcmdist.committee.passes import passes_made, refine
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
from bcmdist.learning.like import settings_like
from bcmdist.learning.settings import Settings
from bcmdist.model.model import Model
from bcmdist.prediction.errors.class_probabilities import calibrated
from bcmdist.prediction.local.arrange import with_borders, with_halos
from bcmdist.prediction.measuring.measurement import measured
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import CELL_DATA, SCRATCH
from bcmdist.storage.entry import Entry
from bcmdist.storage.locate import open_storage
from bcmdist.storage.temporary import partial
from bcmdist.storage.urls import on_objects

# Most rows to learn from: learning uses a sample of them in any case, and they are read into memory.
MOST_LEARNED = 100_000
# Commits of others during the last steps after which the new state is committed before errors are measured.
PATIENCE = 3
# Ratio of the losses of rows left out, after a refit and before, above which to warn. Arbitrary: the rows differ.
WORSE = 1.1
# Largest relative difference of two weights that are equal but for rounding.
SAME_WEIGHT = 1e-9
# Facts that learning finds, by name.
LEARNED = (
    "kernels_tried", "at_bounds", "evaluations", "settled", "decisions", "query_asked", "degrees_estimated", "labels",
    "repeats", "whole_targets", "between_partitions", "unfinished",
)  # fmt: skip
# Facts that hold for the former hyper-parameters only.
OUTDATED = (
    "halving_loss", "linearised_at", "objective", "withdrawn_error", "spread", "calibration",
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
        A model that cannot be refitted: with another kind of shared variables, EP, noisy inputs, messages that depend
        on their order, or spatial cells that its fit has not completed.
    """
    refuse_fixed(snapshot)
    with snapshot.going_on() as snapshot:
        readable = readable_partitions(snapshot)
        rows, whole = sum(part.rows for part in readable), snapshot.committee.total.rows
        if not readable:
            raise InvalidData(f"{snapshot.url}: expected rows that can be read again, found none; fit a new model")
        order = {entry.key: number for number, entry in enumerate(snapshot.ledger)}
        model, found = _learned(snapshot, sorted(readable, key=lambda part: order[part.key]), options, runtime)
        if rows < whole:
            warn(f"{snapshot.url}: {whole - rows} of {whole} rows cannot be read again and are left out")
        after = _swapped(AbsorbedRows(model, found), snapshot, runtime)
        _warn_where_worse(snapshot, after)
        return after


def refuse_fixed(snapshot: Snapshot) -> None:
    """Raise `InvalidOption` if a model cannot be refitted."""
    why = why_fixed(snapshot)
    if snapshot.model.cells is not None and not snapshot.facts.cells.surrounded:
        why = "its fit is not complete"
    if why:
        raise InvalidOption(f"{snapshot.url}: cannot be refitted: {why}; fit another model to its data")


def _warn_where_worse(before: Snapshot, after: Snapshot) -> None:
    """Warn where rows left out are predicted worse than before."""
    one, other = before.facts.errors.accuracy, after.facts.errors.accuracy
    if one and other and one.loss == other.loss and other.model > WORSE * one.model:
        warn(
            f"{after.url}: rows left out are predicted worse than before, with a {one.loss} of {other.model:.3g}, "
            f"before {one.model:.3g}; `bcmdist revert {after.url} --to {before.commit}` returns to that"
        )


# --- Learning ---


def _learned(
    snapshot: Snapshot, readable: Sequence[Partition], options: RefitOptions, runtime: Runtime
) -> tuple[Model, Facts]:
    """The model of the hyper-parameters and query points learned anew, and the facts of its preparation."""
    scratch = f"{snapshot.url}/{SCRATCH}/refit"
    scratch = f"{scratch}-{uuid.uuid4().hex}" if on_objects(snapshot.url) else partial(scratch)
    old = snapshot.model
    try:
        chosen = _chosen(readable, options.newest, f"{cells_directory(snapshot.facts.cells, snapshot.url)}/{CELL_DATA}")
        made = _prepared(snapshot, chosen, _settings(snapshot, options), f"{scratch}/learned", runtime)
        facts = made.facts
        if len(chosen) < len(readable):  # the query points must explain all rows that are absorbed again
            like = Settings(like=f"{scratch}/learned/model", query=options.query, seed=options.seed, partition="chunks")
            like = settings_like(replace(like, rows_per_expert=facts.survey.rows_per_expert))
            every = -(-sum(part.rows for part in readable) // MOST_LEARNED)
            made = _prepared(snapshot, readable, like, f"{scratch}/all", runtime, every=every)
            query = made.facts.query
            facts = facts.changed(query_asked=query.query_asked, degrees_estimated=query.degrees_estimated)
    finally:
        open_storage(scratch).remove_all()
    if made.model.classes != old.classes:
        raise InvalidData(
            f"{snapshot.url}: expected rows of the classes {old.classes} to learn from, got {made.model.classes}; give "
            "more --newest rows"
        )
    kept = {name: getattr(old, name) for name in ("schema", "x_name", "y_name", "cells")}
    return replace(made.model, **kept), facts


def _prepared(
    snapshot: Snapshot, parts: Sequence[Partition], settings: Settings, place: str, runtime: Runtime, *, every: int = 1
) -> Snapshot:
    """An empty committee at `place`/model, with what is learned from each `every`-th row of some partitions."""
    write_dataset(f"{place}/rows.zarr", _columns(snapshot.model, parts, every), schema=snapshot.model.schema)
    commit = prepared(open_data(f"{place}/rows.zarr"), settings, f"{place}/model", runtime)
    return Snapshot.load(f"{place}/model", commit=commit.number)


def _chosen(readable: Sequence[Partition], newest: int | None, cells: str) -> list[Partition]:
    """Partitions with about `newest` of the rows absorbed last; by default evenly spread ones of all.

    Those of cells, which are absorbed together, count as old: of them evenly spread ones are taken.

    readable : in the order of the ledger
    cells : URL of the data set in cell order
    """
    most = min(newest or MOST_LEARNED, MOST_LEARNED)
    if newest is None:
        return _evenly(readable, most)
    fit, arrived = ([part for part in readable if (part.data.url == cells) is own] for own in (True, False))
    after = np.cumsum([part.rows for part in reversed(arrived)])
    found = arrived[-1 - int(np.searchsorted(after, most)) :] if len(arrived) else []
    short = most - sum(part.rows for part in found)
    return [*(_evenly(fit, short) if fit and short > 0 else []), *found]


def _evenly(parts: Sequence[Partition], most: int) -> list[Partition]:
    """Evenly spread partitions with at most about `most` rows."""
    return list(parts[:: max(1, -(-sum(part.rows for part in parts) // most))])


def _columns(model: Model, parts: Sequence[Partition], every: int) -> dict[str, np.ndarray]:
    """Each `every`-th row of partitions as arrays of a data set, with those companions of any of them that the
    likelihood reads."""
    rows = [(one.X[::every], one.obs[::every]) for _, one in read_all(parts)]
    obs = joined(*(obs for _, obs in rows))
    stored = {name for part in parts for name in part.data.companions}
    companions = [name for name in ("weight", *model.likelihood.companions) if name in stored]
    return {"X": np.concatenate([X for X, _ in rows]), "y": obs.y} | {n: getattr(obs, n) for n in companions}


def _settings(snapshot: Snapshot, options: RefitOptions) -> Settings:
    """The settings of the fit as far as the model tells them, with those that the options change."""
    model, facts = snapshot.model, snapshot.facts
    if model.cells is not None:
        like = settings_like(Settings(like=snapshot.url, partition="spatial", seed=options.seed))
        kernel, noise = options.kernel or model.kernel_name, facts.errors.noise or "auto"
        chosen: dict[str, Any] = {"kernel": kernel, "query": options.query, "effort": options.effort, "noise": noise}
        return replace(like, learn=True, set={}, rows_per_expert=facts.survey.rows_per_expert, **chosen)
    transform = model.scaling.transform
    settings: dict[str, Any] = {
        "target_transform": "none" if transform is None else transform.kind,
        "warp": "auto" if model.scaling.warping else "none",
        "mean": model.shared.mean.kind,
        "output": model.schema.output,
        "precision": model.precision,
        "approximation": facts.linearisation.approximation,
    }
    return Settings(
        likelihood=model.likelihood.name,
        kernel=options.kernel or model.kernel_name,
        query=options.query,
        rows_per_expert=facts.survey.rows_per_expert,
        partition="chunks",
        expert=facts.expert,
        noise=facts.errors.noise or "auto",
        effort=options.effort,
        seed=options.seed,
        **settings,
    )


# --- Absorbing and committing ---


class AbsorbedRows:
    """Messages of all rows under the new model, kept between attempts to commit."""

    def __init__(self, model: Model, found: Facts) -> None:
        self.model, self.found = model, found
        self.total = zero_message(model.shared, model.likelihood)
        self.entries: dict[str, Entry] = {}
        self.counts: dict[str, float] = {}
        """weights of the messages in the total, by key"""
        self.fading: Weighting | None = None

    def of(self, snapshot: Snapshot, runtime: Runtime) -> Snapshot:
        """The state of a commit under the new hyper-parameters; it remains to be committed."""
        counts = self._aged(snapshot)
        outdated = {
            key: count
            for key, count in self.counts.items()
            if key not in counts or not np.isclose(count, counts[key], rtol=SAME_WEIGHT, atol=0.0)
        }
        with self._state(snapshot).drafted() as readable:
            if outdated:
                self.total -= messages(readable, outdated, runtime, ledger=list(self.entries.values()))
                self.counts = {key: count for key, count in self.counts.items() if key not in outdated}
            new = [part for part in readable_partitions(snapshot) if part.key not in self.counts]
            new = [replace(part, state="", query=None) for part in new]
            if new:
                absorbed = readable.compute_messages(new, runtime, label="absorb again")
                refuse_changed(absorbed.entries.values(), snapshot.ledger)
                self.total += absorbed.message
                self.entries |= absorbed.entries
                self.counts |= {part.key: part.weight for part in new}
        kept = ("weight", "position", "copy")
        return self._state(
            snapshot,
            [
                replace(self.entries[old.key], **{name: getattr(old, name) for name in kept})
                for old in snapshot.ledger
                if old.key in self.counts
            ],
        )

    def _aged(self, snapshot: Snapshot) -> dict[str, float]:
        """Bring the messages to the age of a commit; return the weights of its partitions, by key."""
        fading = snapshot.facts.fading
        factor = 1.0 if self.fading is None else self.fading.aged(fading)
        self.total, self.fading = self.total.weighted(factor), fading
        self.counts = {key: factor * count for key, count in self.counts.items()}
        return weights(fading, snapshot.ledger)

    def _state(self, snapshot: Snapshot, entries: Iterable[Entry] = ()) -> Snapshot:
        learned, facts = self.found.to_json(), snapshot.facts
        changed = {name: learned.get(name) for name in LEARNED} | dict.fromkeys(OUTDATED)
        changed |= {
            "query_most": None,
            "passes": (Pass(1),),
            "refits": (facts.learning.refits or 0) + 1,
            "seconds": self.found.seconds,
        }
        if snapshot.facts.cells.halos:
            keep = ("core", "with_halo", "array", "edges")
            cells = Cells(**{name: getattr(snapshot.facts.cells, name) for name in keep})
            changed |= {"cells": cells, "method": "committee"}
        committee = Committee(self.total, self.model.shared.belief)
        return replace(snapshot.changed(committee, entries, rewrite=True, **changed), model=self.model)


def _swapped(absorbed: AbsorbedRows, snapshot: Snapshot, runtime: Runtime) -> Snapshot:
    """Commit the new state, with the partitions that others commit meanwhile."""
    several = passes_made(snapshot.facts) > 1
    for attempt in itertools.count():
        state = absorbed.of(snapshot, runtime)
        at_once = attempt < PATIENCE and not several
        try:
            state = _surrounded(state, runtime)
            state = (_measured(state, runtime) if at_once else state).committed()
            break
        except CommitConflict:
            snapshot = snapshot.newest()
    if several:
        state = _repeated(lambda found: refine(found, runtime), state, "further passes were not made")
    if not at_once:
        measure = functools.partial(_measured, runtime=runtime)
        state = _repeated(lambda found: measure(found).committed(), state, "errors were not measured")
    return state


def _repeated(step: Callable[[Snapshot], Snapshot], snapshot: Snapshot, failed: str) -> Snapshot:
    """Make a step that commits; again from the newest commit if others have committed, at most `PATIENCE` times."""
    for _ in range(PATIENCE):
        try:
            return step(snapshot)
        except CommitConflict:
            snapshot = snapshot.newest()
    warn(f"{snapshot.url}: {failed}, as others commit all the time; refit again when nobody ingests")
    return snapshot


def _surrounded(snapshot: Snapshot, runtime: Runtime) -> Snapshot:
    """The snapshot with local predictions, if the model has cells; it remains to be committed."""
    if snapshot.model.cells is None:
        return snapshot
    return with_borders(with_halos(snapshot, runtime), runtime)


def _measured(snapshot: Snapshot, runtime: Runtime) -> Snapshot:
    """The snapshot with class probabilities, errors and accuracy measured, which remain to be committed."""
    with snapshot.drafted() as readable:
        found = calibrated(readable, runtime, since=0)
        return replace(with_accuracy(measured(found, runtime), runtime), draft="")


def refuse_later(to: int, newest: int) -> None:
    """Raise `InvalidOption` unless `to` is the number of a commit before the newest."""
    if isinstance(to, int | np.integer) and 1 <= to < newest:
        return
    if newest == 1:
        raise InvalidOption(
            f"--to: expected a model that has changed since its first commit, got {to!r:.80} of one that has not; "
            "leave it as it is"
        )
    raise InvalidOption(
        f"--to: expected a commit before the newest, 1 to {newest - 1}, got {to!r:.80}; see `bcmdist info --history`"
    )


def revert(snapshot: Snapshot, to: int | str) -> Snapshot:
    """Commit the state of an earlier commit again, with its ledger and offsets, and return its snapshot.

    `to`: number or alias of the commit.

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
        to = snapshot.store.number_of(to)
        refuse_later(to, snapshot.commit)
        with Snapshot.opened(snapshot.url, commit=to) as earlier:
            facts = earlier.facts.changed(refits=(snapshot.facts.learning.refits or 0) + 1)
            back = replace(earlier, commit=snapshot.commit, digest=snapshot.digest, facts=facts, pending=True)
            return back.committed()
