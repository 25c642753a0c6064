"""Messages for operating system errors that no other module handles: what was expected, found, and what to do."""

import errno
import os
import select
import socket
import sys

from bcmdist.storage.paths import FULL, disk_full, leads_nowhere

BROKEN_PIPE = 141  # exit code after the reader of the output has gone: 128 + SIGPIPE (13), as in a shell
UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)


def described(error: OSError) -> tuple[str, str]:
    """Return the name and the message of an error."""
    name, path = type(error).__name__, _path(error)
    if error.errno in FULL:
        return "DiskFull", str(disk_full(path or os.getcwd(), error, "what was to be written"))
    if _is_of_connection(error):
        return name, (
            f"expected the other end of a connection to answer, got {_text(error)}; see that the scheduler, workers, "
            "stores and servers of this command run and can be reached, and run the same command again"
        )
    if path is None:
        return name, f"expected files that can be read and written, got {_text(error)}; run the same command again"
    if link := leads_nowhere(path):
        return name, f"expected {path} to be there, {link}; correct it"
    if isinstance(error, FileNotFoundError):
        return name, f"expected {path} to be there, it is not; correct the path"
    if isinstance(error, PermissionError):
        return name, f"expected to be let at {path}, got {error.strerror}; correct its permissions, or the path"
    return name, f"expected a file or directory at {path} that can be used, got {error.strerror}; correct the path"


def nobody_reads() -> bool:
    """Whether the reader of stdout or stderr has gone; if so, redirect that stream to the null device."""
    if not hasattr(select, "poll"):
        return False
    gone = [stream for stream in (sys.__stdout__, sys.__stderr__) if stream is not None and _has_no_reader(stream)]
    for stream in gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    return bool(gone)


def _has_no_reader(stream):
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _is_of_connection(error):
    of_connection = ConnectionError | TimeoutError | socket.gaierror
    ours = type(error).__module__.partition(".")[0] == "distributed"
    return isinstance(error, of_connection) or ours or error.errno in UNREACHABLE


def _text(error):
    return str(error) or type(error).__name__


def _path(error):
    found = error.filename2 or error.filename
    return os.fsdecode(found) if isinstance(found, str | bytes) else None
