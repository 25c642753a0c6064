"""What a fit is asked to do: one list, of which the command line makes its options and their help.

An option is a field: its name, its type (a `Literal` names the choices; with `| str` others may be added to them), its
default, and the text under it, which is its help. `Annotated` adds what a value is called there, as in
`--likelihood NAME`. What values go together is checked as soon as they are said, by
`bcmdist.learning.settings_checks`, so that nothing heavy is imported here.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from bcmdist.storage.bounds import COUNT, SEED, Bounds


@dataclass(frozen=True)
class Settings:
    """What a fit is asked to do; every field has the name of its command-line option.

    Raises
    ------
    InvalidOption
    """

    task: Literal["regression", "classification", "counts", "lifetimes", "binomial"] | str | None = None
    """what the targets are, or the task of a likelihood that another package adds [default: classification for targets
    0 and 1, else regression]"""
    likelihood: Annotated[str | None, "NAME"] = None
    """by name: gaussian student_t gamma inverse_gaussian; bernoulli probit svm softmax softmax_coupled softmax_fisher
    onehot one_against_rest; negative_binomial poisson; weibull exponential; binomial; or one that another package adds
    [default: the first of the task's; onehot for more than two classes, one_against_rest with rvm]"""
    kernel: Annotated[str, "NAME|auto"] = "auto"
    """by name: se matern12 matern32 matern52 rq arcsine linear poly2 poly3 constant, or one that another package adds;
    -iso for one lengthscale; + and *; auto: the best of several"""
    mean: Literal["constant", "zero", "linear", "auto"] = "auto"
    """prior mean: a constant, zero, or a linear trend; auto: of measurements that are learned from, the better one of a
    constant and a linear trend where that fits in memory, else a constant"""
    query: Annotated[int | Literal["auto"] | None, "Q|auto", COUNT] = None
    """query points Q, at most [default: 500; spatial, many rows of few inputs: 1000; dgp, in each layer: 50]; auto:
    about two for each degree of freedom, as far as memory allows"""
    query_method: Literal["kmeans", "random", "pivoted", "evidence", "sggp", "optimised", "hpev-sgev", "hpev-sggp"] = (
        "kmeans"
    )
    """k-means centres, with few inputs also in gaps between rows; or rows: random, of largest prior variance given the
    others, best for the evidence (SGEV), or, sggp, for the posterior of their own model until more would hardly raise
    it; with --objective committee also optimised: k-means centres moved to raise its evidence (fitc and sor: together
    with the hyper-parameters); hpev-sgev, hpev-sggp: as evidence and sggp, as many as asked for, and again at the
    hyper-parameters that its evidence then has, in turns (random with it is HPEV-rand of that thesis)"""
    rows_per_expert: Annotated[int | None, COUNT] = None
    """rows of a partition, about [default: 1000, since an expert takes time with their cube; fourier: 250000, in cells
    16000; with noisy inputs 200]"""
    partition: Literal["chunks", "spatial"] = "chunks"
    """rows as they are stored, or cells of rows that are near in the learned metric, which are copied into their order
    and give local prediction"""
    passes: Literal["1", "auto"] | None = None
    """1: the committee as published; auto: further passes until it stops moving [default: 1, or auto where rows are
    stored in the order of their targets]"""
    approximation: Literal["laplace", "ep"] = "laplace"
    """how experts make other than Gaussian rows Gaussian: at the mode, or by expectation propagation of the moments"""
    linearise: Literal["own", "running"] = "own"
    """first pass: each expert at its own mode, or under the belief of the moment (then order matters)"""
    learn: bool = True
    """learn hyper-parameters; or keep the default ones, or those of --set"""
    set: Annotated[dict[str, float | list[float]], "NAME=VALUE"] = field(default_factory=dict)
    """with --no-learn: a hyper-parameter as `info` prints it, in units of the scaled data"""
    objective: Literal["local", "leave-one-out", "committee", "subset"] = "local"
    """learn from the evidence of blocks of rows on their own; from how each row is predicted by the others of its block
    (leave-one-out log density, also GPP; normal errors, onehot, softmax, svm); from blocks and from there on from the
    whole committee (PITC; of rrgp_star the reduced-rank process that it augments); or from one random subset of the
    rows of --effort"""
    effort: Literal["quick", "normal", "thorough"] = "normal"
    """how long to learn, and from how many rows"""
    seed: Annotated[int, SEED] = 0
    """seed of all that is drawn at random"""
    x: str = "X"
    """name of the input array; of a table, names of the columns that are inputs, with commas between them"""
    y: str = "y"
    """name of the target array"""
    expert: Annotated[str, "NAME"] = "bcm"
    """what experts share, and what they do with the rest: bcm (values at query points; a block of each partition), fitc
    (the rest of each row on its own), rrgp_star (of the rest, what as many rows of a partition as there are query
    points say of its other rows), sor (nothing); and nothing else either: mnn (a network of hidden units, whose
    inner weights are trained on up to 100,000 rows), mnnmix (a mixture of such networks), rvm (weights of bumps around
    --query rows, of which are kept those that raise the evidence of all rows), rvm_star (and one bump more at each new
    point: variances grow away from the others; predictions read all rows again), dgp (--layers of Gaussian processes,
    trained on up to 50,000 rows, of which messages are about the last one), fourier (weights of waves, up to 3
    inputs: millions of rows a second); or one that another package adds; all learn hyper-parameters as bcm does"""
    query_from: Annotated[str | None, "NEW.zarr"] = None
    """where predictions will be wanted: path or URL of a data set, or a directory of them; some of its inputs go into
    k-means, where they weigh as much as the training rows"""
    noise: Literal["auto", "constant", "varying"] = "auto"
    """where numbers are predicted: errors as large everywhere, or as large as rows left out say at each input; auto:
    varying where rows left out gain by it"""
    noisy_inputs: Literal["no", "clean", "hmc"] = "no"
    """whether inputs were seen with normal errors, whose (co)variances an array X_variance beside X tells: clean learns
    with inputs moved to where they most probably were, as far as rows left out are predicted better; hmc learns with
    draws of them, finds the noise better, and without X_variance one variance of errors for each column, in several
    times the time (both of measurements, which then count at 20 draws of their inputs)"""
    precision: Literal["double", "mixed"] = "double"
    """in which experts of Gaussian noise compute: mixed takes some three quarters of the time, moves means by less than
    a thousandth of their standard deviations, and refuses to forget"""

    units: Annotated[int | None, "H", Bounds(1, 10**6)] = None
    """hidden units: of a network of mnn or mnnmix [default: 250]; of each layer of dgp but the last [default: 8]"""
    networks: Annotated[int, "K", Bounds(1, 1000)] = 4
    """networks that mnnmix mixes"""
    layers: Annotated[int, "L", Bounds(1, 100)] = 2
    """layers of dgp; 1: values at query points (fitc), which are moved as layers are"""
    deep_sites: Literal["tied", "shared", "partition", "row"] = "tied"
    """what is believed of the layers of dgp: what they have climbed to, where all rows say the same (tied, AEP); or,
    from there, what sweeps of expectation propagation find, with one factor for all rows trained on (shared, SEP), for
    each partition of these, or for each row (EP: some thousands of them)"""
    rvm_update: Literal["fast", "em", "mackay", "direct"] = "fast"
    """how rvm learns which bumps to keep: one at a time; or from all on, by expectation maximisation, by MacKay's fixed
    point, or by a quasi-Newton method, each at a cubic cost a step"""

    rvm_dictionary: Annotated[int | None, "M", COUNT] = None
    """bumps from which rvm chooses: --query of them at a time, beside those it has, with a pass over all rows for each
    time [default: as many as --query]"""
    rvm_lengthscale: Literal["kernel", "adapted"] = "kernel"
    """lengthscales of the bumps of rvm: those that were learned for the kernel; or adapted to the evidence of all rows,
    from there on, which takes up to some hundreds of quick passes over them"""
    rvm_classes: Literal["laplace", "naive", "cavity"] = "laplace"
    """what rows of two classes say to rvm, which keeps bumps by it: that at the joint mode; or by mean field, naive, or
    with the cavities of expectation propagation, both of which take some .4 ms a row and pass (messages about what is
    kept are Laplace's)"""
    tolerance: float = 0.001
    """by how much the covariance of the waves of fourier may differ from the kernel's, as a share of the variance.
    Above 2,000 weights the variance of each new row is solved for, to .1 %, in 3 ms of one core at 5,000 weights and 10
    to 40 at 12,000, more where noise is small; with --partition spatial it is the mean of 64 random draws"""

    @property
    def partition_rows(self) -> int:
        """`rows_per_expert`, which is known once settings are made."""
        assert self.rows_per_expert is not None, "settings have filled it in"
        return self.rows_per_expert

    def __post_init__(self):
        from bcmdist.learning.settings_checks import refuse, usual_rows  # quick start

        if self.rows_per_expert is None:
            object.__setattr__(self, "rows_per_expert", usual_rows(self))
        if self.passes is not None:
            object.__setattr__(self, "passes", str(self.passes))
        refuse(self)
