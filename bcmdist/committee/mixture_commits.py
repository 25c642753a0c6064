"""Commits of a mixture: each names one commit of every member, so that all members change in one step.

    MODEL/mixture.json          commit 1: the members as sampled
    MODEL/revisions/            later ones, a commit log of its own: its commit k is commit k + 1 of the mixture
    MODEL/members/0000          a model directory for each member

Members are changed one after the other, and commit to their own logs. The mixture changes when all have, by one record
that is put only if its number is free (`bcmdist.storage.commits`). Whatever was committed to members and is not named
by a record of the mixture is no part of it: a process that dies between two members leaves the mixture as it was. Two
processes that change a mixture race for the number; the loser starts again from the commit of the winner.

    MODEL/aliases/<name>-<number>    the commit that an alias of the mixture names (`storage.aliases`)
    the alias <name>.<commit>        of members and revisions: keeps what that commit names

Members get their aliases before the mixture has its own, and lose them after it has: where a process dies in between,
they keep commits that are not needed until the alias is set again, or removed.
"""

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from bcmdist.committee.facts import Record
from bcmdist.committee.ingest.options import SampleWeights
from bcmdist.errors import InvalidOption, ModelDamaged, ModelNotFound
from bcmdist.storage import aliases
from bcmdist.storage.aliases import Alias
from bcmdist.storage.commits import MIXTURE, ModelStore, Reference, open_store
from bcmdist.storage.fields import Blob, CountFromOne, Number, decode, parse
from bcmdist.storage.locate import open_storage
from bcmdist.storage.locks import commit_turn
from bcmdist.storage.urls import Location

REVISIONS = "revisions"
PREPARED = "prepared"  # folder of the empty committee that all members start from; written first
LONGEST = 40  # characters of an alias; those of members have the number of the commit after it

_Member = tuple[str, CountFromOne, Blob]
_Members = Annotated[list[_Member], Meta(min_length=1)]


class Revision(Record, frozen=True):
    """What a commit of a mixture records."""

    members: _Members
    """directory below the mixture's, number and hash of the commit of each member"""
    operation: str = "fit"
    """what made it: fit, ingest, forget, merge, ..."""
    sample_weights: SampleWeights = "equal"
    weights: list[Annotated[float, Meta(ge=0.0, le=1.0)]] | None = None
    """(K,), with the sum 1; None: equal"""
    sampled: list[Number] | None = None
    """log evidence of each member's rows when the samples were drawn, (K,), in nats; None: that of commit 1"""


@dataclass(frozen=True)
class Contents:
    """One commit of a mixture: location, hash and number. Tasks carry it if there are many members."""

    url: str
    digest: str
    number: int = 1

    @property
    def place(self) -> str:
        """Description for error messages."""
        return f"{self.url}/{MIXTURE}" if self.number == 1 else f"{self.url}: commit {self.number}"


Members = Contents | tuple[Reference, ...]
"""The commits of a mixture's members; a tuple for few members only, since a task stays below 10 kB"""


def is_mixture(model: Location) -> bool:
    """Whether a directory holds a mixture, complete or unfinished."""
    return bool({MIXTURE, PREPARED} & set(open_storage(model).names("")))


def revision_store(url: Location) -> ModelStore:
    """The log of the commits of a mixture after the first."""
    return open_store(os.path.join(url, REVISIONS) if isinstance(url, os.PathLike) else f"{url}/{REVISIONS}")


def contents_of(model: Location, number: int | str | None = None) -> Contents:
    """Return the newest commit of a mixture, or a given one.

    Raises
    ------
    ModelNotFound, ModelDamaged
    """
    storage, store = open_storage(model), revision_store(model)
    number = 1 + store.head() if number is None else MixtureLog(model).number_of(number)
    try:
        if number == 1:
            return Contents(storage.url, hashlib.sha256(storage.get(MIXTURE)).hexdigest())
    except FileNotFoundError as error:
        raise ModelNotFound(
            f"{model}: expected a mixture, found no {MIXTURE}; sample one, let sampling finish, repeat an interrupted "
            "backup, or load a GBCM"
        ) from error
    if number - 1 not in store.numbers():
        raise ModelNotFound(f"{model}: expected commit {number} of a mixture, found none; see `bcmdist info --history`")
    return Contents(storage.url, store.reference(number - 1).digest, number)


def revision_of(contents: Contents) -> Revision:
    """Read a commit of a mixture.

    Raises
    ------
    ModelDamaged
        Its record is not the one of the hash, or invalid.
    """
    if contents.number > 1:
        store = revision_store(contents.url)
        _refuse_other(contents, store.reference(contents.number - 1).digest)
        return _revision_from(store.record(contents.number - 1)["facts"], contents.place)
    text = open_storage(contents.url).get(MIXTURE)
    _refuse_other(contents, hashlib.sha256(text).hexdigest())
    found = parse(text, contents.place)
    if isinstance(found, dict):
        return _revision_from(found, contents.place)
    return Revision(decode(_Members, found, contents.place))


def _revision_from(stored: dict[str, Any], where: str) -> Revision:
    revision: Revision = decode(Revision, stored, where)
    return revision


def first_commit(revision: Revision) -> bytes:
    """The text of `MIXTURE`: the list of members alone, as earlier versions read it, where it says everything."""
    plain = revision == Revision(revision.members)
    return msgspec.json.encode(revision.members if plain else revision)


def _refuse_other(contents: Contents, found: str) -> None:
    if found != contents.digest:
        raise ModelDamaged(
            f"{contents.url}: expected {MIXTURE if contents.number == 1 else f'commit {contents.number}'} "
            f"{contents.digest[:12]}, found {found[:12]}; this machine sees another mixture under the same path: use a "
            "shared one"
        )


@functools.lru_cache(maxsize=2)
def references(members: Members) -> tuple[Reference, ...]:
    """References of a mixture's members; read from storage if `members` is a `Contents`.

    Raises
    ------
    ModelDamaged
    """
    if isinstance(members, tuple):
        return members
    listed = revision_of(members).members
    return tuple(Reference(f"{members.url}/{name}", number, digest) for name, number, digest in listed)


@contextlib.contextmanager
def leased(members: Members) -> Iterator[None]:
    """Context manager: pruning keeps the commits of a mixture's members, and that of the mixture if it is given.

    Raises
    ------
    ModelNotFound
        One of them has been pruned.
    """
    with contextlib.ExitStack() as leases:
        if isinstance(members, Contents) and members.number > 1:
            leases.enter_context(revision_store(members.url).hold(members.number - 1))
        for one in references(members):
            leases.enter_context(open_store(one.url).hold(one.number))
        yield


@contextlib.contextmanager
def held_commit(url: Location, commit: int | str | None = None) -> Iterator[Contents]:
    """Context manager: a commit of a mixture (default: the newest), whose members' commits are not pruned until exit.

    Raises
    ------
    ModelNotFound, ModelDamaged
    """
    while True:
        contents = contents_of(url, commit)
        with contextlib.ExitStack() as leases:
            try:
                leases.enter_context(leased(contents))
            except ModelNotFound as error:
                if commit is not None:
                    raise ModelNotFound(
                        f"{contents.url}: expected commit {commit}, found it pruned; see `bcmdist info --history`"
                    ) from error
                if contents_of(url) == contents:
                    raise
                continue  # pruned meanwhile
            yield contents
            return


@functools.lru_cache(maxsize=2)
def weights_of(members: Members) -> tuple[float, ...] | None:
    """Weights of a mixture's members, with the sum 1; None where all are equal."""
    found = None if isinstance(members, tuple) else revision_of(members).weights
    return None if found is None else tuple(found)


def commit_revision(before: Contents, members: Sequence[Reference], **changes: Any) -> Contents:
    """Write the next commit of a mixture.

    Parameters
    ----------
    before : the commit that it follows
    members : the new commits of the members of `before`, in their order
    changes : further fields of `Revision` that change

    Raises
    ------
    CommitConflict
        Another process has written it.
    """
    store, revision = revision_store(before.url), revision_of(before)
    named = [[name, one.number, one.digest] for (name, *_), one in zip(revision.members, members, strict=True)]
    facts = msgspec.to_builtins(
        decode(Revision, msgspec.to_builtins(revision.changed(**changes)) | {"members": named}, before.place)
    )
    parent = before.digest if before.number > 1 else None
    made = store.commit(before.number, arrays={}, facts=facts, segments=(), offsets={}, parent=parent)
    return Contents(before.url, made.digest, made.number + 1)


# --- Aliases ---


class MixtureLog:
    """The commits of a mixture, as far as aliases need them."""

    aliases, number_of = aliases.aliases, aliases.number_of

    def __init__(self, url: Location) -> None:
        self.url, self.storage = url, open_storage(url)

    def newest(self) -> Contents:
        """Return the newest commit; errors as of `contents_of`."""
        return contents_of(self.url)

    def reference(self, number: int) -> Contents:
        """Return a commit with its hash; raise `ModelNotFound` where it is pruned."""
        return contents_of(self.url, number)

    def set_alias(self, name: str, commit: int | str | None = None) -> Alias:
        """Let an alias name a commit (default: the newest), as `storage.aliases.set_alias`."""
        aliases.refuse_name(name)
        if len(name) > LONGEST:
            raise InvalidOption(
                f"alias: expected at most {LONGEST} characters for a mixture, got {len(name)}; choose a shorter one"
            )
        contents = contents_of(self.url, None if commit is None else self.number_of(commit))
        with commit_turn(self.url), leased(contents):
            for store, number in _commits(contents):
                store.set_alias(f"{name}.{contents.number}", number)
            alias = Alias(contents.number, contents.digest)
            aliases.put_alias(self, name, alias)
            self._release_others(name)
        return alias

    def remove_alias(self, name: str) -> None:
        """Remove an alias, as `storage.aliases.remove_alias`."""
        with commit_turn(self.url):
            aliases.remove_alias(self, name)
            self._release_others(name)

    def _release_others(self, name: str) -> None:
        """Remove what keeps commits that an alias has named before, or that a process has begun to name."""
        alias = self.aliases().get(name)
        kept = f"{name}.{alias.commit}" if alias else ""
        stores = [revision_store(self.url), *(open_store(one.url) for one in references(contents_of(self.url)))]
        for store in stores:
            for own in store.aliases():
                if own != kept and re.fullmatch(rf"{re.escape(name)}\.\d+", own):
                    store.remove_alias(own)


def _commits(contents: Contents) -> Iterator[tuple[ModelStore, int]]:
    """Yield what a commit of a mixture consists of: its members, and last its own record, by which they are found."""
    for one in references(contents):
        yield open_store(one.url), one.number
    if contents.number > 1:
        yield revision_store(contents.url), contents.number - 1


def commit_log(url: Location) -> ModelStore | MixtureLog:
    """Return the commits of a model directory, of a committee or of a mixture, whose aliases can be read and set."""
    return MixtureLog(url) if is_mixture(url) else open_store(url)
