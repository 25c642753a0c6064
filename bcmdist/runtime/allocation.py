"""Tune glibc malloc so that freed memory stays in the process and the next matrices reuse its pages.

Dask's nanny starts workers with MALLOC_TRIM_THRESHOLD_=65536. This setting also disables glibc's dynamic mmap
threshold: every matrix above 128 kB is then mapped again, and each of its pages faults at first touch. `mallopt` undoes
the setting in a running process, however the process was started.
"""

import ctypes

MIB = 2**20
# Parameters of mallopt (malloc.h) with their values in order of preference: glibc before 2.35 rejects an mmap threshold
# above 32 MiB. Threads other than the main thread have heaps of 64 MiB; larger blocks are mapped whatever is set here.
PARAMETERS = (
    ("mmap_threshold", -3, (256 * MIB, 32 * MIB)),
    ("trim_threshold", -1, (512 * MIB,)),
    ("top_pad", -2, (64 * MIB,)),
)


def keep_pages() -> dict[str, int]:
    """Make this process keep freed memory for the rest of its life; return the accepted settings, in bytes by name.

    Without glibc (musl, macOS, Windows) nothing is changed and the result is empty. The previous settings cannot be
    queried, so they cannot be restored.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")  # the file name of glibc
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return {}
    found = {name: next((b for b in bounds if mallopt(number, b)), 0) for name, number, bounds in PARAMETERS}
    return {name: taken for name, taken in found.items() if taken}
