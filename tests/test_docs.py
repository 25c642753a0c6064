"""What the package says of itself is so: its rooms, and where one adds something."""

import ast
import re
from pathlib import Path

import pytest

import bcmdist

ROOT = Path(bcmdist.__file__).parent
TEXT = bcmdist.__doc__ or ""
ROOMS, ADDED = TEXT.split("Rooms\n-----\n")[1].split("Where do I add ...\n------------------\n")


def test_every_room_has_its_line():
    told = {name.strip() for line in re.findall(r"^([\w., ]+) : ", ROOMS, re.MULTILINE) for name in line.split(",")}
    entries = {path.name for path in ROOT.iterdir()} - {"__pycache__", "py.typed", "__init__.py", "__main__.py"}
    assert told == entries


@pytest.mark.parametrize("folder", sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.rglob("__init__.py")))
def test_every_folder_says_what_it_is(folder):
    assert ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))


def test_what_is_named_is_there():
    named = re.findall(r"\b[a-z_]+(?:/[a-z_]+)+(?:\.py)?", ADDED)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_registry_is_named():
    registries = {name for name in bcmdist.__all__ if name.startswith("register_")}
    assert registries <= set(re.findall(r"`(register_\w+)`", ADDED))
    assert registries
