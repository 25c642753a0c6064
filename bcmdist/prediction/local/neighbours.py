"""The "local" predictor: the committee with a local expert for each cell, built on the cell's rows and their halo."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bcmdist.committee.cells import cells_directory
from bcmdist.committee.fading import weights
from bcmdist.committee.loading import load_facts
from bcmdist.data.observations import Observations
from bcmdist.data.partition import Partition
from bcmdist.data.rows import read_rows
from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import metric, squared_distance
from bcmdist.model.model import Model
from bcmdist.model.shared.belief import Belief
from bcmdist.model.targets import model_observations
from bcmdist.prediction.errors.error_distribution import ErrorDistribution, load_error_distribution
from bcmdist.prediction.errors.platt_scaling import Probabilities, calibration_from
from bcmdist.prediction.interface import Predictor, load_fitted
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.limits import MemoryNeed, local_memory
from bcmdist.prediction.local.committee_at_rows import committee_at_rows
from bcmdist.prediction.local.expert import LocalExpert, local_expert, predict_local
from bcmdist.prediction.local.halos import Arrangement, check_halo, check_halos, load_arrangement
from bcmdist.prediction.local.query_sufficiency import query_losses
from bcmdist.prediction.terms import committee_terms, local_terms
from bcmdist.runtime.memory import LOCAL_BYTES
from bcmdist.storage.cache import get_or_make, least_recently_used
from bcmdist.storage.commits import BlobReference, ModelStore, Reference, load_array, load_record, open_store
from bcmdist.storage.ledger import absorbed_pieces

NO_ROWS = np.zeros(0, np.int64)
# Points on each border between two cells at which the predictions of the two cells are compared.
BORDER_POINTS = 10
# Rows with at most this (faded) weight are ignored: they no longer change any sum, and noise / weight would overflow.
FADED = 1e-100


class Neighbours:
    """Latent predictions with the local experts of a model. Recently used factors are cached.

    Parameters
    ----------
    halos : hashes of the blobs that `Halo` wrote, by partition
    absorbed : (pieces, 3): start, stop and weight of the row ranges that the committee has absorbed, ascending; the
        weight is the present one, faded if the model forgets old rows
    """

    def __init__(self, model: Model, belief: Belief, arrangement: Arrangement, halos, absorbed, store: ModelStore):
        self.model, self.belief, self.arrangement = model, belief, arrangement
        self.halos, self.absorbed, self.store = halos, absorbed, store
        self.seen = committee_at_rows(model.shared, belief)
        self._kept = least_recently_used(LOCAL_BYTES, _expert_bytes)

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
        cells = self.arrangement.tree.route(X)
        if not len(X):
            return by_committee(X)
        predicted: list[tuple[np.ndarray, ...]] = []
        order = np.argsort(cells, kind="stable")
        for some in (order[a : a + self.seen.block_rows] for a in range(0, len(X), self.seen.block_rows)):
            B = self.seen.columns(X[some])
            for cell, expert in self._experts(np.unique(cells[some])):
                mine = cells[some] == cell
                here = some[mine]
                predicted.append(
                    (here, *(by_committee(X[here]) if expert is None else by_expert(expert, X[here], B[mine])))
                )
        place, mean, variance = (np.concatenate(parts) for parts in zip(*predicted, strict=True))
        back = np.argsort(place)
        return mean[back], variance[back]

    def jumps(self, cell, X, start) -> np.ndarray:
        """Mean squared difference between the predictions of a cell and the next cell at their border.

        In units of the predictive variance at points halfway between nearest rows of the two cells. Shape (1,), or (0,)
        if either cell has absorbed nothing.

        Parameters
        ----------
        X : scaled inputs of the rows from number `start` on, which contain both cells
        """
        edges, unit = self.arrangement.edges, metric(self.model.shared.kernel, self.model.inputs)
        here, there = (X[edges[c] - start : edges[c + 1] - start] for c in (cell, cell + 1))
        experts = [expert for _, expert in self._experts(np.array([cell, cell + 1]))]
        if not len(here) or not len(there) or None in experts:
            return np.zeros(0)
        gap = squared_distance(here, there, unit)
        border = 0.5 * (here + there[gap.argmin(axis=1)])[np.argsort(gap.min(axis=1))[:BORDER_POINTS]]
        columns = self.seen.columns(border)
        (a, v), (b, w) = (predict_local(self.seen, e, border, columns) for e in experts if e)
        return np.array([((a - b) ** 2 / (0.5 * (v + w))).mean()])

    def query_losses(self, cell) -> np.ndarray:
        """Loss of leave-one-out log density at absorbed rows of a cell with half of the query points, (k,), in nats.

        Empty if the shared variables cannot be halved.
        """
        if not self.model.shared.nested:
            return np.zeros(0)
        ((_, expert),) = self._experts(np.array([cell]))
        owner = int(self.arrangement.partition_of(np.array([cell]))[0])
        core = np.flatnonzero(np.isin(self._rows(cell, owner), self.arrangement.core(cell)))
        if expert is None or not len(core):
            return np.zeros(0)
        return query_losses(expert, self.belief, self.model.shared.functions, core)

    def _experts(self, cells) -> Iterator[tuple[int, LocalExpert | None]]:
        """Yield cells with their local experts; cells of one partition share one read of the data."""
        owners = self.arrangement.partition_of(cells)
        for owner in np.unique(owners):
            mine = cells[owners == owner].tolist()
            rows = {cell: self._rows(cell, owner) for cell in mine if cell not in self._kept}
            all_rows = np.unique(np.concatenate([NO_ROWS, *rows.values()]))
            read = self._read(all_rows) if len(all_rows) else None
            for cell in mine:
                yield (
                    cell,
                    get_or_make(self._kept, cell, functools.partial(self._expert, cell, owner, rows, read, all_rows)),
                )

    def _rows(self, cell, owner):
        """Absorbed rows of the core and halo of a cell, ascending."""
        first, last = self.arrangement.tree.first[owner : owner + 2]
        blob = self._halo(self.halos[owner], last - first)
        if not len(blob):  # the partition has no rows
            return NO_ROWS
        a, b = blob[cell - first : cell - first + 2] + (last - first + 1)
        rows = np.sort(np.concatenate([self.arrangement.core(cell), blob[a:b]]))
        return rows[self._weights(rows) > FADED]

    def _halo(self, digest, cells):
        blob = load_array(BlobReference(self.store.storage.url, digest))
        check_halo(blob, cells, self.arrangement.data.rows, f"{self.store.storage.url}: blob {digest[:12]}")
        return blob

    def _weights(self, rows):
        if not len(self.absorbed):
            return np.zeros(len(rows))
        piece = np.searchsorted(self.absorbed[:, 0], rows, side="right") - 1
        inside = (piece >= 0) & (rows < self.absorbed[piece, 1])
        return np.where(inside, self.absorbed[piece, 2], 0.0)

    def _read(self, rows) -> tuple[np.ndarray, np.ndarray, Observations]:
        """Scaled inputs (n, D), columns (n, K) and observations at ascending row numbers of the arrangement."""
        X, obs = read_rows(self.arrangement.data, rows)
        obs = replace(obs, weight=obs.weight * self._weights(rows))
        obs = model_observations(self.model, Partition(self.arrangement.data, int(rows[0]), int(rows[-1]) + 1), obs)
        scaled = self.model.scaling.inputs(X)
        return scaled, self.seen.columns(scaled), obs

    def _expert(self, cell, owner, selected, read, all_rows):
        rows = selected[cell] if cell in selected else self._rows(cell, owner)
        if not len(rows):
            return None
        if not np.isin(rows, all_rows).all():  # evicted from the cache since the rows were read
            read, all_rows = self._read(rows), rows
        (X, V, obs), some = read, np.searchsorted(all_rows, rows)
        own = np.asfortranarray(V[some])
        return local_expert(self.seen, self.model.likelihood, X[some], own, obs[some])


def _expert_bytes(expert: LocalExpert | None) -> int:
    return expert.nbytes if expert else 0


@lru_cache(maxsize=1)
def load_neighbours(reference: Reference) -> Neighbours:
    """Local predictions of a commit that has halos."""
    fitted, arrangement, record = load_fitted(reference), load_arrangement(reference), load_record(reference)
    own, facts = open_store(reference.url), load_facts(reference)
    store = open_store(cells_directory(facts.cells, reference.url))
    table = store.get_array(facts.cells.halos)
    check_halos(table, len(arrangement.bounds) - 1, f"{reference.url}: commit {reference.number}")
    halos = [bytes(row).hex() for row in table]
    ledger = [entry for segment in record["segments"] for entry in own.get_segment(segment)]
    absorbed = absorbed_pieces(weights(facts.fading, ledger), facts.cells.array)
    return Neighbours(fitted.model, fitted.belief, arrangement, halos, absorbed, store)


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
