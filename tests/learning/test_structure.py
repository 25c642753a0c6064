"""Sums of kernels that `--kernel auto` tries: effects of single columns, and covariates apart from coordinates."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.data.observations import unweighted
from bcmdist.data.schema import Schema
from bcmdist.errors import InvalidOption, NotPositiveDefinite
from bcmdist.experts.evidence import local_evidence
from bcmdist.learning.column_roles import coordinate_inputs, map_axes
from bcmdist.learning.search import EFFORTS, _Search, learn
from bcmdist.learning.structure import MOST_EFFECTS, TWO_SCALES, ColumnRoles, separate_covariates, with_effects
from bcmdist.model.kernels import metric, parse_kernel
from bcmdist.model.likelihoods import Gaussian, make_likelihood
from bcmdist.model.mean import Mean


def objective_of(X, y):
    obs = unweighted(y)

    def objective(kernel, likelihood):
        try:
            return local_evidence(kernel, Mean("constant"), likelihood, X, obs)
        except NotPositiveDefinite:
            return -np.inf, np.zeros(len(kernel.theta) + len(likelihood.parameters))

    return objective


def learned(X, y, **options):
    objective = objective_of(X, (y - y.mean()) / y.std())
    how = {"inputs": X.shape[1], "effort": EFFORTS["normal"]} | options
    return learn(lambda kernel: objective, "auto", Gaussian(0.1), **how)


@pytest.fixture
def additive(rng):
    """Rows of five columns, and a function of the first two, each by itself."""
    X = rng.uniform(-2, 2, (300, 5))
    return X, np.sin(4 * X[:, 0]) + np.abs(X[:, 1]) ** 1.5 + 0.3 * rng.standard_normal(300)


def test_effects_of_columns_are_found(additive):
    found = learned(*additive)
    _, *effects = found.kernel_name.split(" + se(")
    assert {"0)", "1)"} <= set(effects)
    assert found.tried[found.kernel_name] > max(value for name, value in found.tried.items() if "(" not in name)


def test_methods_without_terms_and_quick_searches_try_kernels_of_all_columns_only(additive):
    assert not [name for name in learned(*additive, roles=None).tried if "(" in name]
    assert not [name for name in learned(*additive, effort=EFFORTS["quick"]).tried if "(" in name]


def test_a_plain_kernel_stays_where_nothing_gains(rng):
    X = rng.uniform(-2, 2, (250, 3))
    K = parse_kernel("matern32", inputs=3).cross(X, X)
    y = np.linalg.cholesky(K + 0.05 * np.eye(250)) @ rng.standard_normal(250)
    found = learned(X, y, roles=ColumnRoles((0, 1)))
    assert "+" not in found.kernel_name
    assert {TWO_SCALES, f"{found.kernel_name}(2) + {found.kernel_name}"} <= found.tried.keys()


def test_covariates_apart_from_coordinates_are_found(rng):
    """What the covariate does everywhere is known between the places, too."""
    X = rng.uniform(-2, 2, (400, 3))
    K = parse_kernel("matern32(2)", inputs=3).cross(X, X)
    places = parse_kernel("matern32", inputs=3)
    K += places.with_parameters({"variance": np.array([0.3]), "lengthscale": np.array([0.4, 0.4, 1.0])}).cross(X, X)
    y = np.linalg.cholesky(K + 0.01 * np.eye(400)) @ rng.standard_normal(400)
    found = learned(X, y, roles=ColumnRoles((0, 1)))
    assert "(2) + " in found.kernel_name
    assert not [name for name in learned(X, y).tried if name.startswith("matern32(2)")]  # no coordinates


@pytest.fixture
def gaps(rng):
    """Rows of which a tenth lack a value that would have explained much: two columns, an indicator; and targets."""
    missing = rng.uniform(size=400) < 0.1
    X = np.column_stack([rng.uniform(-1.5, 1.5, (400, 2)), missing / 0.3])
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(400)
    return X, y, missing * rng.standard_normal(400)


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_rows_with_gaps_scatter_by_themselves(gaps, effort):
    """What rows with gaps lack is no function of the other columns: taken for one it would spoil predictions there."""
    X, y, lost = gaps
    how = {"roles": ColumnRoles(gaps=(2,)), "effort": EFFORTS[effort]}
    found = learned(X, y + lost, **how)
    assert " + white*linear(2)" in found.kernel_name
    assert found.likelihood.noise_variance[0] * (y + lost).var() == pytest.approx(0.01, rel=0.5)  # of .1 squared
    scatter = found.kernel.diagonal(np.array([[0.0, 0.0, 1 / 0.3], [0.0, 0.0, 0.0]]))
    assert (scatter[0] - scatter[1]) * (y + lost).var() == pytest.approx(1.0, rel=0.5)
    assert learned(X, y, **how).kernel_name.count("linear(2)") == 0  # rows with gaps are as good as others


def test_sums_keep_the_scatter_of_what_they_extend(gaps):
    X, y, lost = gaps
    found = learned(X, y + lost, roles=ColumnRoles((0,), (2,)))
    with_gaps = [name for name in found.tried if "linear(2)" in name]
    assert len(with_gaps) >= len([name for name in found.tried if " + " in name]) - 1
    assert found.kernel_name in with_gaps


def test_scatter_does_not_say_which_rows_are_near():
    """Cells, neighbourhoods and query points follow the function."""
    kernel = parse_kernel("se + white*linear(2)", inputs=3)
    kernel = kernel.with_parameters(kernel.parameters | {"se.lengthscale": np.array([2.0, 3.0, 4.0])})
    np.testing.assert_array_equal(metric(kernel, 3), [2.0, 3.0, 4.0])
    product = parse_kernel("se(0)*linear(1)", inputs=2)
    values = {"se(0).lengthscale": np.array([0.5])}
    np.testing.assert_array_equal(metric(product.with_parameters(product.parameters | values), 2), [0.5, 1.0])


def searched(X, y, name, groups=()):
    """A search, and a point of a kernel of all columns."""
    search = _Search(objective_of(X, y), X.shape[1], groups)
    return search, search.at(name, parse_kernel(name, inputs=X.shape[1]), make_likelihood("gaussian"))


def test_sums_start_with_the_variance_of_what_they_extend(additive):
    search, point = searched(*additive, "matern32")
    for start in (with_effects(search, point), separate_covariates(search, point, (0, 1))):
        variances = [start.kernel.parameters[name][0] for name in start.kernel.variances]
        assert sum(variances) == pytest.approx(1.0)
    apart = separate_covariates(search, point, (0, 1)).kernel
    assert apart.expression == "matern32(2, 3, 4)+matern32"


def test_columns_are_ranked_by_the_derivative_of_the_evidence(additive):
    """Against finite differences: an effect of a column that matters more begins to gain more."""
    X, y = additive
    search, point = searched(X, y, "matern32")
    start = with_effects(search, point)
    slopes = {}
    for column in range(5):
        values = []
        for share in (1e-4, 1e-3):
            kernel = parse_kernel(f"matern32 + se({column})", inputs=5)
            level = {"matern32.variance": np.array([1.0 - share]), f"se({column}).variance": np.array([share])}
            values.append(search.objective(kernel.with_parameters(kernel.parameters | level), point.likelihood)[0])
        slopes[column] = values[1] - values[0]
    best = sorted(slopes, key=lambda column: -slopes[column])[:2]
    assert [f"se({column})" in start.name for column in best] == [True, True]
    assert start.name.count("se(") <= MOST_EFFECTS


def test_levels_of_a_category_have_one_effect(rng):
    level = rng.integers(3, size=200)
    X = np.column_stack([rng.uniform(-1, 1, 200), np.eye(3)[level]])
    y = np.array([-1.0, 0.0, 2.0])[level] + 0.1 * rng.standard_normal(200)
    search, point = searched(X, y - y.mean(), "se", groups=(0, 1, 1, 1))
    assert "se(1, 2, 3)" in with_effects(search, point).name


def test_one_column_has_no_effects(rng):
    X = rng.uniform(-1, 1, (50, 1))
    assert with_effects(*searched(X, X[:, 0], "se")) is None


def test_effects_do_not_start_where_the_evidence_fails(rng):
    search, point = searched(rng.uniform(-1, 1, (50, 2)), np.zeros(50), "se")
    search.objective = lambda kernel, likelihood: (-np.inf, np.zeros(len(kernel.theta) + 1))
    assert with_effects(search, point) is None


# --- Coordinates ---


@pytest.mark.parametrize(
    ("columns", "requested", "found"),
    [
        (("age", "lat", "lon"), None, (1, 2)),
        (("Longitude", "LATITUDE", "age"), None, (0, 1)),
        (("x", "y", "z", "age"), None, (0, 1, 2)),
        (("x", "age"), None, ()),
        ((), None, ()),
        (("age", "lat", "lon"), "age", (0,)),
        (("age", "lat", "lon"), "lon, 0", (0, 2)),
        (("age", "lat", "lon"), "none", ()),
    ],
)
def test_coordinates_are_those_named_or_usual(columns, requested, found):
    assert coordinate_inputs(requested, Schema(columns), 4) == found


@pytest.mark.parametrize(
    ("columns", "found"),
    [(("lat", "depth", "lon"), (2, 0)), (("Easting", "Northing"), (0, 1)), (("y", "x", "z"), ()), (("a", "b"), ())],
)
def test_maps_have_longitudes_across(columns, found):
    assert map_axes(Schema(columns), len(columns)) == found


def test_maps_of_a_grid_keep_the_order_of_other_names():
    schema = Schema(("row", "column", "height"), coordinates=("row", "column"))
    assert map_axes(schema, 3) == (0, 1)


def test_coordinates_of_a_grid_come_first():
    schema = Schema(("time", "lon", "lat", "height"), coordinates=("time", "lat"))
    assert coordinate_inputs(None, schema, 4) == (0, 2)


@pytest.mark.parametrize(
    ("requested", "text"), [("lot", "got 'lot'"), ("lon,lon", "each input once"), ("7", "got '7'")]
)
def test_unknown_coordinates_are_refused_before_any_work(tmp_path, requested, text):
    pytest.importorskip("pandas", reason="pandas is not installed")
    import pandas as pd

    X = pd.DataFrame(np.random.default_rng(0).uniform(size=(60, 2)), columns=["lon", "lat"])
    with pytest.raises(InvalidOption, match=f"coordinates: expected.*{text}"):
        GBCM.fit(X, X.lon.to_numpy(), Settings(coordinates=requested), model=tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("further", [{"kernel": "se"}, {"effort": "quick"}, {"learn": False}, {"objective": "subset"}])
def test_coordinates_are_refused_where_no_sums_are_tried(further):
    Settings(coordinates="none", **further)
    with pytest.raises(InvalidOption, match=r"coordinates: expected no coordinates .* got 0,1: they are for sums"):
        Settings(coordinates="0,1", **further)
