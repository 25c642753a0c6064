"""Builds sdist and wheel, checks what is in them, and uses each from a fresh environment in a folder elsewhere.

    python tests/distributions.py [--tests] [--out FOLDER]

The interpreter has build, hatchling and twine. `--tests` also runs the quick tests of the unpacked sdist; `--out` keeps
both files. Exits with 77 and the reason where the tools are missing, or no packages can be installed.
"""

import argparse
import importlib.util
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
TOOLS = ("build", "hatchling", "twine")
INCLUDED = ("bcmdist", "tests", "examples", "deploy", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml")
# Of every sdist of the build backend.
BESIDE = {"PKG-INFO", ".gitignore"}
SKIPPED = 77
FIT = """
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

import bcmdist

assert Path(bcmdist.__file__).is_relative_to(sys.prefix), bcmdist.__file__
assert version("bcmdist") == bcmdist.__version__
X = np.linspace(-2, 2, 300)[:, None]
settings = bcmdist.Settings(kernel="se", query=20, learn=False, partition="chunks")
prediction = bcmdist.GBCM.fit(X, np.sin(2 * X[:, 0]), settings).predict(np.array([[0.5]]))
assert abs(prediction["mean"][0] - np.sin(1.0)) < 0.1, prediction["mean"]
"""


def differences(names, tracked, beside=frozenset()) -> list[str]:
    """How names in a distribution differ from the files of the repository that belong there, a line for each."""
    missing = [f"missing: {name}" for name in sorted(set(tracked) - set(names))]
    return missing + [f"not in the repository: {name}" for name in sorted(set(names) - set(tracked) - set(beside))]


def in_sdist(path) -> list[str]:
    """Its files, without the folder that all are in."""
    with tarfile.open(path) as archive:
        files = [PurePosixPath(one.name) for one in archive if one.isfile()]
    return [str(PurePosixPath(*file.parts[1:])) for file in files]


def in_wheel(path) -> list[str]:
    """Its files but for metadata."""
    with zipfile.ZipFile(path) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def run(*command, **options) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True, **options)
    return done.stdout


def built(folder) -> tuple[Path, Path]:
    """An sdist of the repository, and a wheel made of it, both checked."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    print(run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel), end="")
    tracked = run("git", "-C", ROOT, "ls-files", "-z", *INCLUDED).split("\0")[:-1]
    wrong = differences(in_sdist(sdist), tracked, BESIDE)
    wrong += differences(in_wheel(wheel), [name for name in tracked if name.startswith("bcmdist/")])
    if wrong:
        sys.exit("\n".join(wrong))
    return sdist, wheel


def install(python, what) -> None:
    """Install into the environment of an interpreter, by the pip of this one."""
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", what)


def use(distribution, folder) -> Path:
    """Install a distribution in a new environment in a folder and use it there; the interpreter of the environment."""
    venv.create(folder / "venv")
    programs = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    python = programs / "python"
    install(python, distribution)
    version = run(programs / "bcmdist", "--version", cwd=folder).strip()
    run(python, "-W", "error", "-c", FIT, cwd=folder)
    print(f"{distribution.name}: {version}, installed; a fit predicts")
    return python


def test(sdist, python, folder) -> None:
    """The quick tests of an unpacked sdist."""
    install(python, f"{sdist}[test]")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    subprocess.run([python, "-m", "pytest", "-rs"], cwd=folder / sdist.name.removesuffix(".tar.gz"), check=True)


def reason_to_skip(folder) -> str:
    """Why environments cannot be made here; empty where they can."""
    ask = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--retries",
        "0",
        "--no-deps",
        "--dest",
        folder,
        "hatchling",
    ]
    return "" if subprocess.run(ask, capture_output=True).returncode == 0 else "no packages can be installed (offline?)"


def main(out, with_tests) -> int:
    if missing := [name for name in TOOLS if importlib.util.find_spec(name) is None]:
        print(f"skipped: missing {', '.join(missing)}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, name) for name in ("dist", "sdist", "wheel", "asked")]
        for folder in folders:
            folder.mkdir()
        sdist, wheel = built(out or folders[0])
        if reason := reason_to_skip(folders[3]):
            print(f"skipped: built and checked, not installed: {reason}")
            return SKIPPED
        use(wheel, folders[2])
        python = use(sdist, folders[1])
        if with_tests:
            test(sdist, python, folders[1])
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true", help="run the quick tests of the sdist, too")
    parser.add_argument("--out", type=Path, help="an empty or new folder for both files")
    asked = parser.parse_args()
    sys.exit(main(asked.out, asked.tests))
