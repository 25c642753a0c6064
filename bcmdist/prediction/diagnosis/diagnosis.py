"""Diagnostics of a fitted committee from one more pass over the data: degrees of freedom and calibration.

Effective degrees of freedom are the number of parameters that the data determine (GBCM paper, section 6.1; SYSTEMS
I.8):

    P_eff = tr K (K + W^-1)^-1 = sum_j w_j var(f_j | all targets)

with the weights w of the (linearised) likelihood. Given the committee's posterior, each expert contributes one number.
The part that the query set captures is tr(I - Lambda^-1) (`Committee.degrees_of_freedom`). With too few query points
P_eff is overstated, because the rest of f is treated as local variation.

Calibration compares the reported variances of a Gaussian committee with its actual errors, without sampling. The
committee's mean at new points is linear in the targets, A y. If f is drawn from the model's Gaussian process, the error
of that mean has the covariance

    K** - A Ky* - K*y A' + A (Kyy + Psi) A'

which depends on the inputs only. The reported variance differs, because a committee treats what the query set leaves
unexplained as independent between partitions and of new points. With the shared variables v and the residual r, both
parts of the prior (mean weights included), f = b'v + r and

    error = (b - A V)' v + r* - A (r + e)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from bcmdist import linalg
from bcmdist.committee.absorbed import absorbed_partitions, partitions_of
from bcmdist.committee.committee import Committee
from bcmdist.committee.snapshot import Snapshot
from bcmdist.committee.surveyed import refuse_changed
from bcmdist.data.observations import Observations
from bcmdist.data.rows import read_all
from bcmdist.errors import InvalidOption
from bcmdist.experts.expert import find_mode, gaussian_message
from bcmdist.experts.message import Message
from bcmdist.experts.residual import Block, kind_of
from bcmdist.model.kernels import kernel_parts
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.query import Query
from bcmdist.model.targets import model_rows
from bcmdist.prediction.interface import load_fitted
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.scoring.pit import LEVELS
from bcmdist.runtime import memory
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.commits import Reference
from bcmdist.storage.entry import Entry


@dataclass(frozen=True)
class PartitionRows:
    """Rows of one partition of a committee."""

    X: np.ndarray
    """(n, D), scaled"""
    obs: Observations
    """observations; the targets are ignored"""
    weight: float = 1.0
    """how many times the partition's message counts"""


@dataclass(frozen=True)
class Reliability:
    """Reported and actual variances of the error of f at some points, (n,) each."""

    reported: np.ndarray
    actual: np.ndarray

    def __getitem__(self, points):
        return Reliability(self.reported[points], self.actual[points])

    def coverage(self, level) -> float:
        """Probability that f lies in the reported central interval of probability `level`, mean over the points."""
        half = ndtri(0.5 + 0.5 * level) * np.sqrt(self.reported / self.actual)
        return float(np.mean(2.0 * ndtr(half) - 1.0))

    @property
    def variance_ratio(self) -> float:
        """Actual over reported variance, mean over the points."""
        return float(np.mean(self.actual / self.reported))


def reliability(query: Query, likelihood: Likelihood, absorbed: Sequence[PartitionRows], X) -> Reliability:
    """Reported and actual variances, at scaled rows X (n, D), of a committee that has absorbed `absorbed`.

    Time grows with the square of all rows, memory with their number and the square of the largest partition.

    Raises
    ------
    NotPositiveDefinite
    """
    A, reported = smoother(query, likelihood, absorbed, X)
    return Reliability(reported, error_variance(query, likelihood, absorbed, X, A))


def smoother(
    query: Query, likelihood: Likelihood, absorbed: Sequence[PartitionRows], X
) -> tuple[list[np.ndarray], np.ndarray]:
    """A of the committee's mean A y at the rows of X, one block (n, rows) per partition, and the reported variance.

    Each expert gets unit targets: row j of its eta is the message of a target that is 1 at row j and 0 elsewhere.
    """
    etas, precision, rows = [], np.zeros((query.size, query.size)), 0
    for part in absorbed:
        V = query.design(part.X)
        R = query.residual_lower(V, query.kernel.cross(part.X, part.X))
        message = gaussian_message(V, Block(R), np.eye(len(part.X)), likelihood.noise(part.obs)).weighted(part.weight)
        etas.append(message.eta)
        precision, rows = precision + message.precision, rows + message.rows
    belief = Committee(Message(np.zeros(query.size), precision, 0.0, rows)).posterior
    M = linalg.cholesky_solve(belief.factor, query.design(X).T)
    return [(eta @ M).T for eta in etas], predict_latent(query, belief, X)[1]


def error_variance(query: Query, likelihood: Likelihood, absorbed: Sequence[PartitionRows], X, A) -> np.ndarray:
    """Variance of f - A y at the rows of X under the model's Gaussian process, (n,)."""
    B, designs = query.design(X), [query.design(part.X) for part in absorbed]
    unexplained = B - sum(a @ V for a, V in zip(A, designs, strict=True))
    variance = np.einsum("ij,ij->i", unexplained, unexplained) + query.residual_variance(B, X)
    for i, (part, V, a) in enumerate(zip(absorbed, designs, A, strict=True)):
        own = query.residual_cross(V, part.X, V, part.X)
        own[np.diag_indices_from(own)] += likelihood.noise(part.obs)
        pull = a @ own - 2.0 * query.residual_cross(B, X, V, part.X)
        for j in range(i):
            pull += 2.0 * A[j] @ query.residual_cross(designs[j], absorbed[j].X, V, part.X)
        variance += np.einsum("ij,ij->i", pull, a)
    return variance


@dataclass(frozen=True)
class Degrees:
    """Task: effective degrees of freedom of a partition under a fitted model."""

    fitted: Reference

    def __call__(self, part, rows) -> float:
        fitted = load_fitted(self.fitted)
        model = fitted.model
        X, obs = model_rows(model, part, rows)
        return part.weight * degrees_share(model.shared, model.likelihood, X, obs, fitted.belief)


def degrees_share(shared, likelihood, X, obs, belief) -> float:
    """One expert's contribution to P_eff, averaged over processes, at scaled rows X (n, D).

    `belief` is the posterior of the whole committee. If the model has members, the mean over members.
    """
    if shared.members:
        each, own = likelihood.each, enumerate(shared.members)
        return float(np.mean([degrees_share(one.shared, each, X, one.absorbed(obs), belief[k]) for k, one in own]))
    return shared.degrees_share(likelihood, X, obs, belief, _degrees_share)


def _degrees_share(shared, likelihood, X, obs, belief):
    V = shared.design(X)
    Lam = kind_of(shared).residual(shared, V, X)
    if likelihood.exact:
        w = (1.0 / likelihood.noise(obs))[:, None]
    else:
        prior_mean = V @ belief.mean.T
        w = likelihood.curvature(obs, find_mode(Lam.covariance, obs, likelihood, prior_mean)).reshape(len(X), -1)
    factors = belief.factor if belief.factor.ndim == 3 else [belief.factor] * w.shape[1]
    return float(np.mean([_trace(V, Lam, w[:, c], factor) for c, factor in enumerate(factors)]))


def _trace(V, Lam, w, factor):
    """sum w_j (Lam - Lam T Lam + M Lambda^-1 M')_jj with T = (Lam + w^-1)^-1 and M = (I + Lam w)^-1 V."""
    left, M = Lam.left(w, V)
    whitened = linalg.solve_lower(factor, np.asfortranarray(M.T))
    return w @ (left + np.einsum("ij,ij->j", whitened, whitened))


# Rows of the committee whose calibration is computed; takes some seconds and grows with their square.
JUDGED_ROWS = 4000
# Largest number of these rows at which calibration is computed.
CALIBRATION_POINTS = 500


def effective_parameters(snapshot: Snapshot, runtime) -> dict[str, float]:
    """Degrees of freedom of the data, `data`, and those captured by the query set, `query` (GBCM paper, 6.1).

    If `data` is well above `query`, more query points would let the committee learn more.
    """
    likelihood = snapshot.model.likelihood
    snapshot.model.refuse_moved_inputs("degrees of freedom of the data")
    if likelihood.coupled or not snapshot.ledger:
        raise InvalidOption(
            f"degrees of freedom of the data: expected a committee with absorbed rows and independent classes, got "
            f"{likelihood.name} after {len(snapshot.ledger)} partitions; leave them out"
        )
    data = runtime.sum(Degrees(snapshot.reference), absorbed_partitions(snapshot), label="degrees of freedom")
    return {"data": data, "query": snapshot.degrees_of_freedom}


@one_thread()
def calibration(snapshot: Snapshot, *, allowed_bytes, seed=0) -> dict:
    """How often f lies in the committee's reported intervals, if f is drawn from the model's Gaussian process.

    Computed without sampling, see `reliability`. A large committee is represented by a smaller one with the same
    hyper-parameters and query set, of whole partitions chosen by `seed` with at most `JUDGED_ROWS` rows.

    Returns
    -------
    `rows` and `partitions` of that committee; at the query points, `coverage50 coverage80 coverage95` of the
    intervals of f, and `variance_ratio`, actual over reported variance; in `at_rows`, the same at some of its rows.

    Raises
    ------
    InvalidOption
        The likelihood is not Gaussian, so the mean is not linear in the targets; nothing was absorbed; or the
        partitions are too large.
    MemoryLimit, DataChanged
    """
    query, likelihood = snapshot.model.query, snapshot.model.likelihood
    snapshot.model.refuse_moved_inputs("calibration")
    if not likelihood.normal:
        raise InvalidOption(
            f"calibration: expected a gaussian likelihood, with a closed form of leave-one-out errors, got "
            f"{likelihood.name}; score held-out rows instead"
        )
    rng = np.random.default_rng(seed)
    chosen = _whole_partitions([entry for entry in snapshot.ledger if not entry.compacted], rng)
    rows, largest = sum(entry.rows for entry in chosen), max(entry.rows for entry in chosen)
    count = min(rows, CALIBRATION_POINTS)
    memory.refuse_above(
        memory.reliability_bytes(
            rows, len(query.points) + count, largest, query.size, kernels=kernel_parts(query.kernel)
        ),
        allowed_bytes,
        what=f"calibration of {rows} rows",
        remedy="use a machine with more memory, or leave it out",
    )
    absorbed = [_absorbed(snapshot, entry) for entry in chosen]
    sample = np.vstack([part.X for part in absorbed])[rng.choice(rows, count, replace=False)]
    found = reliability(query, likelihood, absorbed, np.vstack([query.points, sample]))
    Q = len(query.points)
    return {"rows": rows, "partitions": len(chosen), **_figures(found[:Q]), "at_rows": _figures(found[Q:])}


def _whole_partitions(ledger, rng) -> list[Entry]:
    """Random ledger entries with at most `JUDGED_ROWS` rows in total; at least two if the ledger has several."""
    chosen, rows = [], 0
    for entry in rng.permutation(np.array(ledger, dtype=object)):
        if rows + entry.rows <= JUDGED_ROWS:
            chosen.append(entry)
            rows += entry.rows
    if len(chosen) < max(1, min(2, len(ledger))):
        raise InvalidOption(
            f"calibration: expected two absorbed partitions (or a single one) of at most {JUDGED_ROWS} rows in "
            f"total, got {len(ledger)}, the smallest with "
            f"{min((entry.rows for entry in ledger), default=0)}; fit with lower --rows-per-expert"
        )
    return chosen


def _absorbed(snapshot, entry):
    (part, rows), *_ = read_all(partitions_of(snapshot, [entry], {entry.key: entry.weight}))
    refuse_changed([Entry(part.key, rows.digest, part.rows)], snapshot.ledger)
    X, obs = model_rows(snapshot.model, part, rows)
    return PartitionRows(X, obs, part.weight)


def _figures(found: Reliability):
    coverages = {f"coverage{100 * level:.0f}": found.coverage(level) for level in LEVELS}
    return {**coverages, "variance_ratio": found.variance_ratio}
