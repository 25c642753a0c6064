"""Mixtures: predictions averaged over several committees, the members.

    p(y | x) = sum_k w_k p_k(y | x)

where p_k is a member's normal distribution or class probability, and w_k = 1 / K unless the mixture has other weights
(`bcmdist.committee.mixture_commits`). Members are loaded one at a time.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

import numpy as np

from bcmdist.committee.mixture_commits import Contents, Members, leased, references, weights_of
from bcmdist.committee.snapshot import Snapshot
from bcmdist.model.model import Model
from bcmdist.prediction.exceedance import above_name
from bcmdist.prediction.interface import Fitted, Predictor
from bcmdist.prediction.normal_mixtures import (
    average,
    mixture_cdf,
    mixture_crps,
    mixture_log_density,
    mixture_moments,
    mixture_quantile,
)
from bcmdist.prediction.predictive_model import (
    PREDICTORS,
    PredictiveModel,
    RowPredictor,
    StoredPredictor,
    chosen_method,
    predictor_of,
)
from bcmdist.prediction.scored_rows import Judged, predict_rows, predict_terms
from bcmdist.prediction.scoring.pit import Places
from bcmdist.prediction.uncertain.input_uncertainty import chosen_way
from bcmdist.storage.commits import record_digest

# The prediction interval.
LOW, HIGH = 0.025, 0.975
# Columns of the members' predictions that the mixture uses.
MIXED = ("mean", "variance", "observation_mean", "observation_variance", "probability")
T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence that loads each item on access and does not keep it."""

    def __init__(self, load: Callable[[Any], T], stored: Sequence):
        self.load, self.stored = load, stored

    def __len__(self):
        return len(self.stored)

    @overload
    def __getitem__(self, k: int) -> T: ...
    @overload
    def __getitem__(self, k: slice) -> "LazySequence[T]": ...
    def __getitem__(self, k):
        return LazySequence(self.load, self.stored[k]) if isinstance(k, slice) else self.load(self.stored[k])

    def __iter__(self) -> Iterator[T]:
        return map(self.load, self.stored)


@dataclass(frozen=True)
class MixturePredictor(RowPredictor):
    """Predicts rows by a mixture: averages over its members."""

    members: Sequence[Predictor]
    weights: tuple[float, ...] | None = None
    """(K,), with the sum 1; None: equal"""

    @functools.cached_property
    def model(self) -> Model:
        return self.members[0].model

    def predict(self, X, obs, quantiles=(), uncertainty=None, above=()) -> dict[str, np.ndarray]:
        names = tuple(map(above_name, above))
        found = (predict_rows(one, X, obs, uncertainty=uncertainty, above=above) for one in self.members)
        each = stacked(found, also=names)
        exceeded = {name: np.average(each[name], axis=0, weights=self.weights) for name in names}
        return mixed(each, quantiles, classes=self.model.classes, weights=self.weights) | exceeded

    def terms(self, X) -> dict[str, np.ndarray]:
        """Terms of the mixture at rows of X (n, D): those of its members have the same names."""
        each = [predict_terms(one, X) for one in self.members]
        means, variances = (np.array([one[name] for one in each]) for name in ("term_mean", "term_variance"))
        mean, variance = mixture_moments(means, variances, self.weights)
        return each[0] | {"term_mean": mean, "term_variance": variance}

    def score_each(self, several: Sequence[Judged]) -> list[Judged]:
        """Scores several sets of rows, loading each member once for all sets."""
        each = [
            [_kept(predict_rows(one, s.X, s.obs, uncertainty=s.uncertainty)) for s in several] for one in self.members
        ]
        return [
            _scored(self.model, s, stacked(predicted), self.weights)
            for s, predicted in zip(several, zip(*each, strict=True), strict=True)
        ]


@dataclass(frozen=True)
class StoredMixture(StoredPredictor):
    """Task-sized reference to a mixture: the commits of its members, and the class that predicts from each."""

    members: Members
    predictor: type[Predictor] = Fitted
    weights: tuple[float, ...] | None = None
    """(K,) of a mixture assembled in memory; None: those of `members`"""

    @property
    def in_cells(self) -> bool:
        return self.predictor.in_cells

    def load(self) -> MixturePredictor:
        members = LazySequence(self.predictor.of_commit, references(self.members))
        return MixturePredictor(members, self.weights or weights_of(self.members))


@dataclass(frozen=True)
class MixtureModel(PredictiveModel):
    """Committees fitted to the same data with the same settings, with different hyper-parameters."""

    snapshot: Snapshot
    """the first member"""
    members: Sequence[Snapshot]
    contents: Contents | None = None
    """where the list of members is stored; None for a mixture assembled in memory"""
    _weights: tuple[float, ...] | None = None
    """of a mixture assembled in memory"""

    @property
    def snapshots(self) -> Sequence[Snapshot]:
        return self.members

    @property
    def several(self) -> int:
        return len(self.members)

    @property
    def url(self) -> str:
        """The mixture's directory; the first member's directory if the mixture was assembled in memory."""
        return self.contents.url if self.contents else self.snapshot.url

    @property
    def version(self) -> Contents | None:
        return self.contents

    @property
    def state(self) -> str:
        return f"{self.contents.number if self.contents else 1}, a mixture of {self.several}"

    @property
    def weights(self) -> tuple[float, ...] | None:
        return weights_of(self.contents) if self.contents else self._weights

    @contextlib.contextmanager
    def held(self) -> Iterator["MixtureModel"]:
        """Keep the commits of all members, and of the mixture, from being pruned."""
        with leased(self._references):
            yield self

    def chosen_method(self, method=None) -> str:
        return chosen_method(self.snapshot, method)

    def kind(self, method=None) -> type[Predictor]:
        return predictor_of(self.snapshot, method)

    def predictor(self, method=None) -> MixturePredictor:
        kind = PREDICTORS[self.chosen_method(method)]
        return MixturePredictor(LazySequence(kind.of_snapshot, self.members), self.weights)

    def stored(self, method=None) -> StoredMixture:
        return StoredMixture(self._references, PREDICTORS[self.chosen_method(method)], self._weights)

    def example(self, X, obs) -> dict[str, np.ndarray]:
        return MixturePredictor([Fitted.of_snapshot(self.snapshot)]).predict(X, obs)

    def way(self, method, asked) -> str:
        """How all members average over uncertain inputs; "montecarlo" if they differ."""
        several = [self.snapshot] if self.contents else self.members  # sampled members share their kernel
        kind = PREDICTORS[self.chosen_method(method)]
        first, *others = [chosen_way(kind, one, asked) for one in several]
        return first if all(other == first for other in others) else "montecarlo"

    def attributes(self) -> dict:
        named = {"commit": self.contents.number} if self.contents else {}
        return named | {"members": [[one.url, one.number] for one in references(self._references)]}

    def record_hashes(self) -> Callable[[], str]:
        """A function that returns the hashes of the first and the last member's record."""
        return functools.partial(_record_hashes, self._references)

    @property
    def _references(self) -> Members:
        return self.contents or tuple(one.reference for one in self.members)


def _record_hashes(members: Members) -> str:
    listed = references(members)
    return " ".join(record_digest(one.url, one.number) for one in (listed[0], listed[-1]))


def _scored(model, rows, each, weights):
    """`rows`, with observations in the units of the model, with the mixture's predictions and scores."""
    units, found = model.likelihood.units, mixed(each, weights=weights)
    if "probability" in found:
        own = np.take_along_axis(found["probability"], rows.obs.y.astype(int)[:, None], axis=1)[:, 0]
        with np.errstate(divide="ignore"):
            return replace(rows, columns=found | {"y": rows.obs.y, "log_density": np.log(own)})
    y = model.scaling.of_rows(rows.obs).targets(rows.obs.y, units)
    means, sds = components(each)
    at = mixture_cdf(means, sds, y, weights)
    found |= {"y": y, "log_density": mixture_log_density(means, sds, y, weights)}
    found |= {"crps": mixture_crps(means, sds, y, weights)}
    found |= vars(Places(at, at, np.ones(len(y), dtype=bool)))
    if model.scaling.outputs:
        found["train_mean"] = np.array(model.scaling.outputs.training_mean)[rows.obs.output]
    return replace(rows, columns=found, train_mean=model.scaling.training_mean(units))


def stacked(predictions: Iterable[dict[str, np.ndarray]], also: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Stack the members' predictions of `MIXED` and `also` by name along a new first axis."""
    kept = [_kept(one, also) for one in predictions]
    return {name: np.array([each[name] for each in kept]) for name in kept[0]}


def _kept(prediction, also=()):
    """The columns of a member's prediction that the mixture uses."""
    return {name: value for name, value in prediction.items() if name in (*MIXED, *also)}


def components(each) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations (K, n) of observations under each member."""
    return each["observation_mean"], np.sqrt(each["observation_variance"])


def mixed(each, quantiles=(), *, classes=None, weights=None) -> dict[str, np.ndarray]:
    """Predictions of the mixture, by the names of `GBCM.predict`, from the `stacked` predictions of its members.

    Labels are positions among the classes, or the `classes` (numbers in the data) at these positions. `weights`: (K,);
    None where all are equal.
    """
    mean, variance = mixture_moments(each["mean"], each["variance"], weights)
    named = {"mean": mean, "variance": variance}
    if "probability" in each:
        p = average(each["probability"], weights)
        label = p.argmax(axis=1)
        return named | {"probability": p, "label": label if classes is None else np.asarray(classes, dtype=int)[label]}
    mean, variance = mixture_moments(each["observation_mean"], each["observation_variance"], weights)
    means, sds = components(each)
    levels = {"lower95": LOW, "upper95": HIGH} | {f"quantile{q:g}": q for q in quantiles}
    own = {name: mixture_quantile(means, sds, q, weights) for name, q in levels.items()}
    return named | {"observation_mean": mean, "observation_variance": variance} | own
