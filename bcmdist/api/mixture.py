"""Mixtures of committees at sampled hyper-parameters.

Williams & Rasmussen (1996), section 3.2: the predictive distribution is the equally weighted mixture of the predictive
distributions at the sampled hyper-parameters. Each sample has its own committee. Mixing over samples inside each
expert, and combining the experts afterwards, would be wrong (SYSTEMS I.7).
"""

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from bcmdist.api.facade import Facade
from bcmdist.api.gbcm import GBCM
from bcmdist.api.relevance import Lengthscales, averaged
from bcmdist.errors import InvalidOption, ModelDamaged, ModelNotFound
from bcmdist.learning.sampling.chains import load_chains, mixing, mixing_advice
from bcmdist.model.model import Model
from bcmdist.prediction import in_memory
from bcmdist.prediction.mixture import CONTENTS, Contents, LazySequence, MixtureModel, references
from bcmdist.storage.commits import Reference
from bcmdist.storage.locate import open_storage

# Figures of `GBCM.info` that are equal for all members.
SHARED = ("rows", "partitions", "commit", "query", "inputs", "kernel", "mean", "likelihood", "classes", "approximation")
PREPARED = "prepared"  # folder of the empty committee that all members start from; written first


def _load(reference: Reference) -> GBCM:
    """Load the committee of a reference; `ModelDamaged` where the commit has another hash."""
    gbcm = GBCM.load(reference.url, commit=reference.number)
    if gbcm.snapshot.digest != reference.digest:
        raise ModelDamaged(
            f"{reference.url}: expected record {reference.digest[:12]} at commit {reference.number}, found "
            f"{gbcm.snapshot.digest[:12]}; load the mixture again, or restore it from a copy"
        )
    return gbcm


@dataclass(frozen=True)
class Mixture(Facade):
    """An equally weighted mixture of committees.

    Made by `sampling.sample_posterior`, by `load`, or directly from a few members.
    """

    members: Sequence[GBCM]
    """committees fitted to the same data with the same settings except for the hyper-parameters"""
    contents: Contents | None = None
    """location and hash of the stored list of members; None for a mixture made directly from members"""
    _keep: tuple = ()

    def __post_init__(self):
        if not self.members:
            raise InvalidOption("mixture: expected at least one committee, got none; fit some")
        refuse_unmixable(self.predictive.snapshot.model)

    @classmethod
    def load(cls, model: Any) -> "Mixture":
        """Load a mixture from a directory written by `sample_posterior`. Members are loaded when needed.

        Raises
        ------
        ModelNotFound
        """
        contents = contents_of(model)
        return cls(LazySequence(_load, references(contents)), contents)

    def predict(
        self,
        X: Any,
        *,
        quantiles: Sequence[float] = (),
        above: Sequence[float] = (),
        target_variance: Any = None,
        X_variance: Any = None,
        inputs: str | None = None,
    ) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), in original units, by the names of `GBCM.predict`.

        With m_s and v_s the mean and variance of member s:

            mean = avg m_s,    variance = avg (v_s + m_s^2) - mean^2,

        and likewise for observations. `lower95`, `upper95` and, for example, `quantile0.9` are quantiles of the mixture
        of normal distributions with the members' observation variances; the members' non-normal error shapes are not
        used. Class probabilities, and those of `above`, are averages. `target_variance`, `X_variance` and `inputs` as
        in `GBCM.predict`: each member averages over the errors of inputs. Memory: two numbers per row and member.

        Raises
        ------
        InvalidData, InvalidDtype, InvalidOption
        """
        how = {"quantiles": quantiles, "above": above, "target_variance": target_variance}
        return in_memory.predict(self.predictive, X, X_variance=X_variance, inputs=inputs, **how)

    def single(self, what: str) -> GBCM:
        raise _not_single(self.url, what)

    def info(self) -> dict[str, Any]:
        """Summary of the mixture: figures common to all members and averages over members, JSON-ready.

        `p_eff` and `log_evidence` are means; `hyperparameters` are geometric means, since logs are sampled; `jitter` is
        the largest; `samples` is the number of members. Convergence diagnostics are those of `chains.mixing`.
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
        """Lengthscales of each part of the kernel, for each feature: geometric means over members."""
        return [averaged(parts) for parts in zip(*(one.lengthscales() for one in self.members), strict=True)]

    def advised(self) -> list[str]:
        """Whether the chains have mixed; empty for a mixture made directly from members."""
        return [mixing_advice(mixing(load_chains(self.contents.url)[1]))] if self.contents else []

    @functools.cached_property
    def predictive(self) -> MixtureModel:
        return MixtureModel(self.members[0].snapshot, LazySequence(attrgetter("snapshot"), self.members), self.contents)

    @property
    def url(self) -> str:
        """URL of the mixture's directory; of the first member for a mixture made directly from members."""
        return self.predictive.url


def _mean(figures) -> float | None:
    return None if None in figures else float(np.mean(figures))


def contents_of(model: Any) -> Contents:
    """Return location and hash of the list of members of a mixture; `ModelNotFound` where there is no mixture."""
    storage = open_storage(model)
    try:
        return Contents(storage.url, hashlib.sha256(storage.get(CONTENTS)).hexdigest())
    except FileNotFoundError as error:
        raise ModelNotFound(
            f"{model}: expected a mixture, found no {CONTENTS}; sample one or let sampling finish, or load a GBCM"
        ) from error


def is_mixture(model: Any) -> bool:
    """Whether a directory holds a mixture, complete or unfinished."""
    return bool({CONTENTS, PREPARED} & set(open_storage(model).names("")))


@contextlib.contextmanager
def opened(model: Any) -> Iterator[GBCM | Mixture]:
    """Context manager: load the mixture or the newest committee of a directory; a committee is protected from pruning.

    Raises
    ------
    ModelNotFound, ModelDamaged, VersionMismatch
    """
    if is_mixture(model):
        yield Mixture.load(model)
    else:
        with GBCM.held(model) as held:
            yield held


def refuse_mixture(model: Any, what: str | None) -> None:
    """Raise `InvalidOption` where a directory holds a mixture, which does not support `what` (a verb)."""
    if is_mixture(model):
        raise _not_single(model, what)


def _not_single(model, what):
    return InvalidOption(
        f"{model}: expected a single committee to {what}, it holds a mixture of sampled ones, which stays as it "
        "is; name one of its members/, or fit another --model to the data that you want it to hold"
    )


def refuse_unmixable(model: Model) -> None:
    """Raise `InvalidOption` for models whose predictions are neither normal nor class probabilities."""
    if not model.normal and not model.likelihood.categorical:
        raise InvalidOption(
            f"mixture: expected a gaussian or a class likelihood, and targets that are not transformed, got "
            f"{model.error_name}; fit a single GBCM instead, or give --target-transform none"
        )
