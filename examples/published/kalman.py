"""The two Kalman forms in which the paper writes the online committee, for reference and comparison.

Both are the committee of messages in other words, about the query values f^q themselves. Fits do
not use them: messages add in any order, give the evidence too, and keep the digits that these lose.

posterior form (GBCM paper, section 6.2)   steps over cov(f^q | block); ends in a difference
measurement form (Appendix B)              steps over the targets; no such difference
Joseph form                                the same with a sum for its update; for tiny noise

Measured: largest error of mean and variance at 50 new points against dense PITC, as a share of the
largest mean and variance; squared exponential kernel of lengthscale 1 in two inputs in [-1, 1],
Q = 100, 40 blocks of 25 rows. `inverses` is section 6.2 as it is printed; all others factorise.

    condition of Sqq   noise   inverses   posterior   measurement   Joseph   messages
    6e7                0.1     2e-8       3e-12       3e-13         4e-13    3e-13
    6e9                0.1     4e-6       3e-11       8e-13         4e-13    3e-13
    6e11               0.1     0.3        2e-10       9e-12         8e-12    6e-13
    6e13               0.1     7e+9       2e-9        3e-11         9e-10    5e-13
    6e15               0.1     2e+11      refused     8e-10         2e-7     3e-12
    6e11               1e-4    4e-2       3e-8        2e-9          1e-9     1e-10
    6e11               1e-8    11         4e-6        9e-8          6e-8     1e-7
"""

from dataclasses import dataclass

import numpy as np

from bcmdist import linalg
from bcmdist.errors import InvalidData, NotPositiveDefinite


@dataclass(frozen=True)
class PosteriorState:
    """Posterior form after k blocks: N(A, S) holds k priors too many, S^-1 = Sqq^-1 + sum cov_i^-1."""

    prior: np.ndarray
    """Sqq, the prior covariance of f^q, (Q, Q)"""
    mean: np.ndarray
    """A, (Q,)"""
    covariance: np.ndarray
    """S, (Q, Q)"""
    blocks: int
    """k"""


def posterior_start(prior) -> PosteriorState:
    """Before any block: A = 0, S = Sqq, for the prior covariance Sqq (Q, Q) of f^q."""
    return PosteriorState(prior, np.zeros(len(prior)), prior, 0)


def posterior_step(state: PosteriorState, mean, covariance) -> PosteriorState:
    """Take in one block by its own posterior N(mean (Q,), covariance (Q, Q)) of f^q.

    G = S (S + cov)^-1,  A + G (mean - A),  S - G (S + cov) G'     (GBCM paper, section 6.2)

    Raises
    ------
    NotPositiveDefinite
    """
    _expect_shapes(state.prior, mean=(mean, "Q"), covariance=(covariance, "QQ"))
    S = state.covariance
    L = _factor(S + covariance, f"posterior form, S + cov of block {state.blocks + 1}")
    W = linalg.solve_lower(L, np.array(S, order="F"))
    A = state.mean + W.T @ linalg.solve_lower(L, mean - state.mean)
    return PosteriorState(state.prior, A, _minus_gram(S, W), state.blocks + 1)


def posterior_belief(state: PosteriorState) -> tuple[np.ndarray, np.ndarray]:
    """Mean (Q,) and covariance (Q, Q) of f^q given all blocks.

    mean = Sqq D^-1 A,  covariance = Sqq D^-1 S  with  D = Sqq - k S

    The mean is the paper's with both 1/k cancelled; it does not print the covariance. Exactly,
    D >= Sqq / (k + 1) where no block's covariance exceeds the prior: D is as ill-conditioned as
    Sqq, and it inherits the rounding of all k steps.

    Raises
    ------
    NotPositiveDefinite
        Rounding, or a block whose covariance exceeds the prior, leaves D indefinite.
    """
    k = state.blocks
    L = _factor(state.prior - k * state.covariance, f"posterior form, Sqq - k S after k = {k} blocks")
    covariance = state.prior @ linalg.cholesky_solve(L, state.covariance)
    return state.prior @ linalg.cholesky_solve(L, state.mean), 0.5 * (covariance + covariance.T)


def posterior_form(prior, means, covariances) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of f^q from the posteriors of all blocks; see `posterior_belief`.

    Parameters
    ----------
    prior : (Q, Q)
    means : sequence of (Q,); covariances : sequence of (Q, Q)
        E(f^q | block) and cov(f^q | block), eqs. 6-7.
    """
    _expect_same_number(means=means, covariances=covariances)
    state = posterior_start(prior)
    for mean, covariance in zip(means, covariances, strict=True):
        state = posterior_step(state, mean, covariance)
    return posterior_belief(state)


@dataclass(frozen=True)
class MeasurementState:
    """Measurement form: the belief N(mean, covariance) of f^q itself."""

    mean: np.ndarray
    """E, (Q,)"""
    covariance: np.ndarray
    """S, (Q, Q)"""


def measurement_start(prior) -> MeasurementState:
    """Before any block: N(0, Sqq)."""
    return MeasurementState(np.zeros(len(prior)), prior)


def measurement_step(state: MeasurementState, design, residual, target) -> MeasurementState:
    """Take in the targets of one block, y = A f^q + e with cov(e) = R.

    G = S A' (A S A' + R)^-1,  E + G (y - A E),  S - G (A S A' + R) G'     (Appendix B)

    The paper prints the innovation as y - A f^q; f^q is unknown, its estimate E stands for it.

    Parameters
    ----------
    design : (n, Q)
        A = k(X, X^q) Sqq^-1, eq. 12.
    residual : (n, n)
        R = cov(y | f^q), eq. 13, noise included.
    target : (n,)

    Raises
    ------
    NotPositiveDefinite
    """
    L, AS = _innovation(state, design, residual, target)
    W = linalg.solve_lower(L, AS)
    E = state.mean + W.T @ linalg.solve_lower(L, target - design @ state.mean)
    return MeasurementState(E, _minus_gram(state.covariance, W))


def joseph_step(state: MeasurementState, design, residual, target) -> MeasurementState:
    """`measurement_step` with the covariance as a sum: (I - G A) S (I - G A)' + G R G'.

    Where the noise is below rounding of the prior variance, S - G (A S A' + R) G' cancels to
    nothing and this does not. Elsewhere it is no better, and dearer: Q^3 for each block.
    """
    L, AS = _innovation(state, design, residual, target)
    G = linalg.cholesky_solve(L, AS).T
    keep = np.eye(len(state.mean)) - G @ design
    S = keep @ state.covariance @ keep.T + G @ residual @ G.T
    return MeasurementState(state.mean + G @ (target - design @ state.mean), 0.5 * (S + S.T))


def measurement_form(prior, designs, residuals, targets, *, step=measurement_step) -> tuple[np.ndarray, np.ndarray]:
    """Mean (Q,) and covariance (Q, Q) of f^q from the targets of all blocks.

    With `prior` = I and the rows of `Query.whiten` as designs it speaks of the whitened query
    values, and no error grows with the condition number of Sqq.

    Parameters
    ----------
    prior : (Q, Q)
    designs, residuals, targets : sequences of (n, Q), (n, n), (n,)
        See `measurement_step`.
    step : `measurement_step` or `joseph_step`
    """
    _expect_same_number(designs=designs, residuals=residuals, targets=targets)
    state = measurement_start(prior)
    for block in zip(designs, residuals, targets, strict=True):
        state = step(state, *block)
    return state.mean, state.covariance


def _innovation(state, design, residual, target):
    """Cholesky factor of A S A' + R, and A S."""
    _expect_shapes(state.covariance, design=(design, "nQ"), residual=(residual, "nn"), target=(target, "n"))
    AS = np.asfortranarray(design @ state.covariance)
    return linalg.cholesky(np.asfortranarray(AS @ design.T + residual), name="cov(y | earlier blocks)"), AS


def _minus_gram(S, W):
    """S - W'W, symmetric to the last bit."""
    return linalg.mirror(linalg.subtract_outer_lower(np.array(S, order="F"), np.asfortranarray(W.T)))


def _factor(A, name):
    try:
        return linalg.cholesky(np.asfortranarray(A), name=name)
    except NotPositiveDefinite as failure:
        raise NotPositiveDefinite(
            f"{name}: expected a positive definite matrix, it is indefinite; likely causes: (a) rounding, with a "
            "prior covariance near singular, (b) a block whose covariance exceeds the prior; use the measurement "
            "form, or add messages"
        ) from failure


def _expect_shapes(square, **arrays):
    """Check arrays against shapes written in the letters Q, known from `square`, and n, equal among them."""
    sizes = {"Q": len(square)}
    for name, (array, letters) in arrays.items():
        shape = np.shape(array)
        fits = len(shape) == len(letters) and all(
            sizes.setdefault(letter, size) == size for letter, size in zip(letters, shape, strict=True)
        )
        if not fits:
            wanted = ", ".join(str(sizes.get(letter, letter)) for letter in letters)
            raise InvalidData(f"{name}: expected shape ({wanted}), got {shape}; give one array per block")


def _expect_same_number(**sequences):
    counts = {name: len(sequence) for name, sequence in sequences.items()}
    if len(set(counts.values())) > 1:
        raise InvalidData(f"blocks: expected as many of each, got {counts}; give one of each per block")
