"""Systems and roots of a symmetric positive definite A that is only known by its products."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh_tridiagonal

Product = Callable[[np.ndarray], np.ndarray]

# Steps of the Lanczos process between two looks at how far it has come.
LOOK_EVERY = 20


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients have come to."""

    x: np.ndarray
    residual: float
    """|b - A x|, computed anew"""
    steps: int


def conjugate_gradients(product: Product, precondition: Product, b, *, residual, most) -> Solution:
    """x with |b - A x| <= residual, or the nearest after `most` steps (Golub & Van Loan 2013, alg. 11.5.1).

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


def inverse_root(product: Product, z, *, change, most) -> tuple[np.ndarray, float]:
    """A^-1/2 z and z'log(A) z, by the Lanczos process (Druskin & Knizhnerman 1989; Ubaru, Chen & Saad 2017).

    Until some further steps change A^-1/2 z by no more than a share `change` of its length, or `most` were made.
    """
    length = np.linalg.norm(z)
    Q, diagonal, beside = np.empty((most, len(z))), np.empty(most), np.empty(most)
    q, last, found = z / length, np.zeros_like(z), np.zeros_like(z)
    for j in range(most):
        Q[j] = q
        r = product(q) - (beside[j - 1] * last if j else 0.0)
        diagonal[j] = q @ r
        r -= diagonal[j] * q
        beside[j] = np.linalg.norm(r)
        done = j + 1 == most or beside[j] <= np.finfo(float).eps * diagonal[: j + 1].max()
        if done or (j + 1) % LOOK_EVERY == 0:
            values, vectors = eigh_tridiagonal(diagonal[: j + 1], beside[:j])
            before, found = found, length * (vectors @ (vectors[0] / np.sqrt(values))) @ Q[: j + 1]
            if done or np.linalg.norm(found - before) <= change * np.linalg.norm(found):
                break
        last, q = q, r / beside[j]
    return found, float(length**2 * (vectors[0] ** 2 @ np.log(values)))
