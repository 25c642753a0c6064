"""Predictions and samples at new rows in memory, in original units.

Joint predictions, of the covariance of the latent f between new points and of samples of f, use the covariance form of
`bcmdist.prediction.latent` (GBCM paper, section 6.4, after eq. 10). It needs all pairs of points at once: memory grows
with the square of their number and is checked first.
"""

import math
from typing import cast

import numpy as np

from bcmdist import linalg
from bcmdist.committee.committee import Committee
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.observations import unweighted
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import kind_of
from bcmdist.model.kernels import kernel_parts
from bcmdist.model.likelihoods import OneProcess
from bcmdist.model.model import Model
from bcmdist.model.scaling import Scaling
from bcmdist.model.shared.belief import Belief
from bcmdist.model.shared.interface import Shared
from bcmdist.prediction.interface import Fitted
from bcmdist.prediction.new_rows import new_inputs, new_observations, new_variance
from bcmdist.prediction.outputs import at_output, lacks_output, of_outputs
from bcmdist.prediction.predictive_model import PredictiveModel, RowPredictor
from bcmdist.prediction.scored_rows import noise_variance, with_class_names
from bcmdist.prediction.terms import refuse_uncertain_terms
from bcmdist.prediction.uncertain.input_uncertainty import InputUncertainty
from bcmdist.runtime import memory
from bcmdist.runtime.threads import one_thread


def joint_latent(shared: Shared, belief: Belief, X, *, allowed_bytes=math.inf) -> tuple[np.ndarray, np.ndarray]:
    """Joint mean and covariance of the latent f at the rows of X.

    With V the rows b(x)' and V_q its columns of the query values:
    mean = V m,  covariance = k(X, X) - V_q V_q' + V Lambda^-1 V'

    If the model's residual is independent for each row ("diagonal", "none"), that residual replaces k(X, X) - V_q V_q'.

    The diagonal equals the variance of `predict_latent`; the covariance of a subset of rows is the corresponding block.
    For a mixture of K members with f_k ~ N(m_k, C_k) at these rows,

    mean = avg m_k,  covariance = avg C_k + avg (m_k - mean) (m_k - mean)'

    which is the Gaussian process of a mixture of marginalised networks (Lazaro-Gredilla & Figueiras-Vidal, section IV;
    SYSTEMS N6), without its noise.

    Parameters
    ----------
    X : (n, D)
        Scaled inputs.
    allowed_bytes : float
        Memory limit; unlimited by default.

    Returns
    -------
    mean : (n,), covariance : (n, n), exactly symmetric, positive semi-definite up to rounding

    Raises
    ------
    MemoryLimit
        Before anything is computed.
    NotPositiveDefinite
    """
    _refuse_large(shared, len(X), 0, allowed_bytes)
    if len(X) == 0:
        return np.empty(0), np.empty((0, 0))
    if shared.members:
        return _mixed([joint_latent(one.shared, belief[k], X) for k, one in enumerate(shared.members)])
    V = shared.design(X)
    covariance = kind_of(shared).joint_lower(shared, V, X)
    mean = V @ belief.mean
    A = linalg.solve_right_transposed(belief.factor, V)
    return mean, linalg.mirror(linalg.add_outer_lower(covariance, A))


def _mixed(predicted):
    means, covariances = (np.stack(parts) for parts in zip(*predicted, strict=True))
    mean = means.mean(axis=0)
    deviations = (means - mean) / np.sqrt(len(means))
    return mean, covariances.mean(axis=0) + deviations.T @ deviations


def sample_latent(shared: Shared, belief: Belief, X, *, size, seed, allowed_bytes=math.inf) -> np.ndarray:
    """Joint samples of the latent f at the rows of X, (size, n); reproducible for the same seed.

    A sample is mean + F z with F F' = covariance, by pivoted Cholesky without jitter. Rows determined by other rows,
    such as duplicates, agree with them to within sqrt(rounding).

    Raises
    ------
    MemoryLimit
        Before anything is computed.
    NotPositiveDefinite
    """
    if size < 0:
        raise InvalidOption(f"size: expected at least 0 samples, got {size}; give another number")
    _refuse_large(shared, len(X), size, allowed_bytes)
    mean, covariance = joint_latent(shared, belief, X)
    if len(mean) == 0:
        return np.empty((size, 0))
    F = linalg.semidefinite_factor(covariance, name="joint covariance at new points")
    samples = np.random.default_rng(seed).standard_normal((size, F.shape[1])) @ F.T
    samples += mean
    return samples


def one_belief(model: Model, committee: Committee) -> Belief:
    """The posterior of a committee with one latent process.

    Raises
    ------
    InvalidOption
        The model has several processes, such as one per class.
    """
    if model.likelihood.processes > 1:
        raise InvalidOption(
            f"joint prediction: expected one latent process, got {model.likelihood.processes} of "
            f"{model.likelihood.name}; use predict"
        )
    belief = committee.posterior
    assert belief.factor is not None  # the property raises if there is no factor
    return belief


def _refuse_large(shared, rows, samples, allowed_bytes):
    memory.refuse_above(
        memory.joint_bytes(rows, shared.size, kernels=kernel_parts(shared.kernel), samples=samples),
        allowed_bytes,
        what=f"joint prediction of {rows} rows" + (f", {samples} samples" if samples else ""),
        remedy="give fewer rows at a time, or predict without covariances",
    )


@one_thread()
def predict(
    model: PredictiveModel,
    X,
    *,
    method=None,
    exposure=None,
    trials=None,
    quantiles=(),
    X_variance=None,
    inputs=None,
    terms=False,
) -> dict[str, np.ndarray]:
    """Predictions at the rows of X (n, D) by name, as `GBCM.predict` returns them; of all outputs where X names none
    (`prediction.outputs`).

    Raises
    ------
    InvalidData, InvalidDtype, InvalidOption
    """
    trained = model.snapshot.model
    if lacks_output(trained, X):
        how = {"exposure": exposure, "trials": trials, "quantiles": quantiles, "X_variance": X_variance}
        how |= {"method": method, "inputs": inputs, "terms": terms}
        return of_outputs(trained, [predict(model, at_output(trained, X, one), **how) for one in trained.outputs])
    model.kind(method)
    refuse_certain(X_variance, inputs)
    way = None if X_variance is None else model.way(method, inputs)
    how = {"exposure": exposure, "trials": trials, "quantiles": quantiles}
    predictor = model.predictor(method)
    refuse_uncertain_terms(terms, way)
    named = predictor.terms(new_inputs(predictor.model, X)) if terms else {}
    return predict_by(predictor, X, X_variance=X_variance, way=way, **how) | named


def refuse_certain(X_variance, inputs) -> None:
    """Raise `InvalidOption` if `inputs` selects an averaging method but no X_variance is given."""
    if X_variance is None and inputs is not None:
        raise InvalidOption(f"inputs: expected X_variance with {inputs!r}, got none; give it, or leave out inputs")


@one_thread()
def predict_by(
    predictor: RowPredictor, X, *, exposure=None, trials=None, quantiles=(), X_variance=None, way=None
) -> dict[str, np.ndarray]:
    """As `predict`, with a predictor that the caller reuses.

    `way`: how to average over uncertain inputs; used with X_variance only.
    """
    model = predictor.model
    X = new_inputs(model, X)
    obs = new_observations(model, len(X), exposure=exposure, trials=trials)
    bad = [q for q in quantiles if not 0 < q < 1]
    if bad or (quantiles and model.likelihood.categorical):
        raise InvalidOption(
            f"quantiles: expected levels between 0 and 1 of numbers, got {list(quantiles)} of a "
            f"{model.likelihood.name} model; correct or leave them out"
        )
    uncertainty = None if X_variance is None else InputUncertainty(new_variance(model, X_variance, len(X)), way)
    return with_class_names(model, predictor.predict(X, obs, tuple(quantiles), uncertainty))


@one_thread()
def predict_joint(snapshot: Snapshot, X, *, allowed_bytes) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n,) and covariance (n, n) of the latent f at the rows of X (n, D).

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    model, belief = snapshot.model, one_belief(snapshot.model, snapshot.committee)
    inputs, scaling = _scaled(model, X)
    mean, covariance = joint_latent(model.shared, belief, inputs, allowed_bytes=allowed_bytes)
    units = model.likelihood.units
    length = np.broadcast_to(units.latent_length(scaling.y_scale), len(mean))
    return scaling.original("mean", mean, units), covariance * length * length[:, None]


@one_thread()
def sample(snapshot: Snapshot, X, *, size, seed, allowed_bytes) -> np.ndarray:
    """Joint samples of the latent f at the rows of X (n, D): (size, n).

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    model, belief = snapshot.model, one_belief(snapshot.model, snapshot.committee)
    how = {"size": size, "seed": seed, "allowed_bytes": allowed_bytes}
    inputs, scaling = _scaled(model, X)
    return scaling.original("mean", sample_latent(model.shared, belief, inputs, **how), model.likelihood.units)


@one_thread()
def sample_observations(snapshot: Snapshot, X, *, size, seed, allowed_bytes, exposure=None) -> np.ndarray:
    """Sample new observations at the rows of X (n, D) from joint samples of f: (size, n). Not for classes.

    Gaussian noise has the variance implied by the predictions. Other observations are drawn from the likelihood given
    f.

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    model = snapshot.model
    likelihood, units = cast(OneProcess, model.likelihood), model.likelihood.units
    (inputs, scaling), rng = _scaled(model, X), np.random.default_rng(seed)
    how = {"size": size, "seed": rng, "allowed_bytes": allowed_bytes}
    f = sample_latent(model.shared, one_belief(model, snapshot.committee), inputs, **how)
    obs = new_observations(model, len(inputs), exposure=None if likelihood.normal else exposure)
    obs = model.scaling.observations(obs, units, inputs)
    if likelihood.normal:
        noise = noise_variance(Fitted.of_snapshot(snapshot), inputs, obs)
        return scaling.original("sample", f + np.sqrt(noise) * rng.standard_normal(f.shape), units)
    drawn = likelihood.distribution(obs, f.T).rvs(random_state=rng).T
    return scaling.original("observation_mean", drawn, units)


def _scaled(model, X) -> tuple[np.ndarray, Scaling]:
    """Scaled inputs (n, D), and the scaling of targets at these rows."""
    scaled = model.scaling.inputs(new_inputs(model, X))
    return scaled, model.scaling.of_rows(model.scaling.with_outputs(unweighted(np.zeros(len(scaled))), scaled))
