"""Experts by the names by which users choose them: what they share, and what they do with the rest of f.

    bcm     values at query points, the rest as a block of each partition (the committee machine; PITC)
    fitc    values at query points, the rest of each row on its own
    sor     values at query points, and nothing else; with a kernel of a finite basis (`linear`, `poly2`, sums) and as
            many points, which are all that are kept, the regression on its functions exactly
    rrgp_star  values at query points, and of the rest what some rows of a partition say of the others
    mnn     output weights of a network of hidden units, whose inner weights are trained; and nothing else
    mnnmix  those of several networks, which are mixed
    rvm     weights of bumps around rows, of which those are kept that raise the evidence of all rows: the relevance
            vector machine; and nothing else
    rvm_star  the same of measurements, with a bump more at each new point, so that variances grow away from the others
    dgp     values of the last layer of a deep Gaussian process, whose other layers are trained
    fourier weights of waves on a grid of frequencies, of up to three inputs (`bcmdist.learning.fourier`)

A new one is a function that makes the shared variables from what is known when a fit has settled its hyper-parameters
(as for bcm), and the name of a residual (`bcmdist.experts.residual`):

    register_expert("mine", weights_of(basis), residual="none")

What is learned of them from rows, before the first message, is its `training`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bcmdist.data.registry import Registry, load_plugins
from bcmdist.errors import InvalidOption
from bcmdist.experts.residual import RESIDUALS
from bcmdist.learning import fourier
from bcmdist.learning.basis_inputs import BasisInputs
from bcmdist.learning.query_selection import select_points
from bcmdist.learning.training_context import TrainingContext
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query, prepare
from bcmdist.model.shared.weights import Basis, Weights

Maker = Callable[[BasisInputs], Shared]
Refusal = Callable[[str, int, float], None]
"""Raises `InvalidOption` for the expression of a kernel, a number of inputs, and a tolerance."""
BasisBudget = Callable[[Kernel, np.ndarray, np.ndarray, float], bool]
"""Of a kernel, the least and largest values of inputs, (D,) each, in scaled units, and a tolerance."""
# Shared variables and likelihood at which the evidence of the rows is higher than where they begin.
Trainer = Callable[[Any, Any, TrainingContext], tuple[Shared, Likelihood]]


ROWS = 1000  # of whose matrix the other experts take the cube
CHECKED_ROWS = 4  # at which each basis is checked
WAVE_ROWS = 250_000  # a transform takes the time of some 50,000
WAVE_ROWS_IN_CELLS = 16_000  # what a cell of them costs is its local expert, and its halo looked for among all


@dataclass(frozen=True)
class Training:
    """What is learned of the shared variables themselves, once the hyper-parameters are, before the first message."""

    train: Trainer
    messages: Callable[[Any, int], float]
    """how many messages about its rows, of each model, take as long, of `Settings` and how many rows"""
    rows: int = 0
    """of a uniform sample that it looks at, at most; 0 where it sums over all rows of the data"""
    block: int = 0
    """rows of a partition of the sample"""
    memorises: bool = False
    """whether its rows, left out of the messages alone, seem better predicted than others are (of mnnmix on 8,000 rows
    of kin40k what seemed to be 95 % intervals held 88 % of further rows; those of the model hold 95 %)"""


@dataclass(frozen=True)
class ExpertKind:
    """An expert as a user names it."""

    make: Maker
    residual: str
    training: Training | None = None
    kernel: str = "auto"
    """that "auto" stands for"""
    kernels: tuple[str, ...] = ()
    """that it can do with; any where there are none"""
    likelihoods: tuple[str, ...] = ()
    """that it can do with; any where there are none"""
    many: str = "onehot"
    """likelihood of more than two classes that it takes by default"""
    methods: tuple[str, ...] = ()
    """by which rows may be chosen for it; any where there are none"""
    options: tuple[str, ...] = ()
    """fields of `Settings` that few experts read"""
    usual: Mapping[str, int] = field(default_factory=dict)
    """what stands for fields of `Settings` that are None, where that is not the same for all experts"""
    means: bool = True
    """whether it has a prior mean beside its shared variables; else that is zero"""
    count: str = "query"
    """that of `Settings` which says how many functions, or from which that follows"""
    local: bool = False
    """whether the rows around a new point add to what its committee says there (`--partition spatial`)"""
    running: bool = True
    """whether rows may be linearised at the belief so far"""
    rows: int = ROWS
    """of a partition, about, by default"""
    cell_rows: int = ROWS
    """of one in the order of cells, about, by default"""
    refuse: Refusal | None = None
    """what it cannot do, as soon as that is known"""
    refuse_rows: Callable[[Any, int], None] | None = None
    """raises `InvalidOption` where `Settings` ask for what so many rows of data are too many for"""
    affordable: BasisBudget | None = None
    """whether its shared variables can stand for a kernel; all where there is none"""
    drawn: Callable[[Any], int] = lambda _: 0
    """rows that functions are made of, of `Settings`, where they are more than as many"""
    beside: Callable[[Any], int] = lambda _: 1
    """models that stand side by side, of `Settings`"""
    method: str = "committee"
    """by which new points are predicted unless asked otherwise (`bcmdist.prediction.predictors`)"""
    climbs: str = ""
    """residual of the committee about the same query points whose evidence can be climbed for it, if any"""
    places: bool = True
    """whether it may heed where predictions will be wanted"""

    def sample(self, settings) -> int:
        """Rows of a uniform sample that it needs, at most."""
        trained = self.training.rows if self.training and settings.learn else 0
        return max(self.drawn(settings), trained)

    def own(self, settings) -> dict[str, Any]:
        """Its own options, by name."""
        return {name: self.said(settings, name) for name in self.options}

    def said(self, settings, name) -> Any:
        """A field of the settings, or what is usual where nobody has said it."""
        value = getattr(settings, name)
        return self.usual.get(name) if value is None else value

    def refuse_climbing(self, name: str, likelihood: Likelihood | None) -> None:
        """Raise `InvalidOption` where the evidence of this expert's committee has no gradient here.

        Parameters
        ----------
        likelihood : None where it is not known yet
        """
        apart = bool(self.climbs) and not RESIDUALS[self.climbs].couples
        if not self.climbs or (apart and likelihood and not likelihood.normal):
            with_it = f" with {likelihood.name}" if likelihood else ""
            raise InvalidOption(
                f"expert: expected {FIRST} with the objective committee, or fitc, sor or rrgp_star with normal errors, "
                f"got {name}{with_it}; give --objective local, or leave out --expert"
            )

    def refuse_method(self, name: str, method: str) -> None:
        """Raise `InvalidOption` for a way to choose rows that this expert, of some name, cannot do with."""
        if self.methods and method not in self.methods:
            raise InvalidOption(
                f"query_method: expected {' or '.join(self.methods)} with the expert {name}, which has no query "
                f"points, got {method}; leave it out, or take --expert {FIRST}"
            )

    def refuse_places(self, name: str, query_from: str | None) -> None:
        """Raise `InvalidOption` for places to heed where this expert, of some name, heeds none."""
        if query_from is not None and not self.places:
            raise InvalidOption(
                f"query_from: expected an expert that shares values at query points, got {name}; leave it out, or take "
                f"--expert {FIRST}"
            )

    def tells_errors(self, settings) -> bool:
        """Whether rows that are left out of the messages tell how large errors will be, of predictions from these."""
        return self.method == ExpertKind.method and not (settings.learn and self.training and self.training.memorises)

    def refuse_kernel(self, name: str, asked: str) -> None:
        """Raise `InvalidOption` for a kernel that this expert, of some name, cannot do with."""
        if self.kernels and asked not in ("auto", *self.kernels):
            raise InvalidOption(
                f"kernel: expected {' or '.join(self.kernels)} with the expert {name}, got {asked}; give one of these"
            )

    @property
    def mean(self) -> str:
        """The prior mean that stands for "auto" until it is decided."""
        return "constant" if self.means else "zero"

    def refuse_mean(self, name: str, asked: str) -> None:
        """Raise `InvalidOption` for a prior mean that this expert, of some name, cannot do with."""
        if not self.means and asked not in ("auto", "zero"):
            raise InvalidOption(
                f"mean: expected auto or zero with the expert {name}, got {asked}; leave it out, or take --expert "
                f"{FIRST}"
            )

    def refuse_likelihood(self, name: str, likelihood: Likelihood) -> None:
        """Raise `InvalidOption` for a likelihood that this expert, of some name, cannot do with."""
        if likelihood.apart and likelihood.name not in self.likelihoods:
            able = [one for one, kind in experts().items() if likelihood.name in kind.likelihoods]
            raise InvalidOption(
                f"likelihood: expected the expert {' or '.join(able)} with {likelihood.name}, got {name}; give "
                f"--expert {able[0]}, or --likelihood onehot"
            )
        if self.likelihoods and likelihood.name not in self.likelihoods:
            raise InvalidOption(
                f"likelihood: expected {' or '.join(self.likelihoods)} with the expert {name}, got {likelihood.name}; "
                f"give one of these, or take --expert {FIRST}"
            )

    def shared(self, known: BasisInputs) -> Shared:
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
                f"{made.residual}; pass on `BasisInputs.residual` where they are made"
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


def experts() -> dict[str, ExpertKind]:
    """All experts by name, those of methods and of other packages too."""
    load_plugins()
    return {name: EXPERTS[name] for name in EXPERTS}


def method_options() -> dict[str, list[str]]:
    """Fields of `Settings` that few experts read, and the names of these."""
    known = experts()
    fields = dict.fromkeys(option for kind in known.values() for option in kind.options)
    return {option: [name for name, kind in known.items() if option in kind.options] for option in fields}


def query_points(known: BasisInputs) -> np.ndarray:
    """Query points chosen from the sample, (Q, D)."""
    seen = {"targets": known.targets, "noise": known.noise, "rows": known.rows, "places": known.places}
    return select_points(known.sample, known.count, kernel=known.kernel, method=known.method, seed=known.seed, **seen)


def query_values(known: BasisInputs) -> Query:
    """Values at query points, chosen from the sample."""
    return prepare(query_points(known), kernel=known.kernel, mean=known.mean, residual=known.residual)


def weights_of(basis: Callable[[BasisInputs], tuple[Basis, np.ndarray | float]]) -> Maker:
    """A maker of weights from a function that gives a basis and the prior standard deviations of its weights, (B,)."""

    def make(known: BasisInputs) -> Weights:
        from bcmdist.testing import check_basis  # quick start

        if known.places is not None:
            raise InvalidOption(
                "query_from: expected an expert that shares values at query points, got functions of a basis; leave it "
                "out, or take --expert bcm"
            )
        functions, scale = basis(known)
        check_basis(functions, known.sample[:CHECKED_ROWS], scale)
        scale = np.broadcast_to(np.asarray(scale, dtype=float), functions.functions).copy()
        return Weights(functions, scale, known.kernel, known.mean, known.residual)

    return make


register_expert(FIRST, query_values, residual="block", climbs="block", local=True)
register_expert("fitc", query_values, residual="diagonal", climbs="diagonal")
register_expert("sor", query_values, residual="none", climbs="none")
register_expert("rrgp_star", query_values, residual="augmented", climbs="none")
WITHOUT_POINTS: dict[str, Any] = {"methods": ("kmeans",), "places": False}  # the default, which is not read
EXPERTS.add(
    "fourier",
    ExpertKind(
        fourier.waves,
        "waves",
        options=("tolerance",),
        count="tolerance",
        running=False,
        local=True,
        rows=WAVE_ROWS,
        cell_rows=WAVE_ROWS_IN_CELLS,
        refuse=fourier.refuse_early,
        affordable=fourier.affordable,
        **WITHOUT_POINTS,
    ),
)
