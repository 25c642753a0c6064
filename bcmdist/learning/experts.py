"""Experts by the names by which users choose them: what they share, and what they do with the rest of f.

    bcm     values at query points, the rest as a block of each partition (the committee machine; PITC)
    fitc    values at query points, the rest of each row on its own
    sor     values at query points, and nothing else; with a kernel of a finite basis (`linear`, `poly2`, sums) and as
            many points, which are all that are kept, the regression on its functions exactly
    fourier weights of waves on a grid of frequencies, of up to three inputs (`bcmdist.learning.fourier`)

A new one is a function that makes the shared variables from what is known when a fit has settled its hyper-parameters
(as for bcm), and the name of a residual (`bcmdist.experts.residual`):

    register_expert("mine", weights_of(basis), residual="none")
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning import fourier
from bcmdist.learning.known import Known
from bcmdist.learning.query_selection import select_points
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query, prepare
from bcmdist.model.shared.weights import Basis, Weights

Maker = Callable[[Known], Shared]
Refusal = Callable[[str, int, float | None], None]
"""Raises `InvalidOption` for the expression of a kernel, a number of inputs, and a tolerance."""

ROWS = 1000  # of whose matrix the other experts take the cube
WAVE_ROWS = 250_000  # a transform takes the time of some 50,000


@dataclass(frozen=True)
class ExpertKind:
    """An expert as a user names it."""

    make: Maker
    residual: str
    rows: int = ROWS
    """of a partition, about, by default"""
    refuse: Refusal | None = None
    """what it cannot do, as soon as that is known"""
    queries: bool = True
    """whether users say how many of its functions there are"""

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


def register_expert(name: str, shared: Maker, *, residual: str) -> ExpertKind:
    """Add an expert under a name for `Settings.expert`.

    Workers need it too where its shared variables are of a kind or a basis of its own: name the module that registers
    them as an entry point (`bcmdist.data.registry`).

    Parameters
    ----------
    shared : makes the shared variables of a fit
    residual : "none", "diagonal", "block" or another one that was added

    Raises
    ------
    InvalidOption
        The name is taken, or there is no such residual.
    """
    assert RESIDUALS[residual]  # it is there, or says so
    return EXPERTS.add(name, ExpertKind(shared, residual))


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


register_expert(FIRST, query_values, residual="block")
register_expert("fitc", query_values, residual="diagonal")
register_expert("sor", query_values, residual="none")
EXPERTS.add("fourier", ExpertKind(fourier.waves, "waves", rows=WAVE_ROWS, refuse=fourier.refuse_early, queries=False))
