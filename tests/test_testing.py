"""Checks of conformance find each property that is broken, and name it; registering refuses what fails them."""

import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

import bcmdist
from bcmdist import GBCM, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.sources.delivery import Delivery, Listed
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import RESIDUALS, Diagonal, Variances
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.experts import EXPERTS
from bcmdist.model.kernels import KERNELS, SquaredExponential, parse_kernel, squared_distance
from bcmdist.model.likelihoods import LIKELIHOODS, Poisson, StudentT
from bcmdist.model.mean import Mean
from bcmdist.model.shared.weights import BASES, Basis, Weights, register_basis
from bcmdist.prediction.interface import Fitted
from bcmdist.prediction.predictive_model import PREDICTORS
from bcmdist.testing import (
    check_basis,
    check_kernel,
    check_likelihood,
    check_method,
    check_predictor,
    check_source,
)

# --- Kernels ---


def se(**methods):
    """A squared exponential kernel some of whose methods are others."""
    return dataclass(frozen=True)(type("Broken", (SquaredExponential,), methods | {"name": "broken"}))


def plain(self, X, Z):
    return SquaredExponential(self.variance, self.lengthscale).cross(X, Z)


def without_lengthscales(self, X, Z):
    return plain(self, X, Z), lambda G: np.array([(G * plain(self, X, Z)).sum(), *np.zeros(len(self.lengthscale))])


def in_natural_parameters(self, X, Z):
    K, pullback = SquaredExponential.cross_and_pullback(self, X, Z)
    return K, lambda G: pullback(G) / np.exp(self.theta)


BROKEN_KERNELS = {
    r"logarithm of a parameter: expected -?[\d.e-]+ at lengthscale\[0\], got 0 at lengthscale\[0\]; correct": se(
        cross_and_pullback=without_lengthscales
    ),
    r"logarithm of a parameter: expected .* at variance\[0\].*finite difference of `cross`": se(
        cross_and_pullback=in_natural_parameters
    ),
    "derivative by `input_gradient`: expected": se(
        input_gradient=lambda self, X, Z, G: -SquaredExponential.input_gradient(self, X, Z, G)
    ),
    "its transpose: expected": se(cross=lambda self, X, Z: plain(self, X, 1.1 * Z)),
    "`diagonal`: expected": se(diagonal=lambda self, X: np.ones(len(X))),
    "expected no number below 0, got -": se(
        cross=lambda self, X, Z: np.asfortranarray(self.variance + squared_distance(X, Z, self.lengthscale))
    ),
    "expected a Fortran-ordered matrix": se(cross=lambda self, X, Z: np.ascontiguousarray(plain(self, X, Z))),
}


@pytest.mark.parametrize("message", BROKEN_KERNELS)
def test_a_broken_kernel_is_refused_by_name(message):
    kernel = BROKEN_KERNELS[message]
    with pytest.raises(InvalidOption, match=f"kernel broken, .*{message}"):
        check_kernel(kernel(1.3, [0.7, 1.2]))
    with pytest.raises(InvalidOption, match="kernel broken, "):
        bcmdist.register_kernel(kernel)
    assert "broken" not in KERNELS


# --- Likelihoods ---


def poisson(**methods):
    return dataclass(frozen=True)(type("Broken", (Poisson,), methods | {"name": "broken", "task": "counts"}))


def changed(name, change):
    return {name: lambda self, obs, f: change(getattr(Poisson, name)(self, obs, f))}


BROKEN_LIKELIHOODS = {
    "`score`: expected .*finite difference of `log_density`": changed("score", lambda s: 1.01 * s),
    "`third`: expected .*finite difference of `curvature`": changed("third", lambda s: -s),
    "`hessian`: expected": changed("hessian", lambda s: s + 1.0),
    "`log_density`, against that of `distribution`: expected": {
        "log_density": lambda self, obs, f: Poisson.log_density(self, obs, f) + obs.weight
    },
    "`saturated`: expected the largest log density": {"saturated": lambda self, obs: np.zeros(len(obs))},
    "`unsupported` of its own targets: expected False": {"unsupported": lambda self, obs: obs.y >= 0},
    r"`log_density` of a row of weight 3: expected .*multiply it by `obs.weight` in Broken": {
        "log_density": lambda self, obs, f: Poisson.log_density(self, obs, f) / obs.weight,
        "score": lambda self, obs, f: Poisson.score(self, obs, f) / obs.weight,
    },
}


@pytest.mark.parametrize("message", BROKEN_LIKELIHOODS)
def test_a_broken_likelihood_is_refused_by_name(message):
    likelihood = poisson(**BROKEN_LIKELIHOODS[message])
    with pytest.raises(InvalidOption, match=f"likelihood broken, {message}"):
        check_likelihood(likelihood())
    with pytest.raises(InvalidOption, match="likelihood broken, "):
        bcmdist.register_likelihood(likelihood)
    assert "broken" not in LIKELIHOODS


def test_an_expected_curvature_is_declared(monkeypatch):
    check_likelihood(StudentT(0.3, 3.5))
    monkeypatch.setattr(StudentT, "log_concave", True)
    with pytest.raises(InvalidOption, match=r"`curvature`, against `hessian`.*set `log_concave = False` in StudentT"):
        check_likelihood(StudentT(0.3, 3.5))


def test_a_parameter_outside_its_bounds():
    with pytest.raises(InvalidOption, match=r"student_t, degrees_of_freedom: expected a value within .* got \[0.1\]"):
        check_likelihood(StudentT(0.3, 0.1))


# --- Residuals and bases ---


def residual(**methods):
    """A diagonal some of whose methods are others, and the kind that makes it."""
    made = type("Broken", (Diagonal,), methods)

    class BrokenKind(Variances):
        def residual(self, shared, V, X):
            return made(self.variance(shared, V, X))

    return BrokenKind()


class BrokenVariances(Variances):
    def joint_lower(self, shared, V, X):
        return 1.1 * super().joint_lower(shared, V, X)


BROKEN_RESIDUALS = {
    "T'T of `factor`: expected": residual(factor=lambda self, noise: Diagonal(self.variances).factor(1.1 * noise)),
    "T'T of `site`: expected": residual(site=lambda self, w: Diagonal(self.variances).site(1.1 * w)),
    "`Lam @ x`: expected": residual(__matmul__=lambda self, x: x),
    "`pull`: expected": residual(pull=lambda self, h, B: B),
    "design of `left`: expected": residual(left=lambda self, w, V: (Diagonal.left(self, w, V)[0], V)),
    "`plus`: expected": residual(plus=lambda self, A: Diagonal(self.variances).plus(2.0 * A)),
    "diagonal of `joint_lower`, against `variance`: expected": BrokenVariances(),
}


@pytest.mark.parametrize("message", BROKEN_RESIDUALS)
def test_a_broken_residual_is_refused_by_name(message):
    with pytest.raises(InvalidOption, match=f"residual broken, {message}.*; correct it in Broken"):
        bcmdist.register_residual("broken", BROKEN_RESIDUALS[message])
    assert "broken" not in RESIDUALS


def test_a_residual_is_registered_under_a_name_of_its_own(monkeypatch):
    monkeypatch.setattr(RESIDUALS, "_things", dict(RESIDUALS._things))
    kind = residual()
    assert bcmdist.register_residual("mine", kind) is RESIDUALS["mine"] is kind
    with pytest.raises(InvalidOption, match="residual: expected a name of its own, 'mine' is that of"):
        bcmdist.register_residual("mine", residual())


@dataclass(frozen=True)
class Powers(Basis):
    """1, x, x^2, ... of one input."""

    name = "powers"
    count: np.ndarray

    @property
    def inputs(self):
        return 1

    @property
    def functions(self):
        return int(self.count[0])

    def features(self, X):
        return X ** np.arange(self.functions)

    def to_arrays(self):
        return {"count": self.count}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(arrays["count"])


BROKEN_BASES = {
    "`features`: expected values .4, 3., of `functions` functions, got .4, 2.": {
        "features": lambda self, X: X ** [0, 1]
    },
    "`features`: expected finite": {"features": lambda self, X: X ** np.arange(3) * [1, np.nan, 1]},
    "`features` of a row by itself: expected": {"features": lambda self, X: (X - X.mean()) ** np.arange(3)},
    "array count of `to_arrays`: expected": {"to_arrays": lambda self: {"count": self.count.astype(int)}},
    "`features` after `from_arrays.*`: expected": {"to_arrays": lambda self: {"count": self.count - 1}},
}


@pytest.mark.parametrize("message", BROKEN_BASES)
def test_a_broken_basis_is_refused_by_name(message):
    check_basis(Powers(np.array([3.0])))
    with pytest.raises(InvalidOption, match=f"basis powers, {message}.*; correct it in Broken"):
        check_basis(type("Broken", (Powers,), BROKEN_BASES[message])(np.array([3.0])))


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, [1.0, 2.0], [1.0, np.inf, 1.0]])
def test_a_scale_that_is_none(scale):
    with pytest.raises(
        InvalidOption, match="basis powers, scale of the weights: expected a positive number, or one for"
    ):
        check_basis(Powers(np.array([3.0])), scale=scale)


# --- Methods ---


@pytest.fixture
def basis_inputs(rng):
    X, y = rng.standard_normal((60, 2)), rng.standard_normal((60, 1))
    kernel = parse_kernel("se", inputs=2)
    sizes = {"rows": 60, "count": 8, "method": "kmeans", "seed": 0, "low": X.min(axis=0), "high": X.max(axis=0)}
    return BasisInputs(X, y, np.full(60, 0.1), kernel=kernel, mean=Mean("constant"), residual="", **sizes)


@dataclass(frozen=True)
class BrokenWeights(Weights):
    def fill(self, X, V):
        super().fill(X - X.mean(), V)


def test_a_broken_method_is_refused_by_name(basis_inputs, monkeypatch):
    for table in (EXPERTS, BASES):
        monkeypatch.setattr(table, "_things", dict(table._things))

    def made(shared):
        return lambda basis_inputs: shared(
            Powers(np.array([3.0])), np.ones(3), basis_inputs.kernel, basis_inputs.mean, basis_inputs.residual
        )

    one_input = replace(basis_inputs, sample=basis_inputs.sample[:, :1], residual="none")
    powers = bcmdist.register_expert("powers", made(Weights), residual="none")
    with pytest.raises(InvalidOption, match=r"basis: expected one of .* got 'powers'"):  # nobody could load the model
        check_method(powers, one_input)
    register_basis(Powers)
    check_method(powers, one_input)
    broken = bcmdist.register_expert("broken", made(BrokenWeights), residual="none")
    with pytest.raises(InvalidOption, match="expert broken, `design` of a row by itself: expected"):
        check_method(broken, one_input)


# --- Sources, predictors, runtimes ---


class Source(Listed):
    """A list of partitions that can be changed."""

    def __init__(self, parts):
        vars(self).update(parts=parts, name="list:", acknowledged=0)


def unacknowledged(self, after, most):
    """From the offset, or from what was acknowledged."""
    return Listed.read(self, max(after or 0, self.acknowledged), most)


BROKEN_SOURCES = {
    "`read.None, 1.` once more: expected .*from the offset alone": {
        "read": unacknowledged,
        "ack": lambda self, offset, keys: vars(self).update(acknowledged=offset),
        "lag": lambda self, after: None,
    },
    "`read.after, 1.`: expected at most 1 partitions, got 2": {
        "read": lambda self, after, most: Listed.read(self, after, 2 * most)
    },
    "keys of one reading: expected different": {
        "read": lambda self, after, most: [replace(one, parts=self.parts[:1]) for one in Listed.read(self, after, most)]
    },
    "`lag` at the start and the end: expected": {"lag": lambda self, after: len(self.parts)},
    "`read`: expected an end where nothing is added": {
        "read": lambda self, after, most: [Delivery(self.parts[:1], (after or 0) + 1)]
    },
}


@pytest.fixture
def parts(wave):
    return tuple(partitions(open_data(wave[0]), 60))


@pytest.mark.parametrize("message", BROKEN_SOURCES)
def test_a_broken_source_is_refused_by_name(message, parts):
    check_source(lambda: Source(parts))
    shared = type("Broken", (Source,), BROKEN_SOURCES[message])(parts)
    with pytest.raises(InvalidOption, match=f"source list:, {message}"):
        check_source(lambda: shared, most=1)


def test_a_name_with_a_password(parts):
    class Open(Source):
        name = "redis://me:secret@host/rows"

        def __init__(self, parts):
            vars(self).update(parts=parts)

    with pytest.raises(InvalidOption, match="`name`: expected a URL without a password"):
        check_source(lambda: Open(parts))


class Own(Fitted):
    @classmethod
    def of_snapshot(cls, snapshot):
        return cls(**vars(Fitted.of_snapshot(snapshot)))

    @classmethod
    def of_commit(cls, reference):
        return cls(**vars(Fitted.of_commit(reference)))


BROKEN_PREDICTORS = {
    "mean of a row by itself: expected .*let no row depend on others": {
        "latent": lambda self, X: (Fitted.latent(self, X)[0] - X.mean(), Fitted.latent(self, X)[1])
    },
    "`latent`: expected finite means and variances": {
        "latent": lambda self, X: (Fitted.latent(self, X)[0], -Fitted.latent(self, X)[1])
    },
    "mean of `of_commit`, against `of_snapshot`: expected": {
        "of_commit": classmethod(lambda cls, reference: Shifted(**vars(Fitted.of_commit(reference))))
    },
}


class Shifted(Fitted):
    def latent(self, X):
        mean, variance = super().latent(X)
        return mean + 0.1, variance


def test_a_predictor_conforms_or_is_refused_by_name(wave, tmp_path):
    settings = Settings(kernel="se", query=20, rows_per_expert=60, learn=False)
    gbcm = GBCM.fit(wave[0], settings, model=tmp_path / "model")
    check_predictor(PREDICTORS["committee"], gbcm.snapshot)
    for message, methods in BROKEN_PREDICTORS.items():
        with pytest.raises(InvalidOption, match=f"predictor Broken, {message}"):
            check_predictor(type("Broken", (Own,), methods), gbcm.snapshot)


# --- At import ---


def test_nothing_of_ours_is_checked_at_import():
    code = "import sys, bcmdist.learning.experts, bcmdist.methods; assert 'bcmdist.testing' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
