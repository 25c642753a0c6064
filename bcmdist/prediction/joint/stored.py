"""Joint samples at all rows of a data set, written next to their predictions."""

from dataclasses import dataclass

import numpy as np

from bcmdist.data.dataset import Dataset
from bcmdist.data.partition import Partition
from bcmdist.data.rows import read_all
from bcmdist.data.writing import write_rows
from bcmdist.errors import InvalidOption
from bcmdist.prediction.in_memory import sample, sample_observations
from bcmdist.prediction.joint.averages import Of
from bcmdist.prediction.predictive_model import PredictiveModel


@dataclass(frozen=True)
class JointSamples:
    """How many samples to write, of what. One process draws them, with the inputs of all rows in memory."""

    count: int = 0
    of: Of = "function"
    seed: int = 0

    def refuse(self, model: PredictiveModel, way: str | None) -> None:
        """Raise `InvalidOption` before any row is read where there are no joint samples."""
        if self.count and (model.several > 1 or way is not None or model.snapshot.model.likelihood.processes > 1):
            got = (
                f"a mixture of {model.several}"
                if model.several > 1
                else "uncertain inputs"
                if way is not None
                else f"{model.snapshot.model.likelihood.processes} of classes"
            )
            raise InvalidOption(
                f"--draws: expected one committee of one latent function, at certain inputs, got {got}; leave it out"
            )

    def example(self) -> dict[str, np.ndarray]:
        """Samples of one row, by name."""
        return {"sample": np.zeros((1, self.count))} if self.count else {}

    def write(self, model: PredictiveModel, data: Dataset, method, place, chunk_rows, allowed_bytes) -> None:
        """Draw samples at all rows and write them to the group at `place`, (N, count)."""
        if not self.count:
            return
        ((_, rows),) = read_all([Partition(data, 0, data.rows)])
        how = {"size": self.count, "seed": self.seed, "method": method, "allowed_bytes": allowed_bytes}
        if self.of == "observations":
            present = set(data.companions) & set(model.snapshot.model.likelihood.companions) & {"exposure", "trials"}
            how |= {name: getattr(rows.obs, name) for name in present}
            drawn = sample_observations(model.snapshot, rows.X, **how)
        else:
            drawn = sample(model.snapshot, rows.X, **how)
        for a in range(0, data.rows, chunk_rows):
            write_rows(place, a, {"sample": np.ascontiguousarray(drawn[:, a : a + chunk_rows].T)})


NO_SAMPLES = JointSamples()
