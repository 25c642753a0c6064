"""Options of the expert `bcm` with errors of inputs."""

from dataclasses import dataclass
from typing import Literal

from bcmdist.learning.method_options import declare_options


@dataclass(frozen=True)
class InputOptions:
    """Options for inputs with measurement errors."""

    noisy_inputs: Literal["no", "clean", "hmc"] = "no"
    """whether inputs have normal measurement errors, with (co)variances in an array X_variance next to X: clean learns
    at the most probable inputs, as far as this predicts left-out rows better; hmc learns from draws of the inputs,
    estimates the noise better and, without X_variance, learns one error variance per column, in several times the time
    (both for one latent process: measurements, counts, two classes; messages are averaged over 20 draws of the inputs,
    with spatial partitions moments are averaged over the inputs)"""


declare_options("bcm", InputOptions)
