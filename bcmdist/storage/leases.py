"""Leases: files that record which processes work with a commit, so that pruning keeps the commit.

    MODEL/holds/<number>-<random>     JSON: host, boot, namespace, pid and start of the process that holds the commit

A process that holds a commit has a lease of it. The lease ends with its context manager or with its process: a lease of
a dead process is void. Only processes of this host can be found dead; a lease of another host stays until its process
ends it (or the file is removed by hand). Process ids are reused, so that a process is identified by its start time too,
in ticks since the machine booted: no adjustable clock is involved.

`hold`, `opened`, `held`, `leased` and `only_lease` are methods of `ModelStore`.
"""

import contextlib
import functools
import json
import os
import re
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from bcmdist.errors import ModelDamaged, ModelNotFound, NotAFile

LEASE_NAME = re.compile(r"\d{8}-.+")


@contextlib.contextmanager
def hold(store, number: int) -> Iterator[None]:
    """While the context is open, pruning keeps commit `number`, and blobs that no record names yet.

    A process that reads a commit piece by piece, or that stores blobs and commits them, must hold the commit it started
    from. On a read-only disk there is no lease.

    Raises
    ------
    ModelNotFound
        The commit has been pruned.
    """
    name = f"holds/{number:08d}-{uuid.uuid4().hex}"
    try:
        store.storage.put_own(name, json.dumps(this_process()).encode())
    except NotAFile:
        raise
    except OSError:  # a read-only disk
        pass
    try:
        if 0 < number <= store.pruned() and number not in _named(store.aliases()):
            raise ModelNotFound(f"{store.storage.url}: expected commit {number}, found it pruned; load a later one")
        yield
    finally:
        with contextlib.suppress(OSError):
            store.storage.remove(name)


@contextlib.contextmanager
def opened(store, number: int | str | None = None) -> Iterator[Any]:
    """Hold a commit, given by number or alias, load it, and hold it until the context ends.

    Its ledger is read where it is needed.

    The default is the newest commit; if that is pruned before the lease exists, the new newest one is used.

    Raises
    ------
    ModelNotFound, ModelDamaged, VersionMismatch, CommitConflict
    """
    with contextlib.ExitStack() as lease:
        yield _opened(store, lease, number)


def _opened(store, lease, number):
    while True:
        requested = _number(store, number)
        try:
            if requested:
                lease.enter_context(store.hold(requested))
            return store.read(requested, ledger=False) if requested else store.load(requested, ledger=False)
        except (ModelNotFound, ModelDamaged):
            lease.close()
            if isinstance(number, int) or _number(store, number) == requested:
                raise


def _number(store, number):
    return store.head() if number is None else store.number_of(number)


def held(store) -> dict[int, list[str]]:
    """Return descriptions of the leases and aliases of each held commit, by number.

    Aliases are read before and after the leases, until they are the same. If then neither a lease nor an alias of a
    pruned commit was seen, none can follow: a lease is only granted of a commit that an alias names, and an alias is
    only set under a lease. A lease that was granted before its alias was removed, and one under which an alias was set
    that came too late, were there when the leases were read.
    """
    while True:
        named = store.aliases()
        found = leased(store)
        if store.aliases() == named:
            break
    for number, names in _named(named).items():
        found.setdefault(number, []).extend(f"alias {name}" for name in names)
    return found


def _named(aliases) -> dict[int, list[str]]:
    """Return the aliases of each commit, by number."""
    found: dict[int, list[str]] = {}
    for name, alias in aliases.items():
        found.setdefault(alias.commit, []).append(name)
    return found


def leased(store) -> dict[int, list[str]]:
    """Return descriptions of the processes that hold each commit, by number; remove leases of dead processes."""
    found: dict[int, list[str]] = {}
    for name in filter(LEASE_NAME.fullmatch, store.storage.names("holds")):
        try:
            holder = read_holder(store.storage.get(f"holds/{name}"))
        except FileNotFoundError:  # released meanwhile
            continue
        if is_dead(holder):
            with contextlib.suppress(OSError):  # a read-only disk
                store.storage.remove(f"holds/{name}")
        else:
            who = f"process {holder['pid']} on {holder.get('host')}" if holder else f"unreadable holds/{name}"
            found.setdefault(int(name.partition("-")[0]), []).append(who)
    return found


def only_lease(store) -> bool:
    """Whether no lease exists except one of the caller, which must hold one."""
    return sum(map(len, leased(store).values())) <= 1


def this_process() -> dict:
    """Return the identity of this process: host, boot, namespace, pid and start."""
    return _machine() | {"pid": os.getpid(), "started": _started(os.getpid())}


def is_dead(holder: dict) -> bool:
    """Whether the process that wrote a lease has certainly ended."""
    here = _machine()
    if holder.get("host") != here["host"]:
        return False
    if holder.get("boot") != here["boot"]:
        return True
    return holder.get("namespace") == here["namespace"] and _started(holder["pid"]) != holder.get("started")


def read_holder(text: bytes) -> dict:
    """Parse the process in a lease; an unreadable lease gives {}, which never counts as dead."""
    try:
        holder = json.loads(text)
        return holder if isinstance(holder["pid"], int) else {}
    except (ValueError, KeyError, TypeError):
        return {}


@functools.cache
def _machine():
    """Return the host's name and machine id, the id of its current boot, and the namespace of process ids."""
    name = f"{socket.gethostname()} {_text('/etc/machine-id')}".strip()
    return {"host": name, "boot": _text("/proc/sys/kernel/random/boot_id"), "namespace": _link("/proc/self/ns/pid")}


def _started(pid):
    """Return when a process started, in its system's units; None if there is no such process or it has ended."""
    if sys.platform.startswith("linux"):
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the command before it may hold anything
        return int(fields[19]) if fields and fields[0] not in "ZX" else None
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def _text(path):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""
