"""Change all members of a mixture by one commit: forget, reweight, refine, revert; and prune.

    recovered -> change each member -> compare their ledgers -> commit of the mixture

Members commit to their own logs; the mixture changes by one record when all have absorbed the same rows
(`bcmdist.committee.mixture_commits`). If the process dies before, the mixture is as it was. The next change first
finishes or takes back what members hold beyond it (`recovered`): an ingestion is finished, since its source may have
counted rows as delivered already; anything else is taken back.

Further rows change the posterior of the hyper-parameters, which the samples were drawn from. With `sample_weights`
"evidence" members have the weights of importance sampling,

    w_s ~ p(further rows | theta_s, rows before) = Z_s(now) / Z_s(when sampled)

with Z the evidence of a member's committee. Exact in principle, but few samples may carry all the weight: with equal
weights, the default, the mixture remains one over the posterior given the rows that were sampled with.
"""

import contextlib
import hashlib
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from bcmdist.api import fit, refitting
from bcmdist.api.mixtures.catching_up import continued, following, named_member, taken_back
from bcmdist.committee import revision
from bcmdist.committee.ingest.options import SampleWeights
from bcmdist.committee.mixture_commits import (
    Contents,
    MixtureLog,
    commit_revision,
    contents_of,
    leased,
    references,
    revision_of,
    revision_store,
)
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.schema import warn
from bcmdist.errors import BcmdistError, CommitConflict, InvalidOption
from bcmdist.linalg.arrays import FloatArray
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import Reference, open_store
from bcmdist.storage.locks import commit_turn

# Attempts to change a mixture that others change at the same time, and the mean pause between them in seconds.
TRIES, PAUSE = 10, 0.2
# Share of the samples below which their effective number is warned of.
FEW = 0.5

Change = Callable[[int, Snapshot], Snapshot]
"""from the number of a member and its snapshot to the snapshot of its next commit"""


@dataclass(frozen=True)
class Changed:
    """A member after a change."""

    reference: Reference
    absorbed: str
    """hash of its ledger"""
    evidence: float
    """log evidence of the rows that it has absorbed"""
    before: float
    """that before the change"""


def log_evidence(snapshot: Snapshot) -> float:
    """Log evidence of the scaled targets that a member has absorbed, in nats."""
    return float(snapshot.committee.log_evidence)


def evidence_weights(now: Sequence[float], sampled: Sequence[float]) -> FloatArray:
    """Importance weights of samples from log evidences now and when sampled, (K,) each; their sum is 1."""
    weights: FloatArray = softmax(np.subtract(now, sampled))
    return weights


def effective_samples(weights: Sequence[float] | FloatArray) -> float:
    """Number of equally weighted samples with the same standard error, 1 / sum w^2, for weights with the sum 1."""
    return float(1.0 / np.sum(np.square(weights)))


def revised(
    url: str, change: Change, runtime: Runtime, operation: str, *, sample_weights: SampleWeights | None = None
) -> Contents:
    """Apply a change to all members of a mixture, commit, and return the new commit.

    Repeated from the newest commit where another process has changed the mixture meanwhile.

    Raises
    ------
    CommitConflict
        After `TRIES` attempts.
    """
    for left in reversed(range(TRIES)):
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(commit_turn(url))
                contents = recovered(url, runtime)
                stack.enter_context(leased(contents))
                _refuse_other_rows(contents)
                after = [_changed(number, named_member(one), change) for number, one in enumerate(references(contents))]
                return _committed(contents, after, operation, sample_weights)
        except CommitConflict:
            if not left:
                raise
            time.sleep(random.uniform(0.0, 2.0 * PAUSE))
    raise AssertionError("the last attempt returns or raises")


def _changed(number: int, snapshot: Snapshot, change: Change) -> Changed:
    after = change(number, snapshot)
    at = Reference(after.url, after.commit, after.digest)
    return Changed(at, _ledger_of(after), log_evidence(after), log_evidence(snapshot))


def _ledger_of(snapshot: Snapshot) -> str:
    """A hash of the rows that a member has absorbed, with their weights."""
    lines, fades = sorted((one.key, one.digest, one.weight) for one in snapshot.ledger), snapshot.facts.fading
    return hashlib.sha256(repr((lines, fades if fades.fades else None)).encode()).hexdigest()


def _refuse_other_rows(contents: Contents) -> None:
    """Raise `InvalidOption` where the members that a mixture names have absorbed different rows."""
    first, *others = ((one.url, _ledger_of(named_member(one))) for one in references(contents))
    for url, absorbed in others:
        if absorbed != first[1]:
            raise InvalidOption(
                f"{contents.url}: expected members that have absorbed the same rows, {url} has absorbed others than "
                f"{first[0]}; change the members on their own"
            )


def _committed(
    contents: Contents, after: Sequence[Changed], operation: str, sample_weights: SampleWeights | None = None
) -> Contents:
    """Write the next commit of a mixture; `contents` where nothing has changed.

    Raises
    ------
    CommitConflict
        Another process has written it, or has changed some members, so that they differ in their rows.
    """
    stored, members = revision_of(contents), [one.reference for one in after]
    kind: SampleWeights = sample_weights or stored.sample_weights
    if tuple(members) == references(contents) and kind == stored.sample_weights:
        return contents
    if len({one.absorbed for one in after}) > 1:
        raise CommitConflict(
            f"{contents.url}: expected members that have absorbed the same rows, another process has changed some of "
            "them; repeat the command"
        )
    sampled = stored.sampled or [one.before for one in after]  # of commit 1 if none are recorded
    found = evidence_weights([one.evidence for one in after], sampled)
    if operation != "revert":
        warn_of_few(contents.url, found, kind)
    weights = found.tolist() if kind == "evidence" else None
    how = {"sampled": sampled, "sample_weights": kind, "weights": weights}
    return commit_revision(contents, members, operation=operation, **how)


def warn_of_few(url: str, weights: np.ndarray, kind: SampleWeights) -> None:
    """Warn where later rows leave few effective samples, by their importance `weights` (K,), whether used or not."""
    few = effective_samples(weights)
    if few < FEW * len(weights):
        effect = (
            f"only {few:.1f} of its {len(weights)} samples count, by the evidence of the further rows"
            if kind == "evidence"
            else f"the evidence of the further rows prefers few of its {len(weights)} samples (as many as {few:.1f}), "
            "which have equal weights"
        )
        warn(f"{url}: {effect}; sample again with all rows (fit --hyperparameters hmc, another --model)")


def recovered(url: str, runtime: Runtime) -> Contents:
    """Finish or take back what members hold beyond the newest commit of a mixture; return the newest commit then."""
    contents = contents_of(url)
    named = references(contents)
    if all(open_store(one.url).head() == one.number for one in named):
        return contents
    with leased(contents):
        first = continued(named[0])

        def caught_up(number: int, snapshot: Snapshot) -> Snapshot:
            return following(continued(snapshot.reference, first), first, None, runtime) if number else first

        try:
            after = [_changed(k, named_member(one), caught_up) for k, one in enumerate(named)]
        except CommitConflict:
            raise
        except BcmdistError as error:
            warn(f"{url}: partitions of an interrupted ingestion are left out, since a member fails on them: {error}")
            after = [_changed(k, named_member(one), lambda _, at: taken_back(at)) for k, one in enumerate(named)]
        return _committed(contents, after, "recover")


def forget(url: str, keys: Iterable[str], runtime: Runtime) -> Contents:
    """Withdraw the messages of partitions from all members, and commit; see `revision.forget`."""
    keys = tuple(keys)
    return revised(url, lambda _, one: fit.forget(one, keys, runtime), runtime, "forget")


def reweight(url: str, asked: Mapping[str, float], runtime: Runtime) -> Contents:
    """Set weights of partitions in all members, and commit; see `revision.reweight`."""
    return revised(url, lambda _, one: revision.reweight(one, asked, runtime), runtime, "reweight")


def refine(url: str, runtime: Runtime, **how: Any) -> Contents:
    """Make further passes with each member, and commit; see `passes.refine`."""
    return revised(url, lambda _, one: fit.refine(one, runtime, **how), runtime, "refine")


def revert(url: str, to: int | str, runtime: Runtime) -> Contents:
    """Commit the state of an earlier commit of a mixture again; see `refitting.revert`.

    Raises
    ------
    InvalidOption, ModelNotFound
    """
    to = MixtureLog(url).number_of(to)
    refitting.refuse_later(to, contents_of(url).number)
    earlier = contents_of(url, to)
    stored = revision_of(earlier)
    with leased(earlier):
        named = references(earlier)

        def reverted(number: int, snapshot: Snapshot) -> Snapshot:
            at = named[number].number
            return snapshot if at == snapshot.commit else refitting.revert(snapshot, at)

        return revised(url, reverted, runtime, "revert", sample_weights=stored.sample_weights)


def prune(url: str, keep: int) -> dict[str, Any]:
    """Remove all but the newest `keep` commits of a mixture, and the commits of members that only these name; held
    commits, of leases and aliases, stay.

    Returns
    -------
    `kept` and `removed`, numbers of commits of the mixture, and `blobs`, the number of files removed with them.
    """
    if keep < 1:
        raise InvalidOption(
            f"keep: expected at least 1 commit, got {keep}; give 1 or more, since the newest is always kept"
        )
    store, every = revision_store(url), history(url)
    numbers = [one["number"] for one in every]
    kept, blobs = numbers[-keep:], 0
    if len(kept) == len(numbers):
        return {"kept": kept, "removed": [], "blobs": 0}
    named = [references(contents_of(url, number)) for number in kept]
    if store.numbers()[:-keep]:
        store.prune(keep)
    for of_member in zip(*named, strict=True):
        member, oldest = open_store(of_member[0].url), min(one.number for one in of_member)
        blobs += member.prune(sum(number >= oldest for number in member.recorded()))["blobs"]
    left = [one["number"] for one in history(url)]  # with those that are held
    return {"kept": left, "removed": [number for number in numbers if number not in left], "blobs": blobs}


def history(url: str) -> list[dict[str, Any]]:
    """Describe the commits of a mixture that are left, oldest first: as `records.history` those of the first member,
    with the `number` of the mixture, the `operation` that made it and its `sample_weights`."""
    numbers, found = [1, *(number + 1 for number in revision_store(url).numbers())], []
    first = references(contents_of(url, 1))[0]
    of_member = {one["number"]: one for one in open_store(first.url).history()}
    for number in numbers:
        stored = revision_of(contents_of(url, number))
        at = stored.members[0][1]
        if at in of_member:  # else it has been pruned
            own = {"number": number, "operation": stored.operation, "sample_weights": stored.sample_weights}
            found.append(of_member[at] | own)
    return found


def weights_now(snapshots: Sequence[Snapshot], contents: Contents) -> np.ndarray:
    """Importance weights of a mixture's samples by the evidence of the rows since, (K,), whether used or not."""
    stored, now = revision_of(contents), [log_evidence(one) for one in snapshots]
    return evidence_weights(now, stored.sampled or now)
