"""Predictions for one block of a grid, as a function from arrays to arrays that xarray maps over all blocks.

Attributes of predicted fields by the CF conventions (1.11).

t2m                  standard_name "air_temperature", units "degC", ancillary_variables "t2m_standard_error"
t2m_standard_error   standard_name "air_temperature standard_error", units "degC",
                     units_metadata "temperature: difference"
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bcmdist import __version__
from bcmdist.api.carried import packed, unpacked
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.tables.coding import Coding, plain
from bcmdist.data.tables.grids import column_of
from bcmdist.errors import InvalidOption
from bcmdist.linalg.arrays import BoolArray, FloatArray
from bcmdist.prediction.exceedance import above_name
from bcmdist.prediction.in_memory import predict_by
from bcmdist.prediction.predictive_model import CommitteeModel, RowPredictor

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
    latent: bool = False
    """whether the latent function, without the noise of an observation, is predicted, too"""
    above: tuple[float, ...] = ()
    """thresholds of which probabilities are predicted, too"""

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
    def classes(self) -> tuple[str, ...] | tuple[int, ...]:
        """Class labels (names, or else numbers); () for other likelihoods."""
        model = self.snapshot.model
        if not model.likelihood.categorical:
            return ()
        return model.class_labels

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape at one cell of each predicted quantity, by name."""
        if self.classes:
            return {"label": (), "probability": (len(self.classes),)}
        latent = ["latent", "latent_standard_error"] if self.latent else []
        return dict.fromkeys(
            [
                "mean",
                "standard_error",
                *latent,
                *(f"quantile{q:g}" for q in self.quantiles),
                *map(above_name, self.above),
            ],
            (),
        )

    def source_attribute(self) -> str:
        """Describe the origin of predictions, for the attribute `source`."""
        return f"bcmdist {__version__}, commit {self.snapshot.commit} of the model, method {self.method}"

    @cached_property
    def _predictor(self) -> RowPredictor:
        return CommitteeModel(self.snapshot).predictor(self.method)

    def __call__(self, requested: BoolArray, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the `outputs` at the cells of a block: nan, or `NO_LABEL`, where nothing is predicted.

        Parameters
        ----------
        wanted : booleans (...), the cells to predict; cells with missing inputs are not predicted
        values : values of the variables `needs`, each with a shape that can be broadcast to that of `requested`

        Returns
        -------
        One array (..., k) for each entry of `outputs`, with k the shape at one cell.
        """
        out = {name: self._nothing(name, (requested.size, *shape)) for name, shape in self.outputs.items()}
        X, companions, there = self.rows(requested, values)
        cells = np.flatnonzero(there)
        for some in (cells[start : start + PIECE_CELLS] for start in range(0, len(cells), PIECE_CELLS)):
            for name, found in self._at(X[some], {role: column[some] for role, column in companions.items()}).items():
                out[name][some] = found
        return tuple(out[name].reshape(requested.shape + shape) for name, shape in self.outputs.items())

    def rows(
        self, requested: BoolArray, values: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        """Inputs (n, D), companions (n,) by role, and whether to predict, (n,), at the cells of a block, as of
        `__call__`."""
        columns = {
            name: column_of(name, np.broadcast_to(block, requested.shape).ravel())
            for name, block in zip(self.needs, values, strict=True)
        }
        X = self.coding.numbers(columns, "data")
        companions = {role: np.asarray(columns[name].values, dtype=float) for role, name in self.companions.items()}
        there = np.ravel(requested) & ~np.isnan(np.column_stack([X, *companions.values()])).any(axis=1)
        return X, companions, there

    def _nothing(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, NO_LABEL, np.int32) if name == "label" else np.full(shape, np.nan)

    def _at(self, X: FloatArray, companions: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        predictions = predict_by(self._predictor, X, quantiles=self.quantiles, above=self.above, **companions)
        if self.classes:
            named = self.snapshot.model.schema.classes
            label = (
                [self.classes.index(text) for text in predictions["label"].tolist()] if named else predictions["label"]
            )
            return {"label": np.asarray(label), "probability": predictions["probability"]}
        moments = {
            "mean": predictions["observation_mean"],
            "standard_error": np.sqrt(predictions["observation_variance"]),
        }
        if self.latent:
            moments |= {"latent": predictions["mean"], "latent_standard_error": np.sqrt(predictions["variance"])}
        return moments | {name: predictions[name] for name in self.outputs if name not in moments}

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (packed(self.snapshot), self.method, self.quantiles, self.latent, self.above)


def _restored(files: Mapping[str, bytes], *how: Any) -> BlockPredictor:
    return BlockPredictor(unpacked(files), *how)


CONVENTIONS = "CF-1.11"
# Attributes that describe the measured values; predictions do not inherit them.
ABOUT_VALUES = {"actual_range", "valid_range", "valid_min", "valid_max", "ancillary_variables", "missing_value"}
ABOUT_VALUES |= {"flag_values", "flag_meanings", "flag_masks", "_FillValue"}
# Temperature units whose zero is not absolute: differences need `units_metadata` (CF 3.1.2).
ON_A_SCALE = {"degc", "deg_c", "celsius", "degree_celsius", "degrees_celsius", "degree_c", "degrees_c", "°c"}
ON_A_SCALE |= {"degf", "deg_f", "fahrenheit", "degree_fahrenheit", "degrees_fahrenheit", "degree_f", "degrees_f", "°f"}


def variable_of(target: str, output: str) -> str:
    """Return the variable name of a predicted quantity: the target's name, with a suffix for all but the main one."""
    return target if output in ("mean", "label") else f"{target}_{output}"


def attributes(
    target: str,
    outputs: Sequence[str],
    found: Mapping[str, Any],
    source: str,
    classes: Sequence[str] | Sequence[int] = (),
) -> dict[str, dict[str, Any]]:
    """Return the attributes of each predicted quantity, by its name.

    Parameters
    ----------
    outputs : names of the predicted quantities
    found : attributes of the target
    source : description of the model that predicts
    classes : class labels, if any
    """
    kept = kept_attributes(found)
    ancillary_names = [variable_of(target, output) for output in outputs if output not in ("mean", "label")]
    field = kept | {"ancillary_variables": " ".join(ancillary_names), "source": source}
    if classes:
        probability = {"long_name": f"probability of {target}", "units": "1"}
        return {"label": field | _flags(classes), "probability": probability}
    return {output: field if output == "mean" else _ancillary(target, output, kept) for output in outputs}


def _flags(classes: Sequence[str] | Sequence[int]) -> dict[str, Any]:
    named = isinstance(classes[0], str)
    meanings = " ".join(str(label).replace(" ", "_") for label in classes)
    return {"flag_values": list(range(len(classes)) if named else classes), "flag_meanings": meanings}


def _ancillary(target: str, output: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a standard deviation, a quantile or the latent function."""
    shared = {name: kept[name] for name in ("units", "grid_mapping") if name in kept}
    if output == "latent":
        return shared | {"long_name": f"{target} without the noise of an observation"}
    if output.startswith("above"):
        threshold = output.removeprefix("above")
        return {"long_name": f"probability that the mean of a new {target} is above {threshold}", "units": "1"}
    if not output.endswith("standard_error"):
        return shared | {"long_name": f"{output.removeprefix('quantile')} quantile of a new {target}"}
    of = "a new " if output == "standard_error" else "the noise-free "
    return ancillary(kept, f"standard deviation of {of}{target}")


def kept_attributes(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a target that predictions of it have, too."""
    return {name: value for name, value in found.items() if name not in ABOUT_VALUES}


def ancillary(kept: Mapping[str, Any], long_name: str) -> dict[str, Any]:
    """Return the attributes of a standard deviation of a field with the attributes `kept`."""
    shared = {name: kept[name] for name in ("units", "grid_mapping") if name in kept}
    attrs = shared | {"long_name": long_name}
    if "standard_name" in kept:
        attrs["standard_name"] = f"{kept['standard_name']} standard_error"
    if str(kept.get("units", "")).lower().replace(" ", "_") in ON_A_SCALE:
        attrs["units_metadata"] = "temperature: difference"
    return attrs


def encoding(output: str) -> dict[str, Any]:
    """Return the xarray encoding of an output."""
    return {"_FillValue": NO_LABEL} if output == "label" else {}


def about(data: Any, used: Iterable[str]) -> list[str]:
    """Return the variables that others refer to as grid mapping or bounds."""
    spoken = [data[name].attrs | data[name].encoding for name in (*used, *data.coords) if name in data.variables]
    named = [word for attrs in spoken for key in ("grid_mapping", "bounds") for word in str(attrs.get(key, "")).split()]
    return [name for name in dict.fromkeys(named) if name in data.data_vars]
