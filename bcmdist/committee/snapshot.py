"""Snapshot: a committee with its model, ledger and facts, as of one commit of a model directory.

Passes, ingestion, revision and prediction work on snapshots. A snapshot is immutable: a change writes the next commit
(`successor`) and returns its snapshot.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from bcmdist.committee.committee import Committee
from bcmdist.committee.facts import Facts
from bcmdist.committee.loading import sound_committee
from bcmdist.committee.surveyed import recorded_chunks, refuse_changed
from bcmdist.data.checks.manifest import Chunk
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import Partition
from bcmdist.data.schema import UNNAMED, warn
from bcmdist.errors import CommitConflict, InvalidData, ModelNotFound, NotFinite
from bcmdist.experts.contributions import Contribution, EPExpert, Expert
from bcmdist.model.model import Model
from bcmdist.runtime.interface import Task
from bcmdist.runtime.timing import StageTimer
from bcmdist.storage.blobs import canonical_json
from bcmdist.storage.commits import Commit, ModelStore, Reference, open_store
from bcmdist.storage.fields import read_back
from bcmdist.storage.ledger import Entry
from bcmdist.storage.residual_records import residual_arrays, with_residuals


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
    segments: tuple[str, ...]
    """hashes of the ledger's segments"""
    ledger: tuple[Entry, ...]
    """partitions absorbed so far"""
    facts: Facts
    offsets: dict = field(default_factory=dict)
    """offset from which to continue reading, JSON-ready, by source name"""
    keep: tuple = ()
    """objects to keep alive, such as scratch directories"""
    read: dict = field(default_factory=dict, repr=False, compare=False)
    """cache of parsed blobs by hash and of values derived from commits, shared with later snapshots"""
    digest: str = ""
    """SHA-256 of the record of the commit"""

    # --- Reading ---

    @classmethod
    def load(cls, url, *, commit=None) -> "Snapshot":
        """Load the newest commit of a model directory, or a given one.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch
        """
        store = open_store(url)
        return from_commit(store, store.load(commit))

    @classmethod
    @contextlib.contextmanager
    def opened(cls, url, *, commit=None) -> Iterator["Snapshot"]:
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

    def kept(self, *things) -> "Snapshot":
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
        """Reference to this commit, which tasks carry instead of the snapshot."""
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
        return self.read[blob]

    @property
    def chunks(self) -> dict[str, Chunk]:
        """Chunks that the survey recorded, by key (`recorded_chunks`)."""
        blob = self.facts.survey.chunks
        if blob not in self.read:
            self.read[blob] = recorded_chunks(self.store, self.facts)
        return self.read[blob]

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

    def compute_messages(self, parts, runtime, *, at=None, label) -> Contribution:
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

    def expert(self, at=None) -> Task:
        """The task that computes messages under this model; `at` as in `compute_messages`."""
        if self.model.input_errors is not None:
            return self.model.input_errors.expert(self.reference)
        return (
            EPExpert(self.reference) if self.facts.linearisation.approximation == "ep" else Expert(self.reference, at)
        )

    def messages_of(self, task, parts, runtime, *, label) -> Contribution:
        """Like `compute_messages`, with another task.

        Raises
        ------
        DataChanged
        """
        contribution = runtime.sum(task, parts, label=label)
        entries = contribution.entries
        for cache in (self.surveyed, self.absorbed):
            refuse_changed(entries.values(), [cache[key] for key in entries if key in cache], self.chunks)
        return contribution

    def named(self, parts: list[Partition]) -> list[Partition]:
        """Partitions that read their columns in the model's order and code classes by its numbers."""
        if self.model.schema == UNNAMED:
            return parts
        opened = {
            data: open_data(data.url, x=data.x, y=data.y, schema=self.model.schema)
            for data in dict.fromkeys(part.data for part in parts)
        }
        match = {data: replace(data, take=o.take, recode=o.recode, inputs=o.inputs) for data, o in opened.items()}
        return [replace(part, data=match[part.data]) for part in parts]

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
            self._check_companions(data)

    def _check_companions(self, data):
        """Warn of companion arrays that are missing or unused, compared with training.

        Raises
        ------
        InvalidData
            The array `event` is missing, so that censored lifetimes would count as ended.
        """
        stored, read = self.facts.survey.companions, self.model.likelihood.companions
        if stored is None:
            return
        missing = {name for name in stored if name in read} - set(data.companions)
        if "event" in missing and data.y is not None:
            raise InvalidData(
                f"{data.url}: expected an array event beside {data.y}, as in training, found none: lifetimes would all "
                "count as ended; add it, 1 where one ended and 0 where it was censored"
            )
        for name in sorted(missing - {"event"}):
            warn(f"{self.url}: rows have no {name}, those of training had: 1 is taken")
        for name in sorted(set(data.companions) - {"weight", *stored, *read}):
            warn(f"{self.url}: {name} is not used: the {self.model.likelihood.name} likelihood does not read it")

    # --- The next commit ---

    def successor(self, committee, entries, *, rewrite=False, stages=None, offsets=None, **facts) -> "Snapshot":
        """Write the next commit and return its snapshot.

        Parameters
        ----------
        entries : further ledger entries or, with `rewrite`, the whole ledger
        offsets : changed offsets by source name; the others stay
        facts : changed facts by field name

        Raises
        ------
        CommitConflict
            Another process has written the next commit, or the directory no longer holds this one.
        """
        self.refuse_replaced()
        store, ledger = self.store, (*(() if rewrite else self.ledger), *entries)
        segments = store.extended(() if rewrite else self.segments, entries, after=self.commit)
        offsets = self.offsets | (offsets or {})
        stages = stages or StageTimer()
        with read_back(f"{self.url}: commit {self.commit + 1}"):
            facts_now = self.facts.changed(**{"seconds": stages.added_to(self.facts.seconds)} | facts)
        absorbed = {"segments": segments, "ledger": ledger, "offsets": offsets, "identity": self.identity}
        made = write_commit(store, self.commit + 1, self.model, committee, facts_now, parent=self.digest, **absorbed)
        changed = {
            "segments": segments,
            "ledger": ledger,
            "offsets": offsets,
            "facts": facts_now,
            "digest": made.digest,
        }
        return replace(self, committee=committee, commit=self.commit + 1, **changed)

    def written(self, store, committee, ledger, facts) -> "Snapshot":
        """Write the first commit of another model directory, with the same model, and return its snapshot."""
        absorbed = {"segments": store.extended((), ledger), "ledger": ledger}
        write_commit(store, 1, self.model, committee, facts, **absorbed)
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
        segments=commit.segments,
        ledger=commit.ledger,
        facts=facts,
        offsets=commit.offsets,
        digest=commit.digest,
    )


def write_commit(
    store: ModelStore,
    number,
    model,
    committee,
    facts: Facts,
    *,
    segments=(),
    ledger=(),
    offsets=None,
    identity=None,
    parent=None,
) -> Reference:
    """Write a commit after checking that it can be read back, and return its reference.

    Parameters
    ----------
    segments, ledger : hashes of the ledger's segments, and its entries
    offsets : offset from which to continue reading, by source name
    identity : identifier of the model; a new one by default, for a first commit
    parent : SHA-256 of the record of the previous commit; by default that of whatever commit is there

    Raises
    ------
    CommitConflict
    CommitRefused
        The commit would not pass the checks of a reader.
    NotFinite
        The sum of messages is not finite.
    """
    arrays, model_facts = model.to_arrays()
    total = committee.total
    _refuse_not_finite(total, f"{store.storage.url}: expected finite messages for commit {number}")
    arrays |= {"eta": total.eta, "precision": total.precision}
    all_facts = {"model": model_facts, "fit": facts.to_json(), "evidence": total.evidence, "rows": total.rows}
    all_facts["partitions"] = len(ledger)
    where = f"{store.storage.url}: commit {number}"
    with read_back(where):
        residuals = residual_arrays(ledger)
        made = Commit(
            number=number,
            identity=identity or "",
            digest="",
            arrays=arrays,
            facts=json.loads(canonical_json(all_facts)),
            segments=tuple(segments),
            ledger=with_residuals(ledger, residuals, where),
            offsets=offsets or {},
        )
        sound_committee(store.storage.url, made)
    digests = store.put_arrays(arrays | residuals, before=store.arrays_before(number))
    return store.commit(
        number,
        identity=identity,
        parent=parent,
        arrays=digests,
        facts=all_facts,
        segments=segments,
        offsets=offsets or {},
    )


def _refuse_not_finite(total, expected):
    if not all(np.all(np.isfinite(part)) for part in (total.eta, total.precision, total.evidence)):
        raise NotFinite(
            f"{expected}, got others; nothing was committed: check that inputs are in the range of the training data, "
            "else restore the model from a copy"
        )
