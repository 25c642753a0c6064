"""Predictions averaged over several committees: those of samples of the hyper-parameters.

Williams & Rasmussen (1996), section 3.2: the predictive distribution is an equal mixture of those at sampled
hyper-parameters. Each sample has a committee of its own; mixing over samples inside each expert and combining
afterwards would be wrong (SYSTEMS I.7).
"""

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from bcmdist.api.facade import Facade
from bcmdist.api.gbcm import GBCM
from bcmdist.api.relevance import Lengthscales, averaged
from bcmdist.errors import InvalidOption, ModelDamaged, ModelNotFound
from bcmdist.learning.sampling.chains import load_chains, mixing, mixing_advice
from bcmdist.prediction import in_memory
from bcmdist.prediction.mixture import CONTENTS, Contents, LazySequence, MixtureModel, references
from bcmdist.storage.commits import Reference
from bcmdist.storage.locate import open_storage

# Figures of `GBCM.info` that members have in common.
SHARED = ("rows", "partitions", "commit", "query", "inputs", "kernel", "mean", "likelihood", "classes", "approximation")
PREPARED = "prepared"  # what the members have in common, the first that is written


def _load(reference: Reference) -> GBCM:
    """The committee behind a reference; `ModelDamaged` where another one has taken its place."""
    gbcm = GBCM.load(reference.url, commit=reference.number)
    if gbcm.snapshot.digest != reference.digest:
        raise ModelDamaged(
            f"{reference.url}: expected record {reference.digest[:12]} at commit {reference.number}, found "
            f"{gbcm.snapshot.digest[:12]}; load the mixture again, or restore it from a copy"
        )
    return gbcm


@dataclass(frozen=True)
class Mixture(Facade):
    """Committees whose predictions count alike; made by hand, by `load` or by `sampling.sample_posterior`."""

    members: Sequence[GBCM]
    """fitted to the same data with the same settings, but for the hyper-parameters"""
    contents: Contents | None = None
    """where the members are listed; None of a mixture made by hand, which is for a few"""
    _keep: tuple = ()

    def __post_init__(self):
        if not self.members:
            raise InvalidOption("mixture: expected at least one committee, got none; fit some")
        refuse_unmixable(self.predictive.snapshot.model.likelihood)

    @classmethod
    def load(cls, model) -> "Mixture":
        """The mixture of a directory that `sample_posterior` has filled; members are loaded when they are needed.

        Raises
        ------
        ModelNotFound
        """
        contents = contents_of(model)
        return cls(LazySequence(_load, references(contents)), contents)

    def predict(self, X, *, quantiles=(), X_variance=None, inputs=None) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), in original units, by the names of `GBCM.predict`.

        mean = avg m_s,  variance = avg (v_s + m_s^2) - mean^2,  of observations likewise; `lower95`, `upper95` and
        `quantile0.9` for 0.9 among `quantiles` are quantiles of the mixture of normal distributions itself, with the
        variances that members give (`--noise`); shapes of their errors have no part in it.
        Probabilities of classes are averages. `X_variance` and `inputs` as of `GBCM.predict`: each member averages over
        errors of inputs. Holds two numbers for each row and member.

        Raises
        ------
        InvalidData, InvalidDtype, InvalidOption
        """
        return in_memory.predict(self.predictive, X, quantiles=quantiles, X_variance=X_variance, inputs=inputs)

    def single(self, what) -> GBCM:
        raise _not_single(self.url, what)

    def info(self) -> dict:
        """What the members have in common, and averages over them, JSON-ready.

        `p_eff` and `log_evidence` are means, `hyperparameters` geometric means (of their logs, which are sampled).
        `samples` is the number of members, the rest as `chains.mixing` says.
        """
        every = [member.info() for member in self.members]
        first, named = every[0], [one["hyperparameters"] for one in every]
        averages = {name: _mean([one[name] for one in every]) for name in ("p_eff", "log_evidence")}
        centres = {name: np.exp(np.log([one[name] for one in named]).mean(axis=0)).tolist() for name in named[0]}
        figures = {name: first[name] for name in SHARED} | averages | {"hyperparameters": centres}
        figures |= {"jitter": max(one["jitter"] for one in every), "samples": len(every)}
        if self.contents:
            sampled = mixing(load_chains(self.contents.url)[1])
            figures |= {**sampled, "advice": mixing_advice(sampled)}
        return figures | {"model": self.url}

    def lengthscales(self) -> list[Lengthscales]:
        """Geometric means over members."""
        return [averaged(parts) for parts in zip(*(one.lengthscales() for one in self.members), strict=True)]

    def advised(self) -> list[str]:
        """Whether the chains have mixed, of members that were sampled."""
        return [mixing_advice(mixing(load_chains(self.contents.url)[1]))] if self.contents else []

    @functools.cached_property
    def predictive(self) -> MixtureModel:
        return MixtureModel(self.members[0].snapshot, LazySequence(attrgetter("snapshot"), self.members), self.contents)

    @property
    def url(self) -> str:
        """Of its directory, or of its first member where it was made by hand."""
        return self.predictive.url


def _mean(figures) -> float | None:
    return None if None in figures else float(np.mean(figures))


def contents_of(model) -> Contents:
    """What the mixture of a directory consists of, by its hash; `ModelNotFound` where there is none."""
    storage = open_storage(model)
    try:
        return Contents(storage.url, hashlib.sha256(storage.get(CONTENTS)).hexdigest())
    except FileNotFoundError as error:
        raise ModelNotFound(
            f"{model}: expected a mixture, found no {CONTENTS}; sample one or let sampling finish, or load a GBCM"
        ) from error


def is_mixture(model) -> bool:
    """Whether a directory holds a mixture, or one that is being sampled."""
    return bool({CONTENTS, PREPARED} & set(open_storage(model).names("")))


@contextlib.contextmanager
def opened(model) -> Iterator[GBCM | Mixture]:
    """The newest committee of a directory, kept from pruning while this is open, or its mixture.

    Raises
    ------
    ModelNotFound, ModelDamaged, VersionMismatch
    """
    if is_mixture(model):
        yield Mixture.load(model)
    else:
        with GBCM.held(model) as held:
            yield held


def refuse_mixture(model, what) -> None:
    """Raise `InvalidOption` where a directory holds a mixture, with which one cannot do that."""
    if is_mixture(model):
        raise _not_single(model, what)


def _not_single(model, what):
    return InvalidOption(
        f"{model}: expected a single committee to {what}, it holds a mixture of sampled ones, which stays as it "
        "is; name one of its members/, or fit another --model to the data that you want it to hold"
    )


def refuse_unmixable(likelihood) -> None:
    """Raise `InvalidOption` for likelihoods whose predictions are neither normal nor probabilities of classes."""
    if not likelihood.normal and not likelihood.categorical:
        raise InvalidOption(
            f"mixture: expected a gaussian or a class likelihood, got {likelihood.name}; fit a single GBCM instead"
        )
