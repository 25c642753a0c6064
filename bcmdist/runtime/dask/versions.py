"""Compares the software of the client, the scheduler and the workers of a cluster."""

import platform
import warnings
from collections.abc import Sequence
from importlib.metadata import version

from bcmdist.errors import BcmdistWarning, VersionMismatch
from bcmdist.runtime.software import PACKAGES, software

SAME = ("bcmdist", "numpy", "zarr", "source")  # must agree; a difference of others is a warning
CLIENT, SCHEDULER = "client", "scheduler"
SHOWN = 4  # columns of workers in a table, at most


def check_versions(client, workers: Sequence[str] | None = None) -> set[str]:
    """Compare the software of this process with that of the scheduler and all workers, or of the given workers only.

    Returns
    -------
    The addresses of the workers that were compared; a worker that dies meanwhile is left out.

    Raises
    ------
    VersionMismatch
        A package of `SAME`, or the source of bcmdist, differs. Of other packages there is a warning.
    """
    ours = software()
    theirs = _of_workers(client, workers)
    found = ({} if workers else {SCHEDULER: _of_scheduler(client)}) | theirs
    different = {where: _different(ours, one) for where, one in found.items()}
    names = [name for name in (*ours, "source") if any(name in one for one in different.values())]
    if names:
        _refuse(list(dict.fromkeys(names)), ours, {where: found[where] for where, one in different.items() if one})
    return set(theirs)


def _refuse(names, ours, others):
    """Raise `VersionMismatch`, or warn, with a table of the packages that differ and where."""
    shown = ["bcmdist" if name == "source" else name for name in names]
    pairs = [f"{name} {_shown(ours, name)}, got {_shown(one, name)} on {where}" for where, one in others.items()
             for name in dict.fromkeys(shown) if _shown(one, name) != _shown(ours, name)]  # fmt: skip
    text = (
        f"expected the software of this process everywhere: {'; '.join(pairs[:SHOWN])} ({len(others)} of scheduler and "
        "workers differ); install the same versions there, or here, and start again what runs with others"
    )
    text = f"{text}\n{_table(dict.fromkeys(shown), {CLIENT: ours} | others)}"
    if set(names) & set(SAME):
        raise VersionMismatch(text)
    warnings.warn(BcmdistWarning(text), stacklevel=4)


def _different(ours, theirs) -> list[str]:
    """Return the names of what differs; of Python the version without its last part is compared."""
    names = [name for name in ours if name != "commit" and name in theirs]
    return [name for name in names if _compared(name, ours) != _compared(name, theirs)]


def _compared(name, found):
    return found[name].rpartition(".")[0] if name == "python" else found[name]


def _shown(found, name) -> str:
    if name != "bcmdist" or "source" not in found:
        return found[name]
    commit = "" if found["commit"] == "none" else f", commit {found['commit']}"
    return f"{found[name]} (source {found['source']}{commit})"


def _table(names, columns) -> str:
    """Return a table with a row for each package; workers with the same software share a column."""
    alike: dict[tuple, list[str]] = {}
    for where, found in columns.items():
        alike.setdefault(tuple(_shown(found, name) for name in names), []).append(where)
    few = list(alike.items())[: SHOWN + 2]
    heads = ["package", *(at[0] if len(at) == 1 else f"{at[0]} and {len(at) - 1} more" for _, at in few)]
    rows = [heads, *([name, *(values[k] for values, _ in few)] for k, name in enumerate(names))]
    widths = [max(len(row[k]) for row in rows) for k in range(len(heads))]
    return "\n".join(f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows)


def _of_workers(client, workers) -> dict[str, dict[str, str]]:
    """Return the software of workers by address; of those without this module, as far as the standard library knows."""
    answers = client.run(software, workers=workers, on_error="return")
    found = {where: one for where, one in answers.items() if isinstance(one, dict)}
    older = [where for where, one in answers.items() if not isinstance(one, dict | OSError)]  # OSError: it died
    if older:
        found |= {where: {"source": "none", "commit": "none"} for where in older}
        for name, ask in _questions():
            for where, one in client.run(*ask, workers=older, on_error="return").items():
                found[where][name] = one if isinstance(one, str) else "none"
    return found


def _of_scheduler(client) -> dict[str, str]:
    try:
        return client.run_on_scheduler(software)
    except (ImportError, AttributeError):
        found = {"source": "none", "commit": "none"}
        for name, ask in _questions():
            try:
                found[name] = client.run_on_scheduler(*ask)
            except ImportError:  # PackageNotFoundError
                found[name] = "none"
        return found


def _questions():
    """Return functions of the standard library, with arguments, that return a version, by package."""
    return [("python", (platform.python_version,)), *((name, (version, name)) for name in PACKAGES)]
