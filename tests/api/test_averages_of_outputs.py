"""Averages over points of several outputs, which have different units: of each output apart."""

import csv

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Mixture
from bcmdist.app.cli.main import cli
from bcmdist.errors import InvalidData, InvalidOption


def run(*arguments):
    return CliRunner().invoke(cli, [*map(str, arguments), "--serial", "--quiet"])


@pytest.fixture(scope="module")
def metals(tmp_path_factory):
    """A model of two outputs at the places (u, v), and its folder."""
    folder, rng = tmp_path_factory.mktemp("metals"), np.random.default_rng(5)
    with open(folder / "long.csv", "w") as file:
        file.write("u,v,metal,y\n")
        for u, v in rng.uniform(-2, 2, (120, 2)):
            f = np.sin(2 * u)
            file.write(f"{u},{v},lead,{60 + 5 * f}\n{u},{v},zinc,{3 + f}\n")
    how = (
        "--y",
        "y",
        "--output",
        "metal",
        "--effort",
        "quick",
        "--query",
        20,
        "--kernel",
        "se",
        "--partition",
        "chunks",
    )
    found = run("fit", folder / "long.csv", "--model", folder / "model", *how)
    assert found.exit_code == 0, found.output
    return GBCM.load(folder / "model"), folder


def frame(places, metal):
    return pd.DataFrame({"u": places[:, 0], "v": places[:, 1], "metal": metal})


def test_outputs_are_averaged_apart(metals):
    gbcm, _ = metals
    places = np.random.default_rng(6).uniform(-2, 2, (8, 2))
    both = frame(np.vstack([places, places]), ["lead"] * 8 + ["zinc"] * 8)
    groups = np.tile(["W", "E"], 8)
    found = gbcm.predict_average(both, groups)
    assert found["group"].tolist() == ["E", "E", "W", "W"]
    assert found["output"].tolist() == ["lead", "zinc"] * 2
    assert found["points"].tolist() == [4] * 4
    for metal in ("lead", "zinc"):
        alone = gbcm.predict_average(frame(places, [metal] * 8), groups[:8])
        own = found["output"] == metal
        for name in ("mean", "sd", "lower95"):
            np.testing.assert_allclose(found[name][own], alone[name], rtol=1e-9)
    weighted = np.where(groups == "W", 1.0, np.arange(16) < 8)
    with pytest.raises(InvalidData, match="expected a positive sum of each output in each group, got 0 of zinc in E"):
        gbcm.predict_average(both, groups, weights=weighted)


def test_tables_without_the_column_of_outputs_give_averages_of_all(metals):
    gbcm, folder = metals
    (folder / "new.csv").write_text("u,v,region\n0.1,0.2,W\n0.5,1,W\n-1,-1,E\n")
    found = run("predict", gbcm.url, folder / "new.csv", "--over", "region", "--out", folder / "averages.csv")
    assert found.exit_code == 0, found.output
    with open(folder / "averages.csv") as file:
        rows = [(line["region"], line["output"], line["points"], float(line["mean"])) for line in csv.DictReader(file)]
    assert [row[:3] for row in rows] == [
        ("E", "lead", "1"), ("E", "zinc", "1"), ("W", "lead", "2"), ("W", "zinc", "2"),
    ]  # fmt: skip
    expected = gbcm.predict_average(frame(np.array([[0.1, 0.2], [0.5, 1.0]]), ["zinc"] * 2), ["W", "W"])["mean"][0]
    assert rows[3][3] == pytest.approx(expected, rel=1e-6)


def test_joint_predictions_ask_for_the_column_of_outputs(metals):
    gbcm, _ = metals
    places = frame(np.zeros((2, 2)), ["lead"] * 2).drop(columns="metal")
    for ask in (gbcm.predict_joint, lambda X: gbcm.predict_average(X, ["a", "b"])):
        with pytest.raises(
            InvalidData, match="expected a column 'metal' that names the output of each row, found none"
        ):
            ask(places)


def test_a_mistyped_column_of_outputs_is_named(metals):
    _, folder = metals
    found = run("fit", folder / "long.csv", "--y", "y", "--output", "metl", "--model", folder / "other")
    assert "expected a column 'metl', found" in found.output
    assert "did you mean 'metal'?); correct --output" in found.output


def test_models_of_other_kinds_are_not_merged(metals, tmp_path):
    gbcm, _ = metals
    mixture = Mixture([gbcm])
    with pytest.raises(InvalidOption, match="expected a GBCM or the directory of one, got Mixture"):
        gbcm.merge(mixture, tmp_path / "both")
    with pytest.raises(InvalidOption, match="expected a Mixture or the directory of one, got GBCM"):
        mixture.merge(gbcm, tmp_path / "both")
