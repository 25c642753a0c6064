"""Settings of a fit: one dataclass, from which the command line derives its options and their help.

Options that only some methods read are declared by these (`bcmdist.learning.method_options`), and are given in the same
way: `Settings(expert="dgp", layers=3)`.

An option is a field: its name, its type (a `Literal` lists the choices; with `| str` other packages may add to them),
its default, and the text below it, which is its help. `Annotated` adds the placeholder of its value, as in
`--likelihood NAME`. `bcmdist.learning.settings_checks` refuses invalid combinations when settings are created; it is
imported only then, so that nothing heavy is imported here.
"""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from bcmdist.learning.method_options import changed_options, method_options, reserve_names
from bcmdist.learning.option_fields import Further
from bcmdist.storage.bounds import COUNT, SEED, Bounds

Options = TypeVar("Options")


@dataclass(frozen=True)
class Settings:
    """Settings of a fit; every field has the name of its command-line option.

    Options of methods are keyword arguments, too: `Settings(expert="dgp", layers=3)`.

    Raises
    ------
    InvalidOption
        A value is outside its bounds, or options exclude each other.

    Examples
    --------
    >>> settings = bcmdist.Settings(kernel="matern52", query=200, effort="quick")
    >>> settings.query, settings.rows_per_expert
    (200, 1000)
    """

    task: Literal["regression", "classification", "counts", "lifetimes", "binomial"] | str | None = None
    """kind of targets, or the task of a likelihood that another package adds [default: classification for targets 0 and
    1, else regression]"""
    likelihood: Annotated[str | None, "NAME"] = None
    """by name: gaussian student_t gamma inverse_gaussian; bernoulli probit svm softmax softmax_coupled softmax_fisher
    onehot one_against_rest; negative_binomial poisson; weibull exponential; binomial; or one that another package adds
    [default: the first of the task's; onehot for more than two classes, one_against_rest with rvm]"""
    kernel: Annotated[str, "NAME|auto"] = "auto"
    """by name: se matern12 matern32 matern52 rq arcsine linear poly2 poly3 constant white periodic category onehot
    coregionalised, or one that another package adds; -iso for a single lengthscale; combined with + and *; on some
    columns by their names or numbers (from 0), as in 'matern12(lon, lat) + linear(age)'; category(soil) for levels that
    are all equally alike; white for independent values of different rows; coregionalised(metal, rank=2)*se(lon, lat)
    for --output metal, by whose kernel of this kind terms are multiplied where none is written; periodic(hour,
    period=24) in the unit of the column, with ~24 to learn the period; auto: the best of several on all columns, or
    where the evidence asks for it (not with --effort quick, nor with --output) a sum: of two of them, of short and of
    long range, of one of the covariates apart from all columns (--coordinates), of effects of single columns, and (in
    any case) of a scatter of rows with gaps"""
    mean: Literal["constant", "zero", "linear", "auto"] = "auto"
    """prior mean: constant, zero, or a linear trend; auto: for measurements with learned hyper-parameters the better of
    a constant and a linear trend, where a linear one fits in memory; else a constant"""
    warp: Annotated[str, "auto|none|log|rank|COLUMN=KIND"] = "auto"
    """how inputs are warped before they are scaled: not at all (none); log x of positive columns, log(1 + x) of columns
    without negative values, sign(x) log(1 + |x|) of others (log; of a single column with negative values signed-log);
    quantiles to normal scores (rank); or by column, by name or number, as in auto,income=log,rooms=none; auto: the
    logarithms, or the ranks, of all skewed columns where learning finds that they predict rows and blocks of rows left
    out better"""
    target_transform: Literal["auto", "none", "log", "power"] = "auto"
    """how positive measurements are transformed before they are modelled: not at all (none), by their logarithm (log),
    or by a power between 0 and 1 (power: Box & Cox 1964, the likeliest one); predictions of new observations are in
    original units, those of the latent function in those of the transform; auto: log or power of skewed targets where
    they predict rows left out better"""
    query: Annotated[int | Literal["auto"] | None, "Q|auto", COUNT] = None
    """largest number of query points, Q [default: 500; spatial with many rows of few inputs: 1000; dgp, per layer: 50];
    auto: about twice the effective degrees of freedom, within memory"""
    query_method: (
        Literal["kmeans", "random", "pivoted", "evidence", "sggp", "optimised", "hpev-sgev", "hpev-sggp"] | None
    ) = None
    """how query points are chosen: k-means centres, with few inputs also in gaps between rows (kmeans); or rows:
    random; of largest prior variance given the others (pivoted); best for the evidence (evidence, SGEV), or for the
    posterior of their own model until more hardly raise it (sggp); with --objective committee also optimised: k-means
    centres moved to maximise its evidence (fitc and sor: jointly with the hyper-parameters); hpev-sgev, hpev-sggp: as
    evidence and sggp with the requested number, alternating with hyper-parameters that maximise its evidence (random
    with it is HPEV-rand of the thesis) [default: kmeans; optimised where fitc and sor learn by the evidence of the
    committee]"""
    grow: bool = False
    """make rows that the query points do not explain query points before their partition is absorbed, such as rows so
    rare that the sample from which query points are chosen has none of them"""
    grow_share: Annotated[float | None, "F", Bounds(0.0, 1.0, above=True)] = None
    """with --grow: share of the prior variance, given the query points, above which a row is not explained [default:
    twice the largest such share of a first query point, given the others, but from .02 to .5]"""
    query_most: Annotated[int | None, "Q", COUNT] = None
    """with --grow: largest number of query points [default: 1000, or the first number if that is larger]"""
    rows_per_expert: Annotated[int | None, COUNT] = None
    """approximate rows per partition [default: 1000, since an expert's time grows with their cube; fourier: 250000, in
    cells 16000; with noisy inputs 200]"""
    partition: Literal["auto", "chunks", "spatial"] = "auto"
    """rows in stored order, as streams arrive (chunks): give it to a model that will be merged or kept in an object
    store; or cells of rows that are near each other in the learned metric: rows are copied in that order, and
    predictions use the rows around each new point, which is more accurate (spatial); auto: spatial where the other
    options allow for it and up to a million rows can be copied beside the model, chunks where query points are as many
    as rows; `info` says which and why"""
    passes: Literal["1", "auto"] | None = None
    """1: the committee as published; auto: further passes until it converges [default: 1, or auto where rows are sorted
    by target]"""
    approximation: Literal["laplace", "ep"] = "laplace"
    """Gaussian approximation of non-Gaussian likelihoods: at the mode (Laplace), or by expectation propagation"""
    linearise: Literal["own", "running"] = "own"
    """first pass: each expert linearises at its own mode, or under the posterior so far (then order matters)"""
    learn: bool = True
    """learn hyper-parameters; or keep the defaults, or those of --set"""
    set: Annotated[dict[str, float | list[float]], "NAME=VALUE"] = field(default_factory=dict)
    """with --no-learn: a hyper-parameter under the name that `info` prints, in units of the scaled data"""
    objective: Literal["local", "leave-one-out", "committee", "subset"] | None = None
    """what hyper-parameters maximise: the evidence of separate blocks of rows (local); the leave-one-out log density
    within blocks (leave-one-out, also GPP; normal errors, onehot, softmax, svm); that of blocks, then of the whole
    committee (committee: PITC; for rrgp_star the reduced-rank process that it augments); or the evidence of one random
    subset of rows, of a size set by --effort (subset) [default: local; committee with fitc and sor where errors are
    normal]"""
    effort: Literal["quick", "normal", "thorough"] = "normal"
    """how long to learn, and from how many rows: quick at most 10 seconds, normal 60, thorough as long as it gains"""
    seconds: Annotated[float | None, "S", Bounds(0.0, 1e7, above=True)] = None
    """most seconds of the search for hyper-parameters, which keeps the best that it has found and says what it left out
    [default: by --effort]; methods that train basis functions train these by --effort"""
    seed: Annotated[int, SEED] = 0
    """seed of all random numbers"""
    x: str = "X"
    """name of the input array; of a table, the input columns, separated by commas"""
    y: str = "y"
    """name of the target array"""
    expert: Annotated[str, "NAME"] = "bcm"
    """variables that experts share, and how the residual of f is treated: bcm (values at query points; residual
    correlated within a partition), fitc (residual independent for each row), rrgp_star (residual of a partition
    represented by as many of its rows as there are query points), sor (no residual); without residual also: mnn (a
    network of hidden units, whose inner weights are trained on up to 100,000 rows), mnnmix (a mixture of such
    networks), rvm (relevance vectors: weights of radial basis functions at --query rows, of which those that raise the
    evidence are kept), rvm_star (one more basis function at each new point, so that variances grow away from the data;
    predictions read all rows again), dgp (a deep process of --layers, trained on up to 50,000 rows; messages concern
    the last layer), fourier (weights of Fourier features, up to 3 inputs: millions of rows per second); or one that
    another package adds"""
    query_from: Annotated[str | None, "NEW.zarr"] = None
    """data set at whose inputs predictions will be needed (path, URL, or a directory of data sets); a sample of these
    inputs goes into k-means, with as much weight as the training rows, and their distances from rows decide how single
    rows and blocks of rows left out weigh in the choice of kernel, mean and warp"""
    like: Annotated[str | None, "MODEL"] = None
    """take scaling, hyper-parameters and coding of this model, of a mixture its samples, and learn nothing, only choose
    query points where the rows are: the two models can be merged"""
    coordinates: Annotated[str | None, "NAMES"] = None
    """inputs that are places or times, separated by commas, by name or number, or none: --kernel auto also tries a
    function of the other inputs alone in addition to one of all [default: the coordinates of the grid that was
    imported; inputs named lon and lat, longitude and latitude, easting and northing, or x and y]"""
    output: Annotated[str | None, "NAME"] = None
    """column that names which of several outputs the target of a row measures, by text or code (tables in long form,
    without rows for outputs that were not measured): outputs are scaled each by itself, have a mean and a noise
    variance each, and share a coregionalised kernel, whose rank the evidence chooses where the kernel does not give
    one"""
    noise: Literal["auto", "constant", "varying"] = "auto"
    """noise of numeric targets: constant, or varying with the inputs as estimated from left-out rows; auto: varying
    where it predicts left-out rows better"""
    precision: Literal["double", "mixed"] = "double"
    """arithmetic of experts with Gaussian noise: mixed takes about three quarters of the time, moves means by less than
    a thousandth of their standard deviations, and refuses to forget"""
    options: Annotated[dict[str, Any], Further] = field(default_factory=dict)
    """options of the method that are not their defaults, by name; each may be given as a keyword argument of its own"""

    @property
    def partition_rows(self) -> int:
        """`rows_per_expert`, which is filled in when settings are created."""
        assert self.rows_per_expert is not None, "settings have filled it in"
        return self.rows_per_expert

    def of(self, kind: type[Options]) -> Options:
        """Return the options that a method declares as a dataclass, `kind`, with defaults for the others."""
        return kind(**{one.name: self.options[one.name] for one in fields(kind) if one.name in self.options})  # type: ignore[arg-type]

    def flat(self) -> dict[str, Any]:
        """Return fields and options by name, on one level; options at their defaults are left out."""
        shared = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "options"}
        return copy.deepcopy(shared | self.options)

    if not TYPE_CHECKING:  # type checkers know the fields only

        def __getattr__(self, name: str) -> Any:
            """Return an option of a method by name, or its default."""
            if name.startswith("_") or name == "options" or name not in (declared := method_options(named=[name])):
                raise AttributeError(f"Settings: expected a field or an option of a method, got {name!r}; correct it")
            return self.options.get(name, declared[name].default)

    def __post_init__(self):
        from bcmdist.learning.settings_checks import refuse, usual_rows  # quick start

        object.__setattr__(self, "options", changed_options(self.options))
        if self.rows_per_expert is None:
            object.__setattr__(self, "rows_per_expert", usual_rows(self))
        if self.passes is not None:
            object.__setattr__(self, "passes", str(self.passes))
        refuse(self)


def _taking_options(make: Callable[..., None]) -> Callable[..., None]:
    """Return an initialiser of `Settings` that takes options of methods as keyword arguments, too."""
    names = {one.name for one in fields(Settings)}

    @functools.wraps(make)
    def initialise(self, *values, options=None, **named):
        own = {name: value for name, value in named.items() if name in names}
        others = {name: value for name, value in named.items() if name not in names}
        make(self, *values, **own, options={**(options or {}), **others})

    return initialise


Settings.__init__ = _taking_options(Settings.__init__)  # type: ignore[method-assign]
reserve_names(one.name for one in fields(Settings))
