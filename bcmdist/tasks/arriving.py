"""Partitions that arrive: scored by what the committee believes before it hears them, and heard."""

from dataclasses import dataclass, replace

import numpy as np

from bcmdist.drift import noted
from bcmdist.errors import ModelDamaged, ModelNotFound, NotPositiveDefinite
from bcmdist.store import Reference
from bcmdist.tasks.hearing import Contribution, EPExpert, Expert
from bcmdist.tasks.loading import load_fitted
from bcmdist.tasks.predicting import score_rows
from bcmdist.tasks.targets import model_observations

# Rows of a partition that are scored, evenly spread: drift is seen over many partitions, and 25 rows of 1000 take
# about 2 % of the time of hearing them.
SCORED_ROWS = 25


@dataclass(frozen=True)
class Arrival:
    """The message of a partition, whose ledger entry tells how well its rows were predicted before."""

    expert: Expert | EPExpert
    belief: Reference
    """the commit that predicts; where it has been pruned meanwhile, nothing is noted"""

    def __call__(self, part, rows) -> Contribution:
        heard: Contribution = self.expert(part, rows)
        entry = replace(heard.entries[part.key], arrival=self._noted(part, rows))
        return replace(heard, entries={part.key: entry})

    def _noted(self, part, rows):
        try:
            fitted = load_fitted(self.belief)
        except (ModelNotFound, ModelDamaged, NotPositiveDefinite):  # pruned since, in part or whole; or no help
            return ()
        some = np.unique(np.linspace(0, part.rows - 1, min(SCORED_ROWS, part.rows)).astype(int))
        obs = model_observations(fitted.model, part, rows.obs)
        return noted(score_rows(fitted, rows.X[some], obs[some], part.start + some))


@dataclass(frozen=True)
class Digests:
    """Content hashes of partitions by key: to see whether those that were heard before are still the same."""

    def __call__(self, part, rows) -> "Found":
        return Found({part.key: rows.digest})


@dataclass(frozen=True)
class Found:
    """Content hashes by key."""

    by_key: dict[str, str]

    def __add__(self, other: "Found") -> "Found":
        return Found(self.by_key | other.by_key)
