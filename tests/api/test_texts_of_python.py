"""Errors and warnings name what their reader gave: parameters in Python, options of commands; and tables, not paths."""

import pickle
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings, errors
from bcmdist.app.cli.main import cli
from bcmdist.errors import BcmdistWarning, InvalidData, InvalidOption, UnsupportedTarget

QUICK = {"kernel": "se", "query": 20, "learn": False}


@pytest.fixture
def python(monkeypatch):
    """Texts as a user of Python sees them; tests otherwise see those of the command line."""
    monkeypatch.setattr(errors, "_options_shown", [])


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("give --partition chunks, or lower --rows-per-expert", "give partition chunks, or lower rows_per_expert"),
        ("leave out --no-learn", "leave out learn=False"),
        ("look at `bcmdist info --picture` (--half-life)", "look at `bcmdist info --picture` (half_life)"),
        ("got '--', a -- b, x--y", "got '--', a -- b, x--y"),
    ],
)
def test_options_are_parameters_in_python(python, written, shown):
    assert str(InvalidOption(written)) == str(BcmdistWarning(written)) == shown
    assert str(pickle.loads(pickle.dumps(InvalidOption(written)))) == shown
    with errors.on_command_line():
        assert str(InvalidOption(written)) == written


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("/a/model.data/prices.csv.zarr: expected", "prices.csv: expected"),
        ("(model.data/prices.parquet.zarr/X[0:9]) alone", "(prices.parquet/X[0:9]) alone"),
        ("/a/.out.csv.partial-0a-1b-2c-77-1.5-0b1c2d3e/new.csv.zarr: row 3", "new.csv: row 3"),
        ("/tmp/bcmdist-ab_12/rows-in-memory.zarr/X[0:4], which", "rows in memory/X[0:4], which"),
        (
            "/a/model.data is a directory; /a/prices.csv is missing",
            "/a/model.data is a directory; /a/prices.csv is missing",
        ),
    ],
)
def test_data_have_the_names_that_users_gave(written, shown):
    assert errors.as_shown(written) == shown


def test_rows_in_memory_have_no_path(python, rng):
    X, y = rng.uniform(size=(60, 1)), rng.uniform(size=60)
    with pytest.raises(UnsupportedTarget, match=r"^rows in memory: expected counts .* choose another task$"):
        GBCM.fit(X, y, Settings(likelihood="poisson", **QUICK))
    with pytest.warns(BcmdistWarning, match=r"^rows in memory: .* \(task regression\); give task classification if"):
        GBCM.fit(X, rng.integers(0, 4, 60), Settings(**QUICK))
    with pytest.raises(InvalidData, match=r"^rows in memory: expected finite numbers"):
        GBCM.fit(X, np.where(y > 0.5, np.inf, y), Settings(**QUICK))


def test_commands_name_tables(tmp_path, rng):
    table, model = tmp_path / "prices.csv", str(tmp_path / "model")
    rows = np.column_stack([rng.uniform(size=(60, 2)), rng.uniform(size=60) - 0.5])
    np.savetxt(table, rows, delimiter=",", header="a,b,price", comments="")
    how = ["fit", str(table), "--y", "price", "--model", model, "--kernel", "se", "--no-learn", "--serial"]
    done = CliRunner().invoke(cli, [*how, "--likelihood", "poisson"])
    assert "UnsupportedTarget: prices.csv: expected counts" in done.stderr
    assert "--task" in done.stderr
    assert "model.data" not in done.stderr
    assert CliRunner().invoke(cli, how).exit_code == 0
    np.savetxt(tmp_path / "later.csv", rows[:, [0, 2]] * np.inf, delimiter=",", header="a,price", comments="")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for command in (["score"], ["predict", "--out", str(tmp_path / "out.csv")]):
            done = CliRunner().invoke(cli, [command[0], model, str(tmp_path / "later.csv"), *command[1:], "--serial"])
            assert done.exit_code == 1
            assert "later.csv: expected" in done.stderr
            assert ".partial-" not in done.stderr
