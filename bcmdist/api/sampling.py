"""Samples of the hyper-parameters by Hamiltonian Monte Carlo, and one committee per sample.

After Williams & Rasmussen (1996), section 3.2.

    mixture = sample_posterior("train.zarr", Settings(kernel="se+linear-iso+constant", mean="zero"), model="model")

Chains use the coordinates of the paper: logs of v_0, v_1, a_0, a_1 and w_l = 1 / lengthscale_l^2, for scaled inputs
and targets. Step size, starting points and prior refer to these coordinates, not to lengthscales.

    MODEL/prepared      an empty committee: scaling, likelihood, classes; with spatial partitions also the rows in the
                        order of cells, and the halos, of all members
    MODEL/chains        one commit per chain, with its samples and settings
    MODEL/members/0000  a model directory for each sample that is kept
    MODEL/mixture.json  names and commits of the members, written when all are complete
    MODEL/revisions     later commits of the mixture (`bcmdist.committee.mixture_commits`)
"""

import functools
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcmdist.api.gbcm import GBCM
from bcmdist.api.in_memory_rows import Rows
from bcmdist.api.mixture import Mixture, refuse_unmixable
from bcmdist.api.mixtures import tasks
from bcmdist.api.mixtures.changes import log_evidence
from bcmdist.api.mixtures.density import Coordinates as Coordinates  # re-exported
from bcmdist.api.mixtures.density import MakeObjective, default_objective
from bcmdist.api.mixtures.density import committee_objective as committee_objective
from bcmdist.api.mixtures.density import local_objective as local_objective
from bcmdist.api.mixtures.merging import MEMBERS, copy_chains, member_name
from bcmdist.api.places import places
from bcmdist.committee.mixture_commits import (
    PREPARED,
    REVISIONS,
    Contents,
    Revision,
    contents_of,
    first_commit,
    references,
    revision_of,
)
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import open_data
from bcmdist.data.groups import Location
from bcmdist.errors import InvalidOption, ModelExists
from bcmdist.experts.hmc import HMC, Chain
from bcmdist.learning.experts import method_of
from bcmdist.learning.hyperparameters import AUTO_MEAN
from bcmdist.learning.sampling.chains import FOLDER, chain_from, chain_store
from bcmdist.learning.settings import Settings
from bcmdist.model.model import Model, named_parameters
from bcmdist.prediction.local import arrange
from bcmdist.runtime.interface import Runtime, SerialRuntime
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.aliases import FOLDER as ALIASES
from bcmdist.storage.commits import MIXTURE as CONTENTS
from bcmdist.storage.commits import ModelStore
from bcmdist.storage.locate import open_storage

# Trajectories per chain, and length of the burn-in, by effort.
LENGTHS = {"quick": (300, 100), "normal": (3000, 1000), "thorough": (9000, 3000)}
# Share of accepted trajectories with spatial partitions, whose many rows make the posterior narrow: 7 % of 4,000 rows'
# were accepted with the paper's step.
ACCEPTANCE = 0.9
# Experts whose evidence has a gradient in the hyper-parameters.
SAMPLED = ("bcm", "fitc", "sor")
# Settings added by later versions. Chains of earlier versions were sampled with the defaults of these.
LATER = (
    "expert", "noise", "query_from", "like", "precision", "warp", "coordinates", "target_transform", "output", "grow",
    "grow_share", "query_most", "seconds",
)  # fmt: skip


@one_thread()
def sample_posterior(
    source: Location | Rows | tuple[ArrayLike, ArrayLike],
    settings: Settings,
    *,
    model: Location | None = None,
    samples: int = 50,
    chains: int = 2,
    hmc: HMC | None = None,
    runtime: Runtime | None = None,
    objective: MakeObjective | None = None,
) -> Mixture:
    """Sample the posterior of the hyper-parameters given a data set, and fit one committee per sample.

    Parameters
    ----------
    source : path or URL of a Zarr group, or (X, y) with X (N, D) and y (N,)
    settings : with a named kernel and an empty `set`; its seed is also used for the chains. With `like` a mixture, the
        new one has its samples, and nothing is sampled. With partition "spatial" the evidence is that of the cells, and
        chains start at hyper-parameters that are learned first
    model : directory; default: a temporary one. Results of the same job in it are reused.
    samples : number of committees in all, at samples evenly spaced along the chains
    chains : number of chains; `split_rhat` needs at least 2
    hmc : settings of the sampler; default: chain lengths by `settings.effort`, and with spatial partitions a step that
        the burn-in adapts
    runtime : where to run; default: in this process
    objective : default: the evidence of the committee with its query points, for a Gaussian likelihood with several
        partitions; else the sum of the evidences of the single partitions. The sum is exact for one partition; it
        treats several as independent, so that it is not the evidence of their committee.

    Returns
    -------
    The mixture of the committees, with equal weights.

    Raises
    ------
    InvalidOption
        The settings do not support sampling.
    ModelExists
        `model` holds another job or other files.

    Examples
    --------
    >>> from bcmdist import HMC, sample_posterior
    >>> chain = HMC(iterations=20, burn_in=10)
    >>> mixture = sample_posterior((X, y), settings, samples=4, chains=2, hmc=chain)
    >>> len(mixture.members), mixture.predict(X[:3])["mean"].shape
    (4, (3,))
    """
    adapted = ACCEPTANCE if settings.partition == "spatial" else None
    runtime, hmc = runtime or SerialRuntime(), hmc or HMC(*LENGTHS[settings.effort], acceptance=adapted)
    like = like_mixture(settings)
    if like is None:
        _refuse(settings, samples, chains, hmc)
    keep, data, model = places(source, model)
    prepared = _prepared(data, settings, model, runtime, like)
    if like is None:
        how = (data, settings, hmc, objective or default_objective)
        run, coordinates = _chains(model, prepared, chains, *how, runtime), tasks.coordinates_of(prepared)
        named = [named_parameters(*coordinates.at(phi)) for phi in thinned(run, samples)]
        members = [tasks.fixed_at(_plain(settings), values) for values in named]
        sampled = None
    else:
        copy_chains(like.url, model)
        stored, each = revision_of(like), references(like)
        members = [replace(_plain(settings), like=one.url) for one in each]
        sampled = stored.sampled or [log_evidence(Snapshot.load(one.url, commit=one.number)) for one in each]
    listed = _members(model, data, members, prepared, runtime)
    text, storage = first_commit(Revision(listed, sampled=sampled)), open_storage(model)
    if not storage.put_if_absent(CONTENTS, text) and storage.get(CONTENTS) != text:
        raise ModelExists(f"{model}: expected a mixture of these samples, it holds another; choose another directory")
    return replace(Mixture.load(model), _keep=keep)


def like_mixture(settings: Settings) -> Contents | None:
    """The newest commit of the mixture whose samples a fit shall have (`Settings.like`); None if there is none."""
    like = settings.like
    return contents_of(like) if like is not None and CONTENTS in open_storage(like).names("") else None


def _plain(settings: Settings) -> Settings:
    """Settings of a fit with nothing that is chosen by the data: what members share must be the same."""
    chosen: dict[str, Any] = {"partition": "chunks"}
    if settings.partition == "spatial" and settings.like is None:  # hyper-parameters are learned first
        chosen = {"warp": "none", "target_transform": "none"}
    return replace(settings, **{name: value for name, value in chosen.items() if getattr(settings, name) == "auto"})


def _members(
    model: Location, source: Location, members: Sequence[Settings], prepared: GBCM, runtime: Runtime
) -> list[tuple[str, int, str]]:
    """Fit the members; return the directory, number and hash of each."""
    cells = None if prepared.model.cells is None else prepared.snapshot.reference
    work = [tasks.FitMember(source, one, f"{model}/{member_name(number)}", cells) for number, one in enumerate(members)]
    parts = len(tasks.parts_of(prepared, source, members[0]))
    fitted = dict(tasks.each(work, lambda number: work[number].on(runtime), parts, runtime, label="members"))
    return [(member_name(number), fitted[number].number, fitted[number].digest) for number in range(len(work))]


def thinned(chains: list[Chain], samples: int) -> np.ndarray:
    """Return samples evenly spaced along the concatenated chains, including the last sample: (samples, P)."""
    every = np.concatenate([chain.samples for chain in chains])
    return every[(np.arange(1, samples + 1) * len(every)) // samples - 1]


def _chains(
    model: Location,
    prepared: GBCM,
    chains: int,
    source: Location,
    settings: Settings,
    hmc: HMC,
    objective: MakeObjective,
    runtime: Runtime,
) -> list[Chain]:
    """Return the chains: those that an earlier run of the same job has committed, others sampled and committed."""
    store, coordinates = chain_store(model), tasks.coordinates_of(prepared)
    how = {name: value for name, value in asdict(hmc).items() if value is not None}  # as earlier versions recorded it
    common = {"hmc": how, "settings": settings.flat(), "data": prepared.snapshot.facts.job}
    jobs = [common | {"chain": number} for number in range(chains)]
    found = dict[int, Chain]()
    for number in store.numbers()[:chains]:
        commit = store.load(number)
        if _comparable_job(commit.facts["job"]) != _comparable_job(jobs[number - 1]):
            raise ModelExists(f"{model}: expected chains of this job, it holds others; choose another model directory")
        found[number - 1] = chain_from(commit)
    begun, left = len(found), chains - len(found)
    task = tasks.SampleChain(prepared.snapshot.reference, source, settings, hmc, objective)
    parts = len(tasks.parts_of(prepared, source, settings))
    on = functools.partial(task.on, runtime=runtime)
    for number, chain in tasks.each([task] * left, on, parts, runtime, label="chains", first=begun):
        found[number] = chain
        while begun in found:  # in order: a gap would be a loss
            _commit_chain(store, begun, found[begun], jobs[begun], coordinates)
            begun += 1
    return [found[number] for number in range(chains)]


def _commit_chain(store: ModelStore, number: int, chain: Chain, job: dict[str, Any], coordinates: Coordinates) -> None:
    arrays = store.put_arrays({"samples": chain.samples, "log_density": chain.log_density})
    facts = {"job": job, "names": coordinates.names, "acceptance": chain.acceptance}
    store.commit(number + 1, arrays=arrays, facts=facts, segments=(), offsets={})


def _comparable_job(job: dict[str, Any]) -> dict[str, Any]:
    """Return a chain's job as an earlier version would have recorded it, for comparison.

    In earlier versions the default mean was "constant", which is what "auto" means for chains. "auto" and "constant"
    still give different jobs, since the job includes the fit job of the prepared committee.
    """
    early, default = {one.name for one in fields(Settings)} - {*LATER}, Settings()
    asked = {n: v for n, v in job["settings"].items() if n in early or v != getattr(default, n, None)}
    if asked["mean"] == AUTO_MEAN:
        asked["mean"] = "constant"
    return job | {"settings": asked}


def _prepared(source: Location, settings: Settings, model: Location, runtime: Runtime, like: Contents | None) -> GBCM:
    """Prepare the empty committee of a mixture's directory; remove it where its likelihood cannot be sampled.

    With spatial partitions its hyper-parameters are learned: chains start there, and its cells and halos are those of
    all members.
    """
    other = set(open_storage(model).names("")) - {PREPARED, FOLDER, MEMBERS, CONTENTS, REVISIONS, ALIASES}
    if other:
        raise ModelExists(
            f"{model}: expected a new or empty directory, or chains of this job, it holds {min(other)}; choose another"
        )
    place, settings = f"{model}/{PREPARED}", _plain(settings)
    spatial = settings.partition == "spatial"
    if like is not None:
        settings = replace(settings, like=references(like)[0].url)
    else:
        mean: dict[str, Any] = {"mean": "constant"} if spatial and settings.mean == AUTO_MEAN else {}
        settings = replace(settings, learn=spatial, **mean)
    prepared = GBCM.prepare(source, settings, model=place, runtime=runtime)
    try:
        _refuse_unsampled(prepared.model)
    except InvalidOption:
        open_storage(place).remove_all()
        open_storage(model).remove(PREPARED)  # and the directory itself where it is empty then
        raise
    return _arranged(prepared, source, settings, runtime) if spatial else prepared


def _arranged(prepared: GBCM, source: Location, settings: Settings, runtime: Runtime) -> GBCM:
    """A prepared committee with its rows in the order of its cells, and their halos."""
    data = open_data(source, x=settings.x, y=settings.y)
    with prepared.snapshot.held():
        arranged = arrange.arrange(prepared.snapshot, data, runtime).committed()
        return GBCM(arrange.with_halos(arranged, runtime).committed())


def _refuse_unsampled(model: Model) -> None:
    refuse_unmixable(model)
    likelihood = model.likelihood
    if likelihood.learned_as() is not likelihood:
        raise InvalidOption(
            f"hmc: expected a likelihood with a gradient of its evidence, got {likelihood.name}; "
            "use onehot, bernoulli or probit"
        )


def _refuse(settings: Settings, samples: int, chains: int, hmc: HMC) -> None:
    if settings.kernel == "auto" or settings.set or not settings.learn:
        raise InvalidOption("hmc: expected a kernel by name and learn without set; name one and leave out the rest")
    if settings.expert not in SAMPLED:
        raise InvalidOption(
            f"hmc: expected the expert {', '.join(SAMPLED[:-1])} or {SAMPLED[-1]}, whose evidence has a gradient, got "
            f"{settings.expert:.80}; leave it out"
        )
    if method_of(settings).capabilities.input_errors:
        raise InvalidOption(
            f"hmc: expected inputs as they were seen, got {method_of(settings).name}; leave it out, or fit with it and "
            "without samples of hyper-parameters"
        )
    available = chains * (hmc.iterations - hmc.burn_in)
    if chains < 1 or not 1 <= samples <= available:
        raise InvalidOption(
            f"hmc: expected at least one chain and 1 to {available} samples of {chains}, got {samples}; correct them"
        )
