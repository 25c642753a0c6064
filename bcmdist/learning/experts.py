"""Experts by the names by which users choose them: what they share, and what they do with the rest of f.

    bcm     values at query points, the rest as a block of each partition (the committee machine; PITC)
    fitc    values at query points, the rest of each row on its own
    sor     values at query points, and nothing else; with a kernel of a finite basis (`linear`, `poly2`, sums) and as
            many points, which are all that are kept, the regression on its functions exactly
    rrgp_star  values at query points, and of the rest what some rows of a partition say of the others
    mnn     output weights of a network of hidden units, whose inner weights are learned from all rows
    mnnmix  those of several networks, which are mixed

A new one is a function that makes the shared variables from what is known when a fit has settled its hyper-parameters
(as for bcm), and the name of a residual (`bcmdist.experts.residual`):

    register_expert("mine", weights_of(basis), residual="none")
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning import networks
from bcmdist.learning.ground import Ground
from bcmdist.learning.known import Known
from bcmdist.learning.query_selection import select_points
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query, prepare
from bcmdist.model.shared.weights import Basis, Weights

Maker = Callable[[Known], Shared]
# Shared variables and likelihood at which the evidence of the rows is higher than where they begin.
Trainer = Callable[[Any, Any, Ground], tuple[Shared, Likelihood]]


@dataclass(frozen=True)
class Training:
    """What is learned of the shared variables themselves, once the hyper-parameters are."""

    train: Trainer
    rows: int
    """of a sample that it looks at, at most"""
    block: int
    """rows of a partition of these"""
    messages: Callable[[Any, int], float]
    """how many messages about all of them take as long, of `Settings` and so many models side by side"""


@dataclass(frozen=True)
class ExpertKind:
    """An expert as a user names it."""

    make: Maker
    residual: str
    training: Training | None = None
    kernel: str = "auto"
    """that the kernel "auto" stands for, unless it is that"""
    options: Mapping[str, int] = field(default_factory=dict)
    """options of its own, by the names of `Settings`, with their defaults; the first one says how many functions"""
    normal: bool = False
    """whether it is for measurements with normal errors only"""
    values: bool = False
    """whether it shares values at query points, so that the evidence of its committee can be climbed in these"""

    def asked(self, settings, name: str) -> int:
        """An option as it was given, or its default; 1 where this expert has no such option."""
        given = getattr(settings, name)
        return self.options.get(name, 1) if given is None else given

    def trains(self, settings) -> Training | None:
        """What a fit trains its shared variables by; None where nothing is learned of them.

        Rows that these were trained on do not tell, left out of the messages alone, how large errors will be
        (kin40k, 8,000 rows: what seemed to be 95 % intervals held 88 % of further rows; those of the model hold 95 %).
        """
        return self.training if settings.learn else None

    def refuse_climbing(self, name: str, likelihood: Likelihood | None) -> None:
        """Raise `InvalidOption` where the evidence of this expert's committee has no gradient here.

        Parameters
        ----------
        likelihood : None where it is not known yet
        """
        apart = not RESIDUALS[self.residual].couples
        if not self.values or (apart and likelihood and not likelihood.normal):
            with_it = f" with {likelihood.name}" if likelihood else ""
            raise InvalidOption(
                f"expert: expected {FIRST} with the objective committee, or fitc or sor with normal errors, got "
                f"{name}{with_it}; give --objective local, or leave out --expert"
            )

    def refuse(self, name: str, likelihood: Likelihood) -> None:
        """Raise `InvalidOption` where this expert, of a name, is not for a likelihood."""
        if self.normal and not likelihood.normal:
            raise InvalidOption(
                f"expert: expected targets with normal errors (likelihood gaussian) with {name}, got "
                f"{likelihood.name}; take --expert {FIRST}, fitc or sor"
            )

    def shared(self, known: Known) -> Shared:
        """The shared variables of a fit.

        Raises
        ------
        InvalidOption
            They carry another residual than the expert's.
        """
        made = self.make(known)
        if made.residual != self.residual:
            raise InvalidOption(
                f"expert: expected shared variables with the residual {self.residual} it was registered with, got "
                f"{made.residual}; pass on `Known.residual` where they are made"
            )
        return made


EXPERTS: Registry[ExpertKind] = Registry("expert")
FIRST = "bcm"


def register_expert(name: str, shared: Maker, *, residual: str, **more) -> ExpertKind:
    """Add an expert under a name for `Settings.expert`.

    Workers need it too where its shared variables are of a kind or a basis of its own: name the module that registers
    them as an entry point (`bcmdist.data.registry`).

    Parameters
    ----------
    shared : makes the shared variables of a fit
    residual : "none", "diagonal", "block" or another one that was added
    more : further fields of `ExpertKind`

    Raises
    ------
    InvalidOption
        The name is taken, or there is no such residual.
    """
    assert RESIDUALS[residual]  # it is there, or says so
    return EXPERTS.add(name, ExpertKind(shared, residual, **more))


def query_values(known: Known) -> Query:
    """Values at query points, chosen from the sample."""
    seen = {"targets": known.targets, "noise": known.noise, "rows": known.rows, "places": known.places}
    points = select_points(known.sample, known.count, kernel=known.kernel, method=known.method, seed=known.seed, **seen)
    return prepare(points, kernel=known.kernel, mean=known.mean, residual=known.residual)


def weights_of(basis: Callable[[Known], tuple[Basis, np.ndarray]]) -> Maker:
    """A maker of weights from a function that gives a basis and the prior standard deviations of its weights, (B,)."""

    def make(known: Known) -> Weights:
        if known.places is not None:
            raise InvalidOption(
                "query_from: expected an expert that shares values at query points, got functions of a basis; leave it "
                "out, or take --expert bcm"
            )
        functions, scale = basis(known)
        scale = np.broadcast_to(np.asarray(scale, dtype=float), functions.functions).copy()
        return Weights(functions, scale, known.kernel, known.mean, known.residual)

    return make


register_expert(FIRST, query_values, residual="block", values=True)
register_expert("fitc", query_values, residual="diagonal", values=True)
register_expert("sor", query_values, residual="none", values=True)
register_expert("rrgp_star", query_values, residual="augmented")
NETWORKS: dict[str, Any] = {
    "residual": "none",
    "training": Training(networks.trained, networks.ROWS, networks.BLOCK, networks.messages),
    "kernel": networks.KERNEL,
    "normal": True,
}
register_expert("mnn", networks.drawn, options={"units": networks.UNITS}, **NETWORKS)
register_expert("mnnmix", networks.drawn, options={"units": networks.UNITS, "networks": networks.NETWORKS}, **NETWORKS)
