"""What requests hold, and what answers do, as the OpenAPI document tells of it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

MOST_COLUMNS = 100_000
Row = Annotated[list[float], Field(min_length=1, max_length=MOST_COLUMNS, fail_fast=True)]
Column = Annotated[list[float], Field(min_length=1, fail_fast=True)]
Names = Annotated[
    list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MOST_COLUMNS, fail_fast=True)
]
Level = Annotated[float, Field(gt=0.0, lt=1.0)]
Rows = Annotated[list[Row], Field(min_length=1, fail_fast=True)]
Way = Literal["exact", "taylor", "montecarlo"]


def _kind(value: Any) -> str:
    """Which of two shapes to hold numbers against, so that errors are of that one."""
    row = value[0] if isinstance(value, list) and value else None
    return "covariances" if isinstance(row, list) and row and isinstance(row[0], list) else "variances"


Errors = Annotated[
    Annotated[Rows, Tag("variances")] | Annotated[list[Rows], Field(min_length=1, fail_fast=True), Tag("covariances")],
    Discriminator(_kind),
]


class Body(BaseModel):
    """Of a request: numbers are numbers, and all names are known."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Points(Body):
    """New points to predict at."""

    X: Rows
    """(n, D), in original units"""
    columns: Names | None = None
    """names of the columns of X; as in training by default"""
    method: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """committee or local; as recorded at fit by default"""
    exposure: float | Column | None = None
    """of the counts to predict"""
    trials: float | Column | None = None
    """of the successes to predict"""
    X_variance: Errors | None = None
    """(n, D), or covariances (n, D, D): of normal errors of X, averaged over; in the order of its columns"""
    inputs: Way | None = None
    """how to average over them; exact where it can be had, else montecarlo, by default"""
    quantiles: Annotated[list[Level], Field(max_length=99)] = []
    """levels of quantiles of a new observation"""
    intervals: Annotated[list[Level], Field(max_length=49)] = []
    """masses of central intervals of a new observation"""


class NewRows(Body):
    """Rows to absorb."""

    X: Rows
    """(n, D), in original units"""
    y: Annotated[list[float | str], Field(min_length=1, fail_fast=True)]
    """(n,), numbers, or names of classes"""
    columns: Names | None = None
    """names of the columns of X; as in training by default"""
    X_variance: Errors | None = None
    """(n, D), or covariances (n, D, D): of normal errors of X, for a model fitted with noisy inputs; in the order of
    its columns"""
    weight: Column | None = None
    exposure: Column | None = None
    trials: Column | None = None
    event: Column | None = None


class Job(BaseModel):
    """A request as jobs store it: what is asked for, and the fields of that by name."""

    model_config = ConfigDict(extra="allow", strict=True)

    request: Literal["fit", "ingest", "predict", "score"]
    model: Annotated[str, Field(max_length=100)]


class Jobs(BaseModel):
    """Jobs, oldest first."""

    jobs: list[dict[str, Any]]


class Problem(BaseModel):
    """Why there is no other answer."""

    error: str
    message: str


class Predictions(BaseModel):
    """Predictions by name, a value for each point, or one for each class."""

    model: str
    commit: str
    method: str
    rows: int
    predictions: dict[str, list[Any]]


class Kept(BaseModel):
    """Rows that were committed; the same for the same request."""

    model: str
    rows: int
    partitions: int
    digest: str


class Listed(BaseModel):
    """Models that are served."""

    models: list[dict[str, Any]]


class Figures(BaseModel):
    """What is known, by name."""

    model_config = ConfigDict(extra="allow")
