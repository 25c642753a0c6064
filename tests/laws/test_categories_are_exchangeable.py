"""A category is one column to the kernel: any two of its levels are as far apart, by one lengthscale.

With one-hot inputs that are not scaled and a shared lengthscale l, exp(-|x - z|^2 / (2 l^2)) is a factor
exp(-[c != c'] / l^2), the exchangeable kernel; kernels of other profiles see the same distance beside the others.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings
from bcmdist.api.relevance import features
from bcmdist.api.sampling import Coordinates
from bcmdist.data.observations import unweighted
from bcmdist.data.schema import Schema
from bcmdist.data.tables.coding import Category, Coding, Number
from bcmdist.data.tables.column import of_numpy
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidOption
from bcmdist.experts.evidence import local_evidence
from bcmdist.learning.category_lengthscales import COLUMN, LEVEL, shared_by
from bcmdist.learning.hyperparameters import with_hyperparameters
from bcmdist.learning.point import Point, expanded, moved, moves_of, prior_shares, theta_of
from bcmdist.learning.search import EFFORTS, _Search, learn
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.scaling import column_moments, scaling_from
from bcmdist.model.units import AFFINE
from bcmdist.runtime.interface import SerialRuntime

LEVELS = ("clay", "loam", "peat", "sand")
CODING = Coding((Number("age"), Category("soil", LEVELS), Number("depth")), unseen="other")
GROUPS = (0, 1, 1, 1, 1, 5)
QUICK = Settings(
    partition="chunks", kernel="se", mean="constant", noise="constant", effort="quick", query=60, rows_per_expert=60
)


@pytest.fixture(scope="module", autouse=True)
def one_blas_thread():
    """As workers have: where rounding differs, what is learned does too, within what learning leaves open."""
    with threadpool_limits(1, user_api="blas"):
        yield


def table(rng, rows=180):
    """Columns by name, in which one level has three rows, and targets."""
    soil = rng.choice(["clay", "loam", "sand"], rows)
    soil[[5, 70, 150]] = "peat"
    columns = {"age": rng.uniform(-2, 2, rows), "soil": soil, "depth": 100.0 * rng.standard_normal(rows)}
    effect = np.array([1.0, -1.0, 0.3, 0.0])[np.searchsorted(LEVELS, soil)]
    y = np.sin(2 * columns["age"]) + effect + columns["depth"] / 200.0 + 0.1 * rng.standard_normal(rows)
    assert y.shape == (rows,)
    return columns, y


def coded(columns, coding=CODING):
    return coding.numbers({name: of_numpy(name, values) for name, values in columns.items()}, "rows")


def scaled(X):
    ones = column_moments(np.ones((len(X), 1)))
    return scaling_from(column_moments(X), ones, ones, AFFINE, GROUPS).inputs(X)


def test_which_inputs_are_a_group():
    assert CODING.groups == GROUPS
    assert Schema(CODING.inputs, (), CODING).groups == GROUPS
    assert Schema(("a", "b")).groups == ()


# --- The kernel ---


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("se", lambda r: np.exp(-0.5 * r**2)),
        ("matern12", lambda r: np.exp(-r)),
        ("matern32", lambda r: (1 + math.sqrt(3) * r) * np.exp(-math.sqrt(3) * r)),
    ],
)
def test_the_kernel_is_the_exchangeable_one(name, profile, rng):
    columns, _ = table(rng)
    columns["soil"] = columns["soil"].astype("<U9")
    columns["soil"][:20] = "unheard"  # of which the coding makes one more level
    X = scaled(coded(columns))
    length, variance = 0.8, 1.7
    lengths = np.array([0.6, *[length] * 4, 1.3])
    K = parse_kernel(name, inputs=6).with_parameters({"variance": np.array([variance]), "lengthscale": lengths})
    numbers = np.column_stack([columns[n] / columns[n].std() for n in ("age", "depth")]) / [0.6, 1.3]
    squares = ((numbers[:, None] - numbers[None]) ** 2).sum(axis=2)
    differ = columns["soil"][:, None] != columns["soil"][None]
    expected = variance * profile(np.sqrt(squares + 2.0 * differ / length**2))
    np.testing.assert_allclose(K.cross(X, X), expected, rtol=1e-12, atol=1e-12)
    if name == "se":
        product = variance * np.exp(-0.5 * squares) * np.where(differ, np.exp(-1.0 / length**2), 1.0)
        np.testing.assert_allclose(K.cross(X, X), product, rtol=1e-12, atol=1e-12)


def test_a_rare_level_is_no_farther_away(rng):
    columns, _ = table(rng)
    X = scaled(coded(columns))[:, 1:5]
    first = [int(np.flatnonzero(columns["soil"] == level)[0]) for level in LEVELS]
    squares = ((X[first][:, None] - X[first][None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squares, 2.0 * (1.0 - np.eye(4)), atol=1e-14)


# --- Learning ---


def objective_at(X, y):
    return lambda kernel, likelihood: local_evidence(kernel, Mean("constant"), likelihood, X, unweighted(y))


@pytest.mark.parametrize("name", ["se", "matern32", "se+linear"])
def test_gradients_of_what_is_shared(name, rng):
    columns, y = table(rng, 151)
    search = _Search(objective_at(scaled(coded(columns)), y - y.mean()), 6, GROUPS)
    kernel = parse_kernel(name, inputs=6)
    point = search.at(name, kernel, Gaussian(0.1))
    moves, h = moves_of(point), 1e-5
    shared = len(kernel.lengthscales)  # each has four inputs with one lengthscale
    assert moves.shape == (len(kernel.theta) + 1, len(kernel.theta) + 1 - 3 * shared)

    def value(step):
        theta = theta_of(point) + moves @ step
        return search._penalised(moved(point, theta), theta, search._prior(point))

    gradient = value(np.zeros(moves.shape[1]))[1] @ moves
    numeric = [(value(h * e)[0] - value(-h * e)[0]) / (2 * h) for e in np.eye(moves.shape[1])]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)  # h^2, and rounding over h
    # The prior counts what is shared once.
    assert prior_shares(point).sum() == pytest.approx(moves.shape[1], rel=1e-14)
    found = search.climb(point, 5)
    for lengths in (found.kernel.parameters[n] for n in kernel.lengthscales):
        assert np.ptp(lengths[1:5]) == 0.0
    assert found.objective > point.objective
    assert expanded(found, 6).groups == GROUPS


def test_the_lengthscales_of_all_inputs_may_still_move_together():
    kernel = parse_kernel("se", inputs=6).with_parameters({"lengthscale": np.arange(1.0, 7.0)})
    point = Point("se", kernel, Gaussian(0.1), 0.0, tied=True, groups=GROUPS)
    assert moves_of(point).shape == (8, 3)
    assert moves_of(replace(point, tied=False)).shape == (8, 5)
    assert moves_of(replace(point, tied=False, groups=())).shape == (8, 8)
    one = Point("se-iso", parse_kernel("se-iso", inputs=6), Gaussian(0.1), 0.0, groups=GROUPS)
    np.testing.assert_array_equal(moves_of(one), np.eye(3))


def test_one_lengthscale_a_column_may_be_given():
    kernel, likelihood = parse_kernel("se", inputs=6), Gaussian(0.1)
    given, _ = with_hyperparameters(kernel, likelihood, {"kernel.lengthscale": [1.0, 2.0, 3.0]}, groups=GROUPS)
    np.testing.assert_array_equal(given.parameters["lengthscale"], [1.0, 2.0, 2.0, 2.0, 2.0, 3.0])
    with pytest.raises(InvalidOption, match=r"one positive number or 6 or 3, one a column, of them, got \[1.0, 2.0\]"):
        with_hyperparameters(kernel, likelihood, {"kernel.lengthscale": [1.0, 2.0]}, groups=GROUPS)
    with pytest.raises(InvalidOption, match=r"one positive number or 6 of them, got \[1.0, 2.0, 3.0\]"):
        with_hyperparameters(kernel, likelihood, {"kernel.lengthscale": [1.0, 2.0, 3.0]})


def test_chains_have_one_coordinate_for_a_category(rng):
    columns, y = table(rng, 151)
    X, obs = scaled(coded(columns)), unweighted(y - y.mean())
    coordinates = Coordinates(parse_kernel("se", inputs=6), Gaussian(0.1), GROUPS)
    assert coordinates.names[:4] == ["kernel.variance", "kernel.w[0]", "kernel.w[1]", "kernel.w[5]"]
    density = coordinates.log_density(lambda *at: local_evidence(at[0], Mean("zero"), at[1], X, obs))
    phi, h = coordinates.start(0), 1e-5
    _, gradient = density(phi)
    numeric = [(density(phi + h * e)[0] - density(phi - h * e)[0]) / (2 * h) for e in np.eye(len(phi))]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)  # h^2, and rounding over h
    kernel, _ = coordinates.at(phi)
    assert np.ptp(kernel.parameters["lengthscale"][1:5]) == 0.0


@pytest.mark.parametrize("alike", [False, True])
def test_levels_get_lengthscales_of_their_own_where_some_are_one(alike, rng):
    """Ten levels: each a curve of its own, or eight of them one and the same."""
    c, x = rng.integers(0, 10, 300), rng.uniform(-2, 2, 300)
    own = np.where(np.arange(10) < 8, 0.0, np.arange(10) - 7.0) / 3.0 if alike else rng.uniform(size=10)
    y = np.sin(2.0 * x + 2.0 * np.pi * own[c]) + 0.2 * rng.standard_normal(300)
    objective, groups = objective_at(np.column_stack([x, np.eye(10)[c]]), y), (0, *[1] * 10)
    found = learn(lambda _: objective, "se", Gaussian(0.1), inputs=11, effort=EFFORTS["quick"], groups=groups)
    (decision,) = [one for one in found.decisions if one.of == "lengthscales"]
    assert decision.taken == (LEVEL if alike else COLUMN)
    assert shared_by(found.kernel, groups) == (() if alike else groups)
    lengths = found.kernel.parameters["lengthscale"][1:]
    assert not alike or lengths[:8].min() > lengths[8:].max()


# --- A fit ---


def stored(path, columns, y, coding=CODING):
    schema = Schema(coding.inputs, (), coding)
    write_dataset(str(path), {"X": coded(columns, coding), "y": y}, schema=schema, rows_per_chunk=60)
    return str(path)


def test_what_is_learned_is_one_lengthscale_and_units_of_levels_stay(tmp_path, rng):
    columns, y = table(rng)
    gbcm = GBCM.fit(stored(tmp_path / "data.zarr", columns, y), QUICK)
    lengths, scaling = gbcm.model.shared.kernel.parameters["lengthscale"], gbcm.model.scaling
    assert np.ptp(lengths[1:5]) == 0.0
    np.testing.assert_array_equal(scaling.x_scale[1:5], 1.0)
    np.testing.assert_allclose(scaling.x_scale[[0, 5]], [columns["age"].std(), columns["depth"].std()], rtol=1e-10)
    told = gbcm.info()["lengthscales"]["kernel.lengthscale"]
    assert told == {"age": lengths[0], "soil": lengths[1], "depth": lengths[5]}
    age, soil, depth = features(gbcm.model)
    assert [feature.name for feature in (age, soil, depth)] == ["age", "soil", "depth"]
    (unheard,) = coded({"age": np.ones(1), "soil": np.array(["marl"]), "depth": np.full(1, 2.0)})
    assert [soil.shown(coded(columns)[5]), soil.shown(unheard), depth.shown(unheard)] == ["peat", "another level", 2.0]
    again = GBCM.load(gbcm.url)
    np.testing.assert_array_equal(again.predict(coded(columns))["mean"], gbcm.predict(coded(columns))["mean"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"expert": "fitc", "objective": "committee", "query_method": "optimised", "query": 12},
        {"expert": "fitc", "objective": "committee", "query": 12},
        {"objective": "committee", "query": 12},
    ],
)
def test_whoever_learns_lengthscales_shares_them(change, tmp_path, rng):
    gbcm = GBCM.fit(stored(tmp_path / "data.zarr", *table(rng)), replace(QUICK, **change))
    lengths = gbcm.model.shared.kernel.parameters["lengthscale"]
    assert np.ptp(lengths[1:5]) == 0.0
    assert len(set(lengths.tolist())) == 3


def test_names_of_levels_change_nothing(tmp_path, rng):
    """Nor does their order, but for rounding: sums over inputs are of others first."""
    columns, y = table(rng)
    first = GBCM.fit(stored(tmp_path / "a.zarr", columns, y), replace(QUICK, query=180))
    swap = dict(zip(LEVELS, ("zinc", "iron", "lead", "tin"), strict=True))
    renamed = columns | {"soil": np.array([swap[level] for level in columns["soil"]])}
    coding = Coding((Number("age"), Category("soil", ("iron", "lead", "tin", "zinc")), Number("depth")))
    other = GBCM.fit(stored(tmp_path / "b.zarr", renamed, y, coding), replace(QUICK, query=180))
    here, there = first.predict(coded(columns)), other.predict(coded(renamed, coding))
    for name in ("mean", "variance"):
        np.testing.assert_allclose(here[name], there[name], rtol=1e-4, atol=1e-5)  # where optimisers stop
    ours, theirs = (one.model.shared.kernel.parameters["lengthscale"][[0, 1, 5]] for one in (first, other))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.slow
def test_a_cluster_finds_the_same(tmp_path, rng, cluster):
    path = stored(tmp_path / "data.zarr", *table(rng))
    here = GBCM.fit(path, QUICK, model=tmp_path / "here", runtime=SerialRuntime())
    there = GBCM.fit(path, QUICK, model=tmp_path / "there", runtime=cluster)
    for name, value in here.info()["hyperparameters"].items():
        np.testing.assert_allclose(there.info()["hyperparameters"][name], value, rtol=1e-6)  # the order of sums
    assert there.committee.log_evidence == pytest.approx(here.committee.log_evidence, rel=1e-8)


def test_a_level_that_was_never_seen_is_one_more(tmp_path, rng):
    """To a model of one column: as far from all, so that it knows of it what a level without rows is known of."""
    columns, y = table(rng)
    path = stored(tmp_path / "data.zarr", columns, y)
    gbcm = GBCM.fit(path, replace(QUICK, learn=False, set={"kernel.lengthscale": [0.5, 0.7, 1.0]}, query=180))
    new = {"age": np.zeros(3), "soil": np.array(["loam", "marl", "chalk"]), "depth": np.zeros(3)}
    said = gbcm.predict(coded(new))
    assert said["mean"][1] == said["mean"][2]  # two of them are one
    assert said["variance"][1] > 2.0 * said["variance"][0]
