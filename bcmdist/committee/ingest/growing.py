"""Growth of the query set while rows arrive: rows that it does not explain become query points.

Before a partition is absorbed, rows whose variance given the shared variables is above a share of the prior variance
become query points, the one that is explained least first (pivoted Cholesky). The partitions of a batch are looked at
in the order of the source, each after the points of those before it: so the points, and the query set through which
each partition is absorbed, do not depend on batches, threads or restarts. New points and messages are in one commit.
"""

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bcmdist.committee.growth import grown_to, why_fixed, without_needless
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.partition import Partition
from bcmdist.data.rows import Rows
from bcmdist.errors import BcmdistError, CommitConflict, InvalidOption, MemoryLimit, SchedulerLost
from bcmdist.experts.limits import refuse_large_expert
from bcmdist.linalg.arrays import FloatArray
from bcmdist.model.loading import load_model
from bcmdist.model.model import Model
from bcmdist.model.query_sets import appended, shares_by_others, unexplained
from bcmdist.model.shared.query import Query
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import Reference

# Share of the prior variance of f at a row, given the query values, above which the row becomes a query point. Where
# growth was not asked for, only rows from new places shall: those with `MARGIN` times the share of any first query
# point given the others (in kin40k 1.5 % of rows have more than that share, .1 % twice), at most `LARGEST_SHARE`.
SHARE, MARGIN, LARGEST_SHARE = 0.02, 2.0, 0.5
# Most points of one partition, so that a few partitions of strange rows do not use up the capacity; and of the whole
# query set, unless asked otherwise. Both are arbitrary.
POINTS_PER_PARTITION, MOST_POINTS = 64, 1000


def share_of_new_places(snapshot: Snapshot) -> float:
    """Share of the prior variance above which a row lies where none was when the first query points were chosen."""
    first = cast(Query, snapshot.model.through(0).shared)
    return float(np.clip(MARGIN * shares_by_others(first).max(), SHARE, LARGEST_SHARE))


@dataclass(frozen=True)
class NewRows:
    """Scaled inputs (k, D) of rows that the query set does not explain, by partition key; `+` joins."""

    by_key: dict[str, FloatArray]

    def __add__(self, other: "NewRows") -> "NewRows":
        return NewRows(self.by_key | other.by_key)


@dataclass(frozen=True)
class FindNewRows:
    """Task: the rows of a partition whose variance given the query values is above a share of the prior variance."""

    model: Reference
    share: float

    def __call__(self, part: Partition, rows: Rows) -> NewRows:
        model = load_model(self.model)
        X = model.scaling.inputs(rows.X)
        return NewRows({part.key: X[unexplained(cast(Query, model.shared), X, self.share)]})


@dataclass(frozen=True)
class Growth:
    """How the query set of a model grows during an ingestion."""

    share: float
    """share of the prior variance above which a row is not explained"""
    most: int
    """largest number of query points"""

    @classmethod
    def asked(cls, snapshot: Snapshot, options: IngestOptions) -> "Growth | None":
        """The growth that the options ask for, by default with `watch`; None if the query set stays as it is.

        Raises
        ------
        InvalidOption
            The query set of this model cannot change, or has more points than asked for already.
        """
        asked = bool(options.grow or options.grow_share or options.query_most)
        if not (options.watch or asked) or options.grow is False:
            return None
        if fixed := why_fixed(snapshot):
            if asked:
                raise InvalidOption(f"--grow: expected query points that can be added to, got {snapshot.url}: {fixed}")
            return None
        query = cast(Query, snapshot.model.shared)
        most = options.query_most or snapshot.facts.query.query_most or max(MOST_POINTS, query.functions)
        if most < query.functions:
            raise InvalidOption(
                f"--query-most: expected at least the {query.functions} query points of {snapshot.url}, got {most}; "
                "give more, or --no-grow"
            )
        return cls(options.grow_share or (SHARE if asked else share_of_new_places(snapshot)), most)

    def may_reduce(self, snapshot: Snapshot) -> bool:
        """Whether points may be needless: some were added last, and rows fade or there is no room for more."""
        model = snapshot.model
        added = bool(model.earlier) and model.shared.functions > model.earlier[-1].count
        return added and (snapshot.facts.fading.fades or model.shared.functions >= self.most)

    def reduced(self, snapshot: Snapshot) -> Snapshot:
        """A commit without needless points; the snapshot itself if there are none, or another process has committed."""
        with contextlib.suppress(CommitConflict):
            return without_needless(snapshot).committed()
        return snapshot

    def new_rows(self, snapshot: Snapshot, parts: Sequence[Partition], runtime: Runtime) -> dict[str, FloatArray]:
        """Rows of partitions that the query set does not explain, (k, D) scaled, by key.

        Left out are partitions that have a query set already, and those that fail, as they will again when they are
        absorbed.

        Raises
        ------
        SchedulerLost
        """
        free = [part for part in parts if part.query is None]
        find = functools.partial(runtime.sum, FindNewRows(snapshot.reference, self.share), label="query points")
        try:
            return find(free).by_key if free else {}
        except SchedulerLost:
            raise
        except BcmdistError:
            if len(free) == 1:
                return {}
            each = (self.new_rows(snapshot, [part], runtime) for part in free)
            return {key: rows for found in each for key, rows in found.items()}

    def applied(
        self, snapshot: Snapshot, parts: Sequence[Partition], rows: dict[str, FloatArray], runtime: Runtime
    ) -> tuple[Snapshot, list[Partition]]:
        """The snapshot with the points that partitions need, and the partitions with the query set of their turn.

        The snapshot remains to be committed, or is the same object if nothing is added.

        Parameters
        ----------
        rows : `new_rows` of this snapshot, or of one with fewer query points
        """
        model, numbers = snapshot.model, dict[str, int]()
        for part in parts:
            if part.key not in rows:
                continue
            before = cast(Query, model.shared)
            most = min(self.most, before.functions + POINTS_PER_PARTITION)
            query = appended(before, rows[part.key], most=most, share=self.share)
            if query.functions > before.functions and _fits(part, query, model, runtime):
                model = model.grown(query)
            numbers[part.key] = len(model.earlier)
        if model is snapshot.model:
            return snapshot, list(parts)
        numbered = [replace(part, query=numbers.get(part.key, part.query)) for part in parts]
        return grown_to(snapshot, model, self.most), numbered


def _fits(part: Partition, query: Query, model: Model, runtime: Runtime) -> bool:
    try:
        refuse_large_expert([part], query, runtime, model.likelihood)
    except MemoryLimit:
        return False
    return True
