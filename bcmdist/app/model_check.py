"""Check of a model directory: every commit, every blob that it names, and that no row counts twice."""

from collections.abc import Iterator

from bcmdist.api.mixture import is_mixture
from bcmdist.committee.backup import blobs_of
from bcmdist.committee.mixture_commits import contents_of, references
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import ModelDamaged
from bcmdist.storage.commits import ModelStore, open_store


def checks_of(url: str) -> Iterator[tuple[str, str]]:
    """Yield each check of a model directory with its findings.

    Raises
    ------
    ModelDamaged, ModelNotFound
        What a check has found. Other processes may commit meanwhile; what they prune is left out.
    """
    if is_mixture(url):
        members = references(contents_of(url))
        yield "mixture", f"{len(members)} members"
        for member in members:
            yield from checks_of(member.url)
        return
    store = open_store(url)
    newest = store.load().number  # raises where there is none
    held = store.numbers()
    named = set[str]()
    for number in held:
        with store.hold(number):
            named |= blobs_of(Snapshot.load(url, commit=number))
    yield "commits", f"{url}: {len(held)} can be read, the newest is {newest}"
    size = sum(len(store._get_blob(digest)) for digest in sorted(named))
    others = len(set(store.storage.names("blobs")) - named)
    left = f"; {others} more belong to no commit, `bcmdist prune` removes them" if others else ""
    yield "blobs", f"{len(named)} with {size / 1e6:.1f} MB have the content of their checksums{left}"
    yield "ledger", _ledger(store, newest)


def _ledger(store: ModelStore, number: int) -> str:
    with store.hold(number):
        ledger = store.load(number).ledger
        twice = ledger.rows_twice()
    if twice:
        raise ModelDamaged(
            f"{store.storage.url}: commit {number}: expected each row once in the ledger, found {twice[0]} and "
            f"{twice[1]}, which share rows; restore the directory from a copy"
        )
    return f"{len(ledger)} partitions with {ledger.rows} rows, none of them twice"
