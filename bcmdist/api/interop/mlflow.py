"""Export committees as MLflow models of the flavour `python_function` (`pip install 'bcmdist[mlflow]'`).

    bcmdist.mlflow.log_model(gbcm, name="prices")
    mlflow.pyfunc.load_model("runs:/RUN/prices").predict(frame)  # mean, std, lower95, upper95

The stored data are a model directory written by `GBCM.save`. Loading it executes no stored code.
"""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bcmdist import __version__
from bcmdist.api.gbcm import GBCM
from bcmdist.data.groups import Location
from bcmdist.errors import DataExists, MissingExtra

FLAVOUR, LOADER, DATA = "bcmdist", "bcmdist.mlflow", "model"
KEPT = ("lower95", "upper95", "label")


def save_model(gbcm: GBCM, path: Location, mlflow_model: Any = None, **metadata: Any) -> None:
    """Write a committee as an MLflow model to a new directory. `metadata`: arguments of `mlflow.models.Model`.

    Raises
    ------
    DataExists, MissingExtra
    """
    mlflow, place = _mlflow(), Path(path)
    if place.exists() and any(place.iterdir()):
        raise DataExists(f"{place}: expected a new or empty directory, found another; choose another name")
    place.mkdir(parents=True, exist_ok=True)
    gbcm.save(place / DATA)
    described = mlflow_model or mlflow.models.Model(**metadata)
    described.signature = described.signature or _signature(mlflow, gbcm)
    described.add_flavor(FLAVOUR, version=__version__, data=DATA)
    mlflow.pyfunc.add_to_model(described, loader_module=LOADER, data=DATA)
    described.save(str(place / "MLmodel"))


def log_model(gbcm: GBCM, *, name: str, **metadata: Any) -> Any:
    """Log a committee to the active run, or to a new run. Return the result of `mlflow.models.Model.log`.

    Raises
    ------
    MissingExtra
    """
    flavour = sys.modules[__name__]
    return _mlflow().models.Model.log(artifact_path=None, name=name, flavor=flavour, gbcm=gbcm, **metadata)


class Predicted:
    """The object that MLflow loads and calls for predictions."""

    def __init__(self, gbcm: GBCM) -> None:
        self.gbcm = gbcm

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return predictions for rows of a data frame or an array (n, D), as a data frame.

        Columns: `mean`, `std`, `lower95` and `upper95` of new observations; for classes `label` and `probability_0`,
        `probability_1`, ... in the order of the classes.
        """
        import pandas as pd  # optional: MLflow has it

        predictions = self.gbcm.predict(model_input)
        kept = {name: predictions[name] for name in KEPT if name in predictions}
        if "observation_mean" in predictions:
            kept = {"mean": predictions["observation_mean"], "std": np.sqrt(predictions["observation_variance"])} | kept
        elif "probability" in predictions:
            kept |= {f"probability_{k}": column for k, column in enumerate(predictions["probability"].T)}
        return pd.DataFrame(kept, index=getattr(model_input, "index", None))


def _load_pyfunc(path: str) -> Predicted:
    """Load a stored model; MLflow calls this function by its name."""
    return Predicted(GBCM.load(path))


def _signature(mlflow: Any, gbcm: GBCM) -> Any:
    """Return the MLflow signature: columns by name where the inputs have names, else an array."""
    types, names = mlflow.types, gbcm.model.schema.columns
    if names:
        inputs = types.Schema([types.ColSpec(types.DataType.double, name) for name in names])
    else:
        inputs = types.Schema([types.TensorSpec(np.dtype(float), (-1, gbcm.model.inputs))])
    return mlflow.models.ModelSignature(inputs=inputs)


def _mlflow() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # raised by mlflow at import, about its own type hints
            import mlflow.models  # optional
            import mlflow.pyfunc  # optional
            import mlflow.types  # optional
    except ImportError as error:
        raise MissingExtra(
            "mlflow: expected the package mlflow, which is not installed; pip install 'bcmdist[mlflow]'"
        ) from error
    return mlflow
