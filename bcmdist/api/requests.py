"""Requests: a fit, ingestion, prediction or the like as a value that can be validated, stored, sent and executed later.

    request = FitRequest("train.zarr", "model", Settings(query=500))
    assert from_json(to_json(request)) == request        # bcmdist.api.request_json
    figures = carry_out(request, DaskRuntime)            # bcmdist.api.carry_out

The command line derives its options from the fields, and jobs store requests. Nothing heavy is imported until a request
is created.
"""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.tables.options import TableOptions, is_geojson
from bcmdist.errors import InvalidOption
from bcmdist.learning.method_options import method_options
from bcmdist.learning.option_fields import has_fields, hints_of
from bcmdist.learning.settings import Settings
from bcmdist.storage.bounds import COUNT, SEED, Bounds, option_name, refuse_outside
from bcmdist.storage.urls import refuse_secrets

PredictionMethod = Literal["committee", "local", "augmented", "augmented_sparse"] | str
"""name of a prediction method; other packages register further ones"""
InputAveraging = Literal["exact", "taylor", "montecarlo"]  # of predictions over uncertain inputs


@dataclass(frozen=True)
class FitRequest:
    """Fit a committee to a data set."""

    places: ClassVar[tuple[str, ...]] = ("data", "model")
    data: str
    """path or URL of a Zarr group, or a table (.csv, .parquet), whose target --y names"""
    model: Annotated[str, "DIR"]
    """model directory, new or of the same unfinished fit"""
    settings: Settings = field(default_factory=Settings)
    hyperparameters: Literal["evidence", "hmc"] = "evidence"
    """point estimate at the largest evidence, or samples by Hamiltonian Monte Carlo with one committee each (hmc: rows
    in stored order unless --partition is spatial)"""
    samples: Annotated[int, Bounds(1, 10**6)] = 50
    """with hmc: number of samples, each with a committee"""
    chains: Annotated[int, Bounds(1, 1000)] = 2
    """with hmc: number of chains"""
    prepare_only: bool = False
    """commit an empty committee and stop"""
    plan: bool = False
    """print the estimated cost of the fit, from the times of single tasks where it would run, and stop: takes some
    seconds and writes nothing; how often learning repeats its tasks is an estimate from the effort"""
    table: TableOptions = field(default_factory=TableOptions)

    def __post_init__(self) -> None:
        refuse_outside(self, named=option_name)
        if self.plan and (self.prepare_only or self.hyperparameters == "hmc"):
            raise InvalidOption(
                "--plan: expected a whole fit with hyper-parameters by evidence, got "
                f"{'--prepare-only' if self.prepare_only else 'hmc'}; leave out one of them"
            )
        if self.prepare_only and self.hyperparameters == "hmc":
            raise InvalidOption("--prepare-only: expected hyper-parameters by evidence, got hmc; leave out one of them")
        if self.prepare_only and self.settings.grow:
            raise InvalidOption(
                "--grow: expected a fit that absorbs rows, got --prepare-only; leave it out, and give it to ingest"
            )


@dataclass(frozen=True)
class IngestRequest:
    """Absorb the rows of a source into a model."""

    places: ClassVar[tuple[str, ...]] = ("model", "source")
    model: str
    """model directory"""
    source: str
    """path or URL of a Zarr group, of a directory of them, or of a stream; or a table with the columns of training"""
    options: IngestOptions = field(default_factory=IngestOptions)
    """its `stop` is not stored"""
    take_over: Annotated[float | None, "SECONDS", Bounds(0.0, 1e9)] = None
    """with --watch, for a stream: seconds after which the entries of another process are taken over [default: 30]"""
    trim: bool = False
    """for a stream: remove entries from the server once they are committed, as far as every consumer group has read
    them; these rows cannot be read again to be forgotten, refined or refitted"""
    unseen: Literal["error", "other"] | None = None
    """for files: refuse categories that are not in the training data, or treat them as random ones of those that are
    [default: as in training]"""

    def __post_init__(self) -> None:
        refuse_outside(self, named=option_name)


@dataclass(frozen=True)
class RefitOptions:
    """How a model is fitted again.

    Raises
    ------
    InvalidOption
        A value is outside its bounds.

    Examples
    --------
    >>> bcmdist.RefitOptions(newest=10_000, effort="quick").query
    'auto'
    """

    newest: Annotated[int | None, "ROWS", COUNT] = None
    """learn scaling and hyper-parameters from this many of the rows absorbed last, rounded up to whole partitions
    [default: from a sample of all]"""
    kernel: Annotated[str | None, "NAME|auto"] = None
    """kernel, as of `fit` [default: that of the model]"""
    query: Annotated[int | Literal["auto"], "Q|auto", COUNT] = "auto"
    """number of query points, which are chosen among all rows; auto: about twice the effective degrees of freedom"""
    effort: Literal["quick", "normal", "thorough"] = "normal"
    """how long to learn, and from how many rows"""
    seed: Annotated[int, SEED] = 0
    """seed of all random numbers"""

    def __post_init__(self) -> None:
        refuse_outside(self, named=option_name)


@dataclass(frozen=True)
class PredictRequest:
    """Predict at the rows of a data set, or of a file."""

    places: ClassVar[tuple[str, ...]] = ("model", "data", "out")
    model: str
    """model directory"""
    data: str
    """path or URL of a Zarr group, or a file that `import` reads"""
    out: Annotated[str, "PRED.zarr"]
    """new Zarr group for the predictions, or a .csv or .parquet file"""
    over: Annotated[str | None, "NAME|FILE.geojson"] = None
    """average over the rows with equal values of a column of DATA, or over those in each polygon of a file, and write
    one row for each group [default: predict each row; polygons where DATA is a file of these, with a grid of points
    inside]"""
    weight: Annotated[str | None, "NAME"] = None
    """with --over: column of DATA with the weights of rows in their average"""
    coordinates: Annotated[str | None, "X,Y"] = None
    """with polygons: the inputs that are their x and y [default: the only two]"""
    spacing: Annotated[float | None, "UNITS", Bounds(0.0, 1e300, above=True)] = None
    """with DATA of polygons: distance between points [default: 1/32 of the longer side of each region]"""
    of: Literal["function", "observations"] = "function"
    """with --over or --draws: of the function, without the noise of observations (counts: of their means); or of new
    observations"""
    above: Annotated[list[float], "T", Bounds(-1e300, 1e300)] = field(default_factory=list)
    """also the probability that the function, or the average, is above T (counts: that their mean is); repeat it for
    more"""
    draws: Annotated[int | None, "N", Bounds(2, 10**6)] = None
    """also N joint samples at the rows, consistent across cells; with --over: number of samples for averages without a
    closed form, as of counts [default: 1000]"""
    seed: Annotated[int, SEED] = 0
    """seed of samples"""
    method: PredictionMethod | None = None
    """predict from the committee alone; with the rows around each new point (local); with a basis function at each new
    point, from all rows (augmented) or, for its variance only, from relevance vectors, which are read once
    (augmented_sparse); or by a method of another package [default: local after a spatial fit, augmented with rvm_star,
    else committee]"""
    inputs: InputAveraging | None = None
    """how to average over uncertain inputs, with (co)variances in an array X_variance (N, D) or (N, D, D) [default:
    exact where available, else montecarlo]"""
    x: str | None = None
    """name of the input array [default: as in training]"""
    exposure: Annotated[str | None, "NAME"] = None
    """for files: column with the exposure of the counts to predict"""
    trials: Annotated[str | None, "NAME"] = None
    """for files: column with the number of trials of the successes to predict"""
    target_variance: Annotated[str | None, "NAME"] = None
    """for files: column with the known variance of the error of the observation to predict, in the squared unit of the
    target: intervals and variances of observations include it; a data set has an array target_variance [default: an
    observation with the learned noise only]"""
    at: Annotated[str | None, "N|ALIAS"] = None
    """commit to predict with, by its number or an alias [default: the newest]"""
    id: Annotated[str | None, "NAME"] = None
    """for files: column of row identifiers, of any file: written before the predictions of its row [default: all
    columns of the file]"""
    terms: bool = False
    """also the mean and variance of each additive term of the kernel, and of the prior mean; the means add up to `mean`
    """
    csv_safe: bool = False
    """for .csv output: put an apostrophe before text that a spreadsheet would treat as a formula (=, +, -, @)"""
    unseen: Literal["error", "other"] | None = None
    """for files: refuse categories that are not in the training data, or treat them as random ones of those that are
    [default: as in training]"""

    def __post_init__(self) -> None:
        refuse_outside(self, named=option_name)
        polygons = is_geojson(self.data)
        needed = {"weight": "--over", "spacing": "DATA of polygons", "coordinates": "polygons"}
        given = {"weight": self.over, "spacing": polygons, "coordinates": polygons or self.over}
        for name, what in needed.items():
            if getattr(self, name) is not None and not given[name]:
                raise InvalidOption(f"{option_name(name)}: expected {what} with it, got none; leave it out")
        if self.of != "function" and not (self.over or polygons or self.draws):
            raise InvalidOption("--of: expected --over or --draws with it, got none; give one, or leave it out")


@dataclass(frozen=True)
class ScoreRequest:
    """Score predictions against the targets of a data set."""

    places: ClassVar[tuple[str, ...]] = ("model", "data")
    model: str
    """model directory"""
    data: str
    """path or URL of a Zarr group, or a table with the columns of training"""
    method: PredictionMethod | None = None
    """predict from the committee alone; with the rows around each new point (local); with a basis function at each new
    point, from all rows (augmented) or, for its variance only, from relevance vectors, which are read once
    (augmented_sparse); or by a method of another package [default: local after a spatial fit, augmented with rvm_star,
    else committee]"""
    inputs: InputAveraging | None = None
    """how to average over uncertain inputs, with (co)variances in an array X_variance (N, D) or (N, D, D) [default:
    exact where available, else montecarlo]"""
    x: str | None = None
    """name of the input array [default: as in training]"""
    y: str | None = None
    """name of the target array, or of the column of a file [default: as in training]"""
    unseen: Literal["error", "other"] | None = None
    """for files: refuse categories that are not in the training data, or treat them as random ones of those that are
    [default: as in training]"""
    at: Annotated[str | None, "N|ALIAS"] = None
    """commit to predict with, by its number or an alias [default: the newest]"""
    folds: Annotated[int | None, "K", Bounds(2, 10**6)] = None
    """cross-validate: leave out each of K blocks of DATA in turn, and predict it by a committee of the other rows, with
    the hyper-parameters and query points of MODEL"""
    by: Annotated[str, "blocks|rows|group:COLUMN|time:COLUMN"] = "blocks"
    """with --folds: leave out blocks of neighbouring rows, random rows, rows with equal values of a column, or periods,
    which are predicted from earlier rows (time: the only column of dates)"""
    coordinates: Annotated[str | None, "NAMES"] = None
    """with --folds: inputs, separated by commas, in whose units blocks are cut and distances measured [default: all
    inputs, in units of their lengthscales]"""
    seed: Annotated[int, SEED] = 0
    """with --folds: seed of the division into folds"""

    def __post_init__(self) -> None:
        refuse_outside(self, named=option_name)
        changed = [name for name in ("by", "coordinates", "seed") if getattr(self, name) != getattr(type(self), name)]
        if self.folds is None and changed:
            raise InvalidOption(f"{option_name(changed[0])}: expected --folds with it, got none; give --folds K")


@dataclass(frozen=True)
class ForecastRequest:
    """Forecast the series that a model was fitted to."""

    places: ClassVar[tuple[str, ...]] = ("model", "data", "out", "ahead")
    model: str
    """model directory, fitted to data imported with --lags"""
    steps: Annotated[int, "K", Bounds(1, 1_000_000)]
    """steps ahead"""
    data: str | None = None
    """table with the series, row after row, or data set imported with --lags, of which the last values are used
    [default: the training data]"""
    out: Annotated[str | None, "FILE.csv"] = None
    """table to write: .csv or .parquet [default: standard output]"""
    csv_safe: bool = False
    """for .csv output: put an apostrophe before text that a spreadsheet would treat as a formula (=, +, -, @)"""
    at: Annotated[str | None, "N|ALIAS"] = None
    """commit to predict with, by its number or an alias [default: the newest]"""
    ahead: Annotated[str | None, "FILE"] = None
    """table of future rows with the columns named by --x at import: at least K rows per series"""
    id: Annotated[str | None, "NAME"] = None
    """column that names the series, if there are several [default: the row names of a data set]"""
    method: Literal["committee", "local"] | str | None = None
    """how to predict a step [default: as recorded at fit]"""
    inputs: Literal["exact", "taylor", "montecarlo", "naive"] | None = None
    """how to propagate the uncertainty of predicted values [default: exact where available, else montecarlo]; naive
    treats them as measured"""
    seed: Annotated[int, SEED] = 0
    """seed of the montecarlo paths"""

    def __post_init__(self) -> None:
        refuse_outside(self, named=option_name)


@dataclass(frozen=True)
class ForgetRequest:
    """Forget partitions of a model."""

    places: ClassVar[tuple[str, ...]] = ("model",)
    model: str
    """model directory"""
    keys: Annotated[list[str], "KEYS"]
    """keys of the partitions in the ledger"""


@dataclass(frozen=True)
class MergeRequest:
    """Merge two models in a new directory."""

    places: ClassVar[tuple[str, ...]] = ("model_a", "model_b", "model")
    model_a: str
    """model directory"""
    model_b: str
    """model directory"""
    model: Annotated[str, "DIR"]
    """new model directory"""
    query_most: Annotated[int | None, "Q", Bounds(1, 10**6)] = None
    """largest number of query points, where those of the two differ [default: those of both]"""

    def __post_init__(self) -> None:
        refuse_outside(self, named=option_name)


@dataclass(frozen=True)
class RefitRequest:
    """Learn the hyper-parameters and query points of a model anew."""

    places: ClassVar[tuple[str, ...]] = ("model",)
    model: str
    """model directory"""
    options: RefitOptions = field(default_factory=RefitOptions)


Request = (
    FitRequest
    | IngestRequest
    | PredictRequest
    | ScoreRequest
    | ForecastRequest
    | ForgetRequest
    | MergeRequest
    | RefitRequest
)
REQUESTS: dict[str, type[Request]] = {
    "fit": FitRequest,
    "ingest": IngestRequest,
    "predict": PredictRequest,
    "score": ScoreRequest,
    "forecast": ForecastRequest,
    "forget": ForgetRequest,
    "merge": MergeRequest,
    "refit": RefitRequest,
}
RequestType = TypeVar("RequestType", bound=Any)


# --- Paths and URLs ---


def named_places(request: Request) -> dict[str, str]:
    """Return the paths and URLs in a request, by field name: data, model, out, source, without those left out."""
    return {name: place for name in request.places if (place := getattr(request, name)) is not None}


def located(request: RequestType) -> RequestType:
    """Return the request with absolute paths, for another process, perhaps on another machine.

    Raises
    ------
    InvalidOption
        A URL contains a password, which would be stored with the request.
    """
    moved = {name: absolute(place) for name, place in named_places(request).items()}
    return replace(request, **moved, **_located_within(request))


@functools.singledispatch
def _located_within(request: Request) -> dict[str, Any]:
    """Return new values of the fields that contain paths in fields of their own, with absolute paths."""
    return {}


@_located_within.register
def _(request: FitRequest) -> dict[str, Any]:
    settings = request.settings
    places = {"query_from": settings.query_from, "like": settings.like}
    found: dict[str, Any] = {name: absolute(where) for name, where in places.items() if where is not None}
    return {"settings": replace(settings, **found)} if found else {}


def absolute(place: str) -> str:
    """Return an absolute path, or a URL unchanged. Raises `InvalidOption` where a URL contains a password."""
    place = place.removeprefix("file://")
    refuse_secrets(place)
    return place if "://" in place else os.path.abspath(place)


# --- From values by field name ---


def request_of(kind: type[RequestType], values: Mapping[str, Any]) -> RequestType:
    """Make a request, or a dataclass nested in one, from a flat mapping of field names to values.

    Names of nested fields are on the same level, and options of methods on that of `Settings`. Missing fields have
    their default values.
    """
    made = {
        name: request_of(hint, values) if has_fields(hint) else values[name]
        for name, hint in hints_of(kind).items()
        if has_fields(hint) or name in values
    }
    if kind is Settings:
        made |= {name: values[name] for name in method_options() if name in values}
    request: RequestType = kind(**made)
    return request
