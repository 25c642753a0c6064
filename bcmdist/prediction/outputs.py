"""Places without an output: a data frame that lacks the column which names the output of a row, as of several outputs.

Predictions of such a frame are of all outputs, one column each: `mean_zinc`, `mean_lead`, ...
"""

from typing import Any

import numpy as np

from bcmdist.data.tables.frames import framed
from bcmdist.model.kernels import Kernel
from bcmdist.model.model import Model


def lacks_output(model: Model, X: Any) -> bool:
    """Whether X is a data frame without the column that names outputs, nor its one-hot inputs."""
    X = framed(X)
    if not model.outputs or not hasattr(X, "iloc"):
        return False
    found = set(map(str, X.columns))
    return model.schema.output not in found and not set(model.schema.output_inputs) <= found


def at_output(model: Model, X: Any, output: str) -> Any:
    """A copy of a data frame with the column that names outputs, all of them this one."""
    return framed(X).assign(**{str(model.schema.output): output})


def of_outputs(model: Model, each: "list[dict[str, np.ndarray]]") -> dict[str, np.ndarray]:
    """Predictions of all outputs by name, `mean_zinc`, from those of each, in their order."""
    named = list(zip(model.outputs, each, strict=True))
    return {f"{name}_{output}": found[name] for name in each[0] for output, found in named}


def correlations(kernel: Kernel, columns, inputs) -> np.ndarray:
    """Correlations (P, P) of the latent functions of P outputs at one place, a priori and without their means.

    Parameters
    ----------
    columns : numbers of the one-hot inputs that name outputs, (P,)
    inputs : number D of all inputs; the others are 0
    """
    X = np.zeros((len(columns), inputs))
    X[np.arange(len(columns)), list(columns)] = 1.0
    K = kernel.cross(X, X)
    sd = np.sqrt(np.diag(K))
    return K / np.outer(sd, sd)
