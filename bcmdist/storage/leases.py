"""Who works with a commit: small files that pruning respects.

    MODEL/holds/<number>-<random>     JSON: host, boot, namespace, pid and start of the process that holds it

A hold ends with its context manager, or with its process: one whose process is dead is no hold. Only a process
of this host is known to be dead; a hold of another host stays until its process ends it (or somebody removes the
file). Ids of processes come again, so that a process is known by its start too, in ticks since the machine was:
no clock that somebody can set decides anything.
"""

import functools
import json
import os
import socket
import sys
from pathlib import Path

import psutil


def this_process() -> dict:
    """What tells this process from all others."""
    return _machine() | {"pid": os.getpid(), "started": _started(os.getpid())}


def is_dead(holder: dict) -> bool:
    """Whether the process that wrote a hold is known to have ended."""
    here = _machine()
    if holder.get("host") != here["host"]:
        return False
    if holder.get("boot") != here["boot"]:
        return True
    return holder.get("namespace") == here["namespace"] and _started(holder["pid"]) != holder.get("started")


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


def read_holder(text: bytes) -> dict:
    """The process that a hold names; one that cannot be read might be anyone's, and is not dead."""
    try:
        holder = json.loads(text)
        return holder if isinstance(holder["pid"], int) else {}
    except (ValueError, KeyError, TypeError):
        return {}
