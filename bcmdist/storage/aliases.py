"""Aliases: names of commits, such as `stable`. Pruning keeps a commit for as long as an alias names it.

    MODEL/aliases/<name>-<number>     JSON: number and hash of the record of a commit; null: the alias was removed

The entry with the largest number is the current one. A change puts the next number if it is absent and then removes
earlier entries: of two changes at the same time one is made after the other. The hash of the record says which commit
is meant: a commit of the same number in another model under the same path is not taken for it.

An alias is set while the commit is held by a lease (`leases`); `leases.held` describes why no commit is lost.

`aliases`, `set_alias`, `remove_alias` and `number_of` are methods of `ModelStore`.
"""

import contextlib
import re

import msgspec

from bcmdist.errors import CommitConflict, InvalidOption, ModelNotFound
from bcmdist.storage.fields import Blob, CountFromOne, decode, parse

FOLDER = "aliases"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,49}")
ENTRY = re.compile(rf"({NAME.pattern})-(\d{{8}})")


class Alias(msgspec.Struct, frozen=True):
    """The commit that an alias names."""

    commit: CountFromOne
    digest: Blob
    """SHA-256 of its record"""


def aliases(store) -> dict[str, Alias]:
    """Return the aliases of a model by name.

    Raises
    ------
    ModelDamaged
    """
    while True:
        try:
            found = {name: _read(store, name, number) for name, number in current(store).items()}
        except FileNotFoundError:  # a later change has removed it since it was listed
            continue
        return {name: alias for name, alias in found.items() if alias is not None}


def current(store) -> dict[str, int]:
    """Return the number of the current entry of each alias, by name, also of removed ones."""
    found = (ENTRY.fullmatch(name) for name in store.storage.names(FOLDER))  # sorted: the largest number is last
    return {one[1]: int(one[2]) for one in found if one is not None}


def set_alias(store, name: str, commit: int | str | None = None) -> Alias:
    """Let an alias name a commit (default: the newest), whatever it named before.

    Raises
    ------
    InvalidOption
        The name is not allowed.
    ModelNotFound
        There is no such commit.
    """
    refuse_name(name)
    number = store.head() if commit is None else store.number_of(commit)
    with store.hold(number):
        alias = Alias(number, store.reference(number).digest)
        put_alias(store, name, alias)
    return alias


def refuse_name(name: str) -> None:
    """Raise `InvalidOption` for what is no name of an alias."""
    if not NAME.fullmatch(name):
        raise InvalidOption(
            f"alias: expected at most 50 letters, digits and . _ - that begin with a letter, got {name!r:.80}; choose "
            "another"
        )


def remove_alias(store, name: str) -> None:
    """Remove an alias; the commit stays, unless pruning removes it.

    Raises
    ------
    ModelNotFound
        There is no such alias.
    """
    _existing(store, name)
    put_alias(store, name, None)


def number_of(store, commit: int | str) -> int:
    """Return the number of a commit that is given by number or alias.

    Raises
    ------
    ModelNotFound
        There is no such alias.
    CommitConflict
        The alias was set when another model, or another copy of it, was in the directory.
    """
    if not isinstance(commit, str):
        return commit
    if commit.isascii() and commit.isdigit():
        return int(commit)
    alias = _existing(store, commit)
    found = store.reference(alias.commit).digest
    if found != alias.digest:
        raise CommitConflict(
            f"{store.storage.url}: expected commit {alias.commit} with the record {alias.digest[:12]}, which "
            f"{commit} names, found {found[:12]}; another model or copy has taken its place: set the alias again"
        )
    return alias.commit


def _existing(store, name):
    found = aliases(store)
    if name not in found:
        there = ", ".join(found) or "none"
        raise ModelNotFound(
            f"{store.storage.url}: expected the number of a commit or an alias, got {name!r:.80}; aliases: {there}, "
            "set one with `bcmdist alias set`"
        )
    return found[name]


def put_alias(store, name: str, alias: Alias | None) -> None:
    """Write the next entry of an alias, None: that it was removed, and remove earlier entries."""
    text = msgspec.json.encode(alias)
    while True:
        number = current(store).get(name, 0) + 1
        if store.storage.put_if_absent(_entry(name, number), text):
            break
    for one in store.storage.names(FOLDER):
        parts = ENTRY.fullmatch(one)
        if parts and parts[1] == name and int(parts[2]) < number:
            with contextlib.suppress(OSError):
                store.storage.remove(f"{FOLDER}/{one}")


def _read(store, name, number) -> Alias | None:
    where = f"{store.storage.url}/{_entry(name, number)}"
    return decode(Alias | None, parse(store.storage.get(_entry(name, number)), where), where)


def _entry(name, number):
    return f"{FOLDER}/{name}-{number:08d}"
