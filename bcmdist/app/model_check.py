"""Check of a model directory: every commit, every blob that it names, and that no row counts twice."""

import contextlib
from collections.abc import Iterator

from bcmdist.committee.backup import blobs_of
from bcmdist.committee.mixture_commits import contents_of, is_mixture, references
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import ModelDamaged, ModelNotFound
from bcmdist.storage.commits import open_store


def checks_of(url: str) -> Iterator[tuple[str, str]]:
    """Yield each check of a model directory with its findings.

    Raises
    ------
    ModelDamaged, ModelNotFound
        What a check has found. Others may commit and prune meanwhile: the commits that are checked stay.
    """
    if is_mixture(url):
        members = references(contents_of(url))
        yield "mixture", f"{len(members)} members"
        for member in members:
            yield from checks_of(member.url)
        return
    store = open_store(url)
    newest, read, named = store.head(), list[int](), set[str]()
    with contextlib.ExitStack() as leases:
        for number in store.numbers() or [0]:  # 0: raises, as there is none
            if number < newest:  # others may prune it before it is held
                with contextlib.suppress(ModelNotFound):
                    leases.enter_context(store.hold(number))
                    read.append(number)
            else:
                snapshot = leases.enter_context(Snapshot.opened(url))
                read.append(snapshot.commit)
        for number in read:
            named |= blobs_of(Snapshot.load(url, commit=number))
        yield "commits", f"{url}: {len(read)} can be read, the newest is {read[-1]}"
        size = sum(len(store._get_blob(digest)) for digest in sorted(named))
        others = len(set(store.storage.names("blobs")) - named)
        left = f"; {others} more belong to no commit, `bcmdist prune` removes them" if others else ""
        yield "blobs", f"{len(named)} with {size / 1e6:.1f} MB have the content of their checksums{left}"
        ledger = store.load(read[-1]).ledger
        if twice := ledger.rows_twice():
            raise ModelDamaged(
                f"{url}: commit {read[-1]}: expected each row once in the ledger, found {twice[0]} and {twice[1]}, "
                "which share rows; restore the directory from a copy"
            )
        yield "ledger", f"{len(ledger)} partitions with {ledger.rows} rows, none of them twice"
