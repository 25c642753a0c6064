"""Changes of a committee: rows absorbed, withdrawn and weighted, passes, new hyper-parameters, merging."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import ArrayLike

from bcmdist.api import fit, merging, refitting
from bcmdist.api.places import DataSource, source_of_rows
from bcmdist.api.predictive_committee import PredictiveCommittee
from bcmdist.api.requests import RefitOptions
from bcmdist.api.running import Where, runs
from bcmdist.committee import passes, revision
from bcmdist.committee.ingest.options import IngestOptions, IngestReport, SameRows, UpdateForm
from bcmdist.committee.ingest.source import as_source, source_of
from bcmdist.committee.measurements import OnlineUpdate
from bcmdist.data.groups import Location
from bcmdist.data.partition import Partition
from bcmdist.data.sources.open import Source


@dataclass(frozen=True)
class EditableCommittee(PredictiveCommittee):
    """A committee whose changes are commits of its directory, each a new object; `GBCM` adds how one is made."""

    @runs
    def absorb(self, parts: Sequence[Partition], *, same_rows: SameRows = "warn", runtime: Where = None) -> Self:
        """Add the partitions' messages and commit. Partitions already in the ledger are skipped.

        Parameters
        ----------
        parts : as `partitions` returns them
        same_rows : "warn" about, "refuse" or "allow" partitions whose rows were absorbed under another key, so that
            they count twice
        runtime : where to run; default: in this process

        Returns
        -------
        The committee at the new commit.

        Raises
        ------
        DataChanged
            Rows have changed since the survey.
        InvalidData
            Columns differ or row ranges overlap.
        WorkerLost
            Of the runtime.

        Examples
        --------
        >>> bcmdist.write_dataset("new.zarr", {"X": X + 2.0, "y": y})
        >>> parts = bcmdist.partitions(bcmdist.open_data("new.zarr"), rows_per_expert=40)
        >>> gbcm.absorb(parts).ledger.rows
        160
        """
        return type(self)(fit.absorb(self.snapshot, parts, runtime, same_rows=same_rows))

    @runs
    def ingest(
        self, source: Location | Source, options: IngestOptions | None = None, *, runtime: Where = None
    ) -> tuple[Self, IngestReport]:
        """Absorb the partitions that a source, or that at a path or URL, delivers, each once; see `ingest.loop`.

        Parameters
        ----------
        source : a `Source`, as `source` opens it, or a path or URL
        options : default: `IngestOptions()`
        runtime : where to run; default: in this process

        Returns
        -------
        The committee at the newest commit, and the report: partitions, rows, duplicates.

        Raises
        ------
        BcmdistError
            As `partial_fit`, after the other partitions are committed.

        Examples
        --------
        >>> bcmdist.write_dataset("arrived.zarr", {"X": X - 2.0, "y": y})
        >>> later, report = gbcm.ingest("arrived.zarr")
        >>> report.rows, report.duplicates
        (80, 0)
        """
        snapshot, tally = fit.ingest_source(self.snapshot, as_source(self.snapshot, source), options, runtime)
        return type(self)(snapshot), tally

    @runs
    def partial_fit(
        self,
        source: DataSource,
        y: ArrayLike | None = None,
        *,
        companions: Mapping[str, ArrayLike] | None = None,
        same_rows: SameRows = "warn",
        runtime: Where = None,
    ) -> Self:
        """Absorb the rows of another source with arrays of the same names. Absorbed partitions are skipped.

        Parameters
        ----------
        source : path or URL of a Zarr group, of a directory of Zarr groups, or of a stream; or rows X (n, D)
        y : targets (n,), beside X
        companions : further columns by name, as of `fit`
        same_rows : as of `absorb`
        runtime : where to run; default: in this process

        Returns
        -------
        The committee at the new commit.

        Raises
        ------
        DataChanged, InvalidData, WorkerLost
            As `absorb`.
        ChunkConflict
            An absorbed partition holds other rows now.
        SameRows
            `same_rows` is "refuse", and rows were absorbed under another key.

        Examples
        --------
        >>> gbcm.partial_fit(X + 3.0, y).ledger.rows
        160
        """
        source = source_of_rows(source, y, companions)
        return type(self)(fit.partial_fit(self.snapshot, source, runtime, IngestOptions(same_rows=same_rows)))

    @runs
    def update(
        self,
        source: DataSource,
        y: ArrayLike | None = None,
        *,
        companions: Mapping[str, ArrayLike] | None = None,
        form: UpdateForm = "kalman",
        runtime: Where = None,
    ) -> tuple[Self, OnlineUpdate]:
        """Absorb new rows in one commit; return also the innovation and gain of this update of the belief.

        Parameters
        ----------
        source, y, companions, runtime : as of `partial_fit`, which does the same without the record
        form : "kalman", the Kalman filter's step of mean and covariance, or "information", the sum of natural
            parameters: the same belief up to rounding (GBCM paper, Appendix B); see `committee.online_update`

        Returns
        -------
        The committee at the new commit, and the record of the update.

        Raises
        ------
        BcmdistError
            As `partial_fit`.
        InvalidData
            All rows were absorbed before.
        NotPositiveDefinite
            Rounding leaves "kalman" no covariance.

        Examples
        --------
        >>> later, update = gbcm.update(X + 4.0, y)
        >>> later.commit > gbcm.commit
        True
        """
        snapshot, update = fit.update(self.snapshot, source_of_rows(source, y, companions), form, runtime)
        return type(self)(snapshot), update

    def source(self, url: Location, *, watch: bool = False, **options: Any) -> Source:
        """Open a source of rows for this model.

        Parameters
        ----------
        url : path or URL of a Zarr group, of a directory of these, or of a stream
        watch : follow a source that grows
        options : further fields of `bcmdist.data.sources.open.SourceOptions`, such as `trim`

        Returns
        -------
        The source, for `ingest`; `close` it afterwards.

        Raises
        ------
        InvalidOption, SourceUnreachable, MissingExtra

        Examples
        --------
        >>> bcmdist.write_dataset("source.zarr", {"X": X, "y": y})
        >>> gbcm.source("source.zarr").lag(None)
        1
        """
        return source_of(self.snapshot, url, watch=watch, **options)

    @runs
    def refine(self, *, runtime: Where = None, most: int | None = None, tolerance: float = passes.TOLERANCE) -> Self:
        """Make further passes over the data until the posterior converges (SYSTEMS I.5); see `passes.refine`.

        Parameters
        ----------
        runtime : where to run; default: in this process
        most : largest number of passes, the first included; default: while their changes decrease
        tolerance : move of the posterior mean in posterior standard deviations at which passes end

        Returns
        -------
        The committee; unchanged where one pass is exact, as with normal noise.

        Raises
        ------
        DataChanged, WorkerLost

        Examples
        --------
        >>> gbcm.refine(most=3).commit == gbcm.commit
        True
        """
        with self.snapshot.going_on() as snapshot:
            return type(self)(fit.refine(snapshot, runtime, most=most, tolerance=tolerance))

    @runs
    def forget(self, keys: Iterable[str], *, runtime: Where = None) -> Self:
        """Withdraw the messages of partitions, and commit; see `revision.forget`.

        Parameters
        ----------
        keys : keys of the partitions in the ledger
        runtime : where to run; default: in this process

        Returns
        -------
        The committee as if it had not absorbed these rows.

        Raises
        ------
        InvalidOption
            A key is not in the ledger, or messages depend on their order.
        DataChanged, CommitConflict

        Examples
        --------
        >>> later = gbcm.partial_fit(X + 5.0, y)
        >>> key = list(later.ledger)[-1].key
        >>> later.forget([key]).ledger.rows
        80
        """
        return type(self)(fit.forget(self.snapshot, keys, runtime))

    @runs
    def reweight(self, weights: Mapping[str, float], *, runtime: Where = None) -> Self:
        """Set the weights of partitions, and commit; see `revision.reweight`.

        Parameters
        ----------
        weights : new weights by key, positive; one of weight 2 counts like two copies of its rows
        runtime : where to run; default: in this process

        Returns
        -------
        The committee at the new commit.

        Raises
        ------
        InvalidOption, DataChanged

        Examples
        --------
        >>> (key,) = (entry.key for entry in gbcm.ledger)
        >>> gbcm.reweight({key: 0.5}).weights[key]
        0.5
        """
        with self.snapshot.going_on() as snapshot:
            return type(self)(revision.reweight(snapshot, weights, runtime))

    @runs
    def refit(self, options: RefitOptions | None = None, *, runtime: Where = None) -> Self:
        """Learn hyper-parameters and query points anew, absorb the rows again, and commit; see `refitting.refit`.

        Parameters
        ----------
        options : default: `RefitOptions()`
        runtime : where to run; default: in this process

        Returns
        -------
        The committee at the new commit.

        Raises
        ------
        DataChanged
            Rows differ from those that were absorbed.
        InvalidData
            No row can be read again, or the newest rows lack a class.
        InvalidOption
            A model that cannot be refitted, such as one of noisy inputs.

        Examples
        --------
        >>> gbcm.refit(bcmdist.RefitOptions(effort="quick", query=10)).info()["query"]
        10
        """
        return type(self)(refitting.refit(self.snapshot, options or RefitOptions(), runtime))

    def revert(self, to: int | str) -> Self:
        """Commit the state of an earlier commit again; see `refitting.revert`.

        Parameters
        ----------
        to : number or alias of the commit

        Returns
        -------
        The committee at the new commit.

        Raises
        ------
        ModelNotFound, InvalidOption

        Examples
        --------
        >>> gbcm.partial_fit(X + 6.0, y).revert(gbcm.commit).ledger.rows
        80
        """
        return type(self)(refitting.revert(self.snapshot, to))

    @runs
    def merge(
        self,
        other: "Self | Location",
        model: Location,
        *,
        query_most: int | None = None,
        runtime: Where = None,
    ) -> Self:
        """Merge two committees, or one and that in a directory, into a new directory; see `merging.merge`.

        If their query points differ, the result has those of both. A merge of the same commits that was interrupted is
        continued; one that is complete is returned.

        Parameters
        ----------
        other : a committee, or the path of its directory
        model : path of the new directory
        query_most : largest number of query points of the result
        runtime : where to run; default: in this process

        Returns
        -------
        The merged committee.

        Raises
        ------
        InvalidOption, ModelsDiffer, ModelExists

        Examples
        --------
        >>> other = bcmdist.GBCM.prepare(X, y, bcmdist.Settings(like=gbcm.url)).partial_fit(X + 7.0, y)
        >>> gbcm.merge(other, "merged").ledger.rows
        160
        """
        other = merging.other_of(other, type(self))
        return type(self)(merging.merge(self.snapshot, other.snapshot, model, runtime, query_most=query_most))
