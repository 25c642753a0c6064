"""Partitions that arrive: scored by what the committee believes before it absorbs them, and absorbed.

Those that it has absorbed before are scored likewise, by what it believes without them: what arrivals are compared
with.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bcmdist.committee.loading import load_committee
from bcmdist.errors import ModelDamaged, ModelNotFound, NotPositiveDefinite
from bcmdist.experts.contributions import Contribution
from bcmdist.model.targets import model_observations, model_rows
from bcmdist.prediction.errors.drift import noted
from bcmdist.prediction.errors.standardised_residuals import seed_of, standardised_residuals
from bcmdist.prediction.fitted import Fitted, load_fitted
from bcmdist.prediction.scored_rows import score_rows
from bcmdist.prediction.scoring import excess_loss
from bcmdist.runtime.task import Task
from bcmdist.storage.commits import Reference
from bcmdist.storage.ledger import ResidualRecord
from bcmdist.storage.loading import load_record

# Rows of a partition that are scored, evenly spread: 50 rows of 1000 take about 4 % of the time of absorbing them.
SCORED_ROWS = 50
# Of these rows, those whose residuals are noted, and how many times the rows of a partition a committee has absorbed
# before its errors are those of later predictions.
NOTED_ROWS, HEARD_TIMES = 16, 4
# A line of the ledger has so many numbers of them at most; after so many partitions only one in so many has any.
NOTED_NUMBERS, MANY_PARTITIONS, ONE_IN = 320, 500, 16
# Samples of so many rows that are scored of a partition that is withheld, at most.
SAMPLES = 4


@dataclass(frozen=True)
class Arrival:
    """The message of a partition, whose ledger entry tells how well its rows were predicted before."""

    expert: Task
    belief: Reference
    """the commit that predicts; where it has been pruned meanwhile, nothing is noted"""

    def __call__(self, part, rows) -> Contribution:
        absorbed: Contribution = self.expert(part, rows)
        noted = self._noted(part, rows)
        return replace(absorbed, entries={part.key: replace(absorbed.entries[part.key], **noted)})

    def _noted(self, part, rows) -> dict[str, Any]:
        try:
            fitted, facts = load_fitted(self.belief), load_record(self.belief)["facts"]
        except (ModelNotFound, ModelDamaged, NotPositiveDefinite):  # pruned since, in part or whole; or no help
            return {}
        arrival, surprised = _sample_noted(fitted, part, rows, np.arange(part.rows))
        known, measured = facts["rows"], facts["fit"].get("noise") is not None
        told = measured and fitted.model.likelihood.measured and known >= HEARD_TIMES * part.rows
        many = known > MANY_PARTITIONS * part.rows and int(rows.digest[-8:], 16) % ONE_IN != 0
        count = int(np.clip(NOTED_NUMBERS // (fitted.model.inputs + 2), 1, NOTED_ROWS))
        errors = _errors_of(fitted, part, rows, count) if told and not many else {}
        return {"arrival": arrival, "surprise": surprised} | errors


@dataclass(frozen=True)
class Withheld:
    """How well samples of rows of a partition that was absorbed are predicted by a committee that has not absorbed
    it."""

    expert: Task
    """repeats its message"""
    belief: Reference
    aside: ClassVar[bool] = True

    def __call__(self, part, rows) -> "ArrivalRecords":
        rest = load_committee(self.belief).withdraw(self.expert(part, rows).message)
        fitted = replace(load_fitted(self.belief), belief=rest.posterior)
        count = min(SAMPLES, max(1, part.rows // SCORED_ROWS))
        samples = [_sample_noted(fitted, part, rows, np.arange(k, part.rows, count)) for k in range(count)]
        return ArrivalRecords({part.key: (rows.digest, samples)})


@dataclass(frozen=True)
class ArrivalRecords:
    """By key: the content hash, and what was noted of samples of rows, (`Entry.arrival`, `Entry.surprise`) each."""

    by_key: dict[str, tuple[str, list]]

    def __add__(self, other: "ArrivalRecords") -> "ArrivalRecords":
        return ArrivalRecords(self.by_key | other.by_key)


def _errors_of(fitted: Fitted, part, rows, count):
    """Standardised residuals of some rows, and where they are."""
    X, obs = model_rows(fitted.model, part, rows)
    some = _some(np.arange(part.rows), count)
    drawn = np.random.default_rng(seed_of(rows))
    places, errors = standardised_residuals(fitted.model.likelihood, X[some], *fitted.latent(X[some]), obs[some], drawn)
    return {"residuals": ResidualRecord(places, errors) or None}


def _some(among, count):
    """Some of several rows, evenly spread."""
    return among[np.unique(np.linspace(0, len(among) - 1, min(count, len(among))).astype(int))]


def _sample_noted(fitted: Fitted, part, rows, among):
    """What is noted of `SCORED_ROWS` of some rows of a partition."""
    some = _some(among, SCORED_ROWS)
    obs = model_observations(fitted.model, part, rows.obs)
    scores = score_rows(fitted, rows.X[some], obs[some], part.start + some)
    return noted(scores), excess_loss.noted(scores.totals)
