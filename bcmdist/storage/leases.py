"""Leases: who works with a commit, so that pruning leaves it alone.

    MODEL/holds/<number>-<random>     JSON: host, boot, namespace, pid and start of the process that holds the commit

Who holds a commit has a lease of it. That ends with its context manager, or with its process: one whose process is dead
is none. Only a process of this host is known to be dead; the lease of another host stays until its process ends it (or
somebody removes the file). Ids of processes come again, so that a process is known by its start too, in ticks since the
machine was: no clock that somebody can set decides anything.

The first four functions are of a `ModelStore`.
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
    """While this is open, pruning keeps commit `number`, and blobs that nobody names yet.

    Who reads a commit piece by piece, or puts blobs and commits them, holds the commit he started from.
    Where nothing can be written (a model on a read-only disk) there is no lease.

    Raises
    ------
    ModelNotFound
        It has been pruned.
    """
    name = f"holds/{number:08d}-{uuid.uuid4().hex}"
    try:
        store.storage.put_if_absent(name, json.dumps(this_process()).encode())
    except NotAFile:
        raise
    except OSError:  # a disk that can only be read
        pass
    try:
        if 0 < number <= store.pruned():
            raise ModelNotFound(f"{store.storage.url}: expected commit {number}, it was pruned; load a later one")
        yield
    finally:
        with contextlib.suppress(OSError):
            store.storage.remove(name)


@contextlib.contextmanager
def opened(store, number: int | None = None) -> Iterator[Any]:
    """A commit that was held before it was loaded, and is while this is open.

    The newest by default: where it is pruned before the lease is there, the one that is the newest then.

    Raises
    ------
    ModelNotFound, ModelDamaged, VersionMismatch
    """
    with contextlib.ExitStack() as lease:
        yield _opened(store, lease, number)


def _opened(store, lease, number):
    while True:
        wanted = store.head() if number is None else number
        try:
            if wanted:
                lease.enter_context(store.hold(wanted))
            return store.load(wanted)
        except (ModelNotFound, ModelDamaged):
            lease.close()
            if number is not None or store.head() == wanted:
                raise


def held(store) -> dict[int, list[str]]:
    """Who holds commits, by number; leases of processes that have ended are removed."""
    found: dict[int, list[str]] = {}
    for name in filter(LEASE_NAME.fullmatch, store.storage.names("holds")):
        try:
            holder = read_holder(store.storage.get(f"holds/{name}"))
        except FileNotFoundError:  # let go
            continue
        if is_dead(holder):
            with contextlib.suppress(OSError):  # a disk that can only be read
                store.storage.remove(f"holds/{name}")
        else:
            who = f"process {holder['pid']} on {holder.get('host')}" if holder else f"unreadable holds/{name}"
            found.setdefault(int(name.partition("-")[0]), []).append(who)
    return found


def alone(store) -> bool:
    """Whether nobody holds a commit but the caller, who holds one."""
    return sum(map(len, held(store).values())) <= 1


def this_process() -> dict:
    """What tells this process from all others."""
    return _machine() | {"pid": os.getpid(), "started": _started(os.getpid())}


def is_dead(holder: dict) -> bool:
    """Whether the process that wrote a lease is known to have ended."""
    here = _machine()
    if holder.get("host") != here["host"]:
        return False
    if holder.get("boot") != here["boot"]:
        return True
    return holder.get("namespace") == here["namespace"] and _started(holder["pid"]) != holder.get("started")


def read_holder(text: bytes) -> dict:
    """The process that a lease names; one that cannot be read might be anyone's, and is not dead."""
    try:
        holder = json.loads(text)
        return holder if isinstance(holder["pid"], int) else {}
    except (ValueError, KeyError, TypeError):
        return {}


@functools.cache
def _machine():
    """Name and identity of the host, which start of it this is, and whose process ids these are."""
    name = f"{socket.gethostname()} {_text('/etc/machine-id')}".strip()
    return {"host": name, "boot": _text("/proc/sys/kernel/random/boot_id"), "namespace": _link("/proc/self/ns/pid")}


def _started(pid):
    """When a process started, as its system counts; None where there is none, or it has ended."""
    if sys.platform.startswith("linux"):
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the name before may hold anything
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
