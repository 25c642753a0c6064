"""The software of this process: versions of packages, and which bcmdist it is.

Two checkouts of one version are told apart by a hash of the package's source files. The commit, where it can be found,
is for people: of a checkout the one that is checked out, of `pip install git+https://...` the one that was installed.
"""

import functools
import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("bcmdist", "numpy", "scipy", "zarr", "dask", "distributed")
DIGITS = 10  # of hashes as they are shown


@functools.cache
def software() -> dict[str, str]:
    """Return versions by package, of Python as `python`, and of the source and commit of bcmdist; "none" if unknown."""
    found = {name: version_of(name) for name in PACKAGES} | {"python": platform.python_version()}
    return found | {"source": _source()[:DIGITS], "commit": (_commit(ROOT.parent / ".git") or "none")[:DIGITS]}


def version_of(name: str) -> str:
    """Return the version of a package; "none" if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _source() -> str:
    """Return a hash of the names and contents of the source files of bcmdist."""
    total = hashlib.sha256()
    for path in sorted(ROOT.rglob("*.py")):
        total.update(path.relative_to(ROOT).as_posix().encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _commit(git: Path) -> str | None:
    """Return the commit of a checkout, given its directory .git, or the one that pip installed; None if unknown."""
    try:
        head = (git / "HEAD").read_text().strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head
        if (git / name).exists():
            return (git / name).read_text().strip()
        lines = (git / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in lines if line.endswith(f" {name}")), None)
    except OSError:
        return _installed()


def _installed() -> str | None:
    try:
        origin = json.loads(distribution("bcmdist").read_text("direct_url.json") or "{}")
        return origin.get("vcs_info", {}).get("commit_id")
    except (PackageNotFoundError, ValueError):
        return None
