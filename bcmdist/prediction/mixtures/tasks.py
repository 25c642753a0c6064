"""Averaged predictions of several fitted models at the rows of a partition, and their scores."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bcmdist.data.writing import write_rows
from bcmdist.errors import ModelDamaged
from bcmdist.model.targets import model_observations
from bcmdist.prediction.fitted import Fitted, load_fitted
from bcmdist.prediction.mixtures.normal_mixtures import (
    mixture_cdf,
    mixture_crps,
    mixture_log_density,
    mixture_moments,
    mixture_quantile,
)
from bcmdist.prediction.scored_rows import input_uncertainty_of, predict_rows, share_of
from bcmdist.prediction.scoring.judged import Judged, nothing
from bcmdist.prediction.scoring.pit import Places
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.storage.commits import MIXTURE as CONTENTS
from bcmdist.storage.commits import Reference
from bcmdist.storage.locate import open_storage

# The interval predictions report.
LOW, HIGH = 0.025, 0.975
# What a mixture needs of its members.
MIXED = ("mean", "variance", "observation_mean", "observation_variance", "probability")


@dataclass(frozen=True)
class Contents:
    """What a task carries instead of many references: where a mixture's `CONTENTS` lie, and their hash."""

    url: str
    digest: str


Members = Contents | tuple[Reference, ...]
"""The fitted models of a mixture; by value for a few, since a task stays below 10 kB"""


@lru_cache(maxsize=2)
def references(members: Members) -> tuple[Reference, ...]:
    """References of a mixture's members.

    Raises
    ------
    ModelDamaged
    """
    if isinstance(members, tuple):
        return members
    text = open_storage(members.url).get(CONTENTS)
    if (found := hashlib.sha256(text).hexdigest()) != members.digest:
        raise ModelDamaged(
            f"{members.url}: expected {CONTENTS} {members.digest[:12]}, found {found[:12]}; this machine sees another "
            "mixture under the same path: use a shared one"
        )
    return tuple(Reference(f"{members.url}/{name}", *rest) for name, *rest in json.loads(text))


@dataclass(frozen=True)
class MixtureScore:
    """Totals of the scores of a partition under a mixture of fitted models, loaded one after the other."""

    members: Members
    way: str | None = None
    """in which uncertain inputs are averaged over (`WAYS`); None where they are certain"""

    def __call__(self, part, rows) -> Scores:
        return _judged(self, part, rows, np.arange(part.rows)).scores()


@dataclass(frozen=True)
class MixtureJudge:
    """The rows of a partition beside predictions of a mixture: about a share of them, as `ScoredRows` takes them."""

    members: Members
    share: float
    way: str | None = None
    """as of `MixtureScore`"""

    def __call__(self, part, rows) -> Judged:
        some = np.flatnonzero(share_of(np.arange(part.start, part.stop), self.share))
        return _judged(self, part, rows, some) if len(some) else nothing(rows.X.shape[1])


def _judged(task, part, rows, some):
    members, around = references(task.members), input_uncertainty_of(rows, task.way)
    obs = model_observations(load_fitted(members[0]).model, part, rows.obs)
    asked = Judged(part.start + some, rows.X[some], obs[some], around=around and around[some])
    return judge_mixed(members, [asked])[0]


def judge_mixed(members: tuple[Reference, ...], several: Sequence[Judged]) -> list[Judged]:
    """Several sets of rows beside predictions of models that are loaded one after the other, once for all sets."""
    said = [[_said(fitted, rows) for rows in several] for fitted in map(Fitted.of_commit, members)]
    model = load_fitted(members[0]).model
    return [_beside(model, rows, stacked(each)) for rows, each in zip(several, zip(*said, strict=True), strict=True)]


def _said(fitted, rows):
    return _kept(predict_rows(fitted, rows.X, rows.obs, around=rows.around))  # the targets are not looked at


def _beside(model, rows, said):
    """Rows with observations in the units of the model beside what members have said of them."""
    units, found = model.likelihood.units, mixed(said)
    if "probability" in found:
        own = np.take_along_axis(found["probability"], rows.obs.y.astype(int)[:, None], axis=1)[:, 0]
        with np.errstate(divide="ignore"):
            return replace(rows, columns=found | {"y": rows.obs.y, "log_density": np.log(own)})
    y = model.scaling.targets(rows.obs.y, units)
    means, sds = components(said)
    at = mixture_cdf(means, sds, y)
    found |= {"y": y, "log_density": mixture_log_density(means, sds, y), "crps": mixture_crps(means, sds, y)}
    found |= vars(Places(at, at, np.ones(len(y), dtype=bool)))
    return replace(rows, columns=found, train_mean=model.scaling.training_mean(units))


@dataclass(frozen=True)
class MixturePredict:
    """Write the predictions of a mixture for a partition, as `Predict` does; returns the number of rows."""

    members: Members
    out: str
    way: str | None = None
    """as of `MixtureScore`"""

    def __call__(self, part, rows) -> int:
        first, *_ = members = references(self.members)
        around, classes = input_uncertainty_of(rows, self.way), load_fitted(first).model.classes
        said = stacked(predict_rows(Fitted.of_commit(one), rows.X, rows.obs, around=around) for one in members)
        write_rows(self.out, part.start, mixed(said, classes=classes))
        return part.rows


def stacked(predictions: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Predictions of one member after the other, by name, members along a new first axis."""
    kept = list(map(_kept, predictions))
    return {name: np.array([said[name] for said in kept]) for name in kept[0]}


def _kept(said):
    """What is mixed of what a member says."""
    return {name: value for name, value in said.items() if name in MIXED}


def components(said) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations (K, n) of observations under each member."""
    return said["observation_mean"], np.sqrt(said["observation_variance"])


def mixed(said, quantiles=(), *, classes=None) -> dict[str, np.ndarray]:
    """What the mixture says, by the names of `GBCM.predict`, from `stacked` predictions of its members.

    Labels are numbers of classes, or those of the data among `classes`.
    """
    mean, variance = mixture_moments(said["mean"], said["variance"])
    named = {"mean": mean, "variance": variance}
    if "probability" in said:
        p = said["probability"].mean(axis=0)
        label = p.argmax(axis=1)
        return named | {"probability": p, "label": label if classes is None else np.asarray(classes, dtype=int)[label]}
    mean, variance = mixture_moments(said["observation_mean"], said["observation_variance"])
    means, sds = components(said)
    levels = {"lower95": LOW, "upper95": HIGH} | {f"quantile{q:g}": q for q in quantiles}
    own = {name: mixture_quantile(means, sds, q) for name, q in levels.items()}
    return named | {"observation_mean": mean, "observation_variance": variance} | own
