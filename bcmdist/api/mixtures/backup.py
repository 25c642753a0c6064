"""Backups of mixtures: a commit with those of all its members, in a directory of its own.

The list of members is copied last, so that a copy that was interrupted holds no mixture; repeated, it is completed.
"""

from bcmdist.api.mixtures.merging import MEMBERS, copy_chains
from bcmdist.committee.backup import back_up, copy_record
from bcmdist.committee.mixture_commits import (
    PREPARED,
    REVISIONS,
    Contents,
    contents_of,
    held_commit,
    references,
    revision_store,
)
from bcmdist.errors import ModelExists
from bcmdist.learning.sampling.chains import FOLDER
from bcmdist.storage.commits import MIXTURE, Reference, open_store
from bcmdist.storage.locate import open_storage


def back_up_mixture(url: str, to: str, commit: int | str | None = None) -> Contents:
    """Copy a commit of a mixture, the newest by default, with those of its members, to a new directory.

    Returns
    -------
    The commit in the new directory, with the same number.

    Raises
    ------
    ModelExists, ModelNotFound, ModelDamaged
    """
    with held_commit(url, commit) as contents:
        target = open_storage(to)
        other = set(target.names("")) - {PREPARED, FOLDER, MEMBERS, REVISIONS}
        if other:
            raise ModelExists(f"{to}: expected a new or empty directory, found {min(other)} in it; choose another")
        shared = open_store(f"{contents.url}/{PREPARED}")  # has the cells of all members
        copied = [shared.reference(shared.head())] if shared.head() else []
        for one in (*copied, *references(contents)):
            place = target.url + one.url.removeprefix(contents.url)
            if not _is_copy(place, one):  # an earlier attempt was interrupted
                back_up(one.url, place, one.number)
        copy_chains(contents.url, target.url)
        if contents.number > 1:
            copy_record(revision_store(contents.url), revision_store(target.url), contents.number - 1)
        target.put_if_absent(MIXTURE, open_storage(contents.url).get(MIXTURE))
    return contents_of(to)


def _is_copy(url: str, of: Reference) -> bool:
    """Whether a directory holds the commit of a reference."""
    store = open_store(url)
    return store.head() == of.number and store.reference(of.number).digest == of.digest
