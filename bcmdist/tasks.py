"""What a worker computes: functions from one partition to something that adds.

A task is a small immutable value (a few hundred bytes: references and options, never data) that
maps a partition and its rows to a monoid element. Tasks are pure: run twice, lost, or run in any
order, they give the same answer, and only the runtime decides where.
"""

import functools
import json
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from bcmdist import model as models
from bcmdist.committee import Belief, Committee
from bcmdist.dataset import write_rows
from bcmdist.errors import LaplaceNotConverged, ModelDamaged, NotPositiveDefinite, UnsupportedTarget
from bcmdist.evidence import local_evidence
from bcmdist.expert import expert_message
from bcmdist.likelihoods import Gaussian, Observations, make_likelihood
from bcmdist.mean import Mean
from bcmdist.message import Message
from bcmdist.model import Model
from bcmdist.partition import Partition, Rows, read_all
from bcmdist.prediction import predict_latent
from bcmdist.scaling import Moments, Scaling, column_moments, scaling_from_array
from bcmdist.scores import Scores, class_scores, regression_scores
from bcmdist.store import BlobReference, Entry, LocalStorage, ModelStore, Reference


class Task(Protocol):
    """A function of one partition whose results can be added."""

    def __call__(self, part: Partition, rows: Rows) -> Any:
        """The partition's share of the sum."""


def shares(task: Task, parts: Sequence[Partition]) -> Iterator[Any]:
    """A task's value for each partition, in order."""
    for part, rows in read_all(parts):
        try:
            yield task(part, rows)
        except (NotPositiveDefinite, LaplaceNotConverged) as error:
            raise type(error)(f"{part.key}: {error}") from error


def run_batch(task: Task, batch: Sequence[Partition]):
    """Sum of a task over some partitions: what one worker does in one go."""
    return functools.reduce(operator.add, shares(task, batch))


# --- Survey: one pass that checks every row and learns what scaling and the query set need ---


@dataclass(frozen=True)
class Sample:
    """A uniform sample of rows without replacement: those of smallest random priority.

    Priorities are drawn per partition, so any order and grouping of partitions gives the same sample.
    """

    size: int
    X: np.ndarray
    priority: np.ndarray

    def __add__(self, other: "Sample") -> "Sample":
        priority = np.concatenate([self.priority, other.priority])
        keep = np.argsort(priority)[: self.size]
        return Sample(self.size, np.concatenate([self.X, other.X])[keep], priority[keep])


@dataclass(frozen=True)
class SurveyResult:
    """What a first pass over the data finds."""

    x: Moments
    y: Moments
    binary: bool
    """True where all targets are 0 or 1"""
    sample: Sample
    entries: dict[str, Entry]
    """partitions with their content hashes, by key"""

    def __add__(self, other: "SurveyResult") -> "SurveyResult":
        return SurveyResult(
            self.x + other.x,
            self.y + other.y,
            self.binary and other.binary,
            self.sample + other.sample,
            self.entries | other.entries,
        )


@dataclass(frozen=True)
class Survey:
    """Check the rows of a partition; moments, sample and content hash."""

    seed: int
    sample_rows: int
    likelihood: str | None
    """checks the support of the targets where given"""

    def __call__(self, part, rows):
        if self.likelihood:
            check_support(make_likelihood(self.likelihood), part, rows.obs.y)
        priority = np.random.default_rng([self.seed, part.start]).random(len(rows.X))
        keep = np.argsort(priority)[: self.sample_rows]
        return SurveyResult(
            column_moments(rows.X),
            column_moments(rows.obs.y[:, None]),
            bool(np.all((rows.obs.y == 0) | (rows.obs.y == 1))),
            Sample(self.sample_rows, rows.X[keep].copy(), priority[keep]),
            {part.key: Entry(part.key, rows.digest, part.rows)},
        )


def check_support(likelihood, part, y):
    """Raise `UnsupportedTarget` naming the first target outside the support of a likelihood."""
    bad = np.flatnonzero(likelihood.unsupported(y))
    if len(bad):
        raise UnsupportedTarget(
            f"{part.data.url}: the {likelihood.name} likelihood expects {likelihood.support} in {part.data.y}, got "
            f"{y[bad[0]]:g} at row {part.start + bad[0]} ({len(bad)} such rows of {part.start} to {part.stop - 1}); "
            "recode the targets or choose another --task"
        )


# --- Learning ---


@dataclass(frozen=True)
class Evidence:
    """A sum of log evidences with its gradient; `failures` counts partitions without one."""

    value: float
    gradient: np.ndarray
    failures: int

    def __add__(self, other: "Evidence") -> "Evidence":
        return Evidence(self.value + other.value, self.gradient + other.gradient, self.failures + other.failures)


@dataclass(frozen=True)
class LocalEvidence:
    """Log evidence of a partition on its own at given hyper-parameters.

    A partition at which the hyper-parameters fail numerically counts as a failure and not as an
    error: the optimiser has stepped too far.
    """

    scaling: BlobReference
    kernel: str
    kernel_parameters: dict[str, list[float]]
    mean: str
    likelihood: str
    likelihood_parameters: dict[str, list[float]]

    def __call__(self, part, rows):
        kernel = models.kernel_from(self.kernel, self.kernel_parameters, inputs=rows.X.shape[1])
        likelihood = models.likelihood_from(self.likelihood, self.likelihood_parameters)
        scaling = load_scaling(self.scaling)
        X, obs = scaling.inputs(rows.X), scaled_targets(scaling, rows.obs)
        try:
            value, gradient = local_evidence(kernel, Mean(self.mean), likelihood, X, obs)
        except (NotPositiveDefinite, LaplaceNotConverged):
            return Evidence(0.0, np.zeros(len(kernel.theta) + len(self.likelihood_parameters)), 1)
        return Evidence(value, gradient, 0)


# --- Fitting ---


@dataclass(frozen=True)
class Contribution:
    """Messages of some partitions, with the ledger entries that say whose they are."""

    message: Message
    entries: dict[str, Entry]

    def __add__(self, other: "Contribution") -> "Contribution":
        assert not self.entries.keys() & other.entries.keys(), "a partition would count twice"
        return Contribution(self.message + other.message, self.entries | other.entries)


@dataclass(frozen=True)
class Expert:
    """The message of a partition under a prepared model."""

    model: Reference

    def __call__(self, part, rows):
        model = load_model(self.model)
        check_support(model.likelihood, part, rows.obs.y)
        X, obs = model.scaling.inputs(rows.X), scaled_targets(model.scaling, rows.obs)
        message = expert_message(model.query, model.likelihood, X, obs)
        return Contribution(message, {part.key: Entry(part.key, rows.digest, part.rows)})


# --- Predicting and scoring ---


@dataclass(frozen=True)
class Score:
    """Totals of the scores of a partition under a fitted model."""

    fitted: Reference

    def __call__(self, part, rows) -> Scores:
        model, belief = load_fitted(self.fitted)
        check_support(model.likelihood, part, rows.obs.y)
        prediction = predict_rows(model, belief, rows.X, rows.obs.weight)
        if isinstance(model.likelihood, Gaussian):
            return regression_scores(rows.obs.y, prediction, train_mean=model.scaling.y_mean)
        return class_scores(rows.obs.y, prediction)


@dataclass(frozen=True)
class Predict:
    """Write the predictions of a partition to an output group; returns the number of rows.

    Each partition owns whole chunks of the output, so that no two tasks write to one chunk, and
    writing twice writes the same.
    """

    fitted: Reference
    out: str

    def __call__(self, part, rows) -> int:
        model, belief = load_fitted(self.fitted)
        write_rows(self.out, part.start, predict_rows(model, belief, rows.X, rows.obs.weight))
        return part.rows


def predict_rows(model: Model, belief: Belief, X, weight):
    """All predicted quantities at rows of X in original units, by name.

    `weight` (n,): how many rows each observation counts for; ones for ordinary observations.
    """
    mean, variance = predict_latent(model.query, belief, model.scaling.inputs(X))
    named = {"mean": mean, "variance": variance} | model.likelihood.observe(mean, variance, weight)
    return {name: model.scaling.original(name, values) for name, values in named.items()}


def scaled_targets(scaling: Scaling, obs: Observations) -> Observations:
    """Observations in the units of the model."""
    return Observations(scaling.targets(obs.y), obs.weight)


# --- References: what tasks carry instead of models. Immutable content, so caching is safe. ---


@lru_cache(maxsize=2)
def load_scaling(reference: BlobReference) -> Scaling:
    """The scaling behind a reference."""
    return scaling_from_array(ModelStore(LocalStorage(reference.url)).get_array(reference.digest))


def load_model(reference: Reference) -> Model:
    """The prepared model of a commit."""
    record = _record(reference)
    hashes = tuple((name, record["arrays"][name]) for name in models.ARRAYS)
    return _model(reference.url, hashes, json.dumps(record["facts"]["model"]))


@lru_cache(maxsize=2)
def _model(url, hashes, facts) -> Model:
    """A model by its content: commits that share it share the factor in memory."""
    store = ModelStore(LocalStorage(url))
    return models.from_arrays({name: store.get_array(digest) for name, digest in hashes}, json.loads(facts))


@lru_cache(maxsize=2)
def load_fitted(reference: Reference) -> tuple[Model, Belief]:
    """Model and belief of a commit."""
    store, record = ModelStore(LocalStorage(reference.url)), _record(reference)
    arrays = {name: store.get_array(record["arrays"][name]) for name in ("eta", "precision")}
    return load_model(reference), committee_from(arrays, record["facts"]).posterior


@lru_cache(maxsize=8)
def _record(reference):
    store = ModelStore(LocalStorage(reference.url))
    found = store.reference(reference.number)
    if found != reference:
        raise ModelDamaged(
            f"{reference.url}: expected record {reference.digest[:12]} at commit {reference.number}, found "
            f"{found.digest[:12]}; this machine sees another model under the same path: use a shared one"
        )
    return store.record(reference.number)


def committee_from(arrays, facts) -> Committee:
    """The committee that a commit's arrays and facts describe."""
    precision = np.asfortranarray(arrays["precision"])
    return Committee(Message(arrays["eta"], precision, facts["evidence"], facts["rows"]))
