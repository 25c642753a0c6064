"""Samples of the hyper-parameters by Hamiltonian Monte Carlo, and one committee per sample.

After Williams & Rasmussen (1996), section 3.2.

    mixture = sample_posterior("train.zarr", Settings(kernel="se+linear-iso+constant", mean="zero"), model="model")

Chains use the coordinates of the paper: logs of v_0, v_1, a_0, a_1 and w_l = 1 / lengthscale_l^2, for scaled inputs
and targets. Step size, starting points and prior refer to these coordinates, not to lengthscales.

    MODEL/prepared      an empty committee: scaling, likelihood, classes
    MODEL/chains        one commit per chain, with its samples and settings
    MODEL/members/0000  a model directory for each sample that is kept
    MODEL/mixture.json  names and commits of the members, written when all are complete
"""

import json
from collections.abc import Callable
from dataclasses import asdict, fields, replace

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixture import PREPARED, Mixture, refuse_unmixable
from bcmdist.api.places import places
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import Partition, partitions
from bcmdist.errors import InvalidOption, ModelExists
from bcmdist.experts.hmc import HMC, Chain, LogDensity, sample, with_normal_prior
from bcmdist.learning.evidence.objectives import CommitteeObjective, LocalObjective
from bcmdist.learning.experts import FIRST, method_of
from bcmdist.learning.hyperparameters import AUTO_MEAN
from bcmdist.learning.point import Point, moves_of
from bcmdist.learning.sampling.chains import FOLDER, chain_from, chain_store
from bcmdist.learning.search import Objective
from bcmdist.learning.settings import Settings
from bcmdist.model.kernels import Kernel, split_parameters
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import named_parameters, with_named
from bcmdist.model.scaling import scaling_to_array
from bcmdist.runtime.interface import Runtime, SerialRuntime
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.commits import MIXTURE as CONTENTS
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.locate import open_storage

# The normal prior of every log parameter, in the coordinates of the paper.
PRIOR_MEAN, PRIOR_SD = -3.0, 3.0
# Starting points: the first chain starts at the paper's values, others at normal deviates of this size about them.
START_NOISE_AND_W, START_OTHERS = -2.0, 0.0
START_DEVIATION = 1.0
# Trajectories per chain, and length of the burn-in, by effort.
LENGTHS = {"quick": (300, 100), "normal": (3000, 1000), "thorough": (9000, 3000)}
# Least relative jitter of the query covariance at all samples: enough for every lengthscale, so that none is excluded.
LEAST_JITTER = 1e-10
# The density is zero beyond this absolute log parameter: ten prior deviations, where exp can still be squared.
LARGEST_LOG = 30.0

MEMBERS = "members"
# Settings added by later versions. Chains of earlier versions were sampled with the defaults of these.
LATER = ("expert", "noise", "query_from", "like", "precision", "warp", "coordinates", "target_transform")

MakeObjective = Callable[[GBCM, list[Partition], Runtime], Objective]
"""Function from a prepared committee, its partitions and a runtime to an objective of kernel and likelihood."""


class Coordinates:
    """The paper's log parameters of a kernel and a likelihood: log w = -2 log lengthscale, others unchanged.

    `groups` (D,): for each input, the first input with which it shares a lengthscale; each group is one parameter.
    """

    def __init__(self, kernel: Kernel, likelihood: Likelihood, groups: tuple[int, ...] = ()):
        self.kernel, self.likelihood = kernel, likelihood
        moves = moves_of(Point("", kernel, likelihood, -np.inf, groups=groups))
        self.which, first = moves.argmax(axis=1), moves.argmax(axis=0)
        named, lengthscales = named_parameters(kernel, likelihood), {f"kernel.{n}" for n in kernel.lengthscales}
        every = [(n, k if len(v) > 1 else None) for n, v in named.items() for k in range(len(v))]
        every = [every[k] for k in first]
        self.slope = np.array([-2.0 if n in lengthscales else 1.0 for n, _ in every])
        self.names = [n.replace("lengthscale", "w") + ("" if k is None else f"[{k}]") for n, k in every]

    def at(self, phi) -> tuple[Kernel, Likelihood]:
        """Return kernel and likelihood at the coordinates phi (P,)."""
        named = named_parameters(self.kernel, self.likelihood)
        flat = np.exp(phi / self.slope)[self.which]
        return with_named(self.kernel, self.likelihood, split_parameters(named, flat))

    def log_density(self, objective: Objective) -> LogDensity:
        """Return the log posterior density with gradient, from an objective with its gradient in log parameters."""

        def log_likelihood(phi):
            if np.abs(phi).max() > LARGEST_LOG:
                return -np.inf, np.zeros_like(phi)
            value, gradient = objective(*self.at(phi))
            return value, np.bincount(self.which, gradient) / self.slope

        return with_normal_prior(log_likelihood, mean=PRIOR_MEAN, sd=PRIOR_SD)

    def start(self, chain) -> np.ndarray:
        """Return the starting point of a chain, (P,): the paper's values for chain 0, random ones about them else."""
        # a_1 scales outputs, as v_0 does, although the linear kernel has a lengthscale here.
        w = (self.slope < 0) & ["linear" not in name for name in self.names]
        noise = [name == "likelihood.noise_variance" for name in self.names]
        place = np.where(w | noise, START_NOISE_AND_W, START_OTHERS)
        return place + START_DEVIATION * (chain > 0) * np.random.default_rng([chain, 1]).standard_normal(len(place))


@one_thread()
def sample_posterior(
    source,
    settings: Settings,
    *,
    model=None,
    samples=50,
    chains=2,
    hmc: HMC | None = None,
    runtime: Runtime | None = None,
    objective: MakeObjective | None = None,
) -> Mixture:
    """Sample the posterior of the hyper-parameters given a data set, and fit one committee per sample.

    Parameters
    ----------
    source : path or URL of a Zarr group, or (X, y)
    settings : with a named kernel and an empty `set`; its seed is also used for the chains
    model : directory; default: a temporary one. Results of the same job in it are reused.
    samples : number of committees in all, at samples evenly spaced along the chains
    chains : number of chains; `split_rhat` needs at least 2
    hmc : settings of the sampler; default: chain lengths by `settings.effort`
    objective : default: the evidence of the committee with its query points, for a Gaussian likelihood with several
        partitions; else the sum of the evidences of the single partitions. The sum is exact for one partition; it
        treats several as independent, so that it is not the evidence of their committee.

    Raises
    ------
    InvalidOption
        The settings do not support sampling.
    ModelExists
        `model` holds another job or other files.
    """
    runtime, hmc = runtime or SerialRuntime(), hmc or HMC(*LENGTHS[settings.effort])
    _refuse(settings, samples, chains, hmc)
    keep, source, model = places(source, model)
    prepared = _prepared(source, settings, model, runtime)
    parts = partitions(open_data(source, x=settings.x, y=settings.y), settings.partition_rows)
    value = (objective or default_objective)(prepared, parts, runtime)
    begun = prepared.model
    coordinates = Coordinates(begun.query.kernel, begun.likelihood, begun.schema.groups)
    run = [_chain(model, coordinates, value, hmc, settings, k, prepared) for k in range(chains)]
    listed = []
    for number, phi in enumerate(thinned(run, samples)):
        name, values = f"{MEMBERS}/{number:04d}", named_parameters(*coordinates.at(phi))
        fixed = replace(settings, learn=False, set={n: v.tolist() for n, v in values.items()})
        fitted = GBCM.fit(source, fixed, model=f"{model}/{name}", runtime=runtime).snapshot.reference
        listed.append([name, fitted.number, fitted.digest])
    text, storage = json.dumps(listed).encode(), open_storage(model)
    if not storage.put_if_absent(CONTENTS, text) and storage.get(CONTENTS) != text:
        raise ModelExists(f"{model}: expected a mixture of these samples, it holds another; choose another directory")
    return replace(Mixture.load(model), _keep=keep)


def default_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """Return `committee_objective` for a Gaussian likelihood with several partitions, else `local_objective`."""
    likelihood = prepared.model.likelihood
    several = len(parts) > 1 and likelihood.exact and likelihood.processes == 1
    return (committee_objective if several else local_objective)(prepared, parts, runtime)


def local_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """Return the objective that sums the evidences of single partitions, as if these were independent."""
    model = prepared.model
    return LocalObjective(runtime, parts, scaling=_scaling(prepared), mean=model.query.mean.name, classes=model.classes)


def committee_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """Return the objective that is the evidence of the committee of all partitions, with the prepared query points."""
    query = prepared.model.query
    return CommitteeObjective(
        runtime,
        parts,
        scaling=_scaling(prepared),
        mean=query.mean.name,
        points=query.points,
        jitter=max(query.jitter_share, LEAST_JITTER),
        store=prepared.snapshot.store,
        classes=prepared.model.classes,
    )


def _scaling(prepared):
    digests = prepared.store.put_arrays({"scaling": scaling_to_array(prepared.model.scaling)})
    return BlobReference(prepared.url, digests["scaling"])


def thinned(chains: list[Chain], samples) -> np.ndarray:
    """Return samples evenly spaced along the concatenated chains, including the last sample: (samples, P)."""
    every = np.concatenate([chain.samples for chain in chains])
    return every[(np.arange(1, samples + 1) * len(every)) // samples - 1]


def _chain(model, coordinates, objective, hmc, settings, number, prepared):
    """Return a chain from an earlier run of the same job, or sample and commit it."""
    store = chain_store(model)
    job = {"hmc": asdict(hmc), "settings": settings.flat(), "data": prepared.snapshot.facts.job, "chain": number}
    if number + 1 in store.numbers():
        commit = store.load(number + 1)
        if _comparable_job(commit.facts["job"]) != _comparable_job(job):
            raise ModelExists(f"{model}: expected chains of this job, it holds others; choose another model directory")
        return chain_from(commit)
    density = coordinates.log_density(objective)
    chain = sample(density, coordinates.start(number), settings=hmc, seed=[settings.seed, number])
    arrays = store.put_arrays({"samples": chain.samples, "log_density": chain.log_density})
    facts = {"job": job, "names": coordinates.names, "acceptance": chain.acceptance}
    store.commit(number + 1, arrays=arrays, facts=facts, segments=(), offsets={})
    return chain


def _comparable_job(job):
    """Return a chain's job as an earlier version would have recorded it, for comparison.

    In earlier versions the default mean was "constant", which is what "auto" means for chains. "auto" and "constant"
    still give different jobs, since the job includes the fit job of the prepared committee.
    """
    early, default = {one.name for one in fields(Settings)} - {*LATER}, Settings()
    asked = {n: v for n, v in job["settings"].items() if n in early or v != getattr(default, n, None)}
    if asked["mean"] == AUTO_MEAN:
        asked["mean"] = "constant"
    return job | {"settings": asked}


def _prepared(source, settings, model, runtime) -> GBCM:
    """Prepare the empty committee of a mixture's directory; remove it where its likelihood cannot be sampled."""
    other = set(open_storage(model).names("")) - {PREPARED, FOLDER, MEMBERS, CONTENTS}
    if other:
        raise ModelExists(
            f"{model}: expected a new or empty directory, or chains of this job, it holds {min(other)}; choose another"
        )
    place = f"{model}/{PREPARED}"
    prepared = GBCM.prepare(source, replace(settings, learn=False), model=place, runtime=runtime)
    try:
        _refuse_unsampled(prepared.model)
    except InvalidOption:
        open_storage(place).remove_all()
        open_storage(model).remove(PREPARED)  # and the directory itself where it is empty then
        raise
    return prepared


def _refuse_unsampled(model):
    refuse_unmixable(model)
    likelihood = model.likelihood
    if likelihood.learned_as() is not likelihood:
        raise InvalidOption(
            f"hmc: expected a likelihood with a gradient of its evidence, got {likelihood.name}; "
            "use onehot, bernoulli or probit"
        )


def _refuse(settings, samples, chains, hmc):
    if settings.kernel == "auto" or settings.set or not settings.learn:
        raise InvalidOption("hmc: expected a kernel by name and learn without set; name one and leave out the rest")
    if settings.expert != FIRST:
        raise InvalidOption(
            f"hmc: expected the expert {FIRST}, whose evidence has a gradient, got {settings.expert}; leave it out"
        )
    if method_of(settings).capabilities.input_errors:
        raise InvalidOption(
            f"hmc: expected inputs as they were seen, got {method_of(settings).name}; leave it out, or fit with it and "
            "without samples of hyper-parameters"
        )
    if settings.partition == "spatial":
        raise InvalidOption(
            "hmc: expected --partition chunks, since committees at samples predict without the rows around new points, "
            "got spatial; leave it out"
        )
    available = chains * (hmc.iterations - hmc.burn_in)
    if chains < 1 or not 1 <= samples <= available:
        raise InvalidOption(
            f"hmc: expected at least one chain and 1 to {available} samples of {chains}, got {samples}; correct them"
        )
