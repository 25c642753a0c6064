"""Experts by the names by which users choose them: what they share, and what they do with the rest of f.

    bcm     values at query points, the rest as a block of each partition (the committee machine; PITC)
    fitc    values at query points, the rest of each row on its own
    sor     values at query points, and nothing else; with a kernel of a finite basis (`linear`, `poly2`, sums) and as
            many points, which are all that are kept, the regression on its functions exactly
    rvm     weights of bumps around rows, of which those are kept that raise the evidence of all rows: the relevance
            vector machine; and nothing else

A new one is a function that makes the shared variables from what is known when a fit has settled its hyper-parameters
(as for bcm), and the name of a residual (`bcmdist.experts.residual`):

    register_expert("mine", weights_of(basis), residual="none")

What it learns of them from all rows, before the first message, is its `settle`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcmdist.data.registry import Registry
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning.all_rows import AllRows
from bcmdist.learning.query_selection import select_points
from bcmdist.learning.relevance.settle import dictionary, settle
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.mean import Mean
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query, prepare
from bcmdist.model.shared.weights import Basis, Weights


@dataclass(frozen=True)
class Known:
    """What is settled before the shared variables are made; all in scaled units."""

    sample: np.ndarray
    """rows of the data in random order, (n, D)"""
    targets: np.ndarray | None
    """what these say of the latent f, (n, C); None where they cannot be regressed on"""
    noise: np.ndarray
    """with which they say it, (n,)"""
    rows: int
    """of all data, N"""
    kernel: Kernel
    mean: Mean
    count: int
    """functions that are asked for, at most (`--query`)"""
    method: str
    """how query points are chosen"""
    seed: int
    residual: str
    """that of the expert, which the shared variables are to carry"""
    places: np.ndarray | None = None
    """where predictions will be wanted, (m, D)"""
    dictionary: int | None = None
    """functions to choose from, where these are not `count`"""
    row: np.ndarray | None = None
    """where each row of the sample stands in the data, (n,)"""


Maker = Callable[[Known], Shared]
Settle = Callable[[Shared, Likelihood, AllRows], tuple[Shared, Likelihood]]


def as_made(shared: Shared, likelihood: Likelihood, rows: AllRows) -> tuple[Shared, Likelihood]:
    """Of experts that learn nothing more."""
    return shared, likelihood


@dataclass(frozen=True)
class ExpertKind:
    """An expert as a user names it."""

    make: Maker
    residual: str
    settle: Settle = as_made
    """what all rows settle of the shared variables and the likelihood"""
    kernels: tuple[str, ...] = ()
    """that it can do with, of which the first stands for "auto"; any where there are none"""
    likelihoods: tuple[str, ...] = ()
    """that it can do with; any where there are none"""
    options: tuple[str, ...] = ()
    """fields of `Settings` that no other expert reads"""

    def kernel(self, asked: str) -> str:
        """The kernel to learn where one was asked for, or "auto"."""
        return self.kernels[0] if asked == "auto" and self.kernels else asked

    def refuse_kernel(self, name: str, asked: str) -> None:
        """Raise `InvalidOption` for a kernel that this expert, of some name, cannot do with."""
        if self.kernels and asked not in ("auto", *self.kernels):
            raise InvalidOption(
                f"kernel: expected {' or '.join(self.kernels)} with the expert {name}, got {asked}; give one of these"
            )

    def refuse_likelihood(self, name: str, likelihood: Likelihood) -> None:
        """Raise `InvalidOption` for a likelihood that this expert, of some name, cannot do with."""
        if self.likelihoods and likelihood.name not in self.likelihoods:
            raise InvalidOption(
                f"likelihood: expected {' or '.join(self.likelihoods)} with the expert {name}, got {likelihood.name}; "
                f"give one of these, or take --expert {FIRST}"
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


def register_expert(
    name: str,
    shared: Maker,
    *,
    residual: str,
    settle: Settle = as_made,
    kernels: tuple[str, ...] = (),
    likelihoods: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
) -> ExpertKind:
    """Add an expert under a name for `Settings.expert`.

    Workers need it too where its shared variables are of a kind or a basis of its own: name the module that registers
    them as an entry point (`bcmdist.data.registry`).

    Parameters
    ----------
    shared : makes the shared variables of a fit
    residual : "none", "diagonal", "block" or another one that was added
    settle : learns from sums over all rows, before the first message; see `bcmdist.learning.all_rows`
    kernels, likelihoods : names of those that it can do with, where it cannot do with all
    options : fields of `Settings` that no other expert reads

    Raises
    ------
    InvalidOption
        The name is taken, or there is no such residual.
    """
    assert RESIDUALS[residual]  # it is there, or says so
    return EXPERTS.add(name, ExpertKind(shared, residual, settle, kernels, likelihoods, options))


def own_options() -> list[tuple[str, str]]:
    """Names of experts, and of fields of `Settings` that only they read."""
    return [(name, option) for name in EXPERTS for option in EXPERTS[name].options]


def query_values(known: Known) -> Query:
    """Values at query points, chosen from the sample."""
    seen = {"targets": known.targets, "noise": known.noise, "rows": known.rows, "places": known.places}
    points = select_points(known.sample, known.count, kernel=known.kernel, method=known.method, seed=known.seed, **seen)
    return prepare(points, kernel=known.kernel, mean=known.mean, residual=known.residual)


def weights_of(basis: Callable[[Known], tuple[Basis, np.ndarray | float]]) -> Maker:
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


def rows_of_sample(known: Known) -> tuple[Basis, float]:
    """Bumps around sampled rows, drawn at random.

    Raises
    ------
    InvalidOption
        They are to be chosen in another way.
    """
    if known.method not in ("kmeans", "random"):
        raise InvalidOption(
            f"query_method: expected kmeans or random with relevance vectors, which are chosen among rows at random, "
            f"got {known.method}; leave it out"
        )
    assert known.row is not None
    return dictionary(known.sample, known.row, known.kernel, known.dictionary or known.count)


register_expert(FIRST, query_values, residual="block")
register_expert("fitc", query_values, residual="diagonal")
register_expert("sor", query_values, residual="none")
register_expert(
    "rvm",
    weights_of(rows_of_sample),
    residual="none",
    settle=settle,
    kernels=("se", "se-iso"),
    likelihoods=("gaussian", "bernoulli", "probit"),
    options=("rvm_update", "rvm_dictionary", "rvm_lengthscale"),
)
