import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import erf

import bcmdist
from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import (
    KERNEL_NAMES,
    KERNELS,
    MOST_NAMES,
    Constant,
    Leaf,
    Stationary,
    cross_lower,
    fill_cross,
    kernel_parts,
    metric,
    parse_kernel,
    squared_distance,
)
from bcmdist.testing import check_kernel

NAMES = ["se", "se-iso", "matern12", "matern32", "matern52", "rq", "rq-iso", "constant", "white"]
NAMES += ["arcsine", "arcsine-iso", "linear", "linear-iso", "poly2", "poly2-iso", "poly3", "poly3-iso"]
COMBINED = ["se*linear+constant", "se+matern12-iso", "se+se-iso", "rq*matern52*linear", "poly2*se+poly3-iso"]
COMBINED += ["arcsine+se*arcsine-iso", "se+white"]


def perturbed(name, rng, inputs=3):
    kernel = parse_kernel(name, inputs=inputs)
    return kernel.with_theta(kernel.theta + 0.3 * rng.standard_normal(len(kernel.theta)))


@pytest.mark.parametrize("name", NAMES + COMBINED)
@pytest.mark.parametrize("inputs", [1, 3])
def test_conformance(name, inputs, rng):
    X = rng.standard_normal((7, inputs))
    Z = np.vstack([X[:2], rng.standard_normal((4, inputs))])  # two coincident points
    check_kernel(perturbed(name, rng, inputs), X, Z)


@pytest.mark.parametrize("name", NAMES + COMBINED)
@pytest.mark.parametrize("rows", [0, 1, 128, 300])
def test_lower_triangle_is_that_of_the_whole(name, rows, rng):
    X, kernel = rng.standard_normal((rows, 3)), perturbed(name, rng)
    found = cross_lower(kernel, X)
    assert found.flags.f_contiguous
    np.testing.assert_allclose(np.tril(found), np.tril(kernel.cross(X, X)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES + COMBINED)
@pytest.mark.parametrize(("dtype", "tolerance"), [(float, 1e-12), (np.float32, 1e-6)])
def test_blocks_of_columns_are_those_of_the_whole(name, dtype, tolerance, rng):
    X, Z, kernel = rng.standard_normal((40, 3)), rng.standard_normal((300, 3)), perturbed(name, rng)
    filled, whole = np.full((40, 300), np.nan, dtype=dtype, order="F"), kernel.cross(X, Z)
    fill_cross(kernel, X, Z, filled)
    np.testing.assert_allclose(filled, whole, rtol=tolerance, atol=tolerance * np.abs(whole).max())
    lower = cross_lower(kernel, Z, dtype=dtype)
    assert lower.dtype == dtype
    whole = np.tril(kernel.cross(Z, Z))
    np.testing.assert_allclose(np.tril(lower), whole, rtol=tolerance, atol=tolerance * np.abs(whole).max())


def test_formulas():
    """Values of Rasmussen & Williams 2006, chapter 4, at r = 0.7."""
    X, Z, r = np.zeros((1, 1)), np.array([[1.4]]), 0.7
    expected = {
        "se": np.exp(-(r**2) / 2),
        "matern12": np.exp(-r),
        "matern32": (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r),
        "matern52": (1 + 5**0.5 * r + 5 * r**2 / 3) * np.exp(-(5**0.5) * r),
        "rq": (1 + r**2 / (2 * 1.3)) ** -1.3,
    }
    for name, value in expected.items():
        given = {"variance": np.array([2.0]), "lengthscale": np.array([2.0])} | (
            {"alpha": np.array([1.3])} if name == "rq" else {}
        )
        kernel = parse_kernel(name, inputs=1).with_parameters(given)
        np.testing.assert_allclose(kernel.cross(X, Z), 2.0 * value, rtol=1e-14)
    stationary = {name for name in KERNEL_NAMES if issubclass(KERNELS[name], Stationary)}
    assert stationary < set(expected)


def test_polynomial_is_a_regression_on_monomials(rng):
    """Eq. 11 of the GBCM paper, with the weights' variances of (1 + s)^2 and (1 + s)^3 multiplied out."""
    lengthscale = np.array([0.7, 1.9])
    (a, b), (c, d) = (rng.standard_normal((5, 2)) / lengthscale).T, (rng.standard_normal((4, 2)) / lengthscale).T

    def basis(u, v, degree):
        square = [np.ones_like(u), u, v, u * u, v * v, u * v]
        cubic = [u**3, u**2 * v, u * v**2, v**3]
        return np.column_stack(square if degree == 2 else square + cubic)

    weights = {2: [1, 2, 2, 1, 1, 2], 3: [1, 3, 3, 3, 3, 6, 1, 3, 3, 1]}
    X, Z = np.column_stack([a, b]) * lengthscale, np.column_stack([c, d]) * lengthscale
    for degree, variances in weights.items():
        kernel = parse_kernel(f"poly{degree}", inputs=2).with_parameters(
            {"variance": np.array([2.5]), "lengthscale": lengthscale}
        )
        expected = 2.5 * basis(a, b, degree) @ np.diag(variances) @ basis(c, d, degree).T
        np.testing.assert_allclose(kernel.cross(X, Z), expected, rtol=1e-12, atol=1e-12)


def test_arcsine_is_that_of_infinitely_many_hidden_units(rng):
    """E erf(u_0 + u'x) erf(u_0 + u'z) = 2 / pi arcsin(...), by Gauss-Hermite quadrature over u in two dimensions."""
    bias, lengthscale = 0.8, 1.3
    X, Z = rng.standard_normal((4, 1)), rng.standard_normal((3, 1))
    given = {"variance": np.array([2.0 / np.pi]), "bias": np.array([bias]), "lengthscale": np.array([lengthscale])}
    kernel = parse_kernel("arcsine", inputs=1).with_parameters(given)
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    offset, slope = (one.ravel() for one in np.meshgrid(nodes / bias, nodes / lengthscale, indexing="ij"))
    of_x, of_z = (erf(offset + slope * at) for at in (X, Z))
    expected = (of_x * np.outer(weights, weights).ravel() / (2.0 * np.pi)) @ of_z.T
    np.testing.assert_allclose(kernel.cross(X, Z), expected, atol=1e-9)


def test_arcsine_of_rows_far_away_is_finite():
    X = np.array([[1e9, -1e9], [1e9, -1e9], [0.0, 1e12]])
    kernel = parse_kernel("arcsine", inputs=2)
    K, pullback = kernel.cross_and_pullback(X, X)
    assert np.all(np.abs(K) <= np.pi / 2)
    assert np.all(np.isfinite(pullback(np.ones((3, 3)))))
    assert np.all(np.isfinite(kernel.input_gradient(X, X, np.ones((3, 3)))))
    np.testing.assert_allclose(kernel.diagonal(X), np.pi / 2)


def test_squared_distance_of_near_points_is_accurate(rng):
    X = 100.0 + rng.standard_normal((40, 2))
    Z = X + 1e-6 * rng.standard_normal((40, 2))
    exact = ((X[:, None] - Z) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distance(X, Z, np.ones(2)), exact, rtol=1e-9)
    assert np.all(np.diag(squared_distance(X, X, np.ones(2))) == 0)


@pytest.mark.parametrize("shapes", [(1, 7), (7, 1), (1, 1)])
def test_squared_distances_of_a_single_row_are_those_of_many(shapes, rng):
    X, Z = (rng.standard_normal((rows, 3)) for rows in shapes)
    found = squared_distance(X, Z, np.array([0.5, 1.0, 2.0]))
    many = squared_distance(np.vstack([X, X + 1.0]), np.vstack([Z, Z + 1.0]), np.array([0.5, 1.0, 2.0]))
    np.testing.assert_allclose(found, many[: len(X), : len(Z)], rtol=1e-12)  # a few roundings
    assert found.flags.f_contiguous


def test_expression_makes_the_same_kernel(rng):
    for name in NAMES + COMBINED:
        kernel = perturbed(name, rng)
        again = parse_kernel(kernel.expression, inputs=3).with_parameters(kernel.parameters)
        X = rng.standard_normal((4, 3))
        np.testing.assert_array_equal(kernel.cross(X, X), again.cross(X, X))


@pytest.mark.parametrize("expression", ["se+", "", "se**linear"])
def test_a_kernel_that_is_missing(expression):
    with pytest.raises(InvalidOption, match="expected the name of a kernel after"):
        parse_kernel(expression, inputs=2)


@pytest.mark.parametrize("name", ["rbf", "constant-iso"])
def test_unknown_kernel(name):
    with pytest.raises(InvalidOption, match="expected a combination of se, matern12"):
        parse_kernel(name, inputs=2)


@pytest.mark.parametrize("sign", ["+", "*"])
def test_an_expression_of_many_kernels_is_refused_at_once(sign):
    assert kernel_parts(parse_kernel(sign.join(["se"] * MOST_NAMES), inputs=1)) == MOST_NAMES
    with pytest.raises(InvalidOption, match="kernel: expected a combination of at most 64 kernels, got one of 3,001; "):
        parse_kernel(sign.join(["se"] * 3001), inputs=1)


@pytest.mark.parametrize("name", NAMES + COMBINED)
def test_a_kernel_travels_as_itself_in_some_hundred_bytes(name, rng):
    """Tasks carry it: with 8 inputs about 150 bytes for each of its kernels and each array."""
    kernel = perturbed(name, rng, inputs=8)
    sent = pickle.dumps(kernel)
    assert len(sent) < 300 + 150 * (kernel_parts(kernel) + len(kernel.parameters))
    again = pickle.loads(sent)
    assert again.expression == kernel.expression
    for parameter, values in kernel.parameters.items():
        np.testing.assert_array_equal(again.parameters[parameter], values)


def test_every_kernel_has_defaults_within_bounds_of_its_own_names():
    for name in NAMES + COMBINED:
        kernel = parse_kernel(name, inputs=3)
        assert set(kernel.parameters) <= set(kernel.bounds)
        for parameter, values in kernel.parameters.items():
            low, high = kernel.bounds[parameter]
            assert np.all((low < values) & (values < high)), (name, parameter)


def test_the_metric_is_the_shortest_lengthscale_of_those_that_look_at_distances():
    kernel = parse_kernel("se*linear+matern12-iso", inputs=2)
    values = {
        "se*linear.se.lengthscale": np.array([1.0, 5.0]),
        "se*linear.linear.lengthscale": np.array([0.1, 0.1]),
        "matern12.lengthscale": np.array([2.0]),
    }
    np.testing.assert_array_equal(metric(kernel.with_parameters(values), 2), [1.0, 2.0])
    np.testing.assert_array_equal(metric(parse_kernel("linear+constant", inputs=2), 2), np.ones(2))
    assert kernel.lengthscales == tuple(values)
    assert kernel.variances == ("se*linear.se.variance", "matern12.variance")


class Repeated(Constant):
    """A kernel that adds nothing but its name."""


@dataclass(frozen=True)
class Further(Constant):
    """With a parameter of a new name, of which nothing is said."""

    tilt: np.ndarray


@dataclass(frozen=True)
class Unwritten(Leaf):
    """Without its functions."""

    variance: np.ndarray
    name = "unwritten"


@pytest.mark.parametrize("name", ["Mine", "my-iso", "a+b", "", "1d", "se.own", None])
def test_a_name_that_no_expression_can_hold_is_refused(name, monkeypatch):
    monkeypatch.setattr(Repeated, "name", name)
    with pytest.raises(InvalidOption, match=r"kernel: expected a name of lower-case letters.*give Repeated another"):
        bcmdist.register_kernel(Repeated)


@pytest.mark.parametrize(("name", "other"), [("se2", "se"), ("poly", "poly2")])
def test_a_name_that_a_repeated_part_would_have_is_refused(name, other, monkeypatch):
    monkeypatch.setattr(Repeated, "name", name)
    with pytest.raises(InvalidOption, match=f"other than .*'{other}'.* with a number, got '{name}'"):
        bcmdist.register_kernel(Repeated)


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(InvalidOption, match="kernel: expected a name of its own, 'constant' is that of"):
        bcmdist.register_kernel(Repeated)
    assert bcmdist.register_kernel(Constant) is Constant  # the same again


@pytest.mark.parametrize(
    ("bounds", "default"),
    [(None, None), ((0.1, 1.0), None), (None, np.ones(1)), ((0.1, 0.9), np.ones(1)), ((0.0, 2.0), np.ones(1))],
)
def test_a_parameter_without_bounds_or_default_is_refused_at_once(bounds, default, monkeypatch):
    """And not where learning, much later, looks for them."""
    monkeypatch.setattr(Further, "name", "further")
    monkeypatch.setattr(Further, "bounds", Leaf.bounds | ({"tilt": bounds} if bounds else {}))
    defaults = {"variance": np.ones(1)} | ({} if default is None else {"tilt": default})
    monkeypatch.setattr(Further, "defaults", lambda inputs: defaults)
    with pytest.raises(InvalidOption, match="kernel further: expected positive bounds of tilt and a default within"):
        bcmdist.register_kernel(Further)
    assert "further" not in KERNEL_NAMES


def test_a_kernel_without_its_functions_is_refused():
    with pytest.raises(TypeError, match="abstract"):
        bcmdist.register_kernel(Unwritten)
    assert "unwritten" not in KERNEL_NAMES


def test_values_of_white_noise_are_shared_by_equal_rows_only(rng):
    X = rng.standard_normal((4, 2))
    kernel = parse_kernel("white*linear(1)", inputs=2)
    Z = np.vstack([X[:2], X[2:3] + 1e-12])
    expected = np.zeros((4, 3))
    expected[[0, 1], [0, 1]] = X[:2, 1] ** 2
    np.testing.assert_allclose(kernel.cross(X, Z), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel.diagonal(X), X[:, 1] ** 2, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("rbf", r"give se \(the name of rbf here\)"),
        ("Matern", "give matern12, matern32"),
        ("matern53", "give matern52"),
    ],
)
def test_unknown_kernels_are_answered_by_the_one_that_was_meant(name, suggested):
    with pytest.raises(InvalidOption, match=suggested):
        parse_kernel(name, inputs=1)
