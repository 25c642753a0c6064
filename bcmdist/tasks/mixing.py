"""Scores of the averaged predictions of several fitted models at the rows of a partition."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bcmdist.normals import (
    mixture_cdf,
    mixture_crps,
    mixture_log_density,
    mixture_moments,
    mixture_quantile,
)
from bcmdist.pit import Places
from bcmdist.scores import Scores, class_scores, real_scores
from bcmdist.store import Reference
from bcmdist.tasks.loading import load_fitted
from bcmdist.tasks.predicting import predict_rows
from bcmdist.tasks.targets import model_observations

# The interval predictions report.
LOW, HIGH = 0.025, 0.975
# What a mixture needs of its members.
MIXED = ("mean", "variance", "observation_mean", "observation_variance", "probability")


@dataclass(frozen=True)
class MixtureScore:
    """Totals of the scores of a partition under a mixture of fitted models, loaded one after the other."""

    members: tuple[Reference, ...]

    def __call__(self, part, rows) -> Scores:
        model = load_fitted(self.members[0]).model
        seen = model_observations(model, part, rows.obs)
        said = stacked(predict_rows(load_fitted(member), rows.X, rows.obs) for member in self.members)
        prediction = mixed(said)
        if "probability" in prediction:
            return class_scores(seen.y, prediction)
        means, sds = components(said)
        y = rows.obs.y
        log_density, crps = mixture_log_density(means, sds, y), mixture_crps(means, sds, y)
        at = mixture_cdf(means, sds, y)
        where = Places(at, at, np.ones(len(y), dtype=bool))
        return real_scores(y, prediction, log_density, where, train_mean=model.scaling.y_mean, crps=crps)


def stacked(predictions: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Predictions of one member after the other, by name, members along a new first axis."""
    kept = [{name: value for name, value in said.items() if name in MIXED} for said in predictions]
    return {name: np.array([said[name] for said in kept]) for name in kept[0]}


def components(said):
    """Means and standard deviations (K, n) of observations under each member."""
    return said["observation_mean"], np.sqrt(said["observation_variance"])


def mixed(said, quantiles=()) -> dict[str, np.ndarray]:
    """What the mixture says, by the names of `GBCM.predict`, from `stacked` predictions of its members."""
    mean, variance = mixture_moments(said["mean"], said["variance"])
    named = {"mean": mean, "variance": variance}
    if "probability" in said:
        return named | {"probability": (p := said["probability"].mean(axis=0)), "label": p.argmax(axis=1)}
    mean, variance = mixture_moments(said["observation_mean"], said["observation_variance"])
    means, sds = components(said)
    levels = {"lower95": LOW, "upper95": HIGH} | {f"quantile{q:g}": q for q in quantiles}
    own = {name: mixture_quantile(means, sds, q) for name, q in levels.items()}
    return named | {"observation_mean": mean, "observation_variance": variance} | own
