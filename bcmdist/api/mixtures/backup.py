"""Backups of mixtures: a commit with those of all its members, in a directory of its own.

The list of members is copied last, so that a copy that was interrupted holds no mixture.
"""

from bcmdist.api.mixtures.merging import copy_chains
from bcmdist.committee.backup import copy_of, copy_record, refuse_copy_of_cells
from bcmdist.committee.mixture_commits import (
    PREPARED,
    Contents,
    contents_of,
    held_commit,
    references,
    revision_store,
)
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import ModelExists
from bcmdist.storage.commits import MIXTURE, open_store
from bcmdist.storage.locate import open_storage


def back_up_mixture(url: str, to: str, commit: int | str | None = None) -> Contents:
    """Copy a commit of a mixture, the newest by default, with those of its members, to a new directory.

    Returns
    -------
    The commit in the new directory, with the same number.

    Raises
    ------
    InvalidOption
        A mixture of spatial models shall be copied to an object store.
    ModelExists
        There is something at `to`, also what an interrupted copy has left.
    ModelNotFound, ModelDamaged
    """
    with held_commit(url, commit) as contents:
        members = [Snapshot.load(one.url, commit=one.number) for one in references(contents)]
        if open_store(f"{contents.url}/{PREPARED}").head():  # has the cells of all members
            members.insert(0, Snapshot.load(f"{contents.url}/{PREPARED}"))
            refuse_copy_of_cells(members[0], to)
        target = open_storage(to)
        if found := target.names(""):
            raise ModelExists(
                f"{to}: expected a new or empty directory, found {min(found)} in it; choose another, or remove what an "
                "interrupted backup has left"
            )
        for one in members:
            copy_of(one, target.url + one.url.removeprefix(contents.url))
        copy_chains(contents.url, target.url)
        if contents.number > 1:
            copy_record(revision_store(contents.url), revision_store(target.url), contents.number - 1)
        target.put_if_absent(MIXTURE, open_storage(contents.url).get(MIXTURE))
    return contents_of(to)
