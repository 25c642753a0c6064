"""Conformance of bases, residuals and methods: storage, and algebra against dense matrices."""

import json
from typing import Any

import numpy as np

from bcmdist.testing.checked import SOLVED, Checked, seeded


def check_basis(basis: Any, X: np.ndarray | None = None, scale: float | np.ndarray = 1.0) -> None:
    """Check a `Basis`: features that do not depend on other rows, a positive scale, and storage as arrays.

    Parameters
    ----------
    basis : an instance
    X : scaled inputs (n, D); by default seeded ones
    scale : prior standard deviations of the weights, (B,) or one for all

    Raises
    ------
    InvalidOption
        The first violation, with both values and what to do.

    Examples
    --------
    >>> from bcmdist.testing import check_basis
    >>> of_vectors = bcmdist.GBCM.fit(X, y, bcmdist.Settings(expert="rvm", query=10, learn=False))
    >>> check_basis(of_vectors.model.shared.basis)
    """
    checked = Checked(f"basis {basis.name}", type(basis).__name__)
    X = seeded(4, basis.inputs) if X is None else X
    phi, shape = np.asarray(basis.features(X)), (len(X), basis.functions)
    checked.holds(phi.shape == shape, "`features`", f"values {shape}, of `functions` functions", phi.shape)
    checked.holds(np.all(np.isfinite(phi)), "`features`", "finite numbers", "others")
    scale, expected = (
        np.asarray(scale, dtype=float),
        f"a positive number, or one for each of {basis.functions} functions",
    )
    wrong = scale[~(np.isfinite(scale) & (scale > 0))] if scale.size in (1, basis.functions) else scale
    checked.holds(wrong.size == 0, "scale of the weights", expected, wrong, "leave out functions whose weights are 0")
    checked.equal("`features` of a row by itself", basis.features(X[:1]), phi[:1], rtol=SOLVED)
    arrays = {name: np.array(array) for name, array in basis.to_arrays().items()}
    for name, array in arrays.items():
        checked.holds(array.dtype == np.float64, f"array {name} of `to_arrays`", "numbers of float64", array.dtype)
    again = type(basis).from_arrays(arrays)
    checked.equal("`features` after `from_arrays(to_arrays())`", again.features(X), phi)


def check_residual(kind: Any, shared: Any, X: np.ndarray | None = None) -> None:
    """Check the `Kind` of a residual against dense matrices.

    Parameters
    ----------
    kind : an instance, which does the computations of experts with cov(f | v) = Lam
    shared : shared variables with which it can be used
    X : scaled inputs (n, D); by default seeded ones

    Raises
    ------
    InvalidOption
        The first violation, with both values and what to do.

    Examples
    --------
    >>> from bcmdist.experts.residual import Blocks
    >>> from bcmdist.testing import check_residual
    >>> check_residual(Blocks(), gbcm.model.shared)
    """
    checked = Checked(f"residual {shared.residual}", type(kind).__name__, rounding=SOLVED)
    X = seeded(5, shared.inputs) if X is None else X
    V, n = shared.design(X), len(X)
    Lam = _dense(kind.residual(shared, V, X).covariance)
    checked.equal("`covariance` and its transpose", Lam, Lam.T)
    checked.not_negative("eigenvalues of `covariance`", np.linalg.eigvalsh(Lam), 1e-9 * max(1.0, Lam.trace()))
    w, h, B = np.linspace(0.2, 2.0, n), np.linspace(-0.2, 2.0, n), seeded(n, 3)
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


def _check_factor(checked: Checked, name: str, factor: Any, A: np.ndarray, root: np.ndarray, B: np.ndarray) -> None:
    """Check that `factor` is a factor T of A^-1: T'T = A^-1."""
    inverse, (_, log_determinant) = np.linalg.inv(A), np.linalg.slogdet(A)
    T = factor.whiten(np.asfortranarray(np.eye(len(A))))
    checked.equal(f"T'T of {name}", T.T @ T, inverse)
    checked.equal(f"`solve` of {name}", factor.solve(B), inverse @ B)
    checked.equal(f"`log_determinant` of {name}", factor.log_determinant, log_determinant, atol=SOLVED)
    checked.equal(f"`weigh` of {name}", factor.weigh(root, B), T @ (root[:, None] * B))
    checked.equal(f"`gram` of {name}", factor.gram(root, B), B.T @ (root[:, None] * inverse * root) @ B)
    rows = np.array([0, len(A) - 1])
    checked.equal(f"`inverse_diagonal` of {name}", factor.inverse_diagonal(rows), np.diag(inverse)[rows])


def _dense(covariance: Any) -> Any:
    return covariance @ np.eye(len(covariance))


def check_method(method: Any, basis_inputs: Any) -> None:
    """Check a `Method`: its shared variables have a finite, row-wise design, which survives storage.

    Parameters
    ----------
    method : an instance, as returned by `register_expert`
    basis_inputs : `BasisInputs` of some rows

    Raises
    ------
    InvalidOption
        The first violation, with both values and what to do.

    Examples
    --------
    >>> from bcmdist.learning.basis_inputs import BasisInputs
    >>> from bcmdist.learning.experts import EXPERTS
    >>> from bcmdist.testing import check_method
    >>> model, box = gbcm.model.shared, {"low": X.min(axis=0), "high": X.max(axis=0)}
    >>> how = {"kernel": model.kernel, "mean": model.mean, "residual": "block", "method": "kmeans", "seed": 0}
    >>> check_method(EXPERTS["bcm"], BasisInputs(X, None, np.full(80, 0.1), rows=80, count=8, **how, **box))
    """
    checked = Checked(f"expert {method.name}", type(method).__name__, rounding=SOLVED)
    shared, X = method.shared(basis_inputs), basis_inputs.sample[:5]
    residual, V = shared.residual, shared.design(X)
    checked.holds(residual == method.residual, "residual of its shared variables", method.residual, residual)
    checked.holds(V.shape == (5, shared.size), "`design`", f"values {(5, shared.size)}", V.shape)
    checked.holds(np.all(np.isfinite(V)), "`design`", "finite numbers", "others")
    checked.equal("`design` of a row by itself", shared.design(X[:1]), V[:1])
    arrays, facts = shared.to_arrays()
    stored = {"jitter": shared.jitter, "likelihood": "gaussian", "classes": None}  # facts of the model beside them
    facts = json.loads(json.dumps(facts | stored, allow_nan=False))
    type(shared).check_arrays(arrays, facts, X.shape[1], checked.name)
    again = type(shared).from_arrays(arrays, facts, shared.kernel, shared.mean, residual)
    again.check(checked.name)
    checked.equal("`design` after `from_arrays(*to_arrays())`", again.design(X), V)
