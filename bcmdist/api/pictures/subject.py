"""`Subject`: what a picture shows, namely a model at one commit and, optionally, rows with targets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bcmdist.api.facade import Facade
from bcmdist.api.relevance import Losses, features, shuffled_losses
from bcmdist.committee.snapshot import Snapshot
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.in_memory import predict
from bcmdist.prediction.predictive_model import PREDICTORS
from bcmdist.prediction.scored_rows import Judged

# Rows predicted for permutation importance, for all columns together: without and with local experts.
# Arbitrary: takes some seconds.
SHUFFLED_ROWS, SHUFFLED_LOCALLY = 60_000, 3_000


@dataclass(frozen=True)
class Subject:
    """A model, its prediction method, and optionally rows with their predictions."""

    of: Facade
    snapshot: Snapshot
    """the committee, or one member of a mixture"""
    method: str
    rows: Judged | None = None
    """rows of a data set with predictions, possibly a sample"""
    data: str = ""
    """name of the data set, for titles"""
    whole: int = 0
    """number of rows of the data set"""
    above: tuple[float, ...] = ()
    """thresholds whose probabilities of exceedance a map shows"""

    @property
    def judged(self) -> Judged:
        """The rows; only for a subject that has rows."""
        assert self.rows is not None
        return self.rows

    @property
    def several(self) -> int:
        """Number of committees: 1, or the members of a mixture."""
        return self.of.predictive.several

    def predicted(self, X: FloatArray, above: Sequence[float] = ()) -> dict[str, np.ndarray]:
        """Return predictions at the rows of X (n, D), as `GBCM.predict` does."""
        return predict(self.of.predictive, X, method=self.method, above=above)

    @property
    def description(self) -> str:
        """Number and origin of the rows, in words."""
        count = 0 if self.rows is None else len(self.rows)
        some = "" if count >= self.whole else f" of {self.whole:,}"
        return f"{count:,}{some} rows of {self.data}"

    @property
    def averaged(self) -> str:
        """Note on the lengthscales of a mixture; empty for a single committee."""
        return f"Lengthscales are geometric means over {self.several} committees." if self.several > 1 else ""

    def losses(self) -> Losses:
        """Return the permutation importance of each feature, on the rows."""
        most = SHUFFLED_LOCALLY if PREDICTORS[self.method].in_cells else SHUFFLED_ROWS // self.several
        again = self.of.predictive.predictor(self.method).score_each
        return shuffled_losses(again, features(self.snapshot.model), self.judged, most=most)


def target_name(subject: Subject) -> str:
    """Return the name of the targets: that of the column of a table, or of the array."""
    model = subject.snapshot.model
    return dict(model.schema.coding.roles if model.schema.coding else ()).get("y", model.y_name)
