"""Conformance checks for kernels, likelihoods, bases, residuals, sources, predictors and runtimes.

Each `check_...` evaluates an implementation at a few seeded points, which takes milliseconds, and raises
`InvalidOption` for the first promise of its interface that does not hold: which implementation, which property, both
values, and what to correct. `register_kernel`, `register_likelihood` and `register_residual` run them, so that a wrong
derivative is refused before a model is fitted with it. Run them in the tests of your own package as well:

    from bcmdist.testing import check_kernel
    check_kernel(Periodic(variance=1.4, lengthscale=[0.7, 1.3], period=2.0))
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from bcmdist.data.observations import Observations
from bcmdist.data.partition import Partition, from_key
from bcmdist.data.rows import read_all
from bcmdist.errors import InvalidData, InvalidOption

SEED = 20290
STEP = 1e-5  # of central differences: rounding 1e-16 / STEP and truncation STEP^2 are alike
TOLERANCE = 1e-6  # relative error of derivatives against these
ROUNDING = 1e-13  # relative error of values that are computed in two ways
SOLVED = 1e-9  # the same of solutions of linear systems
# For what is registered, whose own derivatives may be numerical and whose distances may be differences of squares.
LENIENT_TOLERANCE, LENIENT_ROUNDING = 1e-3, 1e-7
LARGEST = 300.0  # latent that stands for infinity
FAR = 30.0  # latents that scaled data do not have, but a search for a mode may try
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)  # quantiles at which targets are drawn
MOST_READ = 10_000  # deliveries of a source that is checked


@dataclass(frozen=True)
class Checked:
    """An implementation that is checked, by its names, and the errors that are accepted."""

    name: str
    """as users know it: "kernel periodic" """
    owner: str
    """its class"""
    tolerance: float = TOLERANCE
    rounding: float = ROUNDING

    def holds(self, condition, what: str, expected: str, found: Any, remedy: str = "") -> None:
        """Raise `InvalidOption` unless a condition holds."""
        if not condition:
            remedy = remedy or f"correct it in {self.owner}"
            raise InvalidOption(f"{self.name}, {what}: expected {expected}, got {found}; {remedy}")

    def equal(self, what: str, found, expected, remedy: str = "", *, names=None, rtol=None, atol=None) -> None:
        """Raise `InvalidOption` where arrays differ in shape or in a value, which is named by `names` or its index."""
        found, expected = np.asarray(found), np.asarray(expected)
        self.holds(found.shape == expected.shape, what, f"an array of shape {expected.shape}", found.shape, remedy)
        rtol = self.rounding if rtol is None else rtol
        atol = rtol * np.abs(expected).max(initial=0.0) if atol is None else atol
        for place in np.argwhere(~np.isclose(found, expected, rtol=rtol, atol=atol))[:1].tolist():
            where = names[place[0]] if names else place
            a, b = (f"{one[tuple(place)]:.8g} at {where}" for one in (expected, found))
            self.holds(False, what, a, b, remedy)

    def not_negative(self, what: str, found, rounding=0.0) -> None:
        """Raise `InvalidOption` where a number is below 0."""
        self.holds(np.all(found >= -rounding), what, "no number below 0", f"{np.min(found):.3g}")

    def derivative(self, what: str, found, numeric, function: str, **more) -> None:
        """Raise `InvalidOption` where derivatives differ from central differences of a function."""
        remedy = f"correct it in {self.owner}: the expected value is the finite difference of `{function}`"
        self.equal(what, found, numeric, remedy, rtol=self.tolerance, atol=0.1 * self.tolerance, **more)


def _slope(function, at):
    """Central differences of a function in each of its arguments, (P, ...)."""
    return np.array([(function(at + h) - function(at - h)) / (2 * STEP) for h in STEP * np.eye(len(at))])


def _seeded(*shape):
    return np.random.default_rng(SEED).standard_normal(shape)


# --- Kernels ---


def check_kernel(kernel: Any, X=None, Z=None, *, tolerance=TOLERANCE, rounding=ROUNDING) -> None:
    """Check a `Kernel`: values, symmetry, positive semi-definiteness, and derivatives against finite differences.

    Parameters
    ----------
    kernel : an instance, at parameters other than 1 (where a derivative in a parameter is that in its logarithm)
    X, Z : scaled inputs (n, D) and (m, D); by default seeded ones, of which two coincide
    tolerance, rounding : relative, of derivatives and of values
    """
    checked = Checked(f"kernel {kernel.expression}", type(kernel).__name__, tolerance, rounding)
    X = _seeded(6, max(len(value) for value in kernel.parameters.values())) if X is None else X
    Z = np.vstack([X[:2], 0.8 * _seeded(3, X.shape[1])]) if Z is None else Z
    K = kernel.cross(X, X)
    checked.equal("`cross(X, X)` and its transpose", K, K.T)
    checked.holds(K.flags.f_contiguous, "`cross`", "a Fortran-ordered matrix", "another", "return np.asfortranarray(K)")
    checked.equal("`diagonal`", kernel.diagonal(X), np.diag(K))
    checked.not_negative("eigenvalues of `cross(X, X)`", np.linalg.eigvalsh(K), 1e-10 * K.trace())
    checked.equal("`with_theta(theta)`", kernel.with_theta(kernel.theta).theta, kernel.theta)
    shape = kernel.isotropic().cross(X, Z).shape
    checked.holds(shape == (len(X), len(Z)), "`isotropic`", f"covariances {(len(X), len(Z))}", shape)
    G = np.random.default_rng(SEED + 1).standard_normal((len(X), len(Z)))
    K, pullback = kernel.cross_and_pullback(X, Z)
    checked.equal("value of `cross_and_pullback`", K, kernel.cross(X, Z))
    names = [f"{name}[{k}]" for name, found in kernel.parameters.items() for k in range(len(found))]
    numeric = _slope(lambda theta: (G * kernel.with_theta(theta).cross(X, Z)).sum(), kernel.theta)
    checked.derivative("derivative in the logarithm of a parameter", pullback(G), numeric, "cross", names=names)
    numeric = _slope(lambda z: (G * kernel.cross(X, z.reshape(Z.shape))).sum(), Z.ravel()).reshape(Z.shape)
    checked.derivative("derivative by `input_gradient`", kernel.input_gradient(X, Z, G), numeric, "cross")


# --- Likelihoods ---


def check_likelihood(
    likelihood: Any, obs: Observations | None = None, f=None, *, tolerance=TOLERANCE, rounding=ROUNDING
) -> None:
    """Check a `Likelihood`: derivatives of its log density, its support, its distribution, weights and bounds.

    Parameters
    ----------
    likelihood : an instance
    obs, f : observations (n,) and latents like f; by default targets at quantiles of its `distribution`, or classes
    tolerance, rounding : relative, of derivatives and of values
    """
    checked = Checked(f"likelihood {likelihood.name}", type(likelihood).__name__, tolerance, rounding)
    f = _seeded(len(LEVELS), *[likelihood.processes] * likelihood.per_class) if f is None else f
    obs = _observations(likelihood, f) if obs is None else obs
    checked.holds(not likelihood.unsupported(obs).any(), "`unsupported` of its own targets", "False", "True")
    for name, (low, high) in likelihood.bounds.items():
        value = likelihood.parameters[name]
        checked.holds(np.all((low <= value) & (value <= high)), f"{name}", f"a value within {low}..{high}", value)
    numeric = _slope_of_rows(likelihood.log_density, obs, f)
    checked.derivative("`score`", likelihood.score(obs, f), numeric, "log_density")
    checked.not_negative("`curvature`", likelihood.curvature(obs, f))
    for name in ("log_density", "score", "curvature"):
        method = getattr(likelihood, name)
        finite = all(np.all(np.isfinite(method(obs, far + 0 * f))) for far in (FAR, -FAR))
        checked.holds(finite, f"`{name}` at latents of +-{FAR:g}", "finite numbers", "others", "bound its exponents")
        if not likelihood.exact:
            thrice = replace(obs, weight=3.0 * obs.weight)
            remedy = f"multiply it by `obs.weight` in {checked.owner}"
            checked.equal(f"`{name}` of a row of weight 3", method(thrice, f), 3.0 * method(obs, f), remedy)
    if not likelihood.per_class:
        _check_one_process(checked, likelihood, obs, f)


def _observations(likelihood, f):
    """Targets at quantiles of its own distribution, or all classes in turn; each companion has several values."""
    n = len(f)
    weight, exposure, trials = np.linspace(0.5, 2.0, n), np.linspace(1.0, 3.0, n), np.arange(n) + 2.0
    if likelihood.per_class:
        return Observations(np.arange(n) % likelihood.processes * 1.0, weight)
    event = (np.arange(n) % 3 != 1) * 1.0 if "event" in likelihood.companions else np.ones(n)
    one_each = Observations(np.zeros(n), np.ones(n), exposure, trials)
    y = likelihood.distribution(one_each, f).ppf(np.resize(LEVELS, n))
    return Observations(np.asarray(y, dtype=float), weight, exposure, trials, event)


def _slope_of_rows(method, obs, f):
    """Central differences of a function of each row in its latents, like f."""
    if f.ndim == 1:
        return (method(obs, f + STEP) - method(obs, f - STEP)) / (2 * STEP)
    return np.column_stack([(method(obs, f + h) - method(obs, f - h)) / (2 * STEP) for h in STEP * np.eye(f.shape[1])])


def _check_one_process(checked, likelihood, obs, f):
    checked.derivative("`hessian`", likelihood.hessian(obs, f), -_slope_of_rows(likelihood.score, obs, f), "score")
    checked.derivative("`third`", likelihood.third(obs, f), -_slope_of_rows(likelihood.curvature, obs, f), "curvature")
    for name in ("log_density", "score", "curvature", "third", "hessian"):
        method = getattr(likelihood, name)
        table = np.asarray(method(obs[:, None], f[:, None] + np.array([0.0, 0.1])))
        checked.equal(f"`{name}` at latents (n, 2), first column", table[..., 0], method(obs, f))
    share = likelihood.distribution(obs, f[:, None] + np.array([0.0, 0.5])).cdf(obs.y[:, None])
    checked.equal("`distribution` at latents (n, 2)", share[:, 0], likelihood.distribution(obs, f).cdf(obs.y))
    checked.not_negative("fall of the cdf of `distribution` as f grows", share[:, 0] - share[:, 1])
    top = likelihood.saturated(obs)
    checked.holds(np.all(np.abs(top) <= LARGEST), "`saturated`", f"numbers within +-{LARGEST:g}", top)
    for other in (top - 1e-3, top + 1e-3, f):
        gain = np.max(likelihood.log_density(obs, other) - likelihood.log_density(obs, top))
        checked.holds(gain <= 1e-9, "`saturated`", "the largest log density", f"{gain:.3g} less than at another f")
    if likelihood.needs_calibration:  # which has no density
        return
    if likelihood.log_concave:
        remedy = f"set `log_concave = False` in {checked.owner} where it is an expectation"
        checked.equal(
            "`curvature`, against `hessian`", likelihood.curvature(obs, f), likelihood.hessian(obs, f), remedy
        )
    if not likelihood.exact:
        predicted = likelihood.distribution(obs, f)
        density = predicted.logpmf(obs.y) if likelihood.discrete else predicted.logpdf(obs.y)
        if "event" in likelihood.companions:
            density = np.where(obs.event == 1, density, predicted.logsf(obs.y))
        what, found = "`log_density`, against that of `distribution`", likelihood.log_density(obs, f) / obs.weight
        checked.equal(what, found, density, rtol=max(1e-11, checked.rounding))


# --- Bases and residuals ---


def check_basis(basis: Any, X=None, scale=1.0) -> None:
    """Check a `Basis`: features of each row by itself, a positive scale, and arrays that give the same basis.

    Parameters
    ----------
    basis : an instance
    X : scaled inputs (n, D); by default seeded ones
    scale : prior standard deviations of the weights, (B,) or one for all
    """
    checked = Checked(f"basis {basis.name}", type(basis).__name__)
    X = _seeded(4, basis.inputs) if X is None else X
    phi, shape = np.asarray(basis.features(X)), (len(X), basis.functions)
    checked.holds(phi.shape == shape, "`features`", f"values {shape}, of `functions` functions", phi.shape)
    checked.holds(np.all(np.isfinite(phi)), "`features`", "finite numbers", "others")
    scale, wanted = np.asarray(scale, dtype=float), f"a positive number, or one for each of {basis.functions} functions"
    wrong = scale[~(np.isfinite(scale) & (scale > 0))] if scale.size in (1, basis.functions) else scale
    checked.holds(wrong.size == 0, "scale of the weights", wanted, wrong, "leave out functions whose weights are 0")
    checked.equal("`features` of a row by itself", basis.features(X[:1]), phi[:1], rtol=SOLVED)
    arrays = {name: np.array(array) for name, array in basis.to_arrays().items()}
    for name, array in arrays.items():
        checked.holds(array.dtype == np.float64, f"array {name} of `to_arrays`", "numbers of float64", array.dtype)
    again = type(basis).from_arrays(arrays)
    checked.equal("`features` after `from_arrays(to_arrays())`", again.features(X), phi)


def check_residual(kind: Any, shared: Any, X=None) -> None:
    """Check the `Kind` of a residual against dense matrices.

    Parameters
    ----------
    kind : an instance, of what experts do with cov(f | v) = Lam
    shared : shared variables that it can be used with
    X : scaled inputs (n, D); by default seeded ones
    """
    checked = Checked(f"residual {shared.residual}", type(kind).__name__, rounding=SOLVED)
    X = _seeded(5, shared.inputs) if X is None else X
    V, n = shared.design(X), len(X)
    Lam = _dense(kind.residual(shared, V, X).covariance)
    checked.equal("`covariance` and its transpose", Lam, Lam.T)
    checked.not_negative("eigenvalues of `covariance`", np.linalg.eigvalsh(Lam), 1e-9 * max(1.0, Lam.trace()))
    w, h, B = np.linspace(0.2, 2.0, n), np.linspace(-0.2, 2.0, n), _seeded(n, 3)
    root, used, residual = np.sqrt(w), kind.residual(shared, V, X), kind.residual(shared, V, X)
    _check_factor(checked, "`factor`", used.factor(w.copy()), Lam + np.diag(w), root, B)
    _check_factor(checked, "`site`", residual.site(w), np.eye(n) + root[:, None] * Lam * root, root, B)
    checked.equal("`Lam @ x`", residual @ B, Lam @ B)
    checked.equal("`pull`", residual.pull(h, B), np.linalg.solve(np.eye(n) + h[:, None] * Lam, B))
    variance, left = residual.left(w, V)
    reduction = Lam @ np.linalg.solve(Lam + np.diag(1.0 / w), Lam)
    checked.equal("variance of `left`", variance, np.diag(Lam - reduction), atol=SOLVED)
    checked.equal("design of `left`", left, np.linalg.solve(np.eye(n) + Lam * w, V))
    checked.equal("`plus`", _dense(residual.plus(B)), Lam + B @ B.T)
    prior, own = kind.own_prior(shared, V, X)
    checked.equal("prior of `own_prior`", _dense(prior), V @ V.T + Lam)
    checked.equal("residual of `own_prior`", _dense(own.covariance), Lam)
    variance = kind.variance(shared, V, X)
    checked.not_negative("`variance`", variance)
    joint = np.diag(kind.joint_lower(shared, V, X))
    checked.equal("diagonal of `joint_lower`, against `variance`", joint, variance, atol=SOLVED)
    needed = kind.expert_bytes(1000, shared.size, kernels=1, laplace=True, classes=1, coupled=False)
    checked.holds(needed > 8000, "`expert_bytes` of 1000 rows", "more than a vector of them takes", needed)


def _check_factor(checked, name, factor, A, root, B):
    """Refuse T that is not the factor of A^-1: T'T = A^-1."""
    inverse, (_, log_determinant) = np.linalg.inv(A), np.linalg.slogdet(A)
    T = factor.whiten(np.asfortranarray(np.eye(len(A))))
    checked.equal(f"T'T of {name}", T.T @ T, inverse)
    checked.equal(f"`solve` of {name}", factor.solve(B), inverse @ B)
    checked.equal(f"`log_determinant` of {name}", factor.log_determinant, log_determinant, atol=SOLVED)
    checked.equal(f"`weigh` of {name}", factor.weigh(root, B), T @ (root[:, None] * B))
    checked.equal(f"`gram` of {name}", factor.gram(root, B), B.T @ (root[:, None] * inverse * root) @ B)
    rows = np.array([0, len(A) - 1])
    checked.equal(f"`inverse_diagonal` of {name}", factor.inverse_diagonal(rows), np.diag(inverse)[rows])


def _dense(covariance):
    return covariance @ np.eye(len(covariance))


# --- Sources ---


def check_source(open_source: Callable[[], Any], *, most: int = 2) -> None:
    """Check what `Source` promises of reads, offsets and acknowledgements; nothing may be added to it meanwhile.

    Parameters
    ----------
    open_source : opens the source, which has a few deliveries; called several times, as after restarts
    most : partitions to ask for at a time
    """
    source = open_source()
    checked = Checked(f"source {source.name}", type(source).__name__)
    checked.holds(urlsplit(source.name).password is None, "`name`", "a URL without a password", "one with it")
    found = _read_on(checked, source, None, most)
    checked.holds(found, "`read(None, most)`", "deliveries", "none", "check it where there are some")
    keys = [key for one in found for key in _keys(one)]
    checked.holds(len(set(keys)) == len(keys), "keys of one reading", "different ones", keys)
    for again in (source, open_source()):
        remedy = "let what is delivered follow from the offset alone, not from what was read or acknowledged before"
        for number in (None, 0, len(found) - 1):
            start = 0 if number is None else number + 1
            after = None if number is None else found[number].offset
            rest = sorted(key for one in _read_on(checked, again, after, most) for key in _keys(one))
            wanted = sorted(key for one in found[start:] for key in _keys(one))
            checked.holds(rest == wanted, f"`read({after}, {most})` once more", str(wanted), rest, remedy)
        lags = [again.lag(None), again.lag(found[-1].offset)]
        fine = lags[0] is None or (lags[0] >= 0 and lags[1] in (None, 0))
        checked.holds(fine, "`lag` at the start and the end", "None, or at least 0 and then 0", lags)
        for _ in range(2):  # of a commit whose answer was lost
            again.ack(found[0].offset, _keys(found[0]))
    for part, rows in read_all([part for one in found for part in one.parts]):
        checked.holds(len(rows.X) == part.rows, f"rows of {part.key}", str(part.rows), len(rows.X))
        ((_, named),) = read_all([from_key(part.key, y=part.data.y)])
        what = f"rows of the key {part.key}, as `forget` reads them"
        checked.holds(named.digest == rows.digest, what, "the same", "others")
    for one in (source, again):
        one.close()


def _keys(delivery):
    return [part.key for part in delivery.parts] or [delivery.bad[0]]


def _read_on(checked, source, after, most):
    """All deliveries after an offset, each of which travels as JSON, as it does in a commit."""
    found: list[Any] = []
    while some := source.read(after, most):
        found.extend(some)
        keys = [key for one in some for key in _keys(one)]
        checked.holds(len(keys) <= most, f"`read(after, {most})`", f"at most {most} partitions", len(keys))
        checked.holds(len(found) < MOST_READ, "`read`", "an end where nothing is added", f"{len(found)} deliveries")
        after = json.loads(json.dumps(some[-1].offset, allow_nan=False))
    return found


# --- Predictors and runtimes ---


def check_predictor(predictor: Any, snapshot: Any, X=None) -> None:
    """Check a `Predictor`: moments of each row by itself, and the same of a snapshot as of its commit.

    Parameters
    ----------
    predictor : the class
    snapshot : of a committed model that it can predict, such as `GBCM.load(...).snapshot`
    X : scaled inputs (n, D); by default seeded ones
    """
    checked = Checked(f"predictor {predictor.__name__}", predictor.__name__)
    X = _seeded(5, snapshot.model.inputs) if X is None else X
    predictor.refuse(snapshot)
    need = predictor.memory(snapshot)
    checked.holds(need.bytes > 0 and need.what and need.remedy, "`memory`", "bytes, what and remedy", need)
    mean, variance = (made := predictor.of_snapshot(snapshot)).latent(X)
    checked.holds(len(mean) == len(variance) == len(X), "`latent`", f"{len(X)} rows", len(mean))
    finite = np.all(np.isfinite(mean)) and np.all(np.asarray(variance) >= 0)
    checked.holds(finite, "`latent`", "finite means and variances of at least 0", (mean, variance))
    first, stored = made.latent(X[:1]), predictor.of_commit(snapshot.reference).latent(X)
    for number, (moment, here) in enumerate({"mean": mean, "variance": variance}.items()):
        remedy = "let no row depend on others that are predicted with it"
        checked.equal(f"{moment} of a row by itself", first[number], here[:1], remedy, rtol=SOLVED)
        checked.equal(f"{moment} of `of_commit`, against `of_snapshot`", stored[number], here, rtol=SOLVED)


@dataclass(frozen=True)
class Totals:
    """A task: the sums of the columns of X, and the number of rows; it fails for one partition."""

    failing: str = ""
    """key of the partition whose rows are refused"""

    def __call__(self, part, rows) -> np.ndarray:
        if part.key == self.failing:
            raise InvalidData(f"{part.key}: expected an error here, got one")
        return np.append(rows.X.sum(axis=0), len(rows.X))


def check_runtime(runtime: Any, parts: Sequence[Partition]) -> None:
    """Check a `Runtime`: sums over partitions, each of which is in one outcome, also where one fails.

    Parameters
    ----------
    parts : at least two partitions
    """
    checked = Checked(f"runtime {type(runtime).__name__}", type(runtime).__name__, rounding=SOLVED)
    values = {part.key: Totals()(part, rows) for part, rows in read_all(list(parts))}
    checked.equal("`sum`", runtime.sum(Totals(), parts, label="check"), sum(values.values()))
    for failing in ("", parts[0].key):
        outcomes = list(runtime.each([(Totals(failing), list(parts))], label="check"))
        seen = sorted(part.key for one in outcomes for part in one.parts)
        checked.holds(seen == sorted(values), "partitions of `each`", f"each of {len(parts)} once", seen)
        failed = [part.key for one in outcomes if one.error for part in one.parts]
        checked.holds(failed == [failing] * bool(failing), "errors of `each`", f"one of {failing or 'none'}", failed)
        wanted = sum(value for key, value in values.items() if key != failing)
        checked.equal("results of `each`", sum(one.result for one in outcomes if not one.error), wanted)
