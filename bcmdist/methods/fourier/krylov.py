"""Krylov methods: linear systems, quadratic forms and roots of a symmetric positive definite A, given its products."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal

Product = Callable[[np.ndarray], np.ndarray]

# Lanczos iterations between two convergence checks.
LOOK_EVERY = 20
# Conjugate gradient iterations before the growth of a quadratic form is used to estimate its error.
LEAST_STEPS = 4


@dataclass(frozen=True)
class Solution:
    """A solution by conjugate gradients."""

    x: np.ndarray
    residual: float
    """|b - A x|, recomputed"""
    steps: int


def conjugate_gradients(product: Product, precondition: Product, b, *, residual, most) -> Solution:
    """Find x with |b - A x| <= residual, or the closest x after `most` steps (Golub & Van Loan 2013, alg. 11.5.1).

    Parameters
    ----------
    product, precondition : A and an approximate inverse, as functions of (S,)
    """
    x, r, step = np.zeros_like(b), b.copy(), 0
    p = z = precondition(r)
    rz = r @ z
    while np.linalg.norm(r) > residual and step < most:
        Ap = product(p)
        length = rz / (p @ Ap)
        x += length * p
        r -= length * Ap
        z = precondition(r)
        rz, before = r @ z, rz
        p = z + (rz / before) * p
        step += 1
    return Solution(x, float(np.linalg.norm(b - product(x))), step)


def inverse_forms(product: Product, precondition: Product, B, *, change, most) -> np.ndarray:
    """Return b'A^-1 b for each row b of B (n, S), (n,), by conjugate gradients.

    With x_k the solution after k steps, b'x_k increases towards b'A^-1 b by a known term per step (Hestenes & Stiefel
    1952, theorem 6:1). A row is finished where the second half of its steps has added no more than the share `change`,
    or after `most` steps, independently of the other rows.

    Parameters
    ----------
    product, precondition : A and an approximate inverse, as functions of (n, S)
    """
    found, going = np.zeros(len(B)), np.ones(len(B), bool)
    history, step, r = [found], 0, B
    p = z = precondition(r)
    rz = np.einsum("ns,ns->n", r, z)
    nothing = np.finfo(float).eps ** 2 * rz
    while going.any() and step < most:
        Ap = product(p)
        length = np.divide(rz, np.einsum("ns,ns->n", p, Ap), out=np.zeros(len(B)), where=rz > nothing)
        found = found + np.where(going, length * rz, 0.0)
        history.append(found)
        step += 1
        going &= (found - history[step // 2] > change * found) | (step < LEAST_STEPS)
        r = r - length[:, None] * Ap
        z = precondition(r)
        rz, before = np.einsum("ns,ns->n", r, z), rz
        going &= rz > nothing
        p = z + np.divide(rz, before, out=np.zeros(len(B)), where=going)[:, None] * p
    return found


def inverse_roots(product: Product, z, *, change, most) -> tuple[np.ndarray, np.ndarray]:
    """Return A^-1/2 z (K, S) and z'log(A) z (K,) for K vectors z (K, S), by one Lanczos process per vector.

    (Druskin & Knizhnerman 1989; Ubaru, Chen & Saad 2017.) Stops when further steps change A^-1/2 z
    by no more than the share `change` of its length, or after `most` steps.

    Parameters
    ----------
    product : A as a function of (K, S)
    """
    K, S = z.shape
    length = np.linalg.norm(z, axis=1)
    Q, diagonal, off_diagonal = np.empty((most, K, S)), np.empty((most, K)), np.ones((most, K))
    q, last, found = z / length[:, None], np.zeros_like(z), np.zeros_like(z)
    for j in range(most):
        Q[j] = q
        r = product(q) - (off_diagonal[j - 1][:, None] * last if j else 0.0)
        diagonal[j] = np.einsum("ks,ks->k", q, r)
        r -= diagonal[j][:, None] * q
        off_diagonal[j] = np.linalg.norm(r, axis=1)
        done = j + 1 == most or bool(np.any(off_diagonal[j] <= np.finfo(float).eps * diagonal[: j + 1].max()))
        if done or (j + 1) % LOOK_EVERY == 0:
            before, (found, logs) = found, _of_tridiagonal(Q[: j + 1], diagonal[: j + 1], off_diagonal[:j], length)
            moved, size = np.linalg.norm(found - before, axis=1), np.linalg.norm(found, axis=1)
            if done or np.all(moved <= change * size):
                break
        last, q = q, r / off_diagonal[j][:, None]
    return found, logs


def _of_tridiagonal(Q, diagonal, off_diagonal, length):
    """For the tridiagonal T = Q'A Q: |z| Q T^-1/2 e_1 and |z|^2 e_1'log(T) e_1, for each vector."""
    found, logs = np.empty(Q.shape[1:]), np.empty(len(length))
    for k, size in enumerate(length):
        values, vectors = eigh_tridiagonal(diagonal[:, k], off_diagonal[:, k])
        values = np.maximum(values, np.finfo(float).eps * values[-1])
        found[k] = size * (vectors @ (vectors[0] / np.sqrt(values))) @ Q[:, k]
        logs[k] = size**2 * (vectors[0] ** 2 @ np.log(values))
    return found, logs
