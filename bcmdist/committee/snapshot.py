"""Snapshot: a committee with its model, ledger and facts, as of one commit of a model directory.

Passes, ingestion, revision and prediction work on snapshots. A snapshot is immutable. `successor` writes the next
commit and returns its snapshot; it is `changed`, which changes a copy in memory, and `committed`, which writes it. In
between, tasks can read the changed state by reference (`drafted`), so that several steps make one commit.
"""

import contextlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bcmdist.committee.commit_record import Contents, write_commit
from bcmdist.committee.committee import Committee
from bcmdist.committee.companions import check_companions
from bcmdist.committee.facts import Facts
from bcmdist.committee.loading import sound_committee
from bcmdist.committee.surveyed import recorded_chunks, refuse_changed
from bcmdist.data.checks.manifest import Chunk
from bcmdist.data.dataset import open_data
from bcmdist.data.groups import Location
from bcmdist.data.partition import Partition
from bcmdist.data.schema import UNNAMED
from bcmdist.errors import CommitConflict, InvalidData, ModelExists, ModelNotFound
from bcmdist.experts.contributions import Contribution, EPExpert, Expert
from bcmdist.model.model import Model
from bcmdist.runtime.interface import Runtime, Task
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.commits import BlobReference, Commit, ModelStore, Reference, open_store
from bcmdist.storage.entry import Entry
from bcmdist.storage.fields import read_back
from bcmdist.storage.ledger import Ledger


@dataclass(frozen=True)
class Snapshot:
    """A model directory at one commit."""

    model: Model
    committee: Committee
    url: str
    """URL of the model directory"""
    commit: int
    """number of the commit"""
    identity: str
    """identifier of the model, the same in every commit and copy (`storage.records.identity_of`)"""
    ledger: Ledger
    """partitions absorbed so far"""
    facts: Facts
    offsets: dict[str, Any] = field(default_factory=dict)
    """offset from which to continue reading, JSON-ready, by source name"""
    keep: tuple[object, ...] = ()
    """objects to keep alive, such as scratch directories"""
    read: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    """cache of parsed blobs by hash and of values derived from commits, shared with later snapshots"""
    digest: str = ""
    """SHA-256 of the record of the commit"""
    pending: bool = False
    """whether the state was changed after the commit"""
    arrays: dict[str, str] = field(default_factory=dict)
    """hashes by name of the arrays of the commit, or of a draft of the next one"""
    draft: str = ""
    """hash of the blob with the record of the changed state, while tasks may read it (`drafted`)"""

    # --- Reading ---

    @classmethod
    def load(cls, url: Location, *, commit: int | str | None = None) -> "Snapshot":
        """Load the newest commit of a model directory, or a given one.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch
        """
        store = open_store(url)
        return from_commit(store, store.load(commit))

    @classmethod
    @contextlib.contextmanager
    def opened(cls, url: Location, *, commit: int | str | None = None) -> Iterator["Snapshot"]:
        """Like `load`, as a context in which the commit is not pruned, with no gap between finding and holding it."""
        store = open_store(url)
        with store.opened(commit) as found:
            yield from_commit(store, found)

    def newest(self) -> "Snapshot":
        """Load the newest commit of the same model.

        Raises
        ------
        CommitConflict
            The directory now holds another model.
        """
        found = Snapshot.load(self.url)
        if found.identity != self.identity:
            raise CommitConflict(
                f"{self.url}: expected the model {self.identity[:8]}, which was opened, another one is there now; load "
                "it again and repeat"
            )
        return replace(found, keep=self.keep)

    def kept(self, *things: object) -> "Snapshot":
        """A copy that keeps further objects alive, such as scratch directories."""
        return replace(self, keep=(*self.keep, *things))

    @contextlib.contextmanager
    def held(self) -> Iterator["Snapshot"]:
        """A context in which pruning keeps this commit and blobs that no commit names yet.

        Raises
        ------
        ModelNotFound
            The commit has been pruned.
        """
        with self.store.hold(self.commit):
            yield self

    @contextlib.contextmanager
    def going_on(self) -> Iterator["Snapshot"]:
        """Like `held`, for writing the next commit; yields the newest commit if this one has been pruned."""
        with contextlib.ExitStack() as lease:
            try:
                lease.enter_context(self.store.hold(self.commit))
            except ModelNotFound:
                yield replace(lease.enter_context(Snapshot.opened(self.url)), keep=self.keep)
            else:
                yield self

    @property
    def store(self) -> ModelStore:
        """The model directory."""
        return open_store(self.url)

    @property
    def reference(self) -> Reference:
        """Reference to this commit, or to the draft of the next one, which tasks carry instead of the snapshot."""
        if self.draft:
            return Reference(self.url, self.commit + 1, self.draft, draft=True)
        return Reference(self.url, self.commit, self.digest)

    def refuse_replaced(self) -> None:
        """Raise `CommitConflict` if the directory no longer holds this commit.

        It was pruned, or the directory was replaced by another model or a diverged copy.
        """
        self.store.refuse_other(self.commit, self.digest)

    @property
    def surveyed(self) -> dict[str, Entry]:
        """Ledger entries of the partitions as surveyed, by key."""
        blob = self.facts.survey.surveyed
        if blob not in self.read:
            self.read[blob] = {entry.key: entry for entry in self.store.get_segment(blob)}
        surveyed: dict[str, Entry] = self.read[blob]
        return surveyed

    @property
    def chunks(self) -> dict[str, Chunk]:
        """Chunks that the survey recorded, by key (`recorded_chunks`)."""
        blob = self.facts.survey.chunks
        if blob not in self.read:
            self.read[blob] = recorded_chunks(self.store, self.facts)
        chunks: dict[str, Chunk] = self.read[blob]
        return chunks

    @cached_property
    def absorbed(self) -> dict[str, Entry]:
        """The ledger by key."""
        return {entry.key: entry for entry in self.ledger}

    @property
    def degrees_of_freedom(self) -> float:
        """Effective degrees of freedom of the data under the query set, per latent process."""
        likelihood = self.model.likelihood
        return self.committee.degrees_of_freedom / (likelihood.processes if likelihood.coupled else 1)

    # --- Absorbing ---

    def compute_messages(
        self, parts: Sequence[Partition], runtime: Runtime, *, at: BlobReference | None = None, label: str
    ) -> Contribution:
        """Compute the messages of partitions, check them against survey and ledger, and commit nothing.

        Parameters
        ----------
        at : reference to the shared values at which rows are linearised; each expert's own mode by default

        Raises
        ------
        DataChanged
            Rows differ from those that were surveyed or absorbed under the same key.
        """
        return self.messages_of(self.expert(at), parts, runtime, label=label)

    def expert(self, at: BlobReference | None = None) -> Task:
        """The task that computes messages under this model; `at` as in `compute_messages`."""
        if self.model.input_errors is not None:
            return self.model.input_errors.expert(self.reference)
        return (
            EPExpert(self.reference) if self.facts.linearisation.approximation == "ep" else Expert(self.reference, at)
        )

    def messages_of(self, task: Task, parts: Sequence[Partition], runtime: Runtime, *, label: str) -> Contribution:
        """Like `compute_messages`, with another task.

        Raises
        ------
        DataChanged
        """
        contribution: Contribution = runtime.sum(task, self.with_variance(parts), label=label)
        entries = contribution.entries
        for find in (self.surveyed.get, self.ledger.find):
            refuse_changed(entries.values(), [found for key in entries if (found := find(key))], self.chunks)
        return contribution

    def named(self, parts: list[Partition]) -> list[Partition]:
        """Partitions that read their columns in the model's order and code classes by its numbers."""
        if self.model.schema == UNNAMED:
            return parts
        opened = {
            data: open_data(data.url, x=data.x, y=data.y, schema=self.model.schema)
            for data in dict.fromkeys(part.data for part in parts if not part.copy)  # copies have that order
        }
        match = {data: replace(data, take=o.take, recode=o.recode, inputs=o.inputs) for data, o in opened.items()}
        return [part if part.copy else replace(part, data=match[part.data]) for part in parts]

    def with_variance(self, parts: Sequence[Partition]) -> Sequence[Partition]:
        """Partitions with the arrays of input error variances, if the model has noisy inputs; else unchanged."""
        if self.model.input_errors is None:
            return parts
        unread = dict.fromkeys(part.data for part in parts if not part.data.variance)
        opened = {data: open_data(data.url, x=data.x, y=data.y, uncertain=True) for data in unread}
        renewed = {data: replace(data, variance=found.variance) for data, found in opened.items()}
        return [replace(part, data=renewed.get(part.data, part.data)) for part in parts]

    def refuse_unlike(self, parts: Iterable[Partition]) -> None:
        """Raise `InvalidData` if columns or companion arrays of partitions do not match the training data."""
        for data in dict.fromkeys(part.data for part in parts if part.rows):  # reading an empty one gives its own error
            if data.inputs != self.model.inputs:
                open_data(data.url, x=data.x, y=data.y, schema=self.model.schema)  # raises if named columns differ
                raise InvalidData(
                    f"{data.url}: expected {self.model.inputs} columns in {data.x}, as in training, got "
                    f"{data.inputs}; give the same columns in the same order"
                )
            check_companions(data, self.facts.survey.companions, self.model, self.url)

    # --- The next commit ---

    def successor(
        self,
        committee: Committee,
        entries: Iterable[Entry],
        *,
        rewrite: bool = False,
        stages: StageTimer | None = None,
        offsets: dict[str, Any] | None = None,
        **facts: Any,
    ) -> "Snapshot":
        """Write the next commit and return its snapshot; arguments as of `changed`.

        Raises
        ------
        CommitConflict
            Another process has written the next commit, or the directory no longer holds this one.
        """
        return self.changed(committee, entries, rewrite=rewrite, stages=stages, offsets=offsets, **facts).committed()

    def changed(
        self,
        committee: Committee | None = None,
        entries: Iterable[Entry] = (),
        *,
        rewrite: bool = False,
        stages: StageTimer | None = None,
        offsets: dict[str, Any] | None = None,
        **facts: Any,
    ) -> "Snapshot":
        """A copy with another state, in memory; `committed` writes it.

        Parameters
        ----------
        committee : by default that of this snapshot
        entries : further ledger entries or, with `rewrite`, the whole ledger
        offsets : changed offsets by source name; the others stay
        facts : changed facts by field name
        """
        seconds = (stages or StageTimer()).added_to(self.facts.seconds)
        with read_back(f"{self.url}: commit {self.commit + 1}"):
            new_facts = self.facts.changed(**{"seconds": seconds} | facts)
        return replace(
            self,
            committee=committee or self.committee,
            ledger=self.ledger.replaced(entries) if rewrite else self.ledger.extended(entries),
            offsets=self.offsets | (offsets or {}),
            facts=new_facts,
            pending=True,
            draft="",
        )

    def committed(self) -> "Snapshot":
        """Write the next commit with the changed state and return its snapshot; this one if nothing was changed.

        Raises
        ------
        CommitConflict
            Another process has written the next commit, or the directory no longer holds the one before.
        """
        if not self.pending:
            return self
        store = self.store
        ledger = store.stored(self.ledger, after=self.commit)
        state: dict[str, Any] = {
            "ledger": ledger,
            "offsets": self.offsets,
            "identity": self.identity,
            "parent": self.digest,
        }
        where = (store, self.commit + 1, self.model, self.committee, self.facts)
        made, arrays = write_commit(*where, before=self.arrays, **state)
        new: dict[str, Any] = {"ledger": ledger, "arrays": arrays, "pending": False, "draft": ""}
        return replace(self, commit=made.number, digest=made.digest, **new)

    def committed_or_newest(self) -> "Snapshot":
        """As `committed`, but load the newest commit if another process has written one, which has the same to do."""
        try:
            return self.committed()
        except CommitConflict:
            return self.newest()

    @contextlib.contextmanager
    def drafted(self) -> Iterator["Snapshot"]:
        """A context in which tasks can read the changed state by the reference of the snapshot that it yields.

        The record is removed at the end, its arrays and segments belong to the next commit. If the process dies, no
        record names these, and the commit before is the newest.
        """
        if not self.pending:
            yield self
            return
        self.refuse_replaced()
        store = self.store
        ledger = store.stored(self.ledger, after=self.commit)
        contents = Contents.of(self.model, self.committee, ledger, self.facts)
        arrays = store.put_arrays(contents.arrays, before=self.arrays or store.arrays_before(self.commit + 1))
        how = {"identity": self.identity, "segments": ledger.digests, "offsets": self.offsets}
        with store.draft(self.commit + 1, arrays=arrays, facts=contents.facts, **how) as draft:
            yield replace(self, ledger=ledger, arrays=arrays, draft=draft)

    @contextlib.contextmanager
    def committed_on_error(self) -> Iterator[None]:
        """A context after whose failure, or interrupt, this state is committed, so that what was computed stays."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(CommitConflict):
                self.committed()
            raise

    def written(self, store: ModelStore, committee: Committee, ledger: Iterable[Entry], facts: Facts) -> "Snapshot":
        """Write the first commit of another model directory, with the same model, and return its snapshot."""
        write_commit(store, 1, self.model, committee, facts, ledger=store.stored(Ledger.of(ledger)))
        return from_commit(store, store.load(1))


def from_commit(store: ModelStore, commit: Commit) -> Snapshot:
    """The snapshot of a commit.

    Raises
    ------
    ModelDamaged
    """
    model, committee, facts = sound_committee(store.storage.url, commit)
    return Snapshot(
        model=model,
        committee=committee,
        url=store.storage.url,
        commit=commit.number,
        identity=commit.identity,
        ledger=commit.ledger,
        facts=facts,
        offsets=commit.offsets,
        arrays=commit.hashes,
        digest=commit.digest,
    )


def new_store(model: Location) -> ModelStore:
    """The store of a new model directory. Raises `ModelExists` if there is anything in it."""
    store = open_store(model)
    if store.head() or store.foreign():
        raise ModelExists(f"{model}: expected a new or empty directory, found a model or other files; choose another")
    return store
