"""The expert `dgp`: a deep Gaussian process whose last layer is shared and whose other layers are trained."""

from bcmdist.learning.experts import register_method
from bcmdist.learning.method import Capabilities, Defaults, Method, Training
from bcmdist.methods.deep import training
from bcmdist.methods.deep.mixture import DeepMixture
from bcmdist.methods.deep.options import DeepOptions
from bcmdist.methods.deep.shared import Deep
from bcmdist.model.model import KINDS


class DeepProcess(Method):
    """Values of the last layer of a deep Gaussian process, with independent residuals."""

    residual = "diagonal"
    options = DeepOptions
    report = "deep", training.DeepReport
    capabilities = Capabilities(
        kernels=("se", "se-iso"),
        likelihoods=("gaussian", "bernoulli", "probit", "poisson", "softmax"),
        query_methods=("kmeans", "random"),
        query_from=False,
        mean=False,
        running=False,
    )
    defaults = Defaults(kernel=training.KERNEL, classes="softmax", query=training.CENTRES)
    training = Training(training.ROWS, training.BLOCK, memorises=True)

    def shared(self, basis_inputs) -> Deep | DeepMixture:
        return training.begun(basis_inputs)

    def train(self, shared, likelihood, context) -> tuple:
        return training.trained(shared, likelihood, context)

    def refuse_data(self, settings, kernel, inputs, rows) -> None:
        training.refuse_rows(settings, rows)

    def training_rounds(self, settings, rows, measured) -> float | None:
        if settings.learn:
            return training.rounds(settings, rows, measured)
        return None if training.swept_as(settings) else 0.0


KINDS.add(Deep.kind, Deep)
KINDS.add(DeepMixture.kind, DeepMixture)
register_method(DeepProcess("dgp"))
