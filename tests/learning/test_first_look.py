"""What a fit says of target and inputs before it learns, of data as files are."""

import json
import logging
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.app.cli.main import cli

pd = pytest.importorskip("pandas", reason="tables: pip install 'bcmdist[tables]'")
QUICK = {"kernel": "se", "query": 20, "learn": False, "partition": "chunks"}
COUNT = 400


def look(X, y, **changes):
    return GBCM.fit(X, y, Settings(**QUICK | changes)).info()["look"]


@pytest.fixture(name="X")
def inputs(rng):
    return rng.uniform(-2, 2, (COUNT, 2))


def test_plain_data_have_two_lines(X, caplog):
    caplog.set_level(logging.INFO, logger="bcmdist.learning.first_look")
    found = look(X, X[:, 0] + X[:, 1])
    assert found[0] == f"{COUNT} rows, 2 inputs"
    low, middle, high = np.quantile(X.sum(axis=1), [0.0, 0.5, 1.0])
    assert found[1].startswith(f"target y: {low:.4g} to {high:.4g}, median {middle:.4g}, skewness ")
    assert [record.getMessage() for record in caplog.records] == found


@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")
def test_zeros_gross_errors_and_telling_inputs(X, rng):
    y = np.maximum(X[:, 0], 0.0) + 0.01 * rng.standard_normal(COUNT) * (X[:, 0] > 0)
    found = look(X, y)
    assert f"{np.mean(y == 0):.0%} of rows are 0" in found[1]
    normal = rng.standard_normal(COUNT)
    normal[17] = 1e4
    wild = look(X, normal)
    assert any("1 of 400 sampled targets" in line and "1e+04 in row 17" in line for line in wild)
    telling = look(np.column_stack([X, np.arctan(normal)]), normal)
    assert any("nearly tell the target: X[2]" in line for line in telling)


def test_tails_of_skewed_targets_are_no_gross_errors(X, rng):
    found = look(X, np.exp(1.5 * rng.standard_normal(COUNT)))
    assert not any("targets lie" in line for line in found)


@pytest.mark.filterwarnings("ignore::bcmdist.errors.BcmdistWarning")
def test_copies_are_told_apart_from_repeated_inputs(X, rng):
    twice = np.concatenate([X, X[:100]])
    y = twice[:, 0] + 0.1 * rng.standard_normal(COUNT + 100)
    assert look(twice, y)[0].endswith("40% of rows repeat the inputs of others, with other targets")
    y[COUNT:] = y[:100]
    assert "40% of rows are copies of others" in look(twice, y)[0]


def test_classes(X):
    y = (X[:, 0] > 1.8).astype(float)
    assert look(X, y, task="classification")[1] == f"target y: 2 classes, the rarest 1 with {y.mean():.1%} of rows"


def test_a_table_with_identifiers_and_rare_levels(tmp_path, rng):
    frame = pd.DataFrame({"id": np.arange(COUNT) + 1000, "day": rng.permutation(COUNT), "a": rng.uniform(size=COUNT)})
    frame["town"] = ["Ulm"] * (COUNT - 3) + ["Graz"] * 3
    frame["price"] = frame.a + 0.1 * rng.standard_normal(COUNT)
    frame.to_csv(tmp_path / "a.csv", index=False)
    words = ["fit", str(tmp_path / "a.csv"), "--y", "price", "--kernel", "se", "--no-learn", "--serial"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = CliRunner().invoke(cli, [*words, "--model", str(tmp_path / "m")])
        named = CliRunner().invoke(cli, [*words, "--model", str(tmp_path / "n"), "--x", "id,a"])
        strict = CliRunner().invoke(cli, [*words, "--model", str(tmp_path / "s"), "--strict"])
    assert "'id' not used: it numbers the rows (--id id copies it to predictions" in done.stderr
    assert "bcmdist: 400 rows, 4 inputs" in done.stderr
    assert "bcmdist: target price: " in done.stderr
    assert "whole numbers that never repeat: day; leave them out (--drop)" in done.stderr
    assert "levels with fewer than 5 rows: town (1 of 2)" in done.stderr
    assert GBCM.load(tmp_path / "m").model.schema.columns == ("day", "a", "town=Graz", "town=Ulm")
    assert GBCM.load(tmp_path / "n").model.schema.columns == ("id", "a")
    assert "id" in GBCM.load(tmp_path / "s").model.schema.columns, strict.output
    assert named.exit_code == 0


@pytest.mark.parametrize(
    ("name", "values", "left_out"),
    [
        ("customer_id", np.arange(60) * 3, True),
        ("Unnamed: 0", np.arange(60), True),
        ("id", np.arange(60)[::-1], False),  # not in ascending order: perhaps a code
        ("id", np.arange(60) / 2, False),
        ("day", np.arange(60), False),  # may be a time
    ],
)
def test_only_what_numbers_rows_by_name_and_by_value_is_left_out(name, values, left_out, tmp_path, rng):
    frame = pd.DataFrame({name: values, "a": rng.uniform(size=60)})
    frame["y"] = frame.a
    for file in ("a.csv", "a.parquet"):
        frame.to_csv(tmp_path / file, index=False) if file == "a.csv" else frame.to_parquet(tmp_path / file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = CliRunner().invoke(
                cli, ["import", str(tmp_path / file), str(tmp_path / f"{file}.zarr"), "--y", "y", "--json"]
            )
        assert (name in json.loads(done.stdout)["unused"]) == left_out
