"""Mean and variance of f at uncertain inputs x ~ N(u, S), by one of three methods.

    exact       closed-form averages over the committee's posterior (thesis, section 4.1.1; SYSTEMS T18)
    taylor      from slopes and curvatures at u (paper D, eqs. 8-9; SYSTEMS T19)
    montecarlo  averages over a fixed set of draws (thesis, section 4.1.4; SYSTEMS T20)

f is then not normal. Its first two moments are predicted, and observations as if f were normal with these.

montecarlo:

    mean = avg m(x_t),   variance = avg v(x_t) + avg (m(x_t) - mean)^2,   x_t = u + C z_t,  C C' = S

The z_t are a scrambled Sobol sequence mapped through normal quantiles. They are the same for all points, so the result
at a row does not depend on other rows. Works with any predictor.

taylor:

    mean = m(u),   variance = v(u) + 1/2 tr(v''(u) S) + m'(u)' S m'(u)

With S = sum_k c_k c_k', m and v are differenced numerically along the D directions c_k. So this works with any
predictor, local prediction included, and any kernel with slopes.

exact: let f(x) = b(x)'v + r(x) with v ~ N(m, Lambda^-1) and x ~ N(u, S). With moments of b over x,

    mean      E b' m
    variance  E var(r(x)) + E b' Lambda^-1 E b + tr(Lambda^-1 cov b) + m' cov(b) m
    cov(f, x) m' cov(b, x)

For models with members these are the moments of the mixture; the input error is shared by all members.

All computations use whitened variables. No inverse of a covariance of query values is formed: in terms of the rows'
values (the thesis's beta and Omega) it would lose digits with its condition number. The cost per point is cubic in the
number of shared variables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.stats import qmc

from bcmdist import linalg
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import kind_of
from bcmdist.model.kernels import Kernel
from bcmdist.model.shared.belief import Belief, Factored
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.interface import Fitted, LatentPredictor
from bcmdist.prediction.latent import marginal, mixed, of_members
from bcmdist.prediction.unseen import averaged_over_categories


def refuse_exact(predictor, snapshot) -> None:
    """Raise `InvalidOption` if these moments have no closed form."""
    model, belief = snapshot.model, snapshot.committee.posterior
    if predictor is not Fitted:
        raise InvalidOption(
            "inputs: expected predictions of the committee alone for exact averages, got another method; give --inputs "
            "montecarlo or taylor, or --method committee"
        )
    if not isinstance(belief, Factored):
        raise InvalidOption(
            f"inputs: expected query points, bumps or hidden units for exact averages, got {model.shared.noun}; give "
            "--inputs montecarlo or taylor"
        )
    if belief.mean.ndim == 1 and len(belief.mean) > model.shared.size:
        raise InvalidOption(
            f"inputs: expected independent processes for exact averages, got {model.likelihood.name}, which couples "
            "them; give --inputs montecarlo"
        )
    for shared in [one.shared for one in model.shared.members] or [model.shared]:
        shared.expected(np.zeros(model.inputs), np.zeros((model.inputs, model.inputs)))


def exact_moments(predictor: Fitted, U, S) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f, (n,) or (n, C) each, at scaled inputs N(U, S), (n, D) and (n, D, D)."""
    return _moments(predictor.model.shared, predictor.belief, U, S)


def _moments(shared, belief, U, S):
    if shared.members:
        return of_members(shared, [_moments(one.shared, belief[k], U, S) for k, one in enumerate(shared.members)])
    processes = belief.mean.shape[:-1]
    mean, variance = np.empty((len(U), *processes)), np.empty((len(U), *processes))
    for i, (u, s) in enumerate(zip(U, S, strict=True)):
        mean[i], variance[i], _ = moments_at(shared, belief, u, s)
    return mean, variance


def moments_at(shared: Shared, belief: Belief, u, S) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of f, (...), and its covariance with x, (..., D), for one scaled input x ~ N(u, S).

    For a mixture of members the covariance with x is the mean of the members' covariances, as x is shared.
    """
    if shared.mixture and shared.members:
        each = [moments_at(one.shared, belief[k], u, S) for k, one in enumerate(shared.members)]
        return *mixed((mean, variance) for mean, variance, _ in each), np.mean([one for _, _, one in each], axis=0)
    expected, m = shared.expected(u, S), belief.mean
    factors = belief.factor.reshape(-1, *belief.factor.shape[-2:])
    believed = np.array([_believed(L, expected) for L in factors]).reshape(belief.factor.shape[:-2])
    moved = np.einsum("...i,ij,...j->...", m, expected.covariance, m)
    left = max(kind_of(shared).keeps * expected.left, 0.0)
    return m @ expected.single, left + believed + np.maximum(moved, 0.0), m @ expected.with_inputs


def _believed(L, expected):
    """E b' (L L')^-1 b."""
    at_mean = linalg.solve_lower(np.asfortranarray(L), expected.single.copy())
    return at_mean @ at_mean + np.trace(
        linalg.cholesky_solve(np.asfortranarray(L), expected.covariance.copy(order="F"))
    )


# Step in standard deviations of the input: the next terms of the series are 1e-4 of those used, and rounding is 1e-12.
STEP = 1e-2


def taylor_moments(predictor: LatentPredictor, U, S) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at scaled inputs N(U, S), (n, D) and (n, D, D)."""
    mean, variance = predictor.latent(U)
    slopes, curvatures = np.zeros_like(variance), np.zeros_like(variance)
    for c in np.moveaxis(roots(S), 2, 0):
        (m_up, v_up), (m_down, v_down) = (predictor.latent(U + step * c) for step in (STEP, -STEP))
        slopes += squared(m_up - m_down, variance.ndim) / (2.0 * STEP) ** 2
        curvatures += (v_up - 2.0 * variance + v_down) / STEP**2
    corrected = variance + 0.5 * curvatures
    kept = np.where(_positive(corrected), corrected, variance)  # negative: the series is not valid here
    return mean, kept + slopes


def _positive(variance) -> np.ndarray:
    """Whether variances are positive, (n,) or (n, C); for covariances (n, C, C), whether all are, (n, 1, 1)."""
    positive = np.greater(marginal(variance), 0.0)
    return positive.all(axis=1)[:, None, None] if variance.ndim == 3 else positive


def roots(S) -> np.ndarray:
    """C with C C' = S, for covariances (n, D, D) that may be singular."""
    values, vectors = np.linalg.eigh(S)
    return vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]


def squared(mean, axes) -> np.ndarray:
    """Squares of (n,) or (n, C); with `axes` 3, outer products over processes, (n, C, C)."""
    return mean[:, :, None] * mean[:, None, :] if axes == 3 else mean**2


def with_inputs(predictor: LatentPredictor, U, S) -> np.ndarray:
    """cov(f, x) = S m'(U), (n, D), for one process."""
    found = np.zeros_like(U)
    for c in np.moveaxis(roots(S), 2, 0):
        slope = (predictor.latent(U + STEP * c)[0] - predictor.latent(U - STEP * c)[0]) / (2.0 * STEP)
        found += slope[:, None] * c
    return found


DRAWS = 256  # Sobol sequences need a power of two
SEED = 0


@cache
def draws(inputs: int) -> np.ndarray:
    """Standard normal draws, (DRAWS, D), with mean exactly zero: each draw has its negative."""
    half = qmc.MultivariateNormalQMC(np.zeros(inputs), rng=np.random.default_rng(SEED)).random(DRAWS // 2)
    return np.concatenate([half, -half])


def sampled_moments(predictor: LatentPredictor, U, S) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f at scaled inputs N(U, S), (n, D) and (n, D, D)."""
    C = roots(S)
    centre, variance = predictor.latent(U)
    total, squares, believed = np.zeros_like(centre), np.zeros_like(variance), np.zeros_like(variance)
    for z in draws(U.shape[1]):
        mean, variance = predictor.model.shared.predict_draws(predictor, U + C @ z)
        total += mean - centre
        squares += squared(mean - centre, variance.ndim)
        believed += variance
    gap = total / DRAWS
    return centre + gap, believed / DRAWS + squares / DRAWS - squared(gap, variance.ndim)


Way = Callable[[Any, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Maps a predictor, scaled inputs (n, D) and their covariances (n, D, D) to mean and variance, shaped as by `latent`"""
WAYS: dict[str, Way] = {"exact": exact_moments, "taylor": taylor_moments, "montecarlo": sampled_moments}
ROUGH = ("matern12",)  # kernels without a derivative at zero distance


@dataclass(frozen=True)
class InputUncertainty:
    """Variances of the inputs of n rows, and the method of averaging over them."""

    variance: np.ndarray
    """variances, (n, D), or covariances, (n, D, D), of the inputs, in original units"""
    way: str
    """a key of `WAYS`"""

    def __getitem__(self, rows) -> "InputUncertainty":
        """Select rows."""
        return InputUncertainty(self.variance[rows], self.way)

    def __add__(self, other: "InputUncertainty") -> "InputUncertainty":
        """Concatenate with the rows of `other`."""
        return InputUncertainty(np.concatenate([self.variance, other.variance]), self.way)

    def latent(self, predictor: LatentPredictor, X) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of f at scaled inputs X (n, D) with this uncertainty."""

        scaling = predictor.model.scaling

        def moments(inputs, rows):
            S = scaling.input_covariances(scaling.original_inputs(inputs), self.variance[rows])
            return WAYS[self.way](predictor, inputs, S)

        return averaged_over_categories(predictor.model, X, moments)


def chosen_way(predictor: type[LatentPredictor], snapshot, asked: str | None) -> str:
    """The requested method; by default `exact` where the model supports it, else `montecarlo`.

    Raises
    ------
    InvalidOption
        There is no such method, or the model does not support it.
    """
    if asked is not None and asked not in WAYS:
        raise InvalidOption(f"inputs: expected {', '.join(WAYS)}, got {asked!r}; give one of these")
    if asked == "taylor":
        _refuse_rough(snapshot.model.shared.kernel)
    if asked not in (None, "exact"):
        return asked
    try:
        refuse_exact(predictor, snapshot)
    except InvalidOption:
        if asked is None:
            return "montecarlo"
        raise
    return "exact"


def _refuse_rough(kernel: Kernel) -> None:
    if any(leaf.expression.removesuffix("-iso") in ROUGH for leaf in kernel.leaves):
        raise InvalidOption(
            f"inputs: expected a kernel with slopes for taylor, got {kernel.expression}; give --inputs montecarlo"
        )
