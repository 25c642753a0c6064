"""The changelog is sorted by version and kind, in lines of their own."""

import re
from pathlib import Path

import pytest

import bcmdist

CHANGELOG = Path(bcmdist.__file__).parent.parent / "CHANGELOG.md"
KINDS = ["Added", "Changed", "Fixed", "Removed"]
VERSION = re.compile(r"## (?:Unreleased|(\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d)")

pytestmark = pytest.mark.skipif(not CHANGELOG.is_file(), reason="CHANGELOG.md: not beside the package")


def faults(text) -> list[str]:
    """What is wrong with a changelog."""
    title, *parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    found = [] if title.startswith("# Changelog\n") else ["no title"]
    for part in parts:
        heading, *lines = part.splitlines()
        kinds = [line.removeprefix("### ") for line in lines if line.startswith("### ")]
        if not VERSION.fullmatch(heading):
            found.append(f"no version: {heading}")
        if kinds != [kind for kind in KINDS if kind in kinds]:
            found.append(f"{heading}: kinds {kinds}")
        if lines and not next(filter(None, lines)).startswith("### "):
            found.append(f"{heading}: lines without a kind")
        found += [f"no line of its own: {line}" for line in lines if line and not line.startswith(("- ", "### "))]
    entries = [line for line in text.splitlines() if line.startswith("- ")]
    return found + [f"twice: {line}" for line in sorted(set(entries)) if entries.count(line) > 1]


def test_versions_kinds_and_lines():
    assert faults(CHANGELOG.read_text()) == []


def test_the_version_of_the_package_has_a_heading_and_unreleased_is_first():
    versions = [match[1] for match in VERSION.finditer(CHANGELOG.read_text())]
    assert bcmdist.__version__ in versions
    assert None not in versions[1:]


def test_what_would_be_found():
    text = "# Changelog\n\n## 1.0\n\n- a\n  b\n\n## Unreleased\n\n### Fixed\n\n- a\n\n### Added\n\n- c\n"
    assert faults(text) == [
        "no version: ## 1.0",
        "## 1.0: lines without a kind",
        "no line of its own:   b",
        "## Unreleased: kinds ['Fixed', 'Added']",
        "twice: - a",
    ]
