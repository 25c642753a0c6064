"""What a partition was doing when it killed its worker: notes that the scheduler keeps.

Only partitions under suspicion, which are tried alone, leave notes: on start and every `NOTE_SECONDS` from then on,
the innermost function of ours and the memory of the process.
"""

import contextlib
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import distributed
import psutil

from bcmdist.runtime.task import run_batch

TOPIC = "bcmdist-notes"
NOTE_SECONDS = 0.1
FIRST_SECONDS = 0.05  # for the first note to leave before anything can happen


@dataclass(frozen=True)
class LastSeen:
    """The last of the notes about a partition."""

    phase: str
    """innermost function of ours, as module.function"""
    resident: float
    """largest memory of its worker, bytes"""


def run_noted(task, parts) -> Any:
    """As `run_batch`, on a worker that tells the scheduler how far it is."""
    worker, key = distributed.get_worker(), parts[0].key
    thread, homes = threading.get_ident(), {"bcmdist", type(task).__module__.partition(".")[0]}
    ended = threading.Event()

    def note(phase):
        worker.log_event(TOPIC, {"key": key, "phase": phase, "resident": psutil.Process().memory_info().rss})

    def keep_noting():
        while not ended.wait(NOTE_SECONDS):
            note(_innermost(sys._current_frames().get(thread), homes))

    note("start")
    time.sleep(FIRST_SECONDS)
    notes = threading.Thread(target=keep_noting, daemon=True)
    notes.start()
    try:
        return run_batch(task, parts)
    finally:
        ended.set()
        notes.join()


def last_seen(client, part) -> LastSeen:
    """What is known about the trials of a partition."""
    notes = []
    with contextlib.suppress(OSError):
        notes = [note for _, note in client.get_events(TOPIC) if note["key"] == part.key]
    return LastSeen(notes[-1]["phase"], max(n["resident"] for n in notes)) if notes else LastSeen("unknown", 0.0)


def _innermost(frame, homes):
    """Name of the innermost function that belongs to us, of the stack that ends with `frame`."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in homes:
            return f"{module.removeprefix('bcmdist.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "start"
