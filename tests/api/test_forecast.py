"""Forecasts: laws of single steps, limits, coverage over many, and how users meet them."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import norm

from bcmdist import GBCM, Mixture, Settings
from bcmdist.app.cli.main import cli
from bcmdist.data.schema import Schema
from bcmdist.data.tables.series import Lagged, Lags, lags_of
from bcmdist.data.tables.tables import open_table
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.prediction.predictive_model import PREDICTORS
from bcmdist.prediction.uncertain.forecast import forecast

pytestmark = pytest.mark.slow

LAGS = 3
GIVEN = {"kernel": "se", "query": 40, "effort": "quick"}


def oscillation(n, rng, *, phase=0.0):
    """A circle seen from the side: each value follows from the two before it."""
    return np.sin(0.3 * np.arange(n) + phase) + 0.05 * rng.standard_normal(n)


def rows(y):
    windows = np.lib.stride_tricks.sliding_window_view(y, LAGS + 1)
    return windows[:, -2::-1].copy(), windows[:, -1].copy()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    place = tmp_path_factory.mktemp("forecast")
    y = oscillation(300, np.random.default_rng(5))
    X, t = rows(y)
    write_dataset(place / "lags.zarr", {"X": X, "y": t}, rows_per_chunk=50, schema=Schema(Lags("level", LAGS).columns))
    gbcm = GBCM.fit(str(place / "lags.zarr"), Settings(**GIVEN), model=str(place / "model"))
    return gbcm, y


@pytest.mark.parametrize("way", ["naive", "exact", "taylor"])
def test_one_step_is_a_prediction(fitted, way):
    gbcm, y = fitted
    state = rows(y)[0][-5:]
    found, expected = gbcm.forecast(state, 1, inputs=way), gbcm.predict(state)
    np.testing.assert_allclose(found.mean[:, 0], expected["observation_mean"], rtol=1e-10)
    np.testing.assert_allclose(found.variance[:, 0], expected["observation_variance"], rtol=1e-8)
    np.testing.assert_allclose(found.upper95[:, 0], expected["upper95"], rtol=1e-8)


def test_series_do_not_know_of_each_other(fitted):
    gbcm, y = fitted
    state = rows(y)[0][-6:]
    together, alone = gbcm.forecast(state, 5, inputs="exact"), gbcm.forecast(state[2:3], 5, inputs="exact")
    np.testing.assert_allclose(together.mean[2:3], alone.mean, rtol=1e-9)
    np.testing.assert_allclose(together.variance[2:3], alone.variance, rtol=1e-9)


def test_two_steps_are_those_of_many_paths(fitted):
    """Exact moments of the second step, where the state is normal, against draws of the first one."""
    gbcm, y = fitted
    state = rows(y)[0][-1:]
    found = gbcm.forecast(state, 2, inputs="exact")
    first = gbcm.predict(state)
    draws = first["observation_mean"] + np.sqrt(first["observation_variance"]) * np.random.default_rng(
        1
    ).standard_normal(100_000)
    second = gbcm.predict(np.column_stack([draws, np.repeat(state[:, :-1], len(draws), axis=0)]))
    variance = second["observation_variance"].mean() + second["observation_mean"].var()
    # Of 1e5 draws a mean errs by 1/300 of a standard deviation, and a variance by 1/220 of itself.
    np.testing.assert_allclose(found.mean[0, 1], second["observation_mean"].mean(), atol=0.02 * np.sqrt(variance))
    np.testing.assert_allclose(found.variance[0, 1], variance, rtol=0.03)


@pytest.mark.parametrize("way", ["exact", "taylor", "montecarlo"])
def test_intervals_hold_what_comes(fitted, way):
    """Of 30 stretches of 20 steps that the model has not seen."""
    gbcm, _ = fitted
    rng = np.random.default_rng(6)
    y = oscillation(900, rng, phase=1.0)
    X, t = rows(y)
    starts = np.arange(30) * 28
    found = gbcm.forecast(X[starts], 20, inputs=way)
    truth = np.stack([t[start : start + 20] for start in starts])
    assert 0.88 < np.mean((truth > found.lower95) & (truth < found.upper95)) <= 1.0
    naive = gbcm.forecast(X[starts], 20, inputs="naive")
    assert (naive.variance[:, -1] < found.variance[:, -1]).all()


def test_seeds_of_paths(fitted):
    gbcm, y = fitted
    state = rows(y)[0][-2:]
    one, same, other = (gbcm.forecast(state, 4, inputs="montecarlo", seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.mean, same.mean)
    assert not np.array_equal(one.mean, other.mean)


# --- Series of tables ---


def table(tmp_path, names, values, *, note=True):
    path = tmp_path / "series.csv"
    with open(path, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["well", "level", "note"][: 2 + note])
        writer.writerows([name, value, "x"][: 2 + note] for name, value in zip(names, values, strict=True))
    return str(path)


@pytest.mark.parametrize("size", [3, 7, 1000])
def test_lags_of_several_series_in_any_pieces(tmp_path, rng, monkeypatch, size):
    names = rng.permutation(np.repeat(["a", "b", "c"], [20, 9, 2]))
    values = rng.standard_normal(len(names)).round(6)
    lagged = Lagged(open_table(table(tmp_path, names, values)), Lags("level", LAGS), "well")
    monkeypatch.setattr(type(lagged.table), "pieces", lambda self: pieces_of(self, size))
    found = list(lagged.pieces())
    X, y = (np.concatenate([piece[name] for piece in found]) for name in ("X", "y"))
    well, row = (np.concatenate([piece[name] for piece in found]) for name in ("well", "row"))
    assert np.array_equal(row, np.sort(row))
    for name in "abc":
        mine = values[names == name]
        windows = (
            np.lib.stride_tricks.sliding_window_view(mine, LAGS + 1) if len(mine) > LAGS else np.empty((0, LAGS + 1))
        )
        np.testing.assert_array_equal(X[well == name], windows[:, -2::-1])
        np.testing.assert_array_equal(y[well == name], windows[:, -1])
        np.testing.assert_array_equal(lagged.last[name][:, 0], mine[-LAGS:])


def pieces_of(named, size):
    yield from named.table.pieces(size)


def test_names_of_lags():
    for lags in (Lags("level", 4), Lags("level", 2, ("rain", "hour")), Lags("level", 1, ("rain", "hour"), 3)):
        assert lags_of(lags.columns) == lags
    assert Lags("level", 2, ("rain",), 1).columns == ("level[t-1]", "level[t-2]", "rain", "rain[t-1]")
    for other in (("level[t-1]", "level[t-3]"), ("level[t-1]", "rain", "hour", "hour[t-1]"), ("a", "b"), ()):
        assert lags_of(other) is None


def test_command_line(fitted, tmp_path):
    gbcm, y = fitted
    path = table(tmp_path, np.repeat(["north", "south"], 50), np.concatenate([y[:50], y[50:100]]))
    out = tmp_path / "out.csv"
    command = ["forecast", gbcm.snapshot.url, path, "--steps", "4", "--id", "well", "--out", str(out), "--json"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    with open(out) as file:
        lines = list(csv.DictReader(file))
    assert [(line["well"], line["step"]) for line in lines[3:5]] == [("north", "4"), ("south", "1")]
    expected = gbcm.forecast(y[[99, 98, 97]], 4)
    np.testing.assert_allclose([float(line["observation_mean"]) for line in lines[4:]], expected.mean[0], rtol=1e-9)
    again = CliRunner().invoke(cli, command)
    assert again.exit_code == 1
    assert "DataExists" in again.output


def test_from_a_table_to_a_forecast(tmp_path, rng):
    """Import, fit and forecast: two wells in one table, in turn."""
    values = np.column_stack([oscillation(150, rng), 5.0 + oscillation(150, rng, phase=1.0)])
    path = table(tmp_path, np.tile(["north", "south"], 150), values.ravel(), note=False)
    lags, model, out = (str(tmp_path / name) for name in ("lags.zarr", "model", "out.csv"))
    commands = (
        ["import", path, lags, "--y", "level", "--lags", "3", "--id", "well"],
        ["fit", lags, "--model", model, "--query", "40", "--effort", "quick", "--kernel", "se", "--serial"],
        ["forecast", model, path, "--steps", "5", "--id", "well", "--out", out],
    )
    for command in commands:
        done = CliRunner().invoke(cli, [*command, "--json"])
        assert done.exit_code == 0, done.output
    with open(out) as file:
        lines = list(csv.DictReader(file))
    assert [line["well"] for line in lines] == ["north"] * 5 + ["south"] * 5
    truth = np.sin(0.3 * (150 + np.arange(5))), 5.0 + np.sin(0.3 * (150 + np.arange(5)) + 1.0)
    np.testing.assert_allclose([float(line["observation_mean"]) for line in lines], np.concatenate(truth), atol=0.4)
    assert GBCM.load(model).info()["rows"] == 2 * 147
    printed = CliRunner().invoke(cli, ["forecast", model, "--steps", "5", "--json"])  # from where the fit ended
    said = json.loads(printed.stdout)["forecast"]
    assert said["well"] == ["north"] * 5 + ["south"] * 5
    np.testing.assert_allclose(said["upper95"], [float(line["upper95"]) for line in lines], rtol=1e-9)
    shown = CliRunner().invoke(cli, ["forecast", model, "--steps", "2"])
    assert [line.split()[:2] for line in shown.output.splitlines()[-2:]] == [["south", "1"], ["south", "2"]]


@pytest.mark.parametrize("option", [["--holdout", "0.5"], ["--weight", "note"], ["--no-target"]])
def test_lags_and_what_does_not_go_with_them(tmp_path, option):
    path = table(tmp_path, ["a"] * 9, range(9))
    command = ["import", path, str(tmp_path / "lags.zarr"), "--y", "level", "--lags", "2", *option]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1
    assert "--lags" in done.output
    assert not (tmp_path / "lags.zarr").exists()


def test_what_cannot_be_forecast(fitted, wave, tmp_path):
    gbcm, _ = fitted
    other = GBCM.fit(wave[0], Settings(**GIVEN), model=str(tmp_path / "other"))
    with pytest.raises(InvalidOption, match="import the series with --lags"):
        other.forecast(np.zeros((1, 2)), 3)
    with pytest.raises(InvalidData, match="the last 3 values"):
        gbcm.forecast(np.zeros((1, 2)), 3)
    with pytest.raises(InvalidOption, match="inputs: expected naive, exact, taylor, montecarlo"):
        gbcm.forecast(np.zeros((1, 3)), 3, inputs="other")
    short = Lagged(open_table(table(tmp_path, ["a", "b"] * 3, range(6))), Lags("level", 4), "well")
    with pytest.raises(InvalidData, match="at least 4 values of each series, got 3 of 'a'"):
        short.read()


def test_steps_of_a_predictor_by_hand(fitted):
    """Two naive steps: the second one from the first one's mean."""
    gbcm, y = fitted
    predictor = PREDICTORS["committee"].of_snapshot(gbcm.snapshot)
    state = y[[-1, -2, -3]][None]
    found = forecast(predictor, state, np.empty((1, 2, 0)), "naive")
    second = gbcm.predict(np.column_stack([found.mean[:, 0], state[:, :-1]]))
    np.testing.assert_allclose(found.mean[:, 1], second["observation_mean"], rtol=1e-12)


# --- What else is known ---


@pytest.fixture(scope="module")
def pumped(tmp_path_factory):
    """Two basins that a pump fills, by one table of the past and one of the pumping to come; and what comes."""
    place, rng = tmp_path_factory.mktemp("pumped"), np.random.default_rng(8)
    pump = np.repeat(rng.uniform(0, 1, (80, 2)), 5, axis=0)
    level = np.zeros((400, 2))
    for t in range(1, 400):
        level[t] = 0.8 * level[t - 1] + pump[t] + 0.5 * pump[t - 1] + 0.02 * rng.standard_normal(2)
    for name, rows in (("past", slice(0, 380)), ("ahead", slice(380, None))):
        with open(place / f"{name}.csv", "w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(["basin", "pump", "level"][: 3 if name == "past" else 2])
            for p, y in zip(pump[rows], level[rows], strict=True):
                writer.writerows([which, p[k], y[k]][: 3 if name == "past" else 2] for k, which in enumerate("ab"))
    return place, pump, level


def test_covariates_and_their_lags_are_inputs(pumped, monkeypatch):
    place, pump, level = pumped
    lagged = Lagged(open_table(str(place / "past.csv")), Lags("level", 1, ("pump",), 2), "basin")
    monkeypatch.setattr(type(lagged.table), "pieces", lambda self: pieces_of(self, 7))
    found = list(lagged.pieces())
    X, y, basin = (np.concatenate([piece[name] for piece in found]) for name in ("X", "y", "basin"))
    for k, which in enumerate("ab"):
        columns = [level[1:379, k], pump[2:380, k], pump[1:379, k], pump[:378, k]]
        np.testing.assert_array_equal(X[basin == which], np.column_stack(columns))
        np.testing.assert_array_equal(y[basin == which], level[2:380, k])


def test_forecasts_follow_what_is_known_ahead(pumped, tmp_path):
    place, pump, level = pumped
    lags, model, out = (str(tmp_path / name) for name in ("lags.zarr", "model", "out.csv"))
    past, ahead = str(place / "past.csv"), str(place / "ahead.csv")
    series = ["--lags", "1", "--x", "pump", "--x-lags", "1", "--id", "basin"]
    commands = (
        ["import", past, lags, "--y", "level", *series],
        ["fit", lags, "--model", model, "--query", "60", "--effort", "quick", "--kernel", "se", "--serial"],
        ["forecast", model, past, "--steps", "20", "--id", "basin", "--ahead", ahead, "--out", out],
    )
    for command in commands:
        done = CliRunner().invoke(cli, [*command, "--json"])
        assert done.exit_code == 0, done.output
    with open(out) as file:
        lines = list(csv.DictReader(file))
    truth = level[380:].T.ravel()
    said = {
        name: np.array([float(line[name]) for line in lines]) for name in ("observation_mean", "lower95", "upper95")
    }
    assert np.sqrt(np.mean((said["observation_mean"] - truth) ** 2)) < 0.06  # 1 / sqrt(1 - .8^2) of the noise: .033
    assert np.mean((truth > said["lower95"]) & (truth < said["upper95"])) > 0.85

    printed = CliRunner().invoke(cli, ["forecast", model, "--steps", "20", "--ahead", ahead, "--json"])  # by the rows
    np.testing.assert_allclose(json.loads(printed.stdout)["forecast"]["observation_mean"], said["observation_mean"])

    gbcm = GBCM.load(model)
    for way in ("naive", "exact", "taylor"):
        found = gbcm.forecast([[level[379, 0]]], 1, known=[[[pump[380, 0], pump[379, 0]]]], inputs=way)
        one = gbcm.predict([[level[379, 0], pump[380, 0], pump[379, 0]]])
        np.testing.assert_allclose(found.mean[:, 0], one["observation_mean"], rtol=1e-10)
        np.testing.assert_allclose(found.variance[:, 0], one["observation_variance"], rtol=1e-8)
    exact, paths = (
        gbcm.forecast(level[[379]].T, 6, known=known_of(pump), inputs=way, seed=1) for way in ("exact", "montecarlo")
    )
    # Of 500 paths a mean errs by 1/22 of a standard deviation, a variance by 1/16 of itself.
    np.testing.assert_allclose(paths.mean, exact.mean, atol=0.2 * np.sqrt(exact.variance.max()))
    np.testing.assert_allclose(paths.variance, exact.variance, rtol=0.3)


def known_of(pump):
    return np.stack([pump[380:386].T, pump[379:385].T], axis=-1)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["--steps", "5"], "--ahead: expected the columns pump of the rows to come, got none"),
        (["--steps", "21", "--ahead", "ahead.csv"], "expected at least 21 values of each series, got 20 of 'a'"),
        (["--steps", "5", "--ahead", "other.csv"], "expected a column 'pump', found"),
    ],
)
def test_what_must_be_known_ahead(pumped, tmp_path_factory, command, message, monkeypatch):
    place, _, _ = pumped
    monkeypatch.chdir(place)
    (place / "other.csv").write_text("basin,rain\na,1\nb,2\n")
    if not (place / "model").exists():
        for one in (
            ["import", "past.csv", "lags.zarr", "--y", "level", "--lags", "1", "--x", "pump", "--id", "basin"],
            ["fit", "lags.zarr", "--model", "model", "--query", "20", "--no-learn", "--kernel", "se", "--serial"],
        ):
            assert CliRunner().invoke(cli, one).exit_code == 0
    done = CliRunner().invoke(cli, ["forecast", "model", "past.csv", "--id", "basin", *command])
    assert done.exit_code == 1
    assert message in " ".join(done.output.split())


def test_lags_of_covariates_need_lags_and_covariates(pumped, tmp_path):
    place, _, _ = pumped
    for options in (["--x-lags", "2"], ["--lags", "2", "--x-lags", "2"]):
        done = CliRunner().invoke(
            cli, ["import", str(place / "past.csv"), str(tmp_path / "l.zarr"), "--y", "level", *options]
        )
        assert done.exit_code == 1
        assert "--x-lags: expected" in done.output
        assert not (tmp_path / "l.zarr").exists()


# --- Mixtures ---


@pytest.fixture(scope="module")
def several(fitted, tmp_path_factory):
    """A mixture of two committees that differ in noise, in a directory, and the values of their series."""
    gbcm, y = fitted
    place = tmp_path_factory.mktemp("mixture")
    given = GIVEN | {"learn": False}
    members = [
        GBCM.fit(gbcm.facts["data"], Settings(**given, set={"likelihood.noise_variance": noise}), model=place / name)
        for name, noise in (("0", 0.01), ("1", 0.3))
    ]
    listed = [[name, one.commit, one.snapshot.digest] for name, one in zip("01", members, strict=True)]
    (place / "mixture.json").write_text(json.dumps(listed))
    return Mixture.load(place), y


@pytest.mark.parametrize("way", ["naive", "exact", "taylor"])
def test_one_step_of_a_mixture_is_its_prediction(several, way):
    mixture, y = several
    state = rows(y)[0][-5:]
    found, expected = mixture.forecast(state, 1, inputs=way), mixture.predict(state)
    np.testing.assert_allclose(found.mean[:, 0], expected["observation_mean"], rtol=1e-10)
    np.testing.assert_allclose(found.variance[:, 0], expected["observation_variance"], rtol=1e-8)
    np.testing.assert_allclose(found.upper95[:, 0], expected["upper95"], rtol=1e-8)


def test_later_steps_of_a_mixture_average_over_members(several):
    mixture, y = several
    state = rows(y)[0][-5:]
    found, each = mixture.forecast(state, 3), [member.forecast(state, 3) for member in mixture.members]
    np.testing.assert_allclose(found.mean, np.mean([one.mean for one in each], axis=0), rtol=1e-12)
    second = np.mean([one.variance + one.mean**2 for one in each], axis=0)
    np.testing.assert_allclose(found.variance, second - found.mean**2, rtol=1e-9)
    below = [norm.cdf(found.lower95, one.mean, np.sqrt(one.variance)) for one in each]
    np.testing.assert_allclose(np.mean(below, axis=0), 0.025, rtol=1e-9)


def test_the_command_on_a_mixture(several):
    mixture, y = several
    done = CliRunner().invoke(cli, ["forecast", mixture.url, "--steps", "2", "--json"])
    assert done.exit_code == 0, done.output
    expected = mixture.forecast(y[-1 : -1 - LAGS : -1][None], 2)
    np.testing.assert_allclose(json.loads(done.stdout)["forecast"]["lower95"], expected.lower95[0], rtol=1e-9)
