"""Relevance vectors as experts: `rvm`, and `rvm_star`, whose variances grow away from the rows."""

from typing import Any

from bcmdist.learning.experts import Training, register_expert, weights_of
from bcmdist.methods.relevance import training
from bcmdist.methods.relevance.against_rest import OneAgainstRest
from bcmdist.methods.relevance.augmented import Augmented
from bcmdist.methods.relevance.dictionaries import Dictionaries
from bcmdist.methods.relevance.radial import Radial
from bcmdist.model.likelihoods import LIKELIHOODS
from bcmdist.model.shared.kinds import KINDS
from bcmdist.model.shared.weights import register_basis
from bcmdist.prediction.predictors import register_predictor

register_basis(Radial)
KINDS.add(Dictionaries.kind, Dictionaries)
LIKELIHOODS.add(OneAgainstRest.name, OneAgainstRest)
register_predictor("augmented", Augmented)
BOTH: dict[str, Any] = {
    "residual": "none",
    "training": Training(training.trained, lambda *_: 1.0),
    "drawn": lambda settings: settings.rvm_dictionary or 0,
    "kernel": "se",
    "kernels": ("se", "se-iso"),
    "methods": ("kmeans", "random"),  # both at random among rows
    "places": False,
}
OPTIONS = ("rvm_update", "rvm_dictionary", "rvm_lengthscale")
register_expert(
    "rvm",
    weights_of(training.drawn),
    likelihoods=("gaussian", "bernoulli", "probit", "one_against_rest"),
    many="one_against_rest",
    options=(*OPTIONS, "rvm_classes"),
    **BOTH,
)
register_expert(
    "rvm_star",
    weights_of(training.drawn),
    likelihoods=("gaussian",),
    options=OPTIONS,
    method="augmented",
    **BOTH,
)
