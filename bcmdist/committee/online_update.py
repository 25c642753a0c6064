"""Online update of a committee by the messages of one commit, as one step of a Kalman filter (GBCM paper, Appendix B).

A message with precision F F' and eta = F t is the likelihood of r measurements t = F'v + e, e ~ N(0, I), of the shared
variables v. Under the belief N(m, S) before, t is N(F'm, C) with C = I + F'S F, and the update is

    K = S F C^-1,   m + K (t - F'm),   S - K C K'        ("kalman")
    S^-1 + F F',    S^-1 m + F t                          ("information")

For experts of n <= Q rows, F' and t are the design and the targets of these rows, whitened by cov(y | v) and rotated,
so that both forms are those of Appendix B. They give the same belief up to rounding; "information" adds in any order,
and keeps digits that the difference S - K C K' loses when new measurements are far more precise than the belief.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np

from bcmdist import linalg
from bcmdist.committee.committee import Committee
from bcmdist.committee.ingest.options import UpdateForm
from bcmdist.committee.measurements import OnlineUpdate
from bcmdist.errors import BcmdistWarning, InvalidOption, NotPositiveDefinite
from bcmdist.experts.message import Message
from bcmdist.linalg.arrays import FloatArray

# Rounding of the covariance in proportion to its smallest eigenvalue, above which predictions are not to be trusted.
LARGEST_ROUNDING = 1e-6
EPS = float(np.finfo(float).eps)


def updated(committee: Committee, message: Message, form: UpdateForm, *, commit: int) -> tuple[Committee, OnlineUpdate]:
    """The committee after `message`, and the record of the update, which is made by commit number `commit`.

    Raises
    ------
    InvalidOption
        The precision of the shared variables is not stored as a matrix.
    NotPositiveDefinite
        Form "kalman": rounding leaves no positive definite covariance.
    """
    refuse_without_matrix(message)
    if not message.precision.any():
        return committee.absorb(message), OnlineUpdate(commit, form, message.rows, 0, 0.0, 0.0, 0.0)
    size = message.eta.shape[-1]
    precisions, factors = (_of_each(one, message) for one in (message.precision, committee.posterior.factor))
    etas, means = (one.reshape(-1, size) for one in (message.eta, committee.posterior.mean))
    steps = [Step(*one) for one in zip(means, factors, etas, precisions, strict=True)]
    after, rounding = committee.absorb(message), 0.0
    if form == "kalman":
        states = [step.kalman() for step in steps]
        rounding = max(state.rounding for state in states)
        eta = np.stack([state.precision @ state.mean for state in states]).reshape(message.eta.shape)
        precision = np.stack([state.precision for state in states]) - np.eye(size)
        precision = precision[0] if committee.total.precision.ndim == 2 else precision  # one for all processes
        after = replace(after, total=replace(after.total, eta=eta, precision=precision))
    measurements = sum(step.measurements for step in steps)
    innovation, gain = (sum(getattr(step, name) for step in steps) / measurements for name in ("innovation", "gain"))
    if rounding > LARGEST_ROUNDING:
        warnings.warn(BcmdistWarning(_imprecise(rounding, commit)), stacklevel=2)
    return after, OnlineUpdate(commit, form, message.rows, measurements, innovation, gain, rounding)


def refuse_without_matrix(message: Message) -> None:
    """Raise `InvalidOption` where the precision of messages is not stored as a matrix."""
    if message.precision.ndim == 1:
        raise InvalidOption(
            "--update: expected an expert whose messages contain a precision matrix, got one of fourier, which stores "
            "numbers that define products with it; leave the option out"
        )


def _imprecise(rounding: float, commit: int) -> str:
    return (
        f"--update kalman: the covariance of commit {commit} has an estimated rounding of {rounding:.0e} of its "
        "smallest eigenvalue, since the new rows are far more precise than the belief before; use --update "
        "information, which gives the same belief without the difference of two covariances"
    )


def _of_each(matrices: FloatArray, message: Message) -> FloatArray:
    """A matrix for each latent process, where all may share one."""
    size = message.eta.shape[-1]
    return np.broadcast_to(matrices, (*message.eta.shape[:-1], size, size)).reshape(-1, size, size)


@dataclass(frozen=True)
class State:
    """Belief N(mean, precision^-1) after a step, and the rounding of its covariance."""

    mean: FloatArray
    precision: FloatArray
    rounding: float
    """in proportion to the smallest eigenvalue of the covariance"""


class Step:
    """One step for one latent process.

    Parameters
    ----------
    mean (S,), factor (S, S) : the belief before, with the Cholesky factor of its precision
    eta (S,), precision (S, S) : the message
    """

    def __init__(self, mean: FloatArray, factor: FloatArray, eta: FloatArray, precision: FloatArray) -> None:
        self.mean = mean
        F, pivots = linalg.pivoted_factor(np.array(precision, order="F"), name="precision of a message")
        self.measurements = F.shape[1]
        self.covariance = linalg.inverse(np.asfortranarray(factor))
        """S (S, S)"""
        self.SF = self.covariance @ F
        C = np.eye(self.measurements) + F.T @ self.SF
        self.innovation_factor = linalg.cholesky(np.asfortranarray(C), name="covariance of the innovation")
        triangle, unexplained = np.asfortranarray(F[pivots]), eta - precision @ mean  # F (t - F'm)
        self.standardised = linalg.solve_lower(
            self.innovation_factor, linalg.solve_lower(triangle, unexplained[pivots])
        )
        self.innovation = float(self.standardised @ self.standardised)
        """(t - F'm)' C^-1 (t - F'm), on average the number of measurements"""
        self.gain = float(self.measurements - np.trace(linalg.inverse(self.innovation_factor)))
        """tr(F'K), between 0 and the number of measurements"""

    def kalman(self) -> State:
        """Mean and covariance by the gain K = S F C^-1 (GBCM paper, Appendix B).

        Raises
        ------
        NotPositiveDefinite
        """
        KC = linalg.solve_lower(self.innovation_factor, np.asfortranarray(self.SF.T))  # K C^1/2, transposed
        mean = self.mean + KC.T @ self.standardised
        covariance = self.covariance - KC.T @ KC
        try:
            root = linalg.cholesky(np.asfortranarray(covariance), name="covariance after the update")
        except NotPositiveDefinite as failure:
            raise NotPositiveDefinite(
                "--update kalman: expected a positive definite covariance after the update, rounding has left an "
                "indefinite one, since the new rows are far more precise than the belief before; use --update "
                "information, which gives the same belief without that difference"
            ) from failure
        precision = linalg.inverse(root)
        rounding = EPS * np.diag(self.covariance).max() * np.diag(precision).max()
        return State(mean, precision, float(rounding))
