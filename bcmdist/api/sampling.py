"""Sampled hyper-parameters, and a committee for each sample (Williams & Rasmussen 1996, section 3.2).

    mixture = sample_posterior("train.zarr", Settings(kernel="se+linear-iso+constant", mean="zero"), model="model")

The chain lives in the coordinates of the paper: logs of v_0, v_1, a_0, a_1 and w_l = 1 / lengthscale_l^2, of
scaled inputs and targets. A step, a starting point and a prior mean apply to these, and not to lengthscales.

    MODEL/prepared      an empty committee: scaling, likelihood, classes
    MODEL/chains        one commit for each chain, with its samples and how it was run
    MODEL/members/0000  a model directory for each sample that is kept
    MODEL/mixture.json  their names and commits, once all are there
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixture import PREPARED, Mixture, refuse_unmixable
from bcmdist.api.places import places
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import Partition, partitions
from bcmdist.errors import InvalidOption, ModelExists
from bcmdist.experts.hmc import HMC, Chain, LogDensity, sample, with_normal_prior
from bcmdist.learning.evidence.objectives import CommitteeObjective, LocalObjective
from bcmdist.learning.experts import FIRST
from bcmdist.learning.hyperparameters import AUTO_MEAN
from bcmdist.learning.input_methods import EXACT_INPUTS
from bcmdist.learning.point import Point, moves_of
from bcmdist.learning.sampling.chains import FOLDER, chain_from, chain_store
from bcmdist.learning.search import Objective
from bcmdist.learning.settings import Settings
from bcmdist.model.kernels import Kernel, split_parameters
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import named_parameters, with_named
from bcmdist.model.scaling import scaling_to_array
from bcmdist.prediction.mixture import CONTENTS
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.serial import SerialRuntime
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.commits import BlobReference
from bcmdist.storage.locate import open_storage

# The prior of every log parameter, in the coordinates of the paper.
PRIOR_MEAN, PRIOR_SD = -3.0, 3.0
# Where chains begin: at the paper's place, all but the first this far from it in every direction.
START_NOISE_AND_W, START_OTHERS = -2.0, 0.0
START_SPREAD = 1.0
# Trajectories of a chain, and how many of the first are left out, by effort.
LENGTHS = {"quick": (300, 100), "normal": (3000, 1000), "thorough": (9000, 3000)}
# Jitter of the query covariance at all samples, at least: enough for any lengthscale, so that none is ruled out.
LEAST_JITTER = 1e-10
# No density beyond: ten deviations of the prior, where exp can still be squared.
LARGEST_LOG = 30.0

MEMBERS = "members"
# Settings that earlier versions do not know, whose chains are those of the defaults.
LATER = ("expert", "noise", "noisy_inputs", "query_from", "precision")

MakeObjective = Callable[[GBCM, list[Partition], Runtime], Objective]
"""From a prepared committee, partitions and a runtime to an objective of kernel and likelihood."""


class Coordinates:
    """The paper's log parameters of a kernel and a likelihood: log w = -2 log lengthscale, others as they are.

    `groups` (D,): the first of the inputs that each shares its lengthscale with, which is a single parameter.
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
        """Kernel and likelihood at a point phi (P,)."""
        named = named_parameters(self.kernel, self.likelihood)
        flat = np.exp(phi / self.slope)[self.which]
        return with_named(self.kernel, self.likelihood, split_parameters(named, flat))

    def log_density(self, objective: Objective) -> LogDensity:
        """Log posterior density, and its gradient, from an objective whose gradient is in log parameters."""

        def log_likelihood(phi):
            if np.abs(phi).max() > LARGEST_LOG:
                return -np.inf, np.zeros_like(phi)
            value, gradient = objective(*self.at(phi))
            return value, np.bincount(self.which, gradient) / self.slope

        return with_normal_prior(log_likelihood, mean=PRIOR_MEAN, sd=PRIOR_SD)

    def start(self, chain) -> np.ndarray:
        """Where a chain begins: the paper's place for the first, about it for others."""
        # a_1 is a scale of outputs like v_0, though it is written as a lengthscale here.
        w = (self.slope < 0) & ["linear" not in name for name in self.names]
        noise = [name == "likelihood.noise_variance" for name in self.names]
        place = np.where(w | noise, START_NOISE_AND_W, START_OTHERS)
        return place + START_SPREAD * (chain > 0) * np.random.default_rng([chain, 1]).standard_normal(len(place))


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
    """Committees at samples from the posterior of the hyper-parameters given a data set.

    Parameters
    ----------
    source : path or URL of a Zarr group, or (X, y)
    settings : with a kernel by name, and nothing `set`; its seed is that of the chains too
    model : directory; a temporary one by default. What is there of the same job is not computed again.
    samples : committees in all, evenly spaced along the chains
    chains : at least 2 for a `split_rhat` that says something
    hmc : by default chains as long as `settings.effort` says
    objective : by default the evidence of the committee about its query points where a Gaussian likelihood has
        several partitions. Else the sum of the evidences of partitions on their own: exact for one partition; more
        it takes for independent, which is not the evidence of their committee.

    Raises
    ------
    InvalidOption
        Settings that cannot be sampled.
    ModelExists
        `model` holds something else.
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
        given = replace(settings, learn=False, set={n: v.tolist() for n, v in values.items()})
        fitted = GBCM.fit(source, given, model=f"{model}/{name}", runtime=runtime).snapshot.reference
        listed.append([name, fitted.number, fitted.digest])
    text, storage = json.dumps(listed).encode(), open_storage(model)
    if not storage.put_if_absent(CONTENTS, text) and storage.get(CONTENTS) != text:
        raise ModelExists(f"{model}: expected a mixture of these samples, it holds another; choose another directory")
    return replace(Mixture.load(model), _keep=keep)


def default_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """The evidence of the committee where it has several Gaussian experts, else `local_objective`."""
    likelihood = prepared.model.likelihood
    several = len(parts) > 1 and likelihood.exact and likelihood.processes == 1
    return (committee_objective if several else local_objective)(prepared, parts, runtime)


def local_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """Sum of the evidences of partitions, each on its own."""
    model = prepared.model
    return LocalObjective(runtime, parts, scaling=_scaling(prepared), mean=model.query.mean.name, classes=model.classes)


def committee_objective(prepared: GBCM, parts: list[Partition], runtime: Runtime) -> Objective:
    """The evidence of the committee of all partitions about the query points it was prepared with."""
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
    """`samples` rows evenly spaced along the chains laid end to end, the last one included, (samples, P)."""
    every = np.concatenate([chain.samples for chain in chains])
    return every[(np.arange(1, samples + 1) * len(every)) // samples - 1]


def _chain(model, coordinates, objective, hmc, settings, number, prepared):
    """A chain that was sampled before, or a new one, which is committed."""
    store = chain_store(model)
    job = {"hmc": asdict(hmc), "settings": asdict(settings), "data": prepared.snapshot.facts.job, "chain": number}
    if number + 1 in store.numbers():
        commit = store.load(number + 1)
        if _known(commit.facts["job"]) != _known(job):
            raise ModelExists(f"{model}: expected chains of this job, it holds others; choose another model directory")
        return chain_from(commit)
    density = coordinates.log_density(objective)
    chain = sample(density, coordinates.start(number), settings=hmc, seed=[settings.seed, number])
    arrays = store.put_arrays({"samples": chain.samples, "log_density": chain.log_density})
    facts = {"job": job, "names": coordinates.names, "acceptance": chain.acceptance}
    store.commit(number + 1, arrays=arrays, facts=facts, segments=(), offsets={})
    return chain


def _known(job):
    """A chain's job as earlier versions would know it, whose default was the constant mean that `auto` is for chains.

    Which of the two was asked for is told apart by the commit that the chains begin with, part of the job.
    """
    asked = {n: v for n, v in job["settings"].items() if n not in LATER or v != getattr(Settings(), n)}
    if asked["mean"] == AUTO_MEAN:
        asked["mean"] = "constant"
    return job | {"settings": asked}


def _prepared(source, settings, model, runtime) -> GBCM:
    """The empty committee of a directory for a mixture; nothing is left of one that cannot be sampled."""
    other = set(open_storage(model).names("")) - {PREPARED, FOLDER, MEMBERS, CONTENTS}
    if other:
        raise ModelExists(
            f"{model}: expected a new or empty directory, or chains of this job, it holds {min(other)}; choose another"
        )
    place = f"{model}/{PREPARED}"
    prepared = GBCM.prepare(source, replace(settings, learn=False), model=place, runtime=runtime)
    try:
        _refuse_unsampled(prepared.model.likelihood)
    except InvalidOption:
        open_storage(place).remove_all()
        open_storage(model).remove(PREPARED)  # with the directory, unless it holds something else
        raise
    return prepared


def _refuse_unsampled(likelihood):
    refuse_unmixable(likelihood)
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
    if settings.noisy_inputs != EXACT_INPUTS:
        raise InvalidOption(
            f"hmc: expected inputs as they were seen, got noisy_inputs {settings.noisy_inputs}; leave it out, or fit "
            "with it and without samples of hyper-parameters"
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
