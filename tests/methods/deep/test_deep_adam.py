"""Deep Gaussian processes of many rows: Adam by some rows a step, a process on a worker."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import Bounds
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.api.plan.plan import plan
from bcmdist.learning.option_fields import texts_of
from bcmdist.methods.deep import adam, training
from bcmdist.methods.deep.adam import Climber, decay, drawn

ASKED = Settings(expert="dgp", units=2, query=10, rows_per_expert=50, effort="quick")
ANYWHERE = Bounds(-np.inf, np.inf)


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """A few steps are enough to compare."""
    monkeypatch.setattr(adam, "ROWS", 40)
    monkeypatch.setattr(adam, "ROUND", 15)
    monkeypatch.setitem(adam.STEPS, "quick", 40)


def whole(steps):
    """Steps of a climb of (x - 3)^2 and (y + 1)^2 downhill, from nothing."""
    climber = Climber(np.zeros(2), np.zeros(2), np.zeros(2))
    while climber.steps < steps:
        slope = -2.0 * (climber.numbers - [3.0, -1.0])
        climber = climber.stepped(slope, 0.1 * decay(climber.steps, steps), ANYWHERE)
    return climber


def test_the_first_step_is_as_long_as_the_rate_whatever_the_slope():
    climber = Climber(np.zeros(3), np.zeros(3), np.zeros(3)).stepped(np.array([1e-3, -5.0, 1e4]), 0.1, ANYWHERE)
    np.testing.assert_allclose(climber.numbers, [0.1, -0.1, 0.1], rtol=1e-4)  # but for what keeps it from 0 / 0


def test_it_comes_to_the_top():
    np.testing.assert_allclose(whole(2000).numbers, [3.0, -1.0], atol=1e-3)  # as near as the last, short steps


def test_it_stays_within_bounds():
    climber = Climber(np.zeros(1), np.zeros(1), np.zeros(1)).stepped(np.ones(1), 0.1, Bounds(-0.05, 0.05))
    assert climber.numbers == 0.05


def test_what_is_kept_of_a_climber_is_all_of_it():
    one = whole(5)
    other = Climber.from_array(one.to_array())
    assert other.steps == 5
    for name in ("numbers", "first", "second"):
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))


@pytest.mark.parametrize("rows", [30, 40, 120, 121, 157])
def test_an_epoch_has_each_row_once(rows):
    of_epoch = -(-rows // adam.ROWS)
    for epoch in range(2):
        found = [drawn(epoch * of_epoch + turn, rows, adam.ROWS, 0) for turn in range(of_epoch)]
        assert max(map(len, found)) <= adam.ROWS
        np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(rows))
    assert np.any(drawn(0, rows, 40, 0) != drawn(0, rows, 40, 1))


@pytest.fixture
def round_of(wave, monkeypatch):
    """The task of the first round of a fit."""
    kept = []
    absorbed = adam.AdamRound.__call__

    def noted(task, span, rows):
        kept.append((task, task._rows(task.groups[0])))
        return absorbed(task, span, rows)

    monkeypatch.setattr(adam.AdamRound, "__call__", noted)
    GBCM.fit(wave[0], ASKED)
    return kept[0]


def test_slopes_of_an_epoch_are_that_of_all_rows_in_the_mean(round_of, rng):
    """Exactly, of batches of equal size."""
    task, (X, obs) = round_of
    layers = [adam.Layer.of_shape(*shape) for shape in task.shapes[0]]
    layers = [one.moved(one.numbers() + 0.3 * rng.standard_normal(len(one.numbers()))) for one in layers]
    X, obs = X[:120], obs[:120]
    each = [task._slope(layers, X, obs, drawn(turn, 120, 40, 0), 0.5) for turn in range(3)]
    whole = task._slope(layers, X, obs, np.arange(120), 0.5)
    np.testing.assert_allclose(np.mean(each, axis=0), whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max())


def test_a_place_without_a_slope_is_none(round_of):
    task, (X, obs) = round_of
    layers = [adam.Layer.of_shape(*shape) for shape in task.shapes[0]]
    layers[0] = replace(layers[0], centres=np.full_like(layers[0].centres, np.nan))
    assert task._slope(layers, X, obs, np.arange(40), 1.0) is None


@pytest.mark.slow
def test_a_step_too_far_is_taken_back(wave, monkeypatch):
    """And what is learned is that of the steps around it."""
    steps, slope_of = [], adam.AdamRound._slope

    def sometimes(*args):
        steps.append(0)
        return None if len(steps) % 7 == 0 else slope_of(*args)

    monkeypatch.setattr(adam.AdamRound, "_slope", sometimes)
    monkeypatch.setitem(adam.STEPS, "quick", 150)
    assert GBCM.fit(wave[0], ASKED).score(wave[0])["nmse"] < 0.5
    assert len(steps) == 2 * len(adam.RATES) * 150


@pytest.fixture
def step(make_data, rng):
    """400 rows of a step, which the nearly linear initial layers do not have."""
    X = rng.uniform(-2, 2, (400, 2))
    y = 4.0 * (X[:, 0] > 0.3) + X[:, 1] + 0.1 * rng.standard_normal(400)
    return make_data("step.zarr", X=X, y=y)


@pytest.mark.slow
def test_more_steps_predict_left_out_rows_better(step, monkeypatch):
    brief = GBCM.fit(step, ASKED).info()["deep"]
    monkeypatch.setitem(adam.STEPS, "quick", 300)
    long = GBCM.fit(step, ASKED).info()["deep"]
    assert long["density"] > brief["density"]
    assert (long["powers"], long["rows"] + long["left_out"]) == ([1.0, 0.5], 400)
    assert long["evaluations"] == 2 * -(-300 * len(adam.RATES) * adam.ROWS // long["rows"])


@pytest.mark.slow
def test_left_out_rows_select_a_rate(step, monkeypatch):
    """Steps that are far too long end below the initial layers; which one of the rates is too long does not matter."""
    densities = []
    for rates in ((1000.0,), (0.1, 1000.0), (1000.0, 0.1)):
        monkeypatch.setattr(adam, "RATES", rates)
        densities.append(GBCM.fit(step, ASKED).info()["deep"]["density"])
    assert min(densities[1:]) > densities[0] + 0.1


@pytest.mark.slow
def test_the_cluster_finds_the_same(wave, cluster, rng):
    new = rng.uniform(-2, 2, (9, wave[1].shape[1]))
    one, other = GBCM.fit(wave[0], ASKED), GBCM.fit(wave[0], ASKED, runtime=cluster)
    np.testing.assert_allclose(other.predict(new)["mean"], one.predict(new)["mean"], rtol=1e-10)


@pytest.mark.slow
def test_processes_of_many_and_of_few_hidden_units_are_mixed(wave, cluster, rng):
    """A cluster trains the same. Processes of 8 units are those of `units=8`: their numbers, from which batches are
    drawn, come first."""
    asked = replace(ASKED, options=ASKED.options | {"units": None})
    one, other = GBCM.fit(wave[0], asked), GBCM.fit(wave[0], asked, runtime=cluster)
    deep, new = one.info()["deep"], rng.uniform(-2, 2, (9, wave[1].shape[1]))
    assert (deep["units"], deep["powers"]) == ([8, 8, 2, 2], [1.0, 0.5, 1.0, 0.5])
    assert [process["units"] for process in one.info()["layers"]] == [8, 1, 8, 1, 2, 1, 2, 1]
    np.testing.assert_allclose(other.predict(new)["mean"], one.predict(new)["mean"], rtol=1e-10)
    alone = GBCM.fit(wave[0], replace(asked, options=asked.options | {"units": training.UNITS[0]}))
    np.testing.assert_allclose(deep["energies"][:2], alone.info()["deep"]["energies"], rtol=1e-12)


def test_processes_without_learning_have_one_number_of_hidden_units(wave):
    info = GBCM.fit(wave[0], replace(ASKED, learn=False, options=ASKED.options | {"units": None})).info()
    assert [layer["units"] for layer in info["layers"]] == [8, 1]


ONE_NUMBER = [
    ("classes", {"task": "classification"}, [8, 8]),
    ("counts", {"likelihood": "poisson"}, [8, 8]),
    ("one layer", {"layers": 1}, [1, 1]),
    ("no rows left out", {"rows": 8, "query": 6}, [8]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "units"), [case[1:] for case in ONE_NUMBER], ids=[case[0] for case in ONE_NUMBER])
def test_one_number_of_hidden_units_is_trained(wave, make_data, how, units):
    rows, asked = how.get("rows", 80), {name: value for name, value in how.items() if name != "rows"}
    targets = wave[2] if "rows" in how or "layers" in how else (wave[2] > 3.0).astype(int)
    data = make_data("some.zarr", X=wave[1][:rows], y=targets[:rows])
    assert GBCM.fit(data, replace(ASKED, **{"units": None} | asked)).info()["deep"]["units"] == units


@pytest.mark.slow
def test_sweeps_follow_for_each_number_of_hidden_units(wave):
    deep = GBCM.fit(wave[0], replace(ASKED, units=None, deep_sites="shared")).info()["deep"]
    assert len(deep["sites"]) == len(deep["units"]) == 4


@pytest.mark.slow
@pytest.mark.parametrize(("units", "processes"), [(2, 4), (None, 8)])
def test_a_plan_measures_a_round_of_all_processes(wave, monkeypatch, units, processes):
    rounds, absorbed = [], adam.AdamRound.__call__

    def noted(task, span, rows):
        rounds.append(task.until)
        return absorbed(task, span, rows)

    monkeypatch.setattr(adam.AdamRound, "__call__", noted)
    assert plan(wave[0], replace(ASKED, units=units)).to_json()["projected_seconds"]["train"] > 0
    assert rounds == [15] * processes


@pytest.fixture
def grouped(monkeypatch):
    """Settings with which the rows of training are three groups."""
    monkeypatch.setattr(adam, "GROUP", 60)
    return replace(ASKED, options=ASKED.options | {"train_rows": 180})


def test_groups_have_all_rows_of_training_once(wave, grouped, monkeypatch):
    tasks, absorbed = [], adam.AdamRound.__call__

    def noted(task, span, rows):
        tasks.append((span.start, task))
        return absorbed(task, span, rows)

    monkeypatch.setattr(adam.AdamRound, "__call__", noted)
    deep = GBCM.fit(wave[0], grouped).info()["deep"]
    groups = tasks[0][1].groups
    assert [number for number, _ in tasks[:12]] == list(range(12))  # three groups for each of two powers and rates
    assert [group.rows for group in groups] == pytest.approx([deep["rows"] / 3] * 3, abs=20)
    assert [group.start for group in groups[1:]] == [group.stop for group in groups[:-1]]
    assert sum(group.rows for group in groups) == deep["rows"] == 180 - deep["left_out"]


def test_states_of_groups_are_averaged():
    one, other = whole(5), whole(5)
    other = replace(other, numbers=-one.numbers, first=3.0 * one.first, second=np.zeros(2))
    mean = Climber.average([one, other])
    assert mean.steps == 5
    for found, expected in ((mean.numbers, np.zeros(2)), (mean.first, 2.0 * one.first), (mean.second, one.second / 2)):
        np.testing.assert_allclose(found, expected, atol=1e-15)


def test_slopes_of_groups_are_that_of_all_rows_in_the_mean(wave, grouped, monkeypatch, rng):
    """Over groups of equal size; each row counts as often as in one group of all."""
    tasks, absorbed = [], adam.AdamRound.__call__

    def noted(task, span, rows):
        if not tasks:
            together = replace(task.groups[0], stop=task.groups[-1].stop)
            tasks.append((task, [task._rows(group) for group in task.groups], task._rows(together), together))
        return absorbed(task, span, rows)

    monkeypatch.setattr(adam.AdamRound, "__call__", noted)
    GBCM.fit(wave[0], grouped)
    ((task, by_group, (X, obs), together),) = tasks
    layers = [adam.Layer.of_shape(*shape) for shape in task.shapes[0]]
    layers = [one.moved(one.numbers() + 0.3 * rng.standard_normal(len(one.numbers()))) for one in layers]
    each = [task._slope(layers, *rows, np.arange(40), 0.5) for rows in by_group]
    starts = np.cumsum([0, *(group.rows for group in task.groups[:-1])])
    first = np.concatenate([np.arange(40) + start for start in starts])  # 40 rows of each group
    whole = replace(task, groups=(together,))._slope(layers, X, obs, first, 0.5)
    np.testing.assert_allclose(np.mean(each, axis=0), whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max())


@pytest.mark.slow
def test_the_cluster_averages_the_same_groups(wave, grouped, cluster, rng):
    new = rng.uniform(-2, 2, (9, wave[1].shape[1]))
    one, other = GBCM.fit(wave[0], grouped), GBCM.fit(wave[0], grouped, runtime=cluster)
    np.testing.assert_allclose(other.predict(new)["mean"], one.predict(new)["mean"], rtol=1e-10)
    energies = (model.info()["deep"]["energies"] for model in (one, other))
    np.testing.assert_allclose(*energies, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("units", "processes"), [(2, 4), (None, 8)])
def test_what_was_cut_off_goes_on(wave, tmp_path, rng, monkeypatch, units, processes):
    asked = replace(ASKED, units=units)
    new, rounds = rng.uniform(-2, 2, (9, wave[1].shape[1])), []
    further = adam.AdamRound.__call__

    def cut(task, span, rows):
        rounds.append(task.until)
        if len(rounds) == processes + 3:  # the third process, in the second round
            raise KeyboardInterrupt
        return further(task, span, rows)

    monkeypatch.setattr(adam.AdamRound, "__call__", cut)
    with pytest.raises(KeyboardInterrupt):
        GBCM.fit(wave[0], asked, model=tmp_path / "model")
    again = GBCM.fit(wave[0], asked, model=tmp_path / "model")
    assert rounds == [15] * processes + [30] * 3 + [30] * processes + [40] * processes
    whole = GBCM.fit(wave[0], asked)
    np.testing.assert_allclose(again.predict(new)["mean"], whole.predict(new)["mean"], rtol=1e-10)


def test_help_names_the_rows_that_are_trained_on():
    assert f"trained on up to {training.ROWS:,} rows" in texts_of(Settings)["expert"]
