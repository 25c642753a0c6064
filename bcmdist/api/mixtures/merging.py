"""Merge two mixtures of the same samples, and copy a mixture: new directories made member by member.

The list of members is written last: before, the new directory holds no mixture.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from bcmdist.api import merging
from bcmdist.api.carried import write_portable
from bcmdist.api.mixtures.changes import evidence_weights, log_evidence, warn_of_few
from bcmdist.committee.ingest.options import SampleWeights
from bcmdist.committee.mixture_commits import (
    Contents,
    Revision,
    contents_of,
    first_commit,
    references,
    revision_of,
)
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.groups import Location
from bcmdist.errors import ModelExists, ModelsDiffer
from bcmdist.learning.sampling.chains import chain_store
from bcmdist.model.model import named_parameters
from bcmdist.runtime.interface import Runtime
from bcmdist.storage.commits import MIXTURE, Reference
from bcmdist.storage.locate import open_storage

MEMBERS = "members"


def member_name(number: int) -> str:
    """Name of the directory of a member below that of its mixture."""
    return f"{MEMBERS}/{number:04d}"


def merge(
    one: Contents, other: Contents, model: Location, runtime: Runtime, *, query_most: int | None = None
) -> Contents:
    """Merge two mixtures whose members have the same hyper-parameters, in the same order.

    Weights follow the evidence where they do in either; the samples are those that were drawn given the rows of `one`.

    Raises
    ------
    ModelsDiffer
        The samples differ, or the models of two members cannot be merged (`committee.merge.sum_of`).
    ModelExists
    """
    pairs = list(zip(references(one), references(other), strict=False))
    if len(references(one)) != len(references(other)):
        raise _other_samples(one, other, f"{len(references(one))} and {len(references(other))}")
    for number, pair in enumerate(pairs):
        _refuse_other_samples(one, other, number, *map(_loaded, pair))
    stored = [revision_of(contents) for contents in (one, other)]
    kind: SampleWeights = "evidence" if "evidence" in [revision.sample_weights for revision in stored] else "equal"
    sampled = stored[0].sampled or [log_evidence(_loaded(a)) for a, _ in pairs]

    def members() -> Iterator[Snapshot]:
        for number, (a, b) in enumerate(pairs):
            place = f"{model}/{member_name(number)}"
            yield merging.merge(_loaded(a), _loaded(b), place, runtime, query_most=query_most)

    return _made(one, model, members(), operation="merge", sampled=sampled, sample_weights=kind)


def save(contents: Contents, model: Location) -> Contents:
    """Copy a mixture without the paths of its data; see `carried.write_portable`.

    Raises
    ------
    ModelExists
    """
    revision, each = revision_of(contents), references(contents)
    copies = (write_portable(_loaded(one), f"{model}/{member_name(number)}") for number, one in enumerate(each))
    sampled = revision.sampled or [log_evidence(_loaded(one)) for one in each]
    return _made(contents, model, copies, operation="save", sampled=sampled, sample_weights=revision.sample_weights)


def _loaded(reference: Reference) -> Snapshot:
    return Snapshot.load(reference.url, commit=reference.number)


def _made(
    like: Contents,
    model: Location,
    members: Iterable[Snapshot],
    *,
    operation: str,
    sampled: list[float],
    sample_weights: SampleWeights,
) -> Contents:
    """Write a mixture of members, which are made one by one, with the chains of another; nothing is left on failure."""
    storage = open_storage(model)
    if storage.names(""):
        raise ModelExists(f"{model}: expected a new or empty directory; choose another --model")
    named, evidence = [], []
    try:
        for number, one in enumerate(members):
            named.append((member_name(number), one.commit, one.digest))
            evidence.append(log_evidence(one))
        copy_chains(like.url, model)
    except BaseException:
        storage.remove_all()
        raise
    found = evidence_weights(evidence, sampled)
    warn_of_few(storage.url, found, sample_weights)
    weights = found.tolist() if sample_weights == "evidence" else None
    made = Revision(named, operation, weights=weights, sampled=sampled, sample_weights=sample_weights)
    if not storage.put_if_absent(MIXTURE, first_commit(made)):
        raise ModelExists(f"{model}: expected a new or empty directory, another mixture was made there meanwhile")
    return contents_of(model)


def copy_chains(one: Location, other: Location) -> None:
    """Copy the chains of a mixture that another directory lacks."""
    old, new = chain_store(one), chain_store(other)
    for number in sorted(set(old.numbers()) - set(new.numbers())):
        commit = old.load(number)
        arrays = new.put_arrays(commit.arrays)
        new.commit(number, arrays=arrays, facts=commit.facts, segments=(), offsets={})


def _refuse_other_samples(one: Contents, other: Contents, number: int, a: Snapshot, b: Snapshot) -> None:
    (named, others) = (named_parameters(m.model.shared.kernel, m.model.likelihood) for m in (a, b))
    differ = [name for name in named if name not in others or not np.array_equal(named[name], others[name])]
    if differ or named.keys() != others.keys():
        raise _other_samples(one, other, f"other values of {(differ or sorted(others.keys() - named.keys()))[0]}")


def _other_samples(one: Contents, other: Contents, got: str) -> ModelsDiffer:
    return ModelsDiffer(
        f"expected the same samples of hyper-parameters in {one.url} and {other.url}, got {got}; fit one of the two "
        "with --like the other, which takes its samples"
    )
