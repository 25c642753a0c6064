"""Write requirements.txt and tools.txt: exact versions of what the image holds, with hashes, for the Pythons below.

    python3.11 lock.py          # newest versions that pyproject.toml allows; by the oldest Python, whose markers hold

One set of versions for all: those that pip chooses for the first Python and machine, of which the others get their own
wheels. `pip install --require-hashes` then refuses anything else.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
EXTRAS = ("serve", "s3", "tables", "redis")
PYTHONS = ("3.12", "3.11")  # of the image; of Debian 12, where run.sh makes a base of its packages
MACHINES = ("x86_64", "aarch64")
ALSO = ("async-timeout>=4.0.3",)  # redis wants it before Python 3.11.3, and Debian 12 has 3.11.2
TOOLS = ("hatchling", "cyclonedx-bom")  # make the wheel, and the list of what is in the image
HEAD = "# Made by lock.py; pip install --require-hashes --only-binary :all: -r {}\n"


def asked() -> list[str]:
    """Requirements of the package and of the extras in the image."""
    project = tomllib.loads((HERE / "../../pyproject.toml").read_text())["project"]
    return sorted(
        {*ALSO, *project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])}
    )


def chosen(requirements: list[str], python: str, machine: str) -> dict[str, tuple[str, set[str]]]:
    """Version and hashes by name, as pip chooses wheels for a Python on a machine."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(36, 16, -1)] + [f"manylinux2014_{machine}"]
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--target",
            scratch,
        ]
        command += ["--only-binary", ":all:", "--python-version", python, "--report", str(report)]
        command += [part for one in platforms for part in ("--platform", one)]
        subprocess.run([*command, *requirements], check=True)
        found = json.loads(report.read_text())["install"]
    return {
        one["metadata"]["name"].lower().replace("_", "-"): (
            one["metadata"]["version"],
            {one["download_info"]["archive_info"]["hashes"]["sha256"]},
        )
        for one in found
    }


def locked(requirements: list[str]) -> str:
    """Lines of versions and hashes of requirements and of all that they need."""
    first, *others = [(python, machine) for python in PYTHONS for machine in MACHINES]
    pins = chosen(requirements, *first)
    for python, machine in others:
        same = [f"{name}=={version}" for name, (version, _) in pins.items()]
        for name, (version, hashes) in chosen(same, python, machine).items():
            pins.setdefault(name, (version, set()))[1].update(hashes)
    lines = []
    for name, (version, hashes) in sorted(pins.items()):
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in sorted(hashes))]))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write both files."""
    for name, requirements in {"requirements.txt": asked(), "tools.txt": list(TOOLS)}.items():
        (HERE / name).write_text(HEAD.format(name) + locked(requirements))


if __name__ == "__main__":
    main()
