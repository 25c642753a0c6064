"""Partitions that arrive: scored by what the committee believes before it hears them, and heard.

Those that it has heard before are scored likewise, by what it believes without them: what arrivals are compared with.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bcmdist.committee.loading import load_committee
from bcmdist.errors import ModelDamaged, ModelNotFound, NotPositiveDefinite
from bcmdist.experts.tasks import Contribution, EPExpert, Expert
from bcmdist.model.targets import model_observations
from bcmdist.prediction.arrivals.drift import noted
from bcmdist.prediction.fitted import Fitted, load_fitted
from bcmdist.prediction.scoring import surprise
from bcmdist.prediction.tasks import score_rows
from bcmdist.storage.commits import Reference

# Rows of a partition that are scored, evenly spread: 50 rows of 1000 take about 4 % of the time of hearing them.
SCORED_ROWS = 50
# Samples of so many rows that are scored of a partition that is withheld, at most.
SAMPLES = 4


@dataclass(frozen=True)
class Arrival:
    """The message of a partition, whose ledger entry tells how well its rows were predicted before."""

    expert: Expert | EPExpert
    belief: Reference
    """the commit that predicts; where it has been pruned meanwhile, nothing is noted"""

    def __call__(self, part, rows) -> Contribution:
        heard: Contribution = self.expert(part, rows)
        arrival, surprised = self._noted(part, rows)
        entry = replace(heard.entries[part.key], arrival=arrival, surprise=surprised)
        return replace(heard, entries={part.key: entry})

    def _noted(self, part, rows):
        try:
            fitted = load_fitted(self.belief)
        except (ModelNotFound, ModelDamaged, NotPositiveDefinite):  # pruned since, in part or whole; or no help
            return (), ()
        return _sample_noted(fitted, part, rows, np.arange(part.rows))


@dataclass(frozen=True)
class Withheld:
    """How well samples of rows of a partition that was heard are predicted by a committee that has not heard it."""

    expert: Expert | EPExpert
    """repeats its message"""
    belief: Reference
    aside: ClassVar[bool] = True

    def __call__(self, part, rows) -> "Noted":
        rest = load_committee(self.belief).withdraw(self.expert(part, rows).message)
        fitted = replace(load_fitted(self.belief), belief=rest.posterior)
        count = min(SAMPLES, max(1, part.rows // SCORED_ROWS))
        samples = [_sample_noted(fitted, part, rows, np.arange(k, part.rows, count)) for k in range(count)]
        return Noted({part.key: (rows.digest, samples)})


@dataclass(frozen=True)
class Noted:
    """By key: the content hash, and what was noted of samples of rows, (`Entry.arrival`, `Entry.surprise`) each."""

    by_key: dict[str, tuple[str, list]]

    def __add__(self, other: "Noted") -> "Noted":
        return Noted(self.by_key | other.by_key)


def _sample_noted(fitted: Fitted, part, rows, among):
    """What is noted of `SCORED_ROWS` of some rows of a partition."""
    some = among[np.unique(np.linspace(0, len(among) - 1, min(SCORED_ROWS, len(among))).astype(int))]
    obs = model_observations(fitted.model, part, rows.obs)
    scores = score_rows(fitted, rows.X[some], obs[some], part.start + some)
    return noted(scores), surprise.noted(scores.totals)
