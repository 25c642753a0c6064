"""Training inputs with Gaussian measurement errors: `--noisy-inputs clean` and `hmc` (Quinonero-Candela 2004, 4.3).

For both ways of learning hyper-parameters, the message of a partition is averaged over posterior draws of its true
inputs, to which the ledger entry refers. Spatial partitions have messages, and local experts, of moments that are
averaged over the errors of inputs instead.
"""

from dataclasses import replace

from bcmdist.learning.experts import EXPERTS, FIRST, register_variant
from bcmdist.learning.method import Defaults, Method
from bcmdist.learning.rules import Excludes, Requires
from bcmdist.methods.noisy_inputs.expert import CLEAN, WAYS, LearningReport, NormalErrors
from bcmdist.methods.noisy_inputs.options import InputOptions
from bcmdist.methods.noisy_inputs.training import learn_inputs
from bcmdist.model.input_errors import INPUT_ERRORS
from bcmdist.model.model import FIRST_PRECISION
from bcmdist.model.shared.interface import Shared

ROWS = 200  # per partition by default: each draw costs several decompositions


def _only(option, value, why) -> Requires:
    text = "{settings.noisy_inputs}, " + why + ", got {value}; leave one of them out"
    return Requires(option, (value,), bool, f"{value} with noisy_inputs {text}")


class NoisyInputs(Method):
    """The expert `bcm` with errors of inputs."""

    residual = EXPERTS[FIRST].residual
    options = InputOptions
    report = "input_errors", LearningReport
    capabilities = replace(EXPERTS[FIRST].capabilities, input_errors=True)
    defaults = Defaults(kernel="se", rows=ROWS, cell_rows=ROWS)  # inputs move along the gradient of the kernel

    rules = (
        _only("approximation", "laplace", "by which latents are integrated out where inputs are estimated"),
        _only("linearise", "own", "since draws of inputs belong to the rows of a partition alone"),
        Excludes(
            "passes",
            ("auto",),
            lambda c: c.likelihood and not c.likelihood.one_pass,
            "1 with noisy_inputs {settings.noisy_inputs}, since draws of inputs belong to the rows of a partition "
            "alone, got {value}; leave it out",
        ),
        _only("precision", FIRST_PRECISION, "the precision in which inputs are estimated"),
        _only("noise", "auto", "since residuals at estimated inputs do not measure prediction errors"),
        Excludes(
            "objective",
            ("committee",),
            bool,
            "local, leave-one-out or subset with noisy_inputs {settings.noisy_inputs}, got {value}, which would "
            "learn from the uncorrected inputs; leave it out",
        ),
        Requires(
            "likelihood",
            (None,),
            lambda c: c.likelihood and not c.likelihood.single,
            "one latent process with a density of targets (as gaussian, poisson or bernoulli) with noisy_inputs "
            "{settings.noisy_inputs}, got {value}; leave out --noisy-inputs, or fit two classes at a time",
        ),
    )

    def shared(self, basis_inputs) -> Shared:
        return EXPERTS[FIRST].shared(basis_inputs)

    def needs_variances(self, settings) -> bool:
        return settings.of(InputOptions).noisy_inputs == CLEAN or not settings.learn

    def learn_input_errors(self, start, context, mean, settings) -> tuple:
        return learn_inputs(start, context, mean, settings)


register_variant(FIRST, NoisyInputs(f"{FIRST} with noisy inputs"))
for _way in WAYS:
    INPUT_ERRORS.add(_way, NormalErrors)
