"""Training inputs with Gaussian measurement errors: `--noisy-inputs clean` and `hmc` (Quinonero-Candela 2004, 4.3).

For both ways of learning hyper-parameters, the message of a partition is averaged over posterior draws of its true
inputs, to which the ledger entry refers.
"""

from bcmdist.errors import InvalidOption
from bcmdist.learning.experts import FIRST
from bcmdist.learning.input_methods import INPUT_METHODS, InputMethod
from bcmdist.methods.noisy_inputs.expert import CLEAN, WAYS, NormalErrors
from bcmdist.methods.noisy_inputs.training import learn_inputs
from bcmdist.model.input_errors import INPUT_ERRORS, refuse_unknown_errors
from bcmdist.model.model import FIRST_PRECISION

ROWS = 200  # per partition by default: each draw costs several decompositions
# Required values of other settings, with the reason for the error text.
REQUIRED = {
    "expert": (FIRST, "whose rows of a partition are a Gaussian process of their own"),
    "partition": ("chunks", "since local experts read rows as they are stored"),
    "approximation": ("laplace", "as of measurements"),
    "linearise": ("own", "as of measurements"),
    "precision": (FIRST_PRECISION, "in which inputs are moved"),
    "noise": ("auto", "since rows whose inputs were moved do not tell how errors are spread"),
}


def refuse(settings, likelihood) -> None:
    """Raise `InvalidOption` for settings or a likelihood that cannot be combined with errors of inputs."""
    way = settings.noisy_inputs
    for name, (expected, why) in REQUIRED.items():
        if getattr(settings, name) != expected:
            raise InvalidOption(
                f"{name}: expected {expected} with noisy_inputs {way}, {why}, got {getattr(settings, name)}; leave one "
                "of them out"
            )
    if settings.objective == "committee":
        raise InvalidOption(
            f"objective: expected local, leave-one-out or subset with noisy_inputs {way}, where learning begins, got "
            "committee, which would learn again from inputs as they were seen; leave it out"
        )
    if likelihood and (not likelihood.normal or likelihood.processes > 1):
        raise InvalidOption(
            f"likelihood: expected gaussian with noisy_inputs {way}, got {likelihood.name}; leave out --noisy-inputs"
        )


def refuse_data(settings, data) -> None:
    """Raise `InvalidData` where error variances are neither stored with the data nor learned."""
    if settings.noisy_inputs == CLEAN or not settings.learn:
        refuse_unknown_errors(data)


# The kernel must be differentiable, because inputs move along its gradient.
METHOD = InputMethod(learn_inputs, kernel="se", rows=ROWS, refuse=refuse, refuse_data=refuse_data)
for _way in WAYS:
    INPUT_METHODS.add(_way, METHOD)
    INPUT_ERRORS.add(_way, NormalErrors)
