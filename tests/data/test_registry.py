from importlib.metadata import EntryPoint

import pytest

from bcmdist.data import registry
from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption


@pytest.fixture
def colours():
    colours = Registry[int]("colour")
    colours.add("red", 1000)
    colours.add("blue", 2000)
    return colours


def test_names_in_their_order(colours):
    assert list(colours) == ["red", "blue"]
    assert (len(colours), colours["blue"], "red" in colours, "green" in colours) == (2, 2000, True, False)


def test_a_name_that_nobody_added(colours):
    with pytest.raises(InvalidOption, match="colour: expected one of red, blue, got 'green'; give one of these, or"):
        colours["green"]


def test_a_name_that_is_taken(colours):
    assert colours.add("red", colours["red"]) == 1000
    with pytest.raises(InvalidOption, match="colour: expected a name of its own, 'red' is that of 1000"):
        colours.add("red", 3)


def test_other_packages_are_imported_where_a_name_is_missing(colours, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    tmp_path.joinpath("green_plugin.py").write_text("import test_registry\ntest_registry.ADDED.append('green')\n")
    point = EntryPoint("green", "green_plugin", registry.PLUGINS)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    registry.load_packages.cache_clear()
    registry.load_plugins.cache_clear()
    assert "blue" in colours
    assert ADDED == []
    assert "green" not in colours  # but asked for
    assert ADDED == ["green"]
    registry.load_packages.cache_clear()
    registry.load_plugins.cache_clear()


ADDED: list[str] = []
