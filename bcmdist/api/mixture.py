"""Mixtures of committees at sampled hyper-parameters.

Williams & Rasmussen (1996), section 3.2: the predictive distribution is the mixture of the predictive distributions
at the sampled hyper-parameters, each with its own committee. Weights are equal, or follow the evidence of rows that
were absorbed later (`bcmdist.api.mixtures.changes`). Mixing over samples inside each expert, and combining the experts
afterwards, would be wrong (SYSTEMS I.7).
"""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.api.facade import Facade
from bcmdist.api.gbcm import GBCM
from bcmdist.api.merging import other_of
from bcmdist.api.mixtures import changes, ingestion, merging
from bcmdist.api.mixtures.changes import effective_samples
from bcmdist.api.places import DataSource, placed, source_of_rows
from bcmdist.api.relevance import Lengthscales, averaged
from bcmdist.api.requests import InputAveraging, PredictionMethod
from bcmdist.api.running import Where, runs
from bcmdist.committee.ingest.options import IngestOptions, IngestReport, SameRows, SampleWeights
from bcmdist.committee.ingest.source import as_source, source_of
from bcmdist.committee.mixture_commits import Contents, contents_of, held_commit, is_mixture, references, revision_of
from bcmdist.committee.passes import TOLERANCE
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.groups import Location
from bcmdist.data.partition import Partition
from bcmdist.data.sources.delivery import Listed
from bcmdist.data.sources.open import Source
from bcmdist.errors import InvalidOption, ModelDamaged, ModelsDiffer
from bcmdist.learning.sampling.chains import load_chains, mixing, mixing_advice
from bcmdist.model.model import Model
from bcmdist.prediction import in_memory
from bcmdist.prediction.mixture import LazySequence, MixtureModel
from bcmdist.prediction.normal_mixtures import average
from bcmdist.storage.commits import Reference
from bcmdist.storage.ledger import Ledger

# Figures of `GBCM.info` that are equal for all members.
SHARED = (
    "rows", "partitions", "query", "expert", "inputs", "columns", "kernel", "mean", "likelihood", "classes",
    "approximation", "method", "fading", "skipped", "lag", "ingesters", "drift", "cells",
)  # fmt: skip


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
    """A mixture of committees at one commit. Immutable: `ingest` and the like return a new `Mixture`.

    Made by `sampling.sample_posterior`, by `load`, or directly from a few members.

    Raises
    ------
    InvalidOption
        There is no member, weights do not add up to 1, or the likelihood cannot be mixed.

    Examples
    --------
    >>> other = bcmdist.GBCM.fit(X, y, bcmdist.Settings(kernel="matern52", query=20, effort="quick"))
    >>> bcmdist.Mixture([gbcm, other], weights=[0.25, 0.75]).predict(X[:3])["mean"].shape
    (3,)
    """

    members: Sequence[GBCM]
    """committees fitted to the same data with the same settings except for the hyper-parameters"""
    contents: Contents | None = None
    """the commit that names the members; None for a mixture made directly from members"""
    _keep: tuple[Any, ...] = ()
    weights: Sequence[float] | None = None
    """(K,), with the sum 1; None: equal, or those of `contents`"""

    def __post_init__(self) -> None:
        if not self.members:
            raise InvalidOption("mixture: expected at least one committee, got none; fit some")
        if self.weights is not None:
            _refuse_weights(self.weights, len(self.members))
        refuse_unmixable(self.predictive.snapshot.model)

    @classmethod
    def load(cls, model: Location, *, commit: int | str | None = None) -> "Mixture":
        """Load a mixture at a commit (default: the newest) from a directory written by `sample_posterior`. Members are
        loaded when needed. Arguments as of `GBCM.load`.

        Raises
        ------
        ModelNotFound
        """
        return cls._of(contents_of(model, commit))

    @classmethod
    def _of(cls, contents: Contents, *keep: Any) -> "Mixture":
        return cls(LazySequence(_load, references(contents)), contents, keep)

    @classmethod
    @contextlib.contextmanager
    def held(cls, model: Location, *, commit: int | str | None = None) -> Iterator["Mixture"]:
        """Context manager: as `load`, and the commits of the members are protected from pruning until exit."""
        with held_commit(model, commit) as contents:
            yield cls._of(contents)

    def predict(
        self,
        X: ArrayLike,
        *,
        quantiles: Sequence[float] = (),
        above: Sequence[float] = (),
        method: PredictionMethod | None = None,
        target_variance: ArrayLike | None = None,
        X_variance: ArrayLike | None = None,
        inputs: InputAveraging | None = None,
        terms: bool = False,
    ) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), in original units, by the names of `GBCM.predict`.

        With m_s and v_s the mean and variance of member s:

            mean = avg m_s,    variance = avg (v_s + m_s^2) - mean^2,

        with averages over the weights of the members, and likewise for observations. `lower95`, `upper95` and, for
        example, `quantile0.9` are quantiles of the mixture of normal distributions with the members' observation
        variances; the members' non-normal error shapes are not used. Class probabilities, and those of `above`, are
        averages. `method`, `target_variance`, `X_variance`, `inputs` and `terms` as in `GBCM.predict`: each member
        averages over the errors of inputs. Memory: two numbers per row and member.

        Raises
        ------
        InvalidData, InvalidDtype, InvalidOption
        """
        how = {"quantiles": quantiles, "above": above, "method": method, "target_variance": target_variance}
        return in_memory.predict(self.predictive, X, X_variance=X_variance, inputs=inputs, terms=terms, **how)

    def single(self, what: str) -> GBCM:
        raise _not_single(self.url, what)

    # --- Changes of all members by one commit ---

    def newest(self) -> "Mixture":
        """The mixture of the same directory at its newest commit."""
        return Mixture.load(self._stored("load again").url)

    @runs
    def ingest(
        self, source: Location | Source, options: IngestOptions | None = None, *, runtime: Where = None
    ) -> tuple["Mixture", IngestReport]:
        """Absorb the partitions of a source, or of that at a path or URL, into all members, each once, as
        `GBCM.ingest`; see `mixtures.ingestion`."""
        url, opened = self._stored("ingest").url, as_source(self.predictive.snapshot, source)
        contents, report = ingestion.ingest(url, opened, options, runtime)
        return Mixture._of(contents), report

    @runs
    def partial_fit(
        self,
        source: DataSource,
        y: ArrayLike | None = None,
        *,
        companions: Mapping[str, ArrayLike] | None = None,
        same_rows: SameRows = "warn",
        sample_weights: SampleWeights | None = None,
        runtime: Where = None,
    ) -> "Mixture":
        """Absorb the rows of another source, as `GBCM.partial_fit`.

        `sample_weights`: "equal", or "evidence" for the weights of importance sampling (default: as before, equal at
        first).
        """
        url, options = self._stored("absorb").url, IngestOptions(same_rows=same_rows, sample_weights=sample_weights)
        keep, rows = placed(source_of_rows(source, y, companions), like=self.predictive.snapshot.model.schema)
        with contextlib.closing(self.source(rows)) as opened:
            return Mixture._of(ingestion.ingest(url, opened, options, runtime)[0], *self._keep, *keep)

    @runs
    def absorb(self, parts: Sequence[Partition], *, same_rows: SameRows = "warn", runtime: Where = None) -> "Mixture":
        """Add the messages of partitions to all members, as `GBCM.absorb`."""
        listed, options = Listed(tuple(parts)), IngestOptions(same_rows=same_rows)
        return Mixture._of(ingestion.ingest(self._stored("absorb").url, listed, options, runtime)[0], *self._keep)

    def source(self, url: Location, *, watch: bool = False, **options: Any) -> Source:
        """Open a source of rows, as `GBCM.source`."""
        return source_of(self.predictive.snapshot, url, watch=watch, **options)

    @runs
    def forget(self, keys: Iterable[str], *, runtime: Where = None) -> "Mixture":
        """Withdraw the messages of the partitions `keys` from all members, and commit, as `GBCM.forget`."""
        return Mixture._of(changes.forget(self._stored("forget").url, keys, runtime), *self._keep)

    @runs
    def reweight(self, weights: Mapping[str, float], *, runtime: Where = None) -> "Mixture":
        """Set the weights of partitions, by key, in all members, and commit, as `GBCM.reweight`."""
        return Mixture._of(changes.reweight(self._stored("reweight").url, weights, runtime), *self._keep)

    @runs
    def refine(self, *, runtime: Where = None, most: int | None = None, tolerance: float = TOLERANCE) -> "Mixture":
        """Make further passes over the data with each member until its posterior converges, as `GBCM.refine`."""
        url, how = self._stored("refine").url, {"most": most, "tolerance": tolerance}
        return Mixture._of(changes.refine(url, runtime, **how), *self._keep)

    @runs
    def revert(self, to: int | str, *, runtime: Where = None) -> "Mixture":
        """Commit the state of an earlier commit again, as `GBCM.revert`; `runtime` as there in other changes."""
        return Mixture._of(changes.revert(self._stored("revert").url, to, runtime), *self._keep)

    @runs
    def merge(
        self, other: "Mixture | Location", model: Location, *, query_most: int | None = None, runtime: Where = None
    ) -> "Mixture":
        """Merge two mixtures of the same samples, member by member, into the new directory `model`, as `GBCM.merge`.

        `sample_posterior` with `Settings(like=MODEL)` makes a mixture of the samples of another.
        """
        other = other_of(other, Mixture)
        one, two = self._stored("merge"), other._stored("merge")
        found = merging.merge(one, two, model, runtime, query_most=query_most)
        return Mixture._of(found, *self._keep, *other._keep)

    def save(self, model: Location) -> "Mixture":
        """Copy this mixture into the new directory `model`, without the paths of its data; see `GBCM.save`."""
        return Mixture._of(merging.save(self._stored("save"), model))

    def prune(self, keep: int) -> dict[str, Any]:
        """Remove all but the newest `keep` commits."""
        return changes.prune(self._stored("prune").url, keep)

    @property
    def snapshot(self) -> Snapshot:
        """The first member's: all have the same columns, units and rows."""
        return self.predictive.snapshot

    @property
    def model(self) -> Model:
        """The first member's model."""
        return self.snapshot.model

    @property
    def ledger(self) -> Ledger:
        """The partitions that all members have absorbed."""
        return self.snapshot.ledger

    def history(self) -> list[dict[str, Any]]:
        """Describe its commits, oldest first."""
        return changes.history(self._stored("list").url)

    def _stored(self, what: str) -> Contents:
        if self.contents is None:
            raise InvalidOption(
                f"mixture: expected one stored in a directory to {what}, got one assembled in memory; make it with "
                "`sample_posterior`"
            )
        return self.contents

    @property
    def commit(self) -> int:
        """Number of the commit; 1 for a mixture made directly from members."""
        return self.contents.number if self.contents else 1

    def info(self) -> dict[str, Any]:
        """Summary of the mixture: figures common to all members and averages over members, JSON-ready.

        `p_eff` and `log_evidence` are means; `hyperparameters` are geometric means, since logs are sampled; `jitter` is
        the largest; `samples` is the number of members. Means have the weights of the members. `effective_samples` is
        the number of equally weighted samples as accurate as these, by the evidence of the rows absorbed since
        sampling, whether `sample_weights` are "equal" or follow this "evidence". Convergence diagnostics are those of
        `chains.mixing`. Figures about single rows, such as `drift`, are those of the first member.
        """
        every, weights = [member.info() for member in self.members], self.predictive.weights
        first, named = every[0], [one["hyperparameters"] for one in every]
        averages = {name: _mean([one[name] for one in every], weights) for name in ("p_eff", "log_evidence")}
        centres = {name: np.exp(average(np.log([one[name] for one in named]), weights)).tolist() for name in named[0]}
        figures = {name: first[name] for name in SHARED} | averages | {"hyperparameters": centres}
        figures |= {"commit": self.commit, "jitter": max(one["jitter"] for one in every), "samples": len(every)}
        if self.contents:
            snapshots = [member.snapshot for member in self.members]
            found = changes.weights_now(snapshots, self.contents)
            kind = revision_of(self.contents).sample_weights
            figures |= {"sample_weights": kind, "effective_samples": effective_samples(found)}
            sampled = mixing(load_chains(self.contents.url)[1])
            figures |= {**sampled, "advice": mixing_advice(sampled)}
        return figures | {"model": self.url}

    def lengthscales(self) -> list[Lengthscales]:
        """Lengthscales of each part of the kernel, for each feature: geometric means over members."""
        each, weights = zip(*(one.lengthscales() for one in self.members), strict=True), self.predictive.weights
        return [averaged(parts, weights) for parts in each]

    def advised(self) -> list[str]:
        """Whether the chains have mixed; empty for a mixture made directly from members."""
        return [mixing_advice(mixing(load_chains(self.contents.url)[1]))] if self.contents else []

    @functools.cached_property
    def predictive(self) -> MixtureModel:
        snapshots = LazySequence(attrgetter("snapshot"), self.members)
        weights = None if self.weights is None else tuple(map(float, self.weights))
        return MixtureModel(self.members[0].snapshot, snapshots, self.contents, weights)

    @property
    def url(self) -> str:
        """URL of the mixture's directory; of the first member for a mixture made directly from members."""
        return self.predictive.url


def _mean(figures: Sequence[float | None], weights: Sequence[float] | None) -> float | None:
    return None if None in figures else float(average(np.array(figures), weights))


def _refuse_weights(weights: Sequence[float], members: int) -> None:
    values = np.asarray(weights, dtype=float)
    if values.shape != (members,) or not (values >= 0.0).all() or not np.isclose(values.sum(), 1.0, rtol=1e-9):
        raise InvalidOption(
            f"weights: expected {members} weights, one for each member, none negative, with the sum 1, got "
            f"{weights!s:.80}; correct them"
        )


@contextlib.contextmanager
def opened(model: Location, *, commit: int | str | None = None) -> Iterator[GBCM | Mixture]:
    """Context manager: load the mixture or the committee of a directory at a commit (default: the newest), which is
    protected from pruning. A commit is given by its number or an alias.

    Raises
    ------
    ModelNotFound, ModelDamaged, VersionMismatch
    """
    with (Mixture if is_mixture(model) else GBCM).held(model, commit=commit) as held:
        yield held


def refuse_single(one: Location, other: Location) -> None:
    """Raise `ModelsDiffer` where one of two directories holds a mixture and the other a single committee."""
    if is_mixture(one) != is_mixture(other):
        mixture, single = (one, other) if is_mixture(one) else (other, one)
        raise ModelsDiffer(
            f"expected two mixtures or two committees, {mixture} holds a mixture and {single} does not; fit the rows "
            f"of {single} with --like {mixture}, which takes its samples"
        )


def refuse_mixture(model: Location, what: str | None) -> None:
    """Raise `InvalidOption` where a directory holds a mixture, which does not support `what` (a verb)."""
    if is_mixture(model):
        raise _not_single(model, what)


def _not_single(model: Location, what: str | None) -> InvalidOption:
    return InvalidOption(
        f"{model}: expected a single committee to {what}, it holds a mixture of sampled ones; name one of its "
        "members/, or sample a new mixture (fit --hyperparameters hmc) from all rows, as another --model"
    )


def refuse_unmixable(model: Model) -> None:
    """Raise `InvalidOption` for models whose predictions are neither normal nor class probabilities."""
    if not model.normal and not model.likelihood.categorical:
        raise InvalidOption(
            f"mixture: expected a gaussian or a class likelihood, and targets that are not transformed, got "
            f"{model.error_name}; fit a single GBCM instead, or give --target-transform none"
        )
