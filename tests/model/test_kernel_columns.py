"""Kernels by column: grammar, names and units, derivatives, metric, expectations and spectral densities."""

import numpy as np
import pytest

from bcmdist.data.schema import Schema
from bcmdist.data.tables.coding import Category, Coding, Number
from bcmdist.errors import InvalidOption
from bcmdist.model.kernel_columns import KernelColumns
from bcmdist.model.kernels import check_expression, metric, parse_kernel
from bcmdist.model.kernels.grammar import parsed, written
from bcmdist.testing import check_kernel

EXPRESSIONS = [
    "se(0, 2)",
    "matern12(0, 1) + matern32(0, 1)",
    "se-iso(2, 0)*linear(1) + constant",
    "periodic(2, period=1.7)",
    "periodic(2, period=~1.7) + se",
    "category(1) + rq(0)*matern52(1)",
    "onehot(0, 1)*se(2)",
    "arcsine(0, 1) + poly2(2)",
]
CODING = Coding((Number("area"), Category("district", ("east", "north", "west")), Number("hour", mean=12.0)))
TABLE = KernelColumns(6, Schema(CODING.inputs, coding=CODING), np.array([2.0, 1.0, 1.0, 1.0, 8.0, 0.5]))


def perturbed(expression, rng, inputs=3):
    kernel = parse_kernel(expression, inputs=inputs)
    return kernel.with_theta(kernel.theta + 0.2 * rng.uniform(-1.0, 1.0, len(kernel.theta)))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_conformance(expression, rng):
    """Values, symmetry, eigenvalues, and derivatives in parameters and inputs; with equal levels and equal rows."""
    X = rng.standard_normal((7, 3))
    X[:, 1] = np.round(X[:, 1])
    check_kernel(perturbed(expression, rng), X, np.vstack([X[:2], rng.standard_normal((4, 3))]))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_are_read_as_they_are_written(expression):
    again = written(parsed(expression))
    assert again == expression
    kernel = parse_kernel(expression, inputs=3)
    assert parse_kernel(kernel.expression, inputs=3).parameters.keys() == kernel.parameters.keys()


def test_other_columns_change_nothing(rng):
    X, Z = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    kernel, moved = parse_kernel("se(2, 0)", inputs=3), X + np.array([0.0, 9.0, 0.0])
    np.testing.assert_array_equal(kernel.cross(moved, Z), kernel.cross(X, Z))
    alone = parse_kernel("se", inputs=2)
    np.testing.assert_array_equal(kernel.cross(X, Z), alone.cross(X[:, [2, 0]], Z[:, [2, 0]]))


def test_all_columns_in_parentheses_are_the_kernel_without(rng):
    X, Z, G = rng.standard_normal((5, 3)), rng.standard_normal((4, 3)), rng.standard_normal((5, 4))
    (K, back), (K2, back2) = (parse_kernel(e, inputs=3).cross_and_pullback(X, Z) for e in ("rq", "rq(0, 1, 2)"))
    np.testing.assert_allclose(K, K2, rtol=1e-13)
    np.testing.assert_allclose(back(G), back2(G), rtol=1e-12)


def test_one_hot_and_numbered_levels_have_the_same_covariances(rng):
    levels = rng.integers(0, 4, 20)
    one_hot = np.eye(4)[levels] - 0.25
    K = parse_kernel("category(0)", inputs=1).cross(levels[:, None] * 1.0, levels[:, None] * 1.0)
    K2 = parse_kernel("onehot(0, 1, 2, 3)", inputs=4).cross(one_hot, one_hot)
    np.testing.assert_allclose(K, K2, rtol=1e-14)
    np.testing.assert_allclose(K, np.where(levels[:, None] == levels, 1.0, 0.5), rtol=1e-14)


def test_periodic_repeats():
    kernel = parse_kernel("periodic(0, period=24)", inputs=1)
    x = np.array([[0.0], [24.0], [12.0]])
    np.testing.assert_allclose(kernel.cross(x, x)[0], [1.0, 1.0, np.exp(-2.0)], rtol=1e-12)
    assert list(kernel.parameters) == ["variance", "angle"]
    learned = parse_kernel("periodic(0, period=~24)", inputs=1)
    np.testing.assert_array_equal(learned.parameters["period"], [24.0])


def test_metric_is_that_of_the_terms():
    kernel = parse_kernel("se(0)*matern32(1) + se-iso(0, 1) + linear(2)", inputs=4)
    np.testing.assert_allclose(metric(kernel, 4), [1.0, 1.0, 1.0, 1000.0])  # linear has no metric; column 3 no use


def test_density_of_a_product_of_separate_columns(rng):
    W = rng.standard_normal((6, 3))
    product = parse_kernel("matern32(0, 2)*se(1)*constant", inputs=3)
    se, matern = parse_kernel("se", inputs=1), parse_kernel("matern32", inputs=2)
    expected = se.spectral_density(W[:, [1]]) * matern.spectral_density(W[:, [0, 2]])
    np.testing.assert_allclose(product.spectral_density(W), expected, rtol=1e-14)
    for other in ("se(0)", "se(0)*se(1)", "se(0, 1)*se(1, 2)", "linear(0)*se(1, 2)"):
        with pytest.raises(InvalidOption, match="spectral density"):
            parse_kernel(other, inputs=3).spectral_density(W)


@pytest.mark.parametrize("width", [0.5, 1e-5])
def test_expectations_are_those_of_quadrature(width, rng):
    """Tolerances: rounding of 27,000 nodes, relative to terms of the order of the width for covariances."""
    kernel = perturbed("se(0, 1) + se(1) + linear(2) + constant*linear(0) + se(0)*se(2)", rng)
    u, Z = rng.standard_normal(3), rng.standard_normal((4, 3))
    root = width * rng.standard_normal((3, 3))
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 3)
    w = np.prod(np.stack(np.meshgrid(weights, weights, weights), axis=-1).reshape(-1, 3), axis=1) / (2 * np.pi) ** 1.5
    X = u + grid @ root.T
    K = kernel.cross(X, Z)
    mean = w @ K
    found = kernel.expected(u, root @ root.T, Z)
    np.testing.assert_allclose(found.single, mean, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, (K - mean).T @ (w[:, None] * (K - mean)), atol=1e-8 * width)
    np.testing.assert_allclose(found.with_inputs, (K - mean).T @ (w[:, None] * (X - u)), atol=1e-8 * width)
    assert found.prior == pytest.approx(w @ kernel.diagonal(X), rel=1e-9)


def test_products_without_closed_form_are_refused():
    for expression in ("se(0)*linear(1)", "linear(0)*linear(1)", "matern32(0)"):
        with pytest.raises(InvalidOption, match="montecarlo"):
            parse_kernel(expression, inputs=2).expected(np.zeros(2), np.eye(2), np.zeros((1, 2)))


# --- Names ---


@pytest.mark.parametrize(
    ("named", "numbered"),
    [
        ("se(area) + category(district)", "se(0) + onehot(1, 2, 3)"),
        ("linear(hour)", "linear(4, 5)"),  # with the indicator of its gaps
        ("periodic(hour, period=24)", "periodic(4, period=3.0)"),
        ("periodic(hour, period=~24)", "periodic(4, period=~3.0)"),
        ("matern12-iso(0, 4)", "matern12-iso(0, 4)"),
        ('se("district=north", area)', "se(2, 0)"),
    ],
)
def test_names_become_numbers(named, numbered):
    assert TABLE.numbered(named) == numbered
    assert TABLE.numbered(TABLE.shown(numbered)) == numbered


def test_names_are_shown():
    assert (
        TABLE.shown("kernel.onehot(1, 2, 3)*se(0).se(0).lengthscale")
        == "kernel.category(district)*se(area).se(area).lengthscale"
    )
    assert TABLE.shown("periodic(4, period=3.0)") == "periodic(hour, period=24)"
    assert TABLE.shown("se + matern32") == "se + matern32"
    assert KernelColumns(2).numbered("se(X[1])") == "se(1)"


def test_unused_columns_are_named():
    assert TABLE.unused(TABLE.numbered("se(area) + category(district)")) == ["hour", "hour missing"]
    assert TABLE.unused(TABLE.numbered("se(area) + linear")) == []


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("se(age)", "columns of the data .area, district, hour.*'age'"),
        ("se(6)", "below 6, got 6"),
        ("se(area, 0)", "twice"),
        ("periodic(hour)", "expected period of periodic, got none"),
        ("periodic(hour, period=-1)", "positive number"),
        ("se(area, period=2)", "expected no options of se"),
        ("category(district, area)", "stored alike"),
        ("se(area", "expected , or"),
        ("se(area) matern32", r"expected \+, \* or the end"),
        ("se()", "expected a column"),
        ("nothing(area)", "'nothing'"),
        ("category-iso(area)", "'category-iso'"),
    ],
)
def test_errors_say_what_to_write(expression, words):
    with pytest.raises(InvalidOption, match=words):
        TABLE.numbered(expression)


def test_settings_check_the_grammar_before_data_are_read():
    with pytest.raises(InvalidOption, match="expected a combination of"):
        check_expression("se(lon) + unknown(lat)")
