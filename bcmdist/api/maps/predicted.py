"""Predictions for one block of a grid, as a function from arrays to arrays that xarray maps over all blocks."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bcmdist import __version__
from bcmdist.api.carried import packed, unpacked
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.tables.coding import Coding, plain
from bcmdist.data.tables.grids import column_of
from bcmdist.errors import InvalidOption
from bcmdist.prediction.in_memory import predict_by
from bcmdist.prediction.predictive_model import CommitteeModel
from bcmdist.prediction.row_predictor import RowPredictor

# Cells predicted at a time: as many as rows in a chunk of other predictions.
PIECE_CELLS = 8192
NO_LABEL = -(2**31)  # class number of cells without a prediction
# Companions that a likelihood may need for new observations.
ASKED = ("exposure", "trials")


@dataclass(frozen=True)
class BlockPredictor:
    """A model as a function of blocks of its inputs. Pickled as bytes of the model (`bcmdist.api.carried`)."""

    snapshot: Snapshot
    method: str
    quantiles: tuple[float, ...] = ()

    @property
    def coding(self) -> Coding:
        """Coding of the variables as inputs.

        Raises
        ------
        InvalidOption
            The inputs of the model have no names.
        """
        schema = self.snapshot.model.schema
        if not schema.columns:
            raise InvalidOption(
                "model: expected one whose inputs have names, got one that was fitted to an array; fit it by "
                "data.bcm.fit, or to a data frame"
            )
        return schema.coding or plain(schema.columns)

    @property
    def target(self) -> str:
        """Name of the target in training."""
        return dict(self.coding.roles).get("y", self.snapshot.model.y_name)

    @cached_property
    def companions(self) -> dict[str, str]:
        """Names of the variables with exposure or trials of new observations, by role."""
        return {role: name for role, name in self.coding.roles if role in ASKED}

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the variables that the function takes."""
        return (*self.coding.columns, *self.companions.values())

    @property
    def classes(self) -> tuple:
        """Class labels (names, or else numbers); () for other likelihoods."""
        model = self.snapshot.model
        if not model.likelihood.categorical:
            return ()
        return tuple(model.class_labels)

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape at one cell of each predicted quantity, by name."""
        if self.classes:
            return {"label": (), "probability": (len(self.classes),)}
        return dict.fromkeys(["mean", "standard_error", *(f"quantile{q:g}" for q in self.quantiles)], ())

    def source_attribute(self) -> str:
        """Describe the origin of predictions, for the attribute `source`."""
        return f"bcmdist {__version__}, commit {self.snapshot.commit} of the model, method {self.method}"

    @cached_property
    def _predictor(self) -> RowPredictor:
        return CommitteeModel(self.snapshot).predictor(self.method)

    def __call__(self, wanted, *values) -> tuple[np.ndarray, ...]:
        """Return the `outputs` at the cells of a block: nan, or `NO_LABEL`, where nothing is predicted.

        Parameters
        ----------
        wanted : booleans (...), the cells to predict; cells with missing inputs are not predicted
        values : values of the variables `needs`, each with a shape that can be broadcast to that of `wanted`

        Returns
        -------
        One array (..., k) for each entry of `outputs`, with k the shape at one cell.
        """
        out = {name: self._nothing(name, (wanted.size, *shape)) for name, shape in self.outputs.items()}
        columns = {
            name: column_of(name, np.broadcast_to(block, wanted.shape).ravel())
            for name, block in zip(self.needs, values, strict=True)
        }
        X = self.coding.numbers(columns, "data")
        given = {role: np.asarray(columns[name].values, dtype=float) for role, name in self.companions.items()}
        there = np.ravel(wanted) & ~np.isnan(np.column_stack([X, *given.values()])).any(axis=1)
        cells = np.flatnonzero(there)
        for some in (cells[start : start + PIECE_CELLS] for start in range(0, len(cells), PIECE_CELLS)):
            for name, found in self._at(X[some], {role: column[some] for role, column in given.items()}).items():
                out[name][some] = found
        return tuple(out[name].reshape(wanted.shape + shape) for name, shape in self.outputs.items())

    def _nothing(self, name, shape):
        return np.full(shape, NO_LABEL, np.int32) if name == "label" else np.full(shape, np.nan)

    def _at(self, X, given):
        said = predict_by(self._predictor, X, quantiles=self.quantiles, **given)
        if self.classes:
            named = self.snapshot.model.schema.classes
            label = [self.classes.index(text) for text in said["label"].tolist()] if named else said["label"]
            return {"label": np.asarray(label), "probability": said["probability"]}
        moments = {"mean": said["observation_mean"], "standard_error": np.sqrt(said["observation_variance"])}
        return moments | {name: said[name] for name in self.outputs if name not in moments}

    def __reduce__(self):
        return _restored, (packed(self.snapshot), self.method, self.quantiles)


def _restored(files, method, quantiles):
    return BlockPredictor(unpacked(files), method, quantiles)
