"""Predictions and samples at new rows in memory, in original units."""

import functools

import numpy as np

from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.prediction.joint import joint_latent, one_belief, sample_latent
from bcmdist.prediction.new_rows import new_inputs, new_observations, new_variance
from bcmdist.prediction.predictors import PREDICTORS, chosen_method
from bcmdist.prediction.tasks import predict_rows, with_class_names
from bcmdist.prediction.uncertain.ways import Around, chosen_way


def predict(
    snapshot: Snapshot, X, *, method, exposure=None, trials=None, quantiles=(), X_variance=None, inputs=None
) -> dict[str, np.ndarray]:
    """Predictions at the rows of X (n, D), by the names of `GBCM.predict`.

    Raises
    ------
    InvalidData, InvalidDtype, InvalidOption
    """
    model = snapshot.model
    X = new_inputs(model, X)
    obs = new_observations(model, len(X), exposure=exposure, trials=trials)
    bad = [q for q in quantiles if not 0 < q < 1]
    if bad or (quantiles and model.likelihood.categorical):
        raise InvalidOption(
            f"quantiles: expected levels between 0 and 1 of numbers, got {list(quantiles)} of a "
            f"{model.likelihood.name} model; correct or leave them out"
        )
    kind = PREDICTORS[chosen_method(snapshot, method)]
    around = None
    if X_variance is not None:
        around = Around(new_variance(model, X_variance, len(X)), chosen_way(kind, snapshot, inputs))
    elif inputs is not None:
        raise InvalidOption(f"inputs: expected X_variance with {inputs!r}, got none; give it, or leave out inputs")
    return with_class_names(model, predict_rows(kind.of_snapshot(snapshot), X, obs, tuple(quantiles), around))


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


def _scaled(model, X):
    return model.scaling.inputs(new_inputs(model, X))
