"""How a process allocates: matrices stand where those before them stood, on pages that are there already.

Dask's nanny starts workers with MALLOC_TRIM_THRESHOLD_=65536, which also ends the growth of glibc's threshold for
mapping: each matrix above 128 kB is then mapped again, and each of its pages faults in at the first touch. `mallopt`
undoes it in a process that runs already, whoever has started it.
"""

import ctypes

MIB = 2**20
# Parameters of mallopt (malloc.h), and values in order of preference: glibc before 2.35 takes no first threshold above
# 32 MiB. Threads other than the main one have heaps of 64 MiB: what does not fit there is mapped whatever is said here.
PARAMETERS = (
    ("mmap_threshold", -3, (256 * MIB, 32 * MIB)),
    ("trim_threshold", -1, (512 * MIB,)),
    ("top_pad", -2, (64 * MIB,)),
)


def keep_pages() -> dict[str, int]:
    """Let this process keep the memory that it frees, for its life; what the C library took, in bytes by name.

    Empty where it is not glibc (musl, macOS, Windows): nothing is changed. What was before cannot be asked for.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")  # as glibc is named
        mallopt = libc.mallopt
    except (OSError, AttributeError):
        return {}
    found = {name: next((b for b in wanted if mallopt(number, b)), 0) for name, number, wanted in PARAMETERS}
    return {name: taken for name, taken in found.items() if taken}
