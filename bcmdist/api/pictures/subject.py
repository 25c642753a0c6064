"""What a picture is of: a model at one commit, and rows with targets where they are given."""

from dataclasses import dataclass

import numpy as np

from bcmdist.api.facade import Facade
from bcmdist.api.relevance import Losses, features, shuffled_losses
from bcmdist.committee.snapshot import Snapshot
from bcmdist.prediction.in_memory import predict
from bcmdist.prediction.predictors import PREDICTORS
from bcmdist.prediction.scoring.judged import Judged

# Rows with a shuffled column that are predicted, of all columns together, where each takes a local expert or not.
# Arbitrary: some seconds.
SHUFFLED_ROWS, SHUFFLED_LOCALLY = 60_000, 3_000


@dataclass(frozen=True)
class Subject:
    """A model, how it predicts, and rows beside its predictions."""

    of: Facade
    snapshot: Snapshot
    """the committee, or one of several that are averaged over"""
    method: str
    rows: Judged | None = None
    """some or all of a data set"""
    data: str = ""
    """its name, for titles"""
    whole: int = 0
    """how many rows it has"""

    @property
    def judged(self) -> Judged:
        """The rows, of a subject that was given some."""
        assert self.rows is not None
        return self.rows

    @property
    def several(self) -> int:
        """How many committees are averaged over."""
        return self.of.predictive.several

    def predicted(self, X) -> dict[str, np.ndarray]:
        """Predictions at the rows of X (n, D), as `GBCM.predict`."""
        return predict(self.of.predictive, X, method=self.method)

    @property
    def told(self) -> str:
        """Which rows these are, in words."""
        count = 0 if self.rows is None else len(self.rows)
        some = "" if count >= self.whole else f" of {self.whole:,}"
        return f"{count:,}{some} rows of {self.data}"

    @property
    def averaged(self) -> str:
        """What lengthscales are of a mixture, in words; nothing of a single committee."""
        return f"Lengthscales are geometric means over {self.several} committees." if self.several > 1 else ""

    def losses(self) -> Losses:
        """What predictions of the rows lose when a column is shuffled."""
        most = SHUFFLED_LOCALLY if PREDICTORS[self.method].in_cells else SHUFFLED_ROWS // self.several
        again = self.of.predictive.predictor(self.method).score_each
        return shuffled_losses(again, features(self.snapshot.model), self.judged, most=most)


def target_name(subject: Subject) -> str:
    """What the targets are called."""
    return subject.snapshot.model.y_name
