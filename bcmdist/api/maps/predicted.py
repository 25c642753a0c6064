"""Predictions at the cells of a block of a grid: arrays in, arrays out, which xarray maps over all blocks."""

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

# Cells that are predicted in one go: as many as a chunk of other predictions has.
PIECE_CELLS = 8192
NO_LABEL = -(2**31)  # of a cell where nothing is predicted
# What a likelihood may want to know of a new observation.
ASKED = ("exposure", "trials")


@dataclass(frozen=True)
class BlockPredictor:
    """A model as a function of blocks of its inputs. It travels to other processes as bytes."""

    snapshot: Snapshot
    method: str
    quantiles: tuple[float, ...] = ()

    @property
    def coding(self) -> Coding:
        """What becomes of the variables.

        Raises
        ------
        InvalidOption
            The model knows no names.
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
        """What the target was called in training."""
        return dict(self.coding.roles).get("y", self.snapshot.model.y_name)

    @cached_property
    def companions(self) -> dict[str, str]:
        """Variables that new observations depend on, by what they are."""
        return {role: name for role, name in self.coding.roles if role in ASKED}

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the variables that a block consists of."""
        return (*self.coding.columns, *self.companions.values())

    @property
    def classes(self) -> tuple:
        """Labels, of a model of classes: names, or else numbers; () of another one."""
        model = self.snapshot.model
        if not model.likelihood.categorical:
            return ()
        return tuple(model.class_labels)

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Names of what is predicted, with its shape at one cell."""
        if self.classes:
            return {"label": (), "probability": (len(self.classes),)}
        return dict.fromkeys(["mean", "standard_error", *(f"quantile{q:g}" for q in self.quantiles)], ())

    def said(self) -> str:
        """What predicts, in words."""
        return f"bcmdist {__version__}, commit {self.snapshot.commit} of the model, method {self.method}"

    @cached_property
    def _predictor(self) -> RowPredictor:
        return CommitteeModel(self.snapshot).predictor(self.method)

    def __call__(self, wanted, *values) -> tuple[np.ndarray, ...]:
        """The outputs, each (..., k), at the cells of `wanted` (...) that are true and of which all inputs are there;
        nan, or no label, elsewhere.

        Parameters
        ----------
        values : of the variables that it needs, each of a shape that can be broadcast to that of `wanted`
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
