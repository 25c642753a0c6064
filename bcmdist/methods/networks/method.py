"""The experts `mnn`, one marginalised network of hidden units, and `mnnmix`, a mixture of several."""

from bcmdist.learning.experts import register_method
from bcmdist.learning.method import Capabilities, Defaults, Method, Training
from bcmdist.methods.networks import ascent, training
from bcmdist.methods.networks.options import MixtureOptions, NetworkOptions
from bcmdist.methods.networks.shared import Networks
from bcmdist.model.model import KINDS


class MarginalisedNetworks(Method):
    """Output weights of networks whose hidden units have trained inner weights; no residual."""

    residual = "none"
    size = "units"
    report = "networks", training.NetworksReport
    capabilities = Capabilities(likelihoods=("gaussian",), query_methods=("kmeans",), query_from=False, running=False)
    defaults = Defaults(kernel=training.KERNEL)
    training = Training(training.ROWS, training.BLOCK, memorises=True)

    def __init__(self, name: str, options: type[NetworkOptions]):
        super().__init__(name)
        self.options = options

    def count(self, settings) -> int:
        return settings.of(NetworkOptions).units or training.UNITS

    def shared(self, basis_inputs) -> Networks:
        return training.drawn(basis_inputs)

    def train(self, shared, likelihood, context) -> tuple:
        return training.trained(shared, likelihood, context)

    def training_rounds(self, settings, rows, measured) -> float | None:
        evaluations = ascent.STEPS[settings.effort] * ascent.EVALUATIONS / ascent.MEASURED
        return settings.learn * evaluations * rows / measured

    def trains_in_tasks(self, settings, rows, inputs) -> bool:
        return ascent.side_by_side(rows, inputs, self.count(settings))


KINDS.add(Networks.kind, Networks)
register_method(MarginalisedNetworks("mnn", NetworkOptions))
register_method(MarginalisedNetworks("mnnmix", MixtureOptions))
