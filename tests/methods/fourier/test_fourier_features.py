"""Waves on a grid: their covariance is the kernel's to a stated error, and their Gram matrices multiply by FFT."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fourier_problems import make_fourier
from scipy.linalg import expm, logm

from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.methods.fourier import belief as beliefs
from bcmdist.methods.fourier import shared as features
from bcmdist.methods.fourier.belief import iterative_belief
from bcmdist.methods.fourier.frequency_grid import refuse_early
from bcmdist.methods.fourier.krylov import conjugate_gradients, inverse_forms, inverse_roots
from bcmdist.methods.fourier.toeplitz import Gram
from bcmdist.model.kernels import parse_kernel
from problems import make_kernel

pytest.importorskip("finufft", reason="expert fourier: pip install 'bcmdist[fourier]'")


@pytest.fixture
def plane():
    return make_fourier(make_kernel("matern52", lengthscale=0.8), 2, tolerance=0.05, mean="linear")


@pytest.fixture
def said(plane, rng):
    """A precision and its rows: X (50, 2), w (50,), V (50, S)."""
    X, w = rng.uniform(-1, 1, (50, 2)) * plane.high, rng.uniform(5.0, 90.0, 50)
    return plane.message_sums(X, w, w[:, None])[1], X, w, plane.design(X)


SHORT = [("se", 1), ("se", 3), ("matern12", 1), ("matern32", 1), ("matern32", 2), ("matern52", 2), ("se+matern32", 2)]


@pytest.mark.parametrize(("name", "inputs"), SHORT)
@pytest.mark.parametrize("tolerance", [0.05, 2e-3])
def test_their_covariance_is_the_kernels_to_the_tolerance(name, inputs, tolerance, rng):
    if name == "matern12":
        tolerance = max(tolerance, 0.01)
    lengths = np.array([0.5, 0.9, 1.4])[:inputs]
    kernel = parse_kernel(name, inputs=inputs)
    values = {n: lengths if n.endswith("lengthscale") else v for n, v in kernel.parameters.items()}
    kernel = kernel.with_parameters(values)
    shared = make_fourier(kernel, inputs, tolerance=tolerance, mean="zero")
    X = np.vstack([rng.uniform(shared.low, shared.high, (60, inputs)), shared.low, shared.high])
    V, K = shared.design(X), kernel.cross(X, X)
    worst = np.abs(V @ V.T - K).max() / K[0, 0]
    assert worst <= tolerance
    assert worst >= 0.01 * tolerance  # no more of them than need be
    np.testing.assert_allclose((V**2).sum(axis=1), np.sum(shared.scale**2), rtol=1e-10)


def test_truncated_variance_is_that_of_the_frequencies_left_out():
    """Of a rough kernel that is long beside the box: aliases would hide it in the variance at lag zero."""
    kernel = parse_kernel("matern12", inputs=1).with_parameters(
        {"variance": np.ones(1), "lengthscale": np.full(1, 9.0)}
    )
    few = make_fourier(kernel, 1, tolerance=0.1, mean="zero")
    beyond = np.arange(few.most[0] + 1, 10**6)[:, None] * few.step
    omitted = 2.0 * few.step[0] * kernel.spectral_density(beyond).sum()
    assert omitted > 0.01
    assert few.truncated_variance == pytest.approx(omitted, rel=1e-3)  # frequencies above 10^6 are missing here


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [1, 2, 3])
@pytest.mark.parametrize("name", ["se", "matern12", "matern32", "matern52"])
def test_spectral_densities_are_fourier_transforms(name, inputs):
    """Along one input, the frequencies of the others summed over: compared with the kernel by the rule of rectangles,
    which errs by what is beyond the last frequency."""
    kernel = make_kernel(name, inputs=inputs, variance=1.7, lengthscale=0.6)
    h, count = 0.12, {1: 20_000, 2: 1500, 3: 100}[inputs]
    k = h * np.arange(-count, count + 1)
    total = np.zeros(3)
    places = np.array([0.0, 0.5, 1.1])
    rest = [k] * (inputs - 1)
    others = np.stack(np.meshgrid(*rest, indexing="ij"), -1).reshape(-1, len(rest)) if rest else None
    for one in k:
        W = np.array([[one]]) if others is None else np.column_stack([np.full(len(others), one), others])
        total += h**inputs * kernel.spectral_density(W).sum() * np.cos(2 * np.pi * one * places)
    there = np.zeros((3, inputs))
    there[:, 0] = places
    beyond = {"matern12": 0.04, "matern32": 2e-4}.get(name, 1e-5)
    np.testing.assert_allclose(total, kernel.cross(there[:1], there)[0], atol=beyond)


@pytest.mark.parametrize("most", [(6,), (3, 4), (2, 1, 3)])
def test_lags_are_the_gram_matrix(most, rng):
    k = np.stack(np.meshgrid(*[np.arange(-m, m + 1) for m in most], indexing="ij"), -1).reshape(-1, len(most))
    lag = np.stack(np.meshgrid(*[np.arange(-2 * m, 2 * m + 1) for m in most], indexing="ij"), -1).reshape(-1, len(most))
    t, w = rng.uniform(-3, 3, (20, len(most))), rng.uniform(0.1, 2.0, 20)
    V = np.cos(t @ k.T) + np.sin(t @ k.T)
    G = (V.T * w) @ V
    gram = Gram((w @ (np.cos(t @ lag.T) + np.sin(t @ lag.T))).reshape([4 * m + 1 for m in most]))
    v = rng.standard_normal((3, len(k)))
    np.testing.assert_allclose(gram @ v, v @ G, atol=1e-11)
    np.testing.assert_allclose(gram @ v[0], G @ v[0], atol=1e-11)
    np.testing.assert_allclose(gram.diagonal(), np.diag(G), atol=1e-12)
    some = rng.permutation(len(k))[:9]
    np.testing.assert_allclose(gram.block(some), G[np.ix_(some, some)], atol=1e-12)


def test_sums_by_transforms_are_products_of_the_design(plane, said, rng):
    precision, X, w, V = said
    assert len(precision) == plane.message_length
    operator = plane.operator(precision)
    G = (V.T * w) @ V
    np.testing.assert_allclose(operator.without_prior(), G, atol=1e-9)
    v = rng.standard_normal((2, plane.size))
    np.testing.assert_allclose(operator(v), v + v @ G, atol=1e-9)
    g = rng.standard_normal((50, 3))
    np.testing.assert_allclose(plane.message_sums(X, w, g)[0], g.T @ V, atol=1e-10)
    np.testing.assert_allclose(plane.transposed_product(X, g), g.T @ V, atol=1e-10)
    np.testing.assert_allclose(plane.design_product(X, v[:1]), v[:1] @ V.T, atol=1e-10)
    np.testing.assert_allclose(plane.design_product(X, v), v @ V.T, atol=1e-10)


def test_threads_do_not_disturb_each_other(plane, rng):
    """As the threads of a worker, which transform at the same time."""
    X, g = rng.uniform(plane.low, plane.high, (3000, 2)), rng.standard_normal((3000, 1))
    jobs = [slice(k, None) for k in range(64)]
    alone = [plane.message_sums(X[some], np.ones(len(X[some])), g[some]) for some in jobs]
    with ThreadPoolExecutor(8) as threads:
        together = threads.map(lambda some: plane.message_sums(X[some], np.ones(len(X[some])), g[some]), jobs)
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], other[0])
            np.testing.assert_array_equal(one[1], other[1])


def test_a_row_is_predicted_alike_in_any_company(plane, said):
    _, X, _, _ = said
    v = np.ones((1, plane.size))
    np.testing.assert_allclose(plane.design_product(X[7:8], v)[0], plane.design_product(X, v)[0, 7], rtol=1e-11)


def test_rows_outside_the_box_are_refused(plane):
    X = np.zeros((3, 2))
    X[1, 1] = plane.high[1] + 1e-6
    for ask in (lambda: plane.design(X), lambda: plane.design_product(X, np.ones((1, plane.size)))):
        with pytest.raises(
            InvalidData, match=r"column 1 from -0\..* in standard deviations .*\(1 such rows.*`info` shows"
        ):
            ask()


def test_conjugate_gradients_stop_at_the_residual(rng):
    A = rng.standard_normal((40, 40))
    A, b = A @ A.T + np.eye(40), rng.standard_normal(40)
    found = conjugate_gradients(lambda v: A @ v, lambda r: r / np.diag(A), b, residual=1e-9, most=500)
    assert found.residual <= 1e-8
    np.testing.assert_allclose(found.x, np.linalg.solve(A, b), atol=1e-7)
    few = conjugate_gradients(lambda v: A @ v, lambda r: r, b, residual=1e-9, most=3)
    assert few.steps == 3
    assert few.residual == pytest.approx(np.linalg.norm(b - A @ few.x))


def test_inverse_roots(rng):
    Q = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    A = (Q * np.geomspace(0.5, 20.0, 60)) @ Q.T
    z = rng.choice([-1.0, 1.0], (3, 60))
    found, logs = inverse_roots(lambda v: v @ A, z, change=1e-12, most=120)
    np.testing.assert_allclose(found, z @ expm(-0.5 * logm(A)), atol=1e-8)
    np.testing.assert_allclose(logs, np.einsum("ki,ij,kj->k", z, logm(A), z), rtol=1e-8)


def test_quadratic_forms_of_inverses(rng):
    """From below, to the share that was asked for, and the same in any company."""
    A, B = rng.standard_normal((80, 80)), rng.standard_normal((5, 80))
    A = A @ A.T + np.diag(np.geomspace(0.1, 100.0, 80))
    exact = np.einsum("ij,ji->i", B, np.linalg.solve(A, B.T))
    how = {"product": lambda v: v @ A, "precondition": lambda r: r / np.diag(A), "change": 0.01, "most": 400}
    found = inverse_forms(B=B, **how)
    assert np.all((0.98 * exact <= found) & (found <= exact * (1.0 + 1e-9)))
    np.testing.assert_allclose(inverse_forms(B=B[3:4], **how), found[3:4], rtol=1e-9)


def test_forms_of_an_exact_preconditioner_end_at_once():
    B = np.arange(1.0, 13.0).reshape(3, 4)
    products = []
    found = inverse_forms(lambda v: products.append(v) or 4.0 * v, lambda r: r / 4.0, B, change=0.01, most=50)
    np.testing.assert_allclose(found, (B**2).sum(axis=1) / 4.0, rtol=1e-14)
    assert len(products) <= 2


def test_an_identity_is_its_own_root():
    z = np.ones((2, 30))
    found, logs = inverse_roots(lambda v: v, z, change=0.1, most=20)
    np.testing.assert_allclose(found, z, atol=1e-14)
    np.testing.assert_allclose(logs, 0.0, atol=1e-12)


@pytest.fixture
def beliefs_of_both(plane, said, rng, monkeypatch):
    """The belief of a problem by products, with a factor of a few weights only, and dense."""
    precision, _, w, V = said
    monkeypatch.setattr("bcmdist.methods.fourier.precision.FACTORED", 20)
    eta = V.T @ (w * rng.standard_normal(50))
    return iterative_belief(eta, plane.operator(precision)), plane.belief(eta, precision), eta


def test_means_are_solved_for_within_what_is_stated(plane, said, beliefs_of_both, rng):
    few, dense, _ = beliefs_of_both
    assert plane.size <= features.MAX_FACTORED
    assert few.residual <= 1.1 * beliefs.RESIDUAL
    X = rng.uniform(plane.low, plane.high, (200, 2))
    B = plane.design(X)
    sd = np.linalg.norm(np.linalg.solve(dense.factor, B.T), axis=0)
    assert np.all(np.abs(B @ (few.mean - dense.mean)) <= few.residual * sd * (1 + 1e-6) + 1e-12)
    move = rng.standard_normal(plane.size)
    assert few.length(move) == pytest.approx(dense.length(move), rel=1e-9)


@pytest.mark.parametrize("most", [beliefs.MAX_DENSE, 10])
def test_variances_err_by_what_is_stated(plane, beliefs_of_both, rng, most, monkeypatch):
    monkeypatch.setattr(beliefs, "MAX_DENSE", most)
    few, dense, _ = beliefs_of_both
    X = rng.uniform(plane.low, plane.high, (400, 2))
    mean, variance = plane.moments(few, X)
    exact = (np.linalg.solve(dense.factor, plane.design(X).T) ** 2).sum(axis=0)
    off = variance / exact - 1.0
    assert few.accuracy["variance_error"] == (beliefs.VARIANCE_CHANGE if most == 10 else 0.0)
    assert np.abs(off).max() <= few.accuracy["variance_error"] + 1e-10  # rounding
    np.testing.assert_allclose(mean, plane.design(X) @ few.mean, atol=1e-9)
    again = plane.moments(iterative_belief(beliefs_of_both[2], few.precision), X[3:5])
    np.testing.assert_allclose(again[1], variance[3:5], rtol=1e-9)


def test_traces_and_determinants_of_a_vague_mean_of_many_rows_err_by_what_is_stated(plane, said):
    """The precision of the mean's weights is far larger than the others': rounding of products by it must not count."""
    precision, eta = 1e4 * said[0], np.zeros(plane.size)
    many, dense = iterative_belief(eta, plane.operator(precision)), plane.belief(eta, precision)
    assert many.degrees_of_freedom == pytest.approx(dense.degrees_of_freedom, rel=0.05)
    error = 2.0 * many.accuracy["log_evidence_error"]
    assert abs(many.log_determinant - dense.log_determinant) <= 4.0 * error + 0.5


def test_traces_and_determinants_err_by_what_is_stated(beliefs_of_both):
    few, dense, _ = beliefs_of_both
    error = 2.0 * few.accuracy["log_evidence_error"]
    assert abs(few.log_determinant - dense.log_determinant) <= 4.0 * error + 0.5
    assert few.degrees_of_freedom == pytest.approx(dense.degrees_of_freedom, rel=0.1)
    with pytest.raises(InvalidOption, match="fewer weights for a factor of their precision"):
        few.factor.sum()


def test_too_many_inputs_are_refused_with_their_number():
    with pytest.raises(InvalidOption, match=r"at most 3 inputs, got 4, which would take about \de\+\d\d weights"):
        refuse_early("se", 4, 1e-3)
    with pytest.raises(InvalidOption, match=r"at most 1000000 weights, got .* for a tolerance of .*raise --tolerance"):
        make_fourier(make_kernel("matern12", lengthscale=0.05), 2, tolerance=1e-4)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rq", "one with a spectral density .*give another --kernel"),
        ("linear", "one with a spectral density .*give another --kernel"),
        ("se*linear", "factors of separate columns, of all 2 together, .*; give each column to one factor"),
        ("se+constant", "one with a spectral density .*give another --kernel"),
    ],
)
def test_kernels_without_a_density_are_refused(name, text):
    with pytest.raises(InvalidOption, match=f"expected {text}"):
        refuse_early(name, 2, 1e-3)
