"""Predictions and samples at new rows in memory, in original units.

Joint predictions, of the covariance of the latent f between new points and of samples of f, use the rows around each
point where the model does (`prediction.joint`). A covariance needs all pairs of points at once: memory grows with the
square of their number and is checked first.
"""

import numpy as np

from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidData, InvalidOption
from bcmdist.model.model import Model
from bcmdist.prediction.exceedance import refuse_thresholds
from bcmdist.prediction.interface import Predictor
from bcmdist.prediction.joint.averages import DRAWS, average, groups_of, refuse_averages
from bcmdist.prediction.joint.committee import refuse_large_joint, refuse_large_samples
from bcmdist.prediction.joint.observations import at_rows, sampled_observations, samples_of
from bcmdist.prediction.local.joint_moments import each_point
from bcmdist.prediction.new_rows import new_inputs, new_observations, new_variance
from bcmdist.prediction.outputs import at_output, lacks_output, of_outputs
from bcmdist.prediction.predictive_model import PredictiveModel, RowPredictor, predictor_of
from bcmdist.prediction.scored_rows import marginals, with_class_names
from bcmdist.prediction.terms import refuse_uncertain_terms
from bcmdist.prediction.uncertain.input_uncertainty import InputUncertainty
from bcmdist.runtime.threads import one_thread


def refuse_processes(model: Model) -> None:
    """Raise `InvalidOption` for a model with several processes, such as one per class."""
    if model.likelihood.processes > 1:
        raise InvalidOption(
            f"joint prediction: expected one latent process, got {model.likelihood.processes} of "
            f"{model.likelihood.name}; use predict"
        )


def joint_predictor(snapshot: Snapshot, method: str | None) -> Predictor:
    """The predictor of joint distributions: of `method`, by default with the rows around each point where the model
    predicts so, else the committee.

    Raises
    ------
    InvalidOption
        The model has several processes, or lacks what the method needs.
    """
    refuse_processes(snapshot.model)
    method = method or ("local" if snapshot.facts.method == "local" else "committee")
    return predictor_of(snapshot, method).of_snapshot(snapshot)


@one_thread()
def predict(
    model: PredictiveModel,
    X,
    *,
    method=None,
    exposure=None,
    trials=None,
    target_variance=None,
    quantiles=(),
    X_variance=None,
    inputs=None,
    terms=False,
    above=(),
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
        how |= {"method": method, "inputs": inputs, "terms": terms, "target_variance": target_variance, "above": above}
        return of_outputs(trained, [predict(model, at_output(trained, X, one), **how) for one in trained.outputs])
    model.kind(method)
    refuse_certain(X_variance, inputs)
    way = None if X_variance is None else model.way(method, inputs)
    how = {"exposure": exposure, "trials": trials, "target_variance": target_variance}
    how |= {"quantiles": quantiles, "above": above}
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
    predictor: RowPredictor, X, *, quantiles=(), above=(), X_variance=None, way=None, **companions
) -> dict[str, np.ndarray]:
    """As `predict`, with a predictor that the caller reuses.

    `way`: how to average over uncertain inputs; used with X_variance only. `companions`: exposure, trials and known
    variances of errors (`target_variance`) of the new observations.
    """
    model = predictor.model
    X = new_inputs(model, X)
    obs = new_observations(model, len(X), **companions)
    bad = [q for q in quantiles if not 0 < q < 1]
    if bad or (quantiles and model.likelihood.categorical):
        raise InvalidOption(
            f"quantiles: expected levels between 0 and 1 of numbers, got {list(quantiles)} of a "
            f"{model.likelihood.name} model; correct or leave them out"
        )
    refuse_thresholds(model, above)
    uncertainty = None if X_variance is None else InputUncertainty(new_variance(model, X_variance, len(X)), way)
    return with_class_names(model, predictor.predict(X, obs, tuple(quantiles), uncertainty, tuple(above)))


@one_thread()
def predict_joint(snapshot: Snapshot, X, *, allowed_bytes, method=None) -> tuple[np.ndarray, np.ndarray]:
    """Mean (n,) and covariance (n, n) of the latent f at the rows of X (n, D).

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    model, predictor, X = snapshot.model, joint_predictor(snapshot, method), _scaled(snapshot.model, X)
    refuse_large_joint(model.shared, len(X), 0, allowed_bytes)
    _, covariance = predictor.joint(X, each_point(len(X)))
    obs, scaling = at_rows(model, X)
    found, units = marginals(predictor, X, obs), model.likelihood.units
    length = found.shrink * units.latent_length(scaling.y_scale)
    return scaling.original("mean", found.mean, units), covariance * np.outer(length, length)


@one_thread()
def predict_average(
    snapshot: Snapshot,
    X,
    groups,
    *,
    weights=None,
    of="function",
    above=(),
    exposure=None,
    trials=None,
    method=None,
    draws=DRAWS,
    seed=0,
    allowed_bytes,
) -> dict[str, np.ndarray]:
    """Averages over groups of the rows of X (n, D), by name; see `joint.averages`.

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    refuse_averages(snapshot.model, of, above, draws)
    predictor, X = joint_predictor(snapshot, method), _inputs(snapshot.model, X)
    obs = new_observations(snapshot.model, len(X), exposure=exposure, trials=trials)
    found = groups_of(groups, len(X), weights)
    how = {"of": of, "above": tuple(above), "draws": draws, "seed": seed, "allowed_bytes": allowed_bytes}
    return average(predictor, X, found, obs, **how)


@one_thread()
def sample(snapshot: Snapshot, X, *, size, seed, allowed_bytes, method=None) -> np.ndarray:
    """Joint samples of the latent f at the rows of X (n, D): (size, n).

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    model, predictor, X = snapshot.model, joint_predictor(snapshot, method), _scaled(snapshot.model, X)
    samples, _ = _samples(predictor, X, size, np.random.default_rng(seed), allowed_bytes)
    return at_rows(model, X)[1].original("mean", samples, model.likelihood.units)


def _samples(predictor, X, size, rng, allowed_bytes):
    if size < 0:
        raise InvalidOption(f"size: expected at least 0 samples, got {size}; give another number")
    refuse_large_samples(predictor.model.shared, len(X), size, allowed_bytes)
    return samples_of(predictor, X, size, rng)


@one_thread()
def sample_observations(
    snapshot: Snapshot, X, *, size, seed, allowed_bytes, exposure=None, trials=None, method=None
) -> np.ndarray:
    """Sample new observations at the rows of X (n, D) from joint samples of f: (size, n). Not for classes.

    Gaussian noise has the variance implied by the predictions. Other observations are drawn from the likelihood given
    f.

    Raises
    ------
    InvalidData, InvalidOption, MemoryLimit
    """
    model, predictor = snapshot.model, joint_predictor(snapshot, method)
    inputs, rng = _scaled(model, X), np.random.default_rng(seed)
    f, found = _samples(predictor, inputs, size, rng, allowed_bytes)
    obs = new_observations(model, len(inputs), exposure=exposure, trials=trials)
    return sampled_observations(model, inputs, obs, f, found, rng)


def _inputs(model, X) -> np.ndarray:
    """Inputs (n, D) of rows that name their output, where there are several."""
    if lacks_output(model, X):
        raise InvalidData(
            f"X: expected a column {model.schema.output!r} that names the output of each row, found none; add it"
        )
    return new_inputs(model, X)


def _scaled(model, X) -> np.ndarray:
    return model.scaling.inputs(_inputs(model, X))
