"""What a fit is asked to do, checked as soon as it is said."""

from dataclasses import dataclass, field
from numbers import Integral

from bcmdist.committee.facts import Facts
from bcmdist.data.slices import SLICED
from bcmdist.errors import InvalidOption
from bcmdist.learning.query_selection import QUERY_METHODS, has_working_targets
from bcmdist.learning.search import EFFORTS
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import LIKELIHOODS, make_likelihood, tasks
from bcmdist.model.mean import MEAN_NAMES

TWO_CLASSES = 2  # as many as a likelihood of classes must do with before they are known
LARGEST_SEED = 2**32 - 1  # of numpy's older generators, which scikit-learn takes


@dataclass(frozen=True)
class Settings:
    """What a fit is asked to do; every field has the name of its command-line option."""

    task: str | None = None
    """"regression", "classification", "counts", "lifetimes", "binomial", or None to infer it from the targets"""
    likelihood: str | None = None
    """by name; the task's own by default"""
    kernel: str = "auto"
    """expression of `parse_kernel`, or "auto" """
    mean: str = "constant"
    """prior mean: "zero", "constant" or "linear" """
    query: int | str | None = None
    """query points Q, at most; by default 500, or 1000 for many rows of few inputs in spatial partitions; or "auto":
    about two for each degree of freedom, as far as memory allows"""
    query_method: str = "kmeans"
    """how they are chosen: "kmeans", "random", by prior variance ("pivoted") or for the targets ("evidence"); with the
    objective "committee" also "optimised": k-means, then moved to raise the committee's evidence"""
    rows_per_expert: int = 1000
    partition: str = "chunks"
    """"chunks": rows as they are stored; "spatial": cells of rows that are near in the learned metric, which also
    gives local prediction"""
    passes: str | None = None
    """"1": the committee as published; "auto": further passes until it stops moving; by default "1", or "auto" where
    rows are stored in the order of their targets"""
    approximation: str = "laplace"
    """how an expert makes its rows Gaussian: by "laplace" at the mode, or by "ep" (expectation propagation) of
    the moments; Gaussian likelihoods need neither"""
    linearise: str = "own"
    """where a first pass linearises: "own" mode of each expert, or under the "running" belief, which makes the
    order of the data matter"""
    learn: bool = True
    """False: keep the default hyper-parameters, or those of `set`"""
    set: dict[str, float | list[float]] = field(default_factory=dict)
    """with `learn=False`: hyper-parameters in units of the scaled data, by the names `info` prints"""
    objective: str = "local"
    """what learning maximises: "local", the summed evidence of blocks of rows on their own; "committee", from there on
    the evidence of the whole committee (PITC); or "subset", the evidence of one random block of `effort`'s rows"""
    effort: str = "normal"
    """"quick", "normal" or "thorough" learning"""
    seed: int = 0
    x: str = "X"
    """name of the input array"""
    y: str = "y"
    """name of the target array"""

    def __post_init__(self):
        for name in ("rows_per_expert", "seed", *(["query"] if not isinstance(self.query, str | None) else [])):
            _expect_whole(name, getattr(self, name))
        known = tasks(self.task)
        _expect_one_of("task", self.task, (None, *known))
        if self.likelihood not in (None, *LIKELIHOODS) and self.likelihood not in LIKELIHOODS:
            _expect_one_of("likelihood", self.likelihood, tuple(LIKELIHOODS))
        wanted = self.likelihood and make_likelihood(self.likelihood, TWO_CLASSES)
        if self.passes is not None:
            object.__setattr__(self, "passes", str(self.passes))
        _expect_one_of("partition", self.partition, ("chunks", "spatial"))
        _expect_one_of("passes", self.passes, (None, "1", "auto"))
        _expect_one_of("linearise", self.linearise, ("own", "running"))
        _expect_one_of("approximation", self.approximation, ("laplace", "ep"))
        if self.approximation == "ep" and ((wanted and not wanted.single) or self.linearise != "own"):
            raise InvalidOption(
                f"approximation: expected laplace with {self.likelihood or self.linearise}, got ep; leave it out"
            )
        _expect_one_of("mean", self.mean, MEAN_NAMES)
        _expect_one_of("objective", self.objective, ("local", "committee", "subset"))
        if self.objective != "local" and not self.learn:
            raise InvalidOption(f"objective: expected learning, got {self.objective} with no-learn; leave out one")
        if self.objective == "committee":
            self._refuse_committee_objective(wanted)
        _expect_one_of("query_method", self.query_method, (*QUERY_METHODS, "optimised"))
        if self.query_method == "optimised" and self.objective != "committee":
            raise InvalidOption(
                f"query_method: expected objective committee with optimised, got {self.objective}; give --objective "
                "committee, or another method"
            )
        _expect_one_of("effort", self.effort, tuple(EFFORTS))
        if isinstance(self.query, str):
            _expect_one_of("query", self.query, ("auto",))
        for name in ("query", "rows_per_expert"):
            if getattr(self, name) not in ("auto", None) and getattr(self, name) < 1:
                raise InvalidOption(f"{name}: expected at least 1, got {getattr(self, name)}; give a positive number")
        likely = wanted or make_likelihood(known[self.task or "regression"][0], TWO_CLASSES)
        if self.query_method == "evidence" and not has_working_targets(likely):
            raise InvalidOption(
                f"query_method: expected kmeans or pivoted with {likely.name}, got evidence; give one of these"
            )
        refuse_seed(self.seed)
        if self.task and self.likelihood not in (None, *known[self.task]):
            raise InvalidOption(
                f"likelihood: expected one of {', '.join(known[self.task])} for {self.task}, got {self.likelihood}; "
                "leave out one of them"
            )
        if self.linearise == "running" and wanted and not wanted.single:
            raise InvalidOption(f"linearise: expected own with {self.likelihood}, got running; leave it out")
        if self.linearise == "running" and self.passes == "auto":
            raise InvalidOption("linearise: expected own with several passes, got running; leave out one of them")
        if self.partition == "spatial" and wanted and wanted.coupled:
            raise InvalidOption(
                f"partition: expected chunks with {self.likelihood}, got spatial, whose local experts keep classes "
                "apart; give --partition chunks, or --likelihood softmax or onehot"
            )
        if self.kernel != "auto":
            parse_kernel(self.kernel, inputs=1)
        if self.set and self.learn:
            raise InvalidOption("set: expected learn=False (--no-learn) with given hyper-parameters; add it")

    def _refuse_committee_objective(self, wanted):
        """A committee is known while learning where its partitions do not depend on what is learned."""
        if self.partition == "spatial":
            raise InvalidOption("objective: expected local or subset with spatial cells, got committee; give one")
        if wanted and not wanted.single:
            raise InvalidOption(f"objective: expected local or subset with {self.likelihood}, got committee; give one")


def refuse_seed(seed):
    """Raise `InvalidOption` where a seed is none that all generators of random numbers take."""
    if not 0 <= seed <= LARGEST_SEED:
        raise InvalidOption(f"seed: expected at least 0 and at most {LARGEST_SEED}, got {seed}; give another one")


def _expect_whole(name, value):
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidOption(f"{name}: expected a whole number, got {value!r}; give one")


def _expect_one_of(name, value, allowed):
    if value not in allowed:
        words = ", ".join(str(a) for a in allowed if a is not None)
        raise InvalidOption(f"{name}: expected one of {words}, got {value!r}; give one of these")


def makes_several(settings: Settings, facts: Facts) -> bool:
    """Whether a fit goes on after its first pass: as it was asked to, else where that pass has heard slices."""
    if settings.passes is not None:
        return settings.passes == "auto"
    sliced = settings.partition == "chunks" and (facts.between_partitions or 0.0) >= SLICED
    return sliced and settings.linearise == "own"
