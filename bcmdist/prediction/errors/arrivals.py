"""Tasks that score arriving partitions by the committee's predictions before it absorbs them.

For comparison, absorbed partitions are scored in the same way, by the predictions of the committee without them.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bcmdist.committee.loading import load_committee
from bcmdist.errors import ModelDamaged, ModelNotFound, NotPositiveDefinite
from bcmdist.experts.contributions import Contribution
from bcmdist.model.targets import model_observations, model_rows
from bcmdist.prediction.errors.drift import arrival_scores
from bcmdist.prediction.errors.standardised_residuals import seed_of, standardised_residuals
from bcmdist.prediction.interface import Fitted, load_fitted
from bcmdist.prediction.scored_rows import score_rows
from bcmdist.prediction.scoring import excess_loss
from bcmdist.runtime.interface import Task
from bcmdist.storage.commits import Reference, load_record
from bcmdist.storage.entry import ResidualRecord

# Number of rows scored per partition, at equal distances: little work beside absorbing the partition.
SCORED_ROWS = 50
# Number of rows per partition whose residuals are recorded; and how many times the rows of the partition a committee
# must have absorbed before its residuals are recorded, so that they are representative of later predictions.
RECORDED_ROWS, ABSORBED_TIMES = 16, 4
# Limits on the ledger's size: most numbers of a partition's residual record; number of absorbed partitions after which
# only one in `ONE_IN` has a record, and the fewer the more there are: some 500 log n of n partitions.
RECORDED_NUMBERS, MANY_PARTITIONS, ONE_IN = 320, 500, 16
# Largest number of samples, of `SCORED_ROWS` rows each, scored in a withheld partition.
SAMPLES = 4


@dataclass(frozen=True)
class Arrival:
    """Task: the message of a new partition, with scores and residuals of its prediction in the ledger entry."""

    expert: Task
    belief: Reference
    """the commit that predicts; if it has been pruned meanwhile, nothing is recorded"""

    def __call__(self, part, rows) -> Contribution:
        absorbed: Contribution = self.expert(part, rows)
        records = self._records(part, rows)
        return replace(absorbed, entries={part.key: replace(absorbed.entries[part.key], **records)})

    def _records(self, part, rows) -> dict[str, Any]:
        try:
            fitted, facts = load_fitted(self.belief), load_record(self.belief)["facts"]
        except (ModelNotFound, ModelDamaged, NotPositiveDefinite):  # partly or wholly pruned, or no valid posterior
            return {}
        arrival, loss = _sample_scores(fitted, part, rows, np.arange(part.rows))
        absorbed, measured = facts["rows"], facts["fit"].get("noise") is not None
        recorded = measured and fitted.model.likelihood.corrected_by == "errors"
        recorded = recorded and absorbed >= ABSORBED_TIMES * part.rows
        share = MANY_PARTITIONS * part.rows / max(absorbed, 1)
        many = share < 1 and int(rows.digest[-8:], 16) / 2**32 >= min(share, 1 / ONE_IN)
        count = int(np.clip(RECORDED_NUMBERS // (fitted.model.inputs + 2), 1, RECORDED_ROWS))
        errors = _errors_of(fitted, part, rows, count) if recorded and not many else {}
        return {"arrival": arrival, "excess_loss": loss} | errors


@dataclass(frozen=True)
class Withheld:
    """Task: scores of samples of an absorbed partition's rows, predicted by the committee without the partition."""

    expert: Task
    """recomputes the partition's message, which is withdrawn"""
    belief: Reference
    """the commit of the committee"""
    aside: ClassVar[bool] = True

    def __call__(self, part, rows) -> "ArrivalRecords":
        others = load_committee(self.belief).withdraw(self.expert(part, rows).message)
        fitted = replace(load_fitted(self.belief), belief=others.posterior)
        count = min(SAMPLES, max(1, part.rows // SCORED_ROWS))
        samples = [_sample_scores(fitted, part, rows, np.arange(k, part.rows, count)) for k in range(count)]
        return ArrivalRecords({part.key: (rows.digest, samples)})


@dataclass(frozen=True)
class ArrivalRecords:
    """By key: the digest, and a pair (`Entry.arrival`, `Entry.excess_loss`) for each sample of rows."""

    by_key: dict[str, tuple[str, list]]

    def __add__(self, other: "ArrivalRecords") -> "ArrivalRecords":
        return ArrivalRecords(self.by_key | other.by_key)


def _errors_of(fitted: Fitted, part, rows, count):
    """A residual record of `count` rows at most, as a ledger field."""
    X, obs = model_rows(fitted.model, part, rows)
    some = _some(np.arange(part.rows), count)
    drawn = np.random.default_rng(seed_of(rows))
    places, errors = standardised_residuals(fitted.model.likelihood, X[some], *fitted.latent(X[some]), obs[some], drawn)
    return {"residuals": ResidualRecord(places, errors) or None}


def _some(among, count):
    """Up to `count` evenly spread elements of an array."""
    return among[np.unique(np.linspace(0, len(among) - 1, min(count, len(among))).astype(int))]


def _sample_scores(fitted: Fitted, part, rows, among):
    """`Entry.arrival` and `Entry.excess_loss` from up to `SCORED_ROWS` of the given rows of a partition."""
    some = _some(among, SCORED_ROWS)
    obs = model_observations(fitted.model, part, rows.obs, rows.X)
    scores = score_rows(fitted, rows.X[some], obs[some], part.start + some)
    return arrival_scores(scores), excess_loss.mean_with_variance(scores.totals)
