"""Predictions and samples at new rows in memory, in original units."""

import functools
from typing import cast

import numpy as np

from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.model.likelihoods import OneProcess
from bcmdist.prediction.joint import joint_latent, one_belief, sample_latent
from bcmdist.prediction.new_rows import new_inputs, new_observations, new_variance
from bcmdist.prediction.predictive_model import CommitteeModel, PredictiveModel
from bcmdist.prediction.row_predictor import RowPredictor
from bcmdist.prediction.scored_rows import with_class_names
from bcmdist.prediction.uncertain.input_uncertainty import InputUncertainty
from bcmdist.runtime.threads import one_thread


@one_thread()
def predict(
    model: PredictiveModel, X, *, method=None, exposure=None, trials=None, quantiles=(), X_variance=None, inputs=None
) -> dict[str, np.ndarray]:
    """Predictions at the rows of X (n, D) by name, as `GBCM.predict` returns them.

    Raises
    ------
    InvalidData, InvalidDtype, InvalidOption
    """
    model.kind(method)
    refuse_certain(X_variance, inputs)
    way = None if X_variance is None else model.way(method, inputs)
    how = {"exposure": exposure, "trials": trials, "quantiles": quantiles}
    return predict_by(model.predictor(method), X, X_variance=X_variance, way=way, **how)


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
    around = None if X_variance is None else InputUncertainty(new_variance(model, X_variance, len(X)), way)
    return with_class_names(model, predictor.predict(X, obs, tuple(quantiles), around))


@one_thread()
def predict_joint(snapshot: Snapshot, X, *, allowed_bytes) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n,) and covariance (n, n) of the latent f at the rows of X (n, D).

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    model, belief = snapshot.model, one_belief(snapshot.model, snapshot.committee)
    mean, covariance = joint_latent(model.shared, belief, _scaled(model, X), allowed_bytes=allowed_bytes)
    original = functools.partial(model.scaling.original, units=model.likelihood.units)
    return original("mean", mean), original("variance", covariance)


@one_thread()
def sample(snapshot: Snapshot, X, *, size, seed, allowed_bytes) -> np.ndarray:
    """Joint samples of the latent f at the rows of X (n, D): (size, n).

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    model, belief = snapshot.model, one_belief(snapshot.model, snapshot.committee)
    how = {"size": size, "seed": seed, "allowed_bytes": allowed_bytes}
    samples = sample_latent(model.shared, belief, _scaled(model, X), **how)
    return model.scaling.original("mean", samples, model.likelihood.units)


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
    inputs, rng = new_inputs(model, X), np.random.default_rng(seed)
    how = {"size": size, "seed": rng, "allowed_bytes": allowed_bytes}
    f = sample_latent(model.shared, one_belief(model, snapshot.committee), model.scaling.inputs(inputs), **how)
    if likelihood.normal:
        said = predict(CommitteeModel(snapshot), X, method="committee")
        noise = np.sqrt(said["observation_variance"] - said["variance"])
        return model.scaling.original("mean", f, units) + noise * rng.standard_normal(f.shape)
    obs = model.scaling.observations(new_observations(model, len(inputs), exposure=exposure), units)
    drawn = likelihood.distribution(obs, f.T).rvs(random_state=rng).T
    return model.scaling.original("observation_mean", drawn, units)


def _scaled(model, X):
    return model.scaling.inputs(new_inputs(model, X))
