"""Snapshot: a committee with its model, ledger and facts, as of one commit of a model directory.

What passes, ingestion, revision and prediction work on. It is immutable: whoever changes something makes the next
commit (`successor`) and returns its snapshot.
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
from bcmdist.runtime.task import Task
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
    """of the model directory"""
    commit: int
    identity: str
    """of the model, the same in every commit and copy (`storage.records.identity_of`)"""
    segments: tuple[str, ...]
    """hashes of the ledger's segments"""
    ledger: tuple[Entry, ...]
    """partitions absorbed so far"""
    facts: Facts
    offsets: dict = field(default_factory=dict)
    """where to read on, JSON-ready, by the name of a source"""
    keep: tuple = ()
    """what must be kept alive: scratch directories"""
    read: dict = field(default_factory=dict, repr=False, compare=False)
    """blobs that were parsed, by their hashes, and what follows from a commit: once for all snapshots that follow"""
    digest: str = ""
    """SHA-256 of the record of the commit"""

    # --- Reading ---

    @classmethod
    def load(cls, url, *, commit=None) -> "Snapshot":
        """The newest commit of a model directory, or a given one.

        Raises
        ------
        ModelNotFound, ModelDamaged, VersionMismatch
        """
        store = open_store(url)
        return from_commit(store, store.load(commit))

    @classmethod
    @contextlib.contextmanager
    def opened(cls, url, *, commit=None) -> Iterator["Snapshot"]:
        """As `load`, and kept from pruning while this is open: also between the look at what is newest and its use."""
        store = open_store(url)
        with store.opened(commit) as found:
            yield from_commit(store, found)

    def newest(self) -> "Snapshot":
        """The same model at its newest commit.

        Raises
        ------
        CommitConflict
            Another model has been put under its path.
        """
        found = Snapshot.load(self.url)
        if found.identity != self.identity:
            raise CommitConflict(
                f"{self.url}: expected the model {self.identity[:8]}, which was opened, another one is there now; load "
                "it again and repeat"
            )
        return replace(found, keep=self.keep)

    def kept(self, *things) -> "Snapshot":
        """The same, for which these stay alive: scratch directories."""
        return replace(self, keep=(*self.keep, *things))

    @contextlib.contextmanager
    def held(self) -> Iterator["Snapshot"]:
        """While it is used piece by piece: pruning keeps its commit meanwhile, and what is not committed yet."""
        with self.store.hold(self.commit):
            yield self

    @contextlib.contextmanager
    def going_on(self) -> Iterator["Snapshot"]:
        """As `held`, of who makes the next commit: from the newest one, where his own has been pruned."""
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
        """What tasks carry instead of this snapshot."""
        return Reference(self.url, self.commit, self.digest)

    def refuse_replaced(self) -> None:
        """Raise `CommitConflict` where this commit is not the one under its number in the directory any more: another
        model, or a copy of this one, has been put there, or it was pruned."""
        self.store.refuse_other(self.commit, self.digest)

    @property
    def surveyed(self) -> dict[str, Entry]:
        """Partitions as they were surveyed, by key."""
        blob = self.facts.surveyed
        if blob not in self.read:
            self.read[blob] = {entry.key: entry for entry in self.store.get_segment(blob)}
        return self.read[blob]

    @property
    def chunks(self) -> dict[str, Chunk]:
        """As of `recorded_chunks`."""
        blob = self.facts.chunks
        if blob not in self.read:
            self.read[blob] = recorded_chunks(self.store, self.facts)
        return self.read[blob]

    @cached_property
    def absorbed(self) -> dict[str, Entry]:
        """The ledger by key."""
        return {entry.key: entry for entry in self.ledger}

    @property
    def degrees_of_freedom(self) -> float:
        """Those of the data that are seen through the query set, of one latent process."""
        likelihood = self.model.likelihood
        return self.committee.degrees_of_freedom / (likelihood.processes if likelihood.coupled else 1)

    # --- Absorbing ---

    def compute_messages(self, parts, runtime, *, at=None, label) -> Contribution:
        """Messages of partitions under this model, checked against the survey; nothing is committed.

        `at`: reference of the shared values given which rows are linearised; each expert's own mode by default.
        """
        return self.messages_of(self.expert(at), parts, runtime, label=label)

    def expert(self, at=None) -> Task:
        """What makes messages of partitions under this model; `at` as of `compute_messages`."""
        if self.model.input_errors is not None:
            return self.model.input_errors.expert(self.reference)
        return EPExpert(self.reference) if self.facts.approximation == "ep" else Expert(self.reference, at)

    def messages_of(self, task, parts, runtime, *, label) -> Contribution:
        """As `compute_messages`, by another kind of expert.

        Raises
        ------
        DataChanged
        """
        contribution = runtime.sum(task, parts, label=label)
        entries = contribution.entries
        for known in (self.surveyed, self.absorbed):
            refuse_changed(entries.values(), [known[key] for key in entries if key in known], self.chunks)
        return contribution

    def named(self, parts: list[Partition]) -> list[Partition]:
        """Partitions with their columns in the order of the model, and its numbers of classes."""
        if self.model.schema == UNNAMED:
            return parts
        opened = {
            data: open_data(data.url, x=data.x, y=data.y, schema=self.model.schema)
            for data in dict.fromkeys(part.data for part in parts)
        }
        match = {data: replace(data, take=o.take, recode=o.recode, inputs=o.inputs) for data, o in opened.items()}
        return [replace(part, data=match[part.data]) for part in parts]

    def with_variance(self, parts: Sequence[Partition]) -> Sequence[Partition]:
        """Partitions with the error variances that their data have for the inputs, where experts need these."""
        if self.model.input_errors is None:
            return parts
        unread = dict.fromkeys(part.data for part in parts if not part.data.variance)
        opened = {data: open_data(data.url, x=data.x, y=data.y, uncertain=True) for data in unread}
        known = {data: replace(data, variance=found.variance) for data, found in opened.items()}
        return [replace(part, data=known.get(part.data, part.data)) for part in parts]

    def refuse_unlike(self, parts: Iterable[Partition]) -> None:
        """Raise `InvalidData` where partitions have other columns than the training data."""
        for data in dict.fromkeys(part.data for part in parts if part.rows):  # who reads one without rows says why
            if data.inputs != self.model.inputs:
                open_data(data.url, x=data.x, y=data.y, schema=self.model.schema)  # says which, where they have names
                raise InvalidData(
                    f"{data.url}: expected {self.model.inputs} columns in {data.x}, as in training, got "
                    f"{data.inputs}; give the same columns in the same order"
                )
            self._check_companions(data)

    def _check_companions(self, data):
        """Say what stands beside the targets otherwise than in training.

        Raises
        ------
        InvalidData
            Lifetimes, some of which were censored in training, do not say which are now.
        """
        known, read = self.facts.companions, self.model.likelihood.companions
        if known is None:
            return
        missing = {name for name in known if name in read} - set(data.companions)
        if "event" in missing and data.y is not None:
            raise InvalidData(
                f"{data.url}: expected an array event beside {data.y}, as in training, found none: lifetimes would all "
                "count as ended; add it, 1 where one ended and 0 where it was censored"
            )
        for name in sorted(missing - {"event"}):
            warn(f"{self.url}: rows have no {name}, those of training had: 1 is taken")
        for name in sorted(set(data.companions) - {"weight", *known, *read}):
            warn(f"{self.url}: {name} is not used: the {self.model.likelihood.name} likelihood does not read it")

    # --- The next commit ---

    def successor(self, committee, entries, *, rewrite=False, stages=None, offsets=None, **facts) -> "Snapshot":
        """The next commit: another committee, further ledger entries (or all of them) and changed facts.

        `offsets` of sources that are read on from elsewhere now; the others stay.

        Raises
        ------
        CommitConflict
            Somebody else has made the next commit, or this one is not in the directory any more.
        """
        self.refuse_replaced()
        store, ledger = self.store, (*(() if rewrite else self.ledger), *entries)
        segments = store.extended(() if rewrite else self.segments, entries, after=self.commit)
        offsets = self.offsets | (offsets or {})
        stages = stages or StageTimer()
        known = self.facts.changed(**{"seconds": stages.added_to(self.facts.seconds)} | facts)
        absorbed = {"segments": segments, "ledger": ledger, "offsets": offsets, "identity": self.identity}
        made = write_commit(store, self.commit + 1, self.model, committee, known, parent=self.digest, **absorbed)
        changed = {"segments": segments, "ledger": ledger, "offsets": offsets, "facts": known, "digest": made.digest}
        return replace(self, committee=committee, commit=self.commit + 1, **changed)

    def written(self, store, committee, ledger, facts) -> "Snapshot":
        """The first commit of another model directory with the same model."""
        absorbed = {"segments": store.extended((), ledger), "ledger": ledger}
        write_commit(store, 1, self.model, committee, facts, **absorbed)
        return from_commit(store, store.load(1))


def from_commit(store: ModelStore, commit: Commit) -> Snapshot:
    """The snapshot that a commit describes.

    Raises
    ------
    ModelDamaged
    """
    model, committee = sound_committee(store.storage.url, commit)
    return Snapshot(
        model=model,
        committee=committee,
        url=store.storage.url,
        commit=commit.number,
        identity=commit.identity,
        segments=commit.segments,
        ledger=commit.ledger,
        facts=Facts.from_json(commit.facts["fit"]),
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
    """Commit a model, its committee, and what else is known, once it was read back; the reference of the commit.

    Parameters
    ----------
    segments, ledger : hashes of the ledger's segments, and its entries
    offsets : where to read on, by the name of a source
    identity : of the model; a new one by default, for a first commit
    parent : SHA-256 of the record of the commit before; of any by default

    Raises
    ------
    CommitConflict
    CommitRefused
        No reader would accept it.
    NotFinite
        Messages have ruined the committee.
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
