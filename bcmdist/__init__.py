"""bcmdist: a distributed Bayesian committee machine on Dask.

chunk -> partition -> expert -> message -> committee -> prediction

A *chunk* is a block of rows of a Zarr array as stored. A *partition* holds the rows of one *expert*, which
sends a *message*: the likelihood of these rows as natural parameters over shared variables. The *committee*
is the prior plus the sum of all messages. A *prediction* evaluates the committee's posterior at new points.

Glossary
--------
N, D, Q, M, C : rows, input columns, query points, partitions, classes
n, P, S : rows of a partition, weights of the prior mean, shared variables (S = Q + P)
v : the shared variables, whitened, v ~ N(0, I) a priori
eta, precision : natural parameters of a message; eta is not a mean, and precision is not the inverse of a
    posterior covariance
mean, variance : of the latent function f; those of observations are named `observation_*`
Psi, Lam, R : noise covariance of a partition; cov(f | v); R = Psi + Lam = cov(y | v)
W : the weights -d2 log p / df2 of a Laplace expert; `w` in the code
pass : one reading of the data; the first linearises each expert at its own mode, later passes at the committee's mean
site : a Gaussian approximation of the likelihood of one row
deviance : twice the log density lost against a model with one parameter per row, mean over rows; the Poisson
    deviance for every count likelihood
mixture : committees at samples of the hyper-parameters (its *members*), with equal weights or those of their evidence
commit : a numbered, immutable state of a model: committee, ledger and offsets in one record
ledger : the set of absorbed partitions: keys with the hashes of their rows
source : a supply of partitions that may grow; its *offset* is where reading resumes, its *position* counts its rows
arrival : an ingested partition, with a record of how well it was predicted before it was absorbed
surprise : loss of a row beyond the loss its own prediction expects (excess loss), in nats; for arrivals and for
    partitions held out
jitter : added once, to the query covariance only, and reported
NMSE : mean squared error divided by the mean squared deviation from the training mean
MNLP : mean negative log predictive density; all logarithms are natural (nats)
standardised : divided by the standard deviation of the training targets

Rooms
-----
Each room imports only rooms listed before it. In a folder, start with the file named like the folder, or with
interface.py.

errors.py, linalg : all exceptions of the package; LAPACK calls by dtype, and the jitter policy
storage : write-once objects on a disk or an object store; the commit log and the ledger
data : chunk -> partition -> checked rows; independent of Gaussian processes
testing : conformance checks for implementations of all interfaces, used by tests and by plug-ins
runtime : execution of tasks, in this process or on a Dask cluster
model : what all experts share before the first message: kernel, likelihood, mean, units, shared variables
experts : partition -> message
committee : message -> posterior, and the committee's life cycle: snapshot, passes, ingestion, forgetting, merging
prediction : posterior -> latent function at new points -> observations -> scores
learning : everything before the first message: settings, survey, hyper-parameters, query points
methods : experts whose shared variables are not values at query points, one folder each; each registers itself,
    and nothing else imports them
api : what users import: GBCM, estimators, fitting, cross-validation, plans, requests, mixtures, table input and
    output, maps, pictures, reports, exports to other packages
app : the entry points: command line, jobs, the service
client.py, xarray.py, mlflow.py, arviz.py : modules that users import by these names: a client of the service, and parts
    of `api`

Where do I add ...
------------------
a kernel : a class after `Leaf` of model/kernels/interface.py, and `register_kernel`
a likelihood : a class after model/likelihoods/interface.py, and `register_likelihood`
a source of rows : a function that opens URLs of one scheme, after data/sources/open.py, and `register_source`
a shared basis, or an expert : shared variables after those in model/shared, the treatment of the residual f - E[f | v],
    and `register_expert`
a treatment of the residual f - E[f | v] : a `Kind` after experts/residual_interface.py, and `register_residual`
an expert with its own options, training or limits : a class after learning/method.py, and `register_method`; the
    built-in ones are folders in methods, whose `method` module registers everything that the core needs
a predictor : a class after prediction/interface.py, and `register_predictor`
a score : an additive total over rows, and the figure computed from it, in prediction/scoring/scores.py
an option : a field, with its help text below it, of learning/settings.py, committee/ingest/options.py or
    api/requests.py; command line, configuration files, jobs and JSON follow; options that exclude each other are
    listed in learning/settings_checks.py
a picture : a function from a `Subject` to a figure, and its name in api/pictures/pictures.py
a command : a function in a file of app/cli, and its name in app/cli/main.py; work that jobs and services can do too
    is a request in api/requests.py, executed by api/carry_out.py

`bcmdist.testing` has a check for each interface. Built-in implementations are registered with one line each in the
room that owns the interface. The command line and workers find implementations of other packages through entry points
(data/registry.py).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bcmdist.api.estimators.classifier import GBCMClassifier as GBCMClassifier
    from bcmdist.api.estimators.counts import GBCMCountRegressor as GBCMCountRegressor
    from bcmdist.api.estimators.lifetimes import GBCMLifetimeRegressor as GBCMLifetimeRegressor
    from bcmdist.api.estimators.regressor import GBCMRegressor as GBCMRegressor
    from bcmdist.api.gbcm import GBCM as GBCM
    from bcmdist.api.mixture import Mixture as Mixture
    from bcmdist.api.plan.plan import plan as plan
    from bcmdist.api.requests import RefitOptions as RefitOptions
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
    from bcmdist.prediction.predictive_model import register_predictor as register_predictor
    from bcmdist.runtime.dask.cluster import DaskRuntime as DaskRuntime
    from bcmdist.runtime.interface import SerialRuntime as SerialRuntime

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
    "SerialRuntime": "bcmdist.runtime.interface",
    "IngestOptions": "bcmdist.committee.ingest.options",
    "RefitOptions": "bcmdist.api.requests",
    "append_rows": "bcmdist.data.writing",
    "open_data": "bcmdist.data.dataset",
    "partitions": "bcmdist.data.partition",
    "publish": "bcmdist.data.entries",
    "write_dataset": "bcmdist.data.writing",
    "register_expert": "bcmdist.learning.experts",
    "register_method": "bcmdist.learning.experts",
    "register_likelihood": "bcmdist.model.likelihoods",
    "register_kernel": "bcmdist.model.kernels",
    "register_predictor": "bcmdist.prediction.predictive_model",
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
    "RefitOptions",
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


if not TYPE_CHECKING:  # which lets type checkers find misspelt names

    def __getattr__(name):
        """Import public names on first use, so that importing bcmdist is fast."""
        if name in _HOME:
            return getattr(import_module(_HOME[name]), name)
        if name in ("arviz", "client", "mlflow", "xarray"):
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
