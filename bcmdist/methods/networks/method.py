"""Marginalised networks as experts: `mnn`, one network of hidden units, and `mnnmix`, a mixture of several."""

from typing import Any

from bcmdist.learning.experts import WITHOUT_POINTS, Training, register_expert
from bcmdist.methods.networks import training
from bcmdist.methods.networks.shared import Networks
from bcmdist.model.shared.kinds import KINDS

KINDS.add(Networks.kind, Networks)
BOTH: dict[str, Any] = {
    "residual": "none",
    "training": Training(training.trained, training.messages, training.ROWS, training.BLOCK, memorises=True),
    "kernel": training.KERNEL,
    "likelihoods": ("gaussian",),
    "count": "units",
    "usual": {"units": training.UNITS},
    "running": False,
    **WITHOUT_POINTS,
}
register_expert("mnn", training.drawn, options=("units",), **BOTH)
register_expert(
    "mnnmix", training.drawn, options=("units", "networks"), beside=lambda settings: settings.networks, **BOTH
)
