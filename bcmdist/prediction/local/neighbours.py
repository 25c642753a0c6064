"""The "local" predictor: the committee with a local expert for each cell, built on the cell's rows and their halo."""

import functools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from zict import LRU

from bcmdist.committee.cells import cells_directory
from bcmdist.committee.fading import weights
from bcmdist.committee.loading import load_facts
from bcmdist.data.observations import Observations
from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import metric, squared_distance
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Belief
from bcmdist.prediction.errors.error_distribution import ErrorDistribution, load_error_distribution
from bcmdist.prediction.errors.platt_scaling import Probabilities, calibration_from
from bcmdist.prediction.interface import Predictor, load_fitted
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.limits import MemoryNeed, local_memory
from bcmdist.prediction.local.cell_rows import NO_ROWS, CellRows, StoredHalos
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import LocalExpert, local_expert, predict_local, renewed
from bcmdist.prediction.local.halos import Arrangement, check_halos, load_arrangement, load_centroids
from bcmdist.prediction.local.joint_moments import Sums, each_point, joint_moments
from bcmdist.prediction.local.late_rows import load_late_rows
from bcmdist.prediction.local.query_sufficiency import query_losses
from bcmdist.prediction.local.samples import by_covariance, sample_normal, sample_paths
from bcmdist.prediction.local.uncertain_rows import AtUncertainRows, possible_inputs
from bcmdist.prediction.terms import committee_terms, local_terms
from bcmdist.runtime.memory import LOCAL_BYTES
from bcmdist.storage.blobs import canonical_json, sha256
from bcmdist.storage.cache import least_recently_used
from bcmdist.storage.commits import Reference, load_record, open_store
from bcmdist.storage.entry import absorbed_pieces
from bcmdist.storage.records import COMMITTEE_ARRAYS, model_digest

# Bytes of predictions that are kept.
PREDICTED_BYTES = 2**24
# Local experts, with the commit under whose posterior they were made, by model and leaf.
_cache: "LRU[Hashable, tuple[Hashable, LocalExpert | None]]" = least_recently_used(
    LOCAL_BYTES, lambda kept: kept[1].nbytes if kept[1] else 0
)
# Predictions at rows of the fit, by model, posterior and rows: calibration, errors and the comparison with baselines
# leave out the same rows, and making a local expert takes longer than all of its predictions.
_predicted: "LRU[Hashable, tuple[np.ndarray, np.ndarray]]" = least_recently_used(
    PREDICTED_BYTES, lambda found: found[0].nbytes + found[1].nbytes
)
# Points on each border between two cells at which the predictions of the two cells are compared.
BORDER_POINTS = 10


class Neighbours:
    """Latent predictions with the local experts of a model.

    Recently used experts are cached for all models of the process. Those of an earlier commit are renewed where their
    rows are the same, which costs O(n^2) in place of O(n^3).

    Parameters
    ----------
    commit : identifies the posterior and the rows that it has absorbed
    """

    def __init__(self, model: Model, belief: Belief, rows: CellRows, commit: Hashable):
        self.model, self.belief, self.rows, self.commit = model, belief, rows, commit
        exact = committee_at_rows(model.shared, belief)
        self.seen = exact if model.input_errors is None else AtUncertainRows(exact)

    @property
    def arrangement(self) -> Arrangement:
        """The rows of the fit in cell order."""
        return self.rows.arrangement

    def latent(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D), with the shapes of `predict_latent`."""
        shared, belief = self.model.shared, self.belief
        return self._in_cells(
            X, lambda x: predict_latent(shared, belief, x), lambda expert, x, B: predict_local(self.seen, expert, x, B)
        )

    def terms(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the terms of f at scaled inputs X (n, D), with the shapes of `committee_terms`."""
        shared, belief = self.model.shared, self.belief
        return self._in_cells(
            X, lambda x: committee_terms(shared, belief, x), lambda expert, x, _: local_terms(self.seen, expert, x)
        )

    def _in_cells(self, X, by_committee, by_expert) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance at the rows of X (n, D), each in its cell.

        by_committee : function of rows (k, D), for cells without a local expert
        by_expert : function of a local expert, rows (k, D) and their columns (k, K)
        """
        if not len(X):
            return by_committee(X)
        leaves = self.rows.leaves(X)
        predicted: list[tuple[np.ndarray, ...]] = []
        order = np.argsort(leaves, kind="stable")
        for some in (order[a : a + self.seen.block_rows] for a in range(0, len(X), self.seen.block_rows)):
            B = self.seen.columns(X[some])
            for leaf, expert in self._experts(np.unique(leaves[some])):
                mine = leaves[some] == leaf
                here = some[mine]
                predicted.append(
                    (here, *(by_committee(X[here]) if expert is None else by_expert(expert, X[here], B[mine])))
                )
        place, mean, variance = (np.concatenate(parts) for parts in zip(*predicted, strict=True))
        back = np.argsort(place)
        return mean[back], variance[back]

    def latent_of_fit(self, numbers, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at rows of the fit, each as `latent`, kept for further requests.

        Parameters
        ----------
        numbers : (n,), ascending: all rows of some cells, or of the part of a cell in a partition
        X : (n, D), their scaled inputs
        """
        cells = np.searchsorted(self.arrangement.edges, numbers, side="right")
        pieces = np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(cells)) + 1)
        keys = [(self.rows.version, self.commit, numbers[piece].tobytes()) for piece in pieces]
        found = {key: one for key in keys if (one := _predicted.get(key))}
        missing = [(key, piece) for key, piece in zip(keys, pieces, strict=True) if key not in found]
        if missing:
            mean, variance = self.latent(X[np.concatenate([piece for _, piece in missing])])
            ends = np.cumsum([len(piece) for _, piece in missing])[:-1]
            for (key, _), m, v in zip(missing, np.split(mean, ends), np.split(variance, ends), strict=True):
                found[key] = _predicted[key] = m, v
        mean, variance = (np.concatenate([found[key][k] for key in keys]) for k in (0, 1))
        return mean, variance

    def joint(self, X, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of weighted sums of f over scaled inputs X (n, D); see `joint_moments`."""
        return joint_moments(self.seen, self.experts_at(X), X, sums)

    def sample(self, X, size, rng) -> np.ndarray:
        """Joint samples of f at scaled inputs X (n, D), (size, n); see `prediction.local.samples`."""
        if by_covariance(self.model.shared, len(X)):
            return sample_normal(*self.joint(X, each_point(len(X))), size, rng)
        return sample_paths(self.seen, self.experts_at(X), X, size, rng)

    def experts_at(self, X) -> Iterator[tuple[np.ndarray, LocalExpert | None]]:
        """Yield the positions of the rows of X (n, D) in each leaf, ascending, with the leaf's local expert or None."""
        leaves = self.rows.leaves(X)
        order = np.argsort(leaves, kind="stable")
        numbers, starts = np.unique(leaves[order], return_index=True)
        in_leaf = dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)) if len(X) else {}
        for leaf, expert in self._experts(numbers):
            yield in_leaf[leaf], expert

    def jumps(self, cell, X, start) -> np.ndarray:
        """Mean squared difference between the predictions of a cell and the next cell at their border.

        In units of the predictive variance at points halfway between nearest rows of the two cells. Shape (1,), or (0,)
        if either cell has absorbed nothing or is split.

        Parameters
        ----------
        X : scaled inputs of the rows from number `start` on, which contain both cells
        """
        edges, unit = self.arrangement.edges, metric(self.model.shared.kernel, self.model.inputs)
        here, there = (X[edges[c] - start : edges[c + 1] - start] for c in (cell, cell + 1))
        leaves = np.concatenate([self.rows.leaves_of(c) for c in (cell, cell + 1)])
        if len(leaves) > 2:
            return np.zeros(0)
        experts = [expert for _, expert in self._experts(leaves)]
        if not len(here) or not len(there) or None in experts:
            return np.zeros(0)
        gap = squared_distance(here, there, unit)
        border = 0.5 * (here + there[gap.argmin(axis=1)])[np.argsort(gap.min(axis=1))[:BORDER_POINTS]]
        columns = self.seen.columns(border)
        (a, v), (b, w) = (predict_local(self.seen, e, border, columns) for e in experts if e)
        return np.array([((a - b) ** 2 / (0.5 * (v + w))).mean()])

    def query_losses(self, cell) -> np.ndarray:
        """Loss of leave-one-out log density at absorbed rows of a leaf with half of the query points, (k,), in nats.

        The leaf is the first of the cell.

        Empty if the shared variables cannot be halved.
        """
        if not self.model.shared.nested:
            return np.zeros(0)
        leaf = self.rows.leaves_of(cell)[0]
        ((_, expert),) = self._experts(np.array([leaf]))
        core = np.flatnonzero(np.isin(self.rows.rows_of(leaf), self.rows.core(leaf)))
        if expert is None or not len(core):
            return np.zeros(0)
        return query_losses(expert, self.belief, self.model.shared.functions, core)

    def _experts(self, leaves) -> Iterator[tuple[int, LocalExpert | None]]:
        """Yield leaves with their local experts; leaves of one partition share one read of the data."""
        owners = self.rows.owners(leaves)
        for owner in np.unique(owners):
            mine = leaves[owners == owner].tolist()
            rows = {leaf: self.rows.rows_of(leaf) for leaf in mine if self._current(leaf) is None}
            read = _Read(self, np.unique(np.concatenate([NO_ROWS, *rows.values()])))
            for leaf in mine:
                yield leaf, self._expert(leaf, rows, read)

    def _cached(self, leaf) -> tuple[Hashable, LocalExpert | None] | None:
        """The commit of the cached local expert of a leaf, and the expert; None if it is not cached."""
        return _cache.get((self.rows.version, leaf))

    def _current(self, leaf) -> tuple[Hashable, LocalExpert | None] | None:
        """As `_cached`, if it is of this commit."""
        cached = self._cached(leaf)
        return cached if cached and cached[0] == self.commit else None

    def _expert(self, leaf, selected, read):
        if current := self._current(leaf):
            return current[1]
        rows = selected[leaf] if leaf in selected else self.rows.rows_of(leaf)
        if not np.isin(rows, read.rows).all():  # evicted from the cache since the rows were read
            read = _Read(self, rows)
        made = self._made(leaf, np.searchsorted(read.rows, rows), read) if len(rows) else None
        expert = made and replace(made, rows=rows)
        _cache[self.rows.version, leaf] = self.commit, expert
        return expert

    def _made(self, leaf, some, read):
        (X, obs), likelihood = read.values, self.model.likelihood
        X, obs = X[some], obs[some]
        _, before = self._cached(leaf) or (None, None)
        found = before and renewed(before, self.seen, likelihood, X, obs)
        return found or local_expert(self.seen, likelihood, X, np.asfortranarray(read.columns[some]), obs)


class _Read:
    """Rows that were read for some leaves."""

    def __init__(self, near: Neighbours, rows):
        self.near, self.rows = near, rows
        """the second: their numbers, ascending"""

    @functools.cached_property
    def values(self) -> tuple[np.ndarray, Observations]:
        """Scaled inputs (n, D), with errors their possible ones (`possible_inputs`), and observations."""
        X, obs, roots = self.near.rows.read(self.rows)
        return (X if roots is None else possible_inputs(X, roots)), obs

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """(n, K); see `CommitteeAtRows`"""
        return self.near.seen.columns(self.values[0])


@lru_cache(maxsize=1)
def load_neighbours(reference: Reference) -> Neighbours:
    """Local predictions of a commit that has halos."""
    fitted, arrangement, record = load_fitted(reference), load_arrangement(reference), load_record(reference)
    own, facts = open_store(reference.url), load_facts(reference)
    store = open_store(cells_directory(facts.cells, reference.url))
    table = store.get_array(facts.cells.halos)
    partitions = len(arrangement.bounds) - 1
    check_halos(table, partitions, f"{reference.url}: commit {reference.number}")
    centroids = load_centroids(store, facts.cells.centroids, (partitions, fitted.model.inputs))
    halos = StoredHalos(store, [bytes(row).hex() for row in table], centroids)
    ledger = [entry for segment in record["segments"] for entry in own.get_segment(segment)]
    counts, version = weights(facts.fading, ledger), model_digest(record)
    absorbed = absorbed_pieces(counts, facts.cells.array)
    late = load_late_rows(reference.url, fitted.model, arrangement.data, ledger, counts, version)
    rows = CellRows(fitted.model, arrangement, halos, absorbed, late, version)
    # Commits that differ in other facts, such as the errors, share local experts.
    sums = [record["arrays"][name] for name in sorted(COMMITTEE_ARRAYS)]
    state = sha256(canonical_json([sums, facts.cells.halos, sorted(counts.items())]))
    return Neighbours(fitted.model, fitted.belief, rows, state)


@dataclass(frozen=True)
class LocallyFitted(Predictor):
    """Predicts f from the committee's posterior and the local expert of each point's cell."""

    in_cells = True

    model: Model
    calibration: Probabilities | None
    neighbours: Neighbours
    error_distribution: ErrorDistribution

    @classmethod
    def refuse(cls, snapshot) -> None:
        """Raise `InvalidOption` if the model has no cells or its fit was not completed."""
        if not snapshot.facts.cells.surrounded:
            raise InvalidOption(
                "method: expected a model fitted with --partition spatial for local prediction, got one without cells; "
                "use --method committee"
            )

    @classmethod
    def memory(cls, snapshot) -> MemoryNeed:
        return local_memory(snapshot)

    @classmethod
    def of_snapshot(cls, snapshot) -> "LocallyFitted":
        """The predictor, cached in the snapshot until the commit changes to keep the factors of its cells."""
        commit, predictor = snapshot.read.get("local", (None, None))
        if commit != snapshot.commit:
            predictor = cls.of_commit(snapshot.reference)
            snapshot.read["local"] = snapshot.commit, predictor
        return predictor

    @classmethod
    def of_commit(cls, reference) -> "LocallyFitted":
        calibration = calibration_from(load_facts(reference).errors.local_calibration)
        error_distribution = load_error_distribution(reference, "local")
        return cls(load_fitted(reference).model, calibration, load_neighbours(reference), error_distribution)

    def latent(self, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D); see `Neighbours.latent`."""
        return self.neighbours.latent(X)

    def terms(self, X) -> tuple[np.ndarray, np.ndarray]:
        return self.neighbours.terms(X)

    def joint(self, X, sums) -> tuple[np.ndarray, np.ndarray]:
        return self.neighbours.joint(X, sums)

    def sample(self, X, size, rng) -> np.ndarray:
        return self.neighbours.sample(X, size, rng)

    def cells(self, X) -> np.ndarray:
        return self.neighbours.rows.leaves(X)
