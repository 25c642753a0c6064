"""Deep Gaussian processes as experts: `dgp`, whose last layer is shared and whose other layers are trained."""

from bcmdist.learning.experts import Training, register_expert
from bcmdist.methods.deep import training
from bcmdist.methods.deep.mixture import DeepMixture
from bcmdist.methods.deep.shared import Deep
from bcmdist.model.shared.kinds import KINDS

KINDS.add(Deep.kind, Deep)
KINDS.add(DeepMixture.kind, DeepMixture)
register_expert(
    "dgp",
    training.begun,
    residual="diagonal",
    training=Training(training.trained, training.messages, training.ROWS, training.BLOCK, memorises=True),
    beside=training.processes,
    kernel=training.KERNEL,
    kernels=("se", "se-iso"),
    likelihoods=("gaussian", "bernoulli", "probit", "poisson", "softmax"),
    many="softmax",
    methods=("kmeans", "random"),
    means=False,
    options=("layers", "units", "deep_sites"),
    usual={"query": training.CENTRES, "units": training.UNITS},
    refuse_rows=training.refuse_rows,
    running=False,
    places=False,
)
