"""What a picture is of: a model at one commit, and rows with targets where they are given."""

from dataclasses import dataclass

from bcmdist.committee.snapshot import Snapshot
from bcmdist.prediction.scoring.judged import Judged


@dataclass(frozen=True)
class Subject:
    """A model, how it predicts, and rows beside its predictions."""

    snapshot: Snapshot
    method: str
    rows: Judged | None = None
    """some or all of a data set"""
    data: str = ""
    """its name, for titles"""
    of: int = 0
    """how many rows it has"""

    @property
    def judged(self) -> Judged:
        """The rows, of a subject that was given some."""
        assert self.rows is not None
        return self.rows

    @property
    def told(self) -> str:
        """Which rows these are, in words."""
        count = 0 if self.rows is None else len(self.rows)
        some = "" if count >= self.of else f" of {self.of:,}"
        return f"{count:,}{some} rows of {self.data}"


def target_name(subject: Subject) -> str:
    """What the targets are called."""
    return subject.snapshot.model.y_name
