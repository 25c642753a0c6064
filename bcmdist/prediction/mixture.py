"""Mixtures: predictions averaged over several committees, the members.

    p(y | x) = 1/K sum_k p_k(y | x)

where p_k is a member's normal distribution or class probability. Members are loaded one at a time.
"""

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar, overload

import numpy as np
from msgspec import Meta

from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption, ModelDamaged
from bcmdist.model.model import Model
from bcmdist.prediction.exceedance import above_name
from bcmdist.prediction.interface import Fitted, Predictor
from bcmdist.prediction.normal_mixtures import (
    mixture_cdf,
    mixture_crps,
    mixture_log_density,
    mixture_moments,
    mixture_quantile,
)
from bcmdist.prediction.predictive_model import PredictiveModel, RowPredictor, StoredPredictor, chosen_method
from bcmdist.prediction.scored_rows import Judged, predict_rows
from bcmdist.prediction.scoring.pit import Places
from bcmdist.prediction.uncertain.input_uncertainty import chosen_way
from bcmdist.storage.commits import MIXTURE as CONTENTS
from bcmdist.storage.commits import Reference, record_digest
from bcmdist.storage.fields import Blob, CountFromOne, decode, parse
from bcmdist.storage.locate import open_storage

# The prediction interval.
LOW, HIGH = 0.025, 0.975
# Columns of the members' predictions that the mixture uses.
MIXED = ("mean", "variance", "observation_mean", "observation_variance", "probability")
T = TypeVar("T")


@dataclass(frozen=True)
class Contents:
    """Location and SHA-256 of a mixture's list of members (`CONTENTS`). Tasks carry it if there are many references."""

    url: str
    digest: str


Members = Contents | tuple[Reference, ...]
"""The commits of a mixture's members; a tuple for few members only, since a task stays below 10 kB"""


@functools.lru_cache(maxsize=2)
def references(members: Members) -> tuple[Reference, ...]:
    """References of a mixture's members; read from storage if `members` is a `Contents`.

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
    where = f"{members.url}/{CONTENTS}"
    stored = decode(Annotated[list[tuple[str, CountFromOne, Blob]], Meta(min_length=1)], parse(text, where), where)
    return tuple(Reference(f"{members.url}/{name}", *details) for name, *details in stored)


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
    """Predicts rows by a mixture: equal averages over its members."""

    members: Sequence[Predictor]

    @functools.cached_property
    def model(self) -> Model:
        return self.members[0].model

    def predict(self, X, obs, quantiles=(), uncertainty=None, above=()) -> dict[str, np.ndarray]:
        names = tuple(map(above_name, above))
        found = (predict_rows(one, X, obs, uncertainty=uncertainty, above=above) for one in self.members)
        each = stacked(found, also=names)
        exceeded = {name: each[name].mean(axis=0) for name in names}
        return mixed(each, quantiles, classes=self.model.classes) | exceeded

    def score_each(self, several: Sequence[Judged]) -> list[Judged]:
        """Scores several sets of rows, loading each member once for all sets."""
        each = [
            [_kept(predict_rows(one, s.X, s.obs, uncertainty=s.uncertainty)) for s in several] for one in self.members
        ]
        return [
            _scored(self.model, s, stacked(predicted))
            for s, predicted in zip(several, zip(*each, strict=True), strict=True)
        ]


@dataclass(frozen=True)
class StoredMixture(StoredPredictor):
    """Task-sized reference to a mixture: the commits of its members."""

    members: Members

    in_cells = False

    def load(self) -> MixturePredictor:
        return MixturePredictor(LazySequence(Fitted.of_commit, references(self.members)))


@dataclass(frozen=True)
class MixtureModel(PredictiveModel):
    """Committees fitted to the same data with the same settings, with different hyper-parameters."""

    snapshot: Snapshot
    """the first member"""
    members: Sequence[Snapshot]
    contents: Contents | None = None
    """where the list of members is stored; None for a mixture assembled in memory"""

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
        return f"mixture of {self.several}"

    def held(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext(self)

    def chosen_method(self, method=None) -> str:
        if (method := chosen_method(self.snapshot, method or "committee")) != "committee":
            raise InvalidOption(
                f"method: expected committee, as members of a mixture predict, got {method!r}; leave it out, or "
                "predict with single members"
            )
        return method

    def kind(self, method=None) -> type[Predictor]:
        self.chosen_method(method)
        return Fitted

    def predictor(self, method=None) -> MixturePredictor:
        self.chosen_method(method)
        return MixturePredictor(LazySequence(Fitted.of_snapshot, self.members))

    def stored(self, method=None) -> StoredMixture:
        self.chosen_method(method)
        return StoredMixture(self._references)

    def example(self, X, obs) -> dict[str, np.ndarray]:
        return MixturePredictor([Fitted.of_snapshot(self.snapshot)]).predict(X, obs)

    def way(self, method, asked) -> str:
        """How all members average over uncertain inputs; "montecarlo" if they differ."""
        several = [self.snapshot] if self.contents else self.members  # sampled members share their kernel
        first, *others = [chosen_way(Fitted, one, asked) for one in several]
        return first if all(other == first for other in others) else "montecarlo"

    def attributes(self) -> dict:
        return {"members": [[one.url, one.number] for one in references(self._references)]}

    def record_hashes(self) -> Callable[[], str]:
        """A function that returns the hashes of the first and the last member's record."""
        return functools.partial(_record_hashes, self._references)

    @property
    def _references(self) -> Members:
        return self.contents or tuple(one.reference for one in self.members)


def _record_hashes(members: Members) -> str:
    listed = references(members)
    return " ".join(record_digest(one.url, one.number) for one in (listed[0], listed[-1]))


def _scored(model, rows, each):
    """`rows`, with observations in the units of the model, with the mixture's predictions and scores."""
    units, found = model.likelihood.units, mixed(each)
    if "probability" in found:
        own = np.take_along_axis(found["probability"], rows.obs.y.astype(int)[:, None], axis=1)[:, 0]
        with np.errstate(divide="ignore"):
            return replace(rows, columns=found | {"y": rows.obs.y, "log_density": np.log(own)})
    y = model.scaling.of_rows(rows.obs).targets(rows.obs.y, units)
    means, sds = components(each)
    at = mixture_cdf(means, sds, y)
    found |= {"y": y, "log_density": mixture_log_density(means, sds, y), "crps": mixture_crps(means, sds, y)}
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


def mixed(each, quantiles=(), *, classes=None) -> dict[str, np.ndarray]:
    """Predictions of the mixture, by the names of `GBCM.predict`, from the `stacked` predictions of its members.

    Labels are positions among the classes, or the `classes` (numbers in the data) at these positions.
    """
    mean, variance = mixture_moments(each["mean"], each["variance"])
    named = {"mean": mean, "variance": variance}
    if "probability" in each:
        p = each["probability"].mean(axis=0)
        label = p.argmax(axis=1)
        return named | {"probability": p, "label": label if classes is None else np.asarray(classes, dtype=int)[label]}
    mean, variance = mixture_moments(each["observation_mean"], each["observation_variance"])
    means, sds = components(each)
    levels = {"lower95": LOW, "upper95": HIGH} | {f"quantile{q:g}": q for q in quantiles}
    own = {name: mixture_quantile(means, sds, q) for name, q in levels.items()}
    return named | {"observation_mean": mean, "observation_variance": variance} | own
