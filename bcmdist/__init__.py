"""bcmdist: a distributed Bayesian committee machine on Dask.

chunk -> partition -> expert -> message -> committee -> prediction

A *chunk* is the rows of a Zarr array as stored; a *partition* is the rows of one *expert*, which
sends a *message* (their likelihood as natural parameters over shared variables); the *committee*
is the prior plus the sum of messages; a *prediction* carries its belief to new points.

Glossary
--------
N, D, Q, M, C : rows, input columns, query points, partitions, classes
n, P, S : rows of a partition, weights of the prior mean, shared variables S = Q + P
v : the shared variables, whitened, v ~ N(0, I) a priori
eta, precision : natural parameters of a message; never a mean or an inverse covariance of anyone
mean, variance : of the latent f; of observations where the name says `observation_*`
Psi, Lam, R : noise of a partition; cov(f | v); R = Psi + Lam = cov(y | v)
W : of a Laplace expert, the weights -d2 log p / df2; in code `w`
pass : one reading of the data; the first linearises each expert on its own, later ones at the committee's mean
site : a Gaussian that stands for the likelihood of one row
deviance : twice the log density lost against a model with a parameter per row, mean over rows; of any counts, Poisson's
mixture : committees at samples of the hyper-parameters, its *members*, whose predictions count alike
commit : a numbered, immutable state of a model: committee, ledger and offsets in one record
ledger : the partitions absorbed, a set of keys with the hashes of their rows
source : where partitions keep coming from; its *offset* says where to read on, its *position* counts its rows
arrival : a partition that was ingested, with how well it was predicted before it was absorbed
surprise : what a row cost beyond what its own prediction expected, in nats; of arrivals and of partitions withheld
jitter : added to the query covariance only, once, and reported
NMSE, MNLP : mean squared error over the mean squared deviation from the training mean; mean
    negative log predictive density, in nats like all logarithms here
standardised : divided by the standard deviation of the training targets

Rooms
-----
Each imports those before it only. In a folder the file of its name, or its interface, is read first.

errors.py, linalg : every error raised on purpose; LAPACK calls by dtype, and the one jitter policy
storage : bytes written once, on a disk or an object store; the commit log and the ledger made of them
data : chunk -> partition -> checked rows; knows nothing of Gaussian processes
testing : checks of implementations of the interfaces of all rooms, for tests and for what is registered
runtime : where tasks run: a loop here, or a cluster
model : what all experts agree on before the first message: kernel, likelihood, mean, units, shared variables
experts : partition -> message
committee : message -> belief, and a committee's life: snapshot, passes, ingestion, forgetting, merging
prediction : belief -> new points -> observations -> scores
learning : everything before the first message: what is asked, survey, hyper-parameters, query points
methods : experts beyond values at query points, a folder each, that nothing else imports; they register themselves
api : what users import: GBCM, estimators, fitting, plans, requests and how they are carried out, mixtures, tables
    in and out, maps, pictures, reports, models for other packages
app : the ways in from outside: command line, jobs, the service

Where do I add ...
------------------
a kernel : a class after `Leaf` of model/kernels/interface.py, and `register_kernel`
a likelihood : a class after model/likelihoods/interface.py, and `register_likelihood`
a source of rows : what a URL of a scheme opens, after data/sources/open.py, and `register_source`
a shared basis, or an expert : shared variables after those in model/shared, what an expert does with the rest, and
    `register_expert`
what experts do with the rest of f : a `Kind` after experts/rest.py, and `register_residual`
an expert with options, training or limits of its own : a class after learning/method.py, and `register_method`; ours
    are folders in methods, whose `method` module registers all that the core needs
a predictor : a class after prediction/interface.py, and `register_predictor`
a score : a total over rows, which adds, and its figure, in prediction/scoring/scores.py
an option : a field, with its help under it, of learning/settings.py, committee/ingest/options.py or api/requests.py;
    command line, configuration files, jobs and JSON follow; what it does not go with, in learning/settings_checks.py
a picture : a function of a subject that gives a figure, and its name in api/pictures/pictures.py
a command : a function in a file of app/cli, and its name in app/cli/main.py; what jobs and services are to do as well
    is a request in api/requests.py, carried out in api/carry_out.py

`bcmdist.testing` has a check of each interface. The room that owns a thing registers ours, one line each. Those of
other packages are found by command lines and workers through entry points (data/registry.py).
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcmdist.api.estimators.classifier import GBCMClassifier as GBCMClassifier
    from bcmdist.api.estimators.counts import GBCMCountRegressor as GBCMCountRegressor
    from bcmdist.api.estimators.lifetimes import GBCMLifetimeRegressor as GBCMLifetimeRegressor
    from bcmdist.api.estimators.regressor import GBCMRegressor as GBCMRegressor
    from bcmdist.api.gbcm import GBCM as GBCM
    from bcmdist.api.mixture import Mixture as Mixture
    from bcmdist.api.sampling import sample_posterior as sample_posterior
    from bcmdist.committee.ingest.options import IngestOptions as IngestOptions
    from bcmdist.data.dataset import open_data as open_data
    from bcmdist.data.entries import publish as publish
    from bcmdist.data.partition import partitions as partitions
    from bcmdist.data.sources.open import register_source as register_source
    from bcmdist.data.writing import append_rows as append_rows
    from bcmdist.data.writing import write_dataset as write_dataset
    from bcmdist.errors import BcmdistError as BcmdistError
    from bcmdist.experts.hmc import HMC as HMC
    from bcmdist.experts.residual import register_residual as register_residual
    from bcmdist.learning.experts import register_expert as register_expert
    from bcmdist.learning.experts import register_method as register_method
    from bcmdist.learning.settings import Settings as Settings
    from bcmdist.model.kernels import register_kernel as register_kernel
    from bcmdist.model.likelihoods import register_likelihood as register_likelihood
    from bcmdist.prediction.predictors import register_predictor as register_predictor
    from bcmdist.runtime.dask.cluster import DaskRuntime as DaskRuntime
    from bcmdist.runtime.serial import SerialRuntime as SerialRuntime

__version__ = "0.1.0"

_HOME = {
    "GBCMLifetimeRegressor": "bcmdist.api.estimators.lifetimes",
    "GBCMCountRegressor": "bcmdist.api.estimators.counts",
    "GBCMClassifier": "bcmdist.api.estimators.classifier",
    "GBCMRegressor": "bcmdist.api.estimators.regressor",
    "GBCM": "bcmdist.api.gbcm",
    "Settings": "bcmdist.learning.settings",
    "BcmdistError": "bcmdist.errors",
    "HMC": "bcmdist.experts.hmc",
    "Mixture": "bcmdist.api.mixture",
    "DaskRuntime": "bcmdist.runtime.dask.cluster",
    "SerialRuntime": "bcmdist.runtime.serial",
    "IngestOptions": "bcmdist.committee.ingest.options",
    "append_rows": "bcmdist.data.writing",
    "open_data": "bcmdist.data.dataset",
    "partitions": "bcmdist.data.partition",
    "publish": "bcmdist.data.entries",
    "write_dataset": "bcmdist.data.writing",
    "register_expert": "bcmdist.learning.experts",
    "register_method": "bcmdist.learning.experts",
    "register_likelihood": "bcmdist.model.likelihoods",
    "register_kernel": "bcmdist.model.kernels",
    "register_predictor": "bcmdist.prediction.predictors",
    "register_residual": "bcmdist.experts.residual",
    "register_source": "bcmdist.data.sources.open",
    "plan": "bcmdist.api.plan.plan",
    "sample_posterior": "bcmdist.api.sampling",
}
__all__ = [
    "GBCM",
    "HMC",
    "BcmdistError",
    "DaskRuntime",
    "GBCMClassifier",
    "GBCMCountRegressor",
    "GBCMLifetimeRegressor",
    "GBCMRegressor",
    "IngestOptions",
    "Mixture",
    "SerialRuntime",
    "Settings",
    "append_rows",
    "open_data",
    "partitions",
    "plan",
    "publish",
    "register_expert",
    "register_kernel",
    "register_likelihood",
    "register_method",
    "register_predictor",
    "register_residual",
    "register_source",
    "sample_posterior",
    "write_dataset",
]


def __getattr__(name):
    """Load public names when they are first used: importing bcmdist stays fast."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])


# Modules by the names under which users import them.
_MODULES = {
    "arviz": "api.interop.arviz",
    "mlflow": "api.interop.mlflow",
    "xarray": "api.maps.maps",
}


class _PublicModules:
    """Finds these modules where they are now; no base class of importlib, whose import takes a third of ours."""

    def find_spec(self, name, path=None, target=None):
        package, _, leaf = name.rpartition(".")
        loader: Any = self
        return ModuleSpec(name, loader) if package == __name__ and leaf in _MODULES else None

    def create_module(self, spec):
        return None  # an ordinary one

    def exec_module(self, module):
        leaf = module.__name__.rpartition(".")[2]
        vars(module).update(vars(import_module(f"{__name__}.{_MODULES[leaf]}")))


_finder: Any = _PublicModules()
sys.meta_path.append(_finder)
