"""Bodies of requests and responses, as in the OpenAPI document."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from bcmdist.storage.aliases import NAME as ALIAS

MOST_COLUMNS = 100_000
Row = Annotated[list[float], Field(min_length=1, max_length=MOST_COLUMNS, fail_fast=True)]
Column = Annotated[list[float], Field(min_length=1, fail_fast=True)]
Names = Annotated[
    list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MOST_COLUMNS, fail_fast=True)
]
Level = Annotated[float, Field(gt=0.0, lt=1.0)]
Rows = Annotated[list[Row], Field(min_length=1, fail_fast=True)]
Record = dict[str, float | bool | str | None]
Records = Annotated[list[Record], Field(min_length=1, fail_fast=True)]
Way = Literal["exact", "taylor", "montecarlo"]


def _kind(value: Any) -> str:
    """Return the shape to validate against, so that error messages refer to this shape only."""
    row = value[0] if isinstance(value, list) and value else None
    return "covariances" if isinstance(row, list) and row and isinstance(row[0], list) else "variances"


Errors = Annotated[
    Annotated[Rows, Tag("variances")] | Annotated[list[Rows], Field(min_length=1, fail_fast=True), Tag("covariances")],
    Discriminator(_kind),
]


class Body(BaseModel):
    """Base class of request bodies: strict types, finite numbers, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Inputs(Body):
    """Rows of inputs: `rows` by column name as in the table that the model was fitted to, or `X` as numbers."""

    X: Rows | None = None
    """(n, D), in original units"""
    rows: Records | None = None
    """one object per row, with the value of each column by its name: a number, a text (level or date), or null"""
    columns: Names | None = None
    """names of the columns of X; by default the training columns in their order"""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.X is None) == (self.rows is None):
            raise ValueError("expected one of X and rows, got both or neither")
        if self.rows is not None and self.columns is not None:
            raise ValueError("expected columns with X only, rows have names; leave it out")
        return self

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.X if self.rows is None else self.rows)  # type: ignore[arg-type]


class Points(Inputs):
    """New points to predict at."""

    method: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """committee or local; by default the method recorded at fit"""
    exposure: float | Column | None = None
    """exposure of the counts to predict"""
    trials: float | Column | None = None
    """number of trials whose successes to predict"""
    target_variance: float | Column | None = None
    """known variances of the errors of the observations to predict, in the squared unit of the target"""
    X_variance: Errors | None = None
    """variances (n, D) or covariances (n, D, D) of normal errors of X, in its column order; predictions are averaged
    over these errors"""
    inputs: Way | None = None
    """method of averaging over input errors; by default exact where available, otherwise montecarlo"""
    quantiles: Annotated[list[Level], Field(max_length=99)] = []
    """levels of quantiles of a new observation"""
    intervals: Annotated[list[Level], Field(max_length=49)] = []
    """probability masses of central intervals of a new observation"""


class NewRows(Inputs):
    """Rows to absorb."""

    y: Annotated[list[float | str], Field(min_length=1, fail_fast=True)] | None = None
    """(n,), numbers or class names; by default the column of `rows` with the name of the target in training"""
    X_variance: Errors | None = None
    """variances (n, D) or covariances (n, D, D) of normal errors of X, in its column order; for a model fitted with
    noisy inputs"""
    weight: Column | None = None
    exposure: Column | None = None
    trials: Column | None = None
    event: Column | None = None
    target_variance: Column | None = None
    """known variances of the errors of y, in its squared unit"""


Commit = Annotated[int, Field(ge=1, lt=10**8)] | Annotated[str, Field(pattern=rf"^{ALIAS.pattern}$")]


class Revert(Body):
    """An earlier commit to return to."""

    to: Commit
    """number or alias of the commit"""


class Naming(Body):
    """A commit that an alias names."""

    commit: Commit | None = None
    """number or alias of the commit; by default the newest"""


class Reverted(BaseModel):
    """Receipt for a revert; the same for a repeated request."""

    model: str
    to: int
    commit: int
    rows: int
    partitions: int


class Aliases(BaseModel):
    """Commits by alias."""

    model: str
    aliases: dict[str, int]


class Job(BaseModel):
    """A request as jobs store it: its kind, its model, and further fields by name."""

    model_config = ConfigDict(extra="allow", strict=True)

    request: Literal["fit", "ingest", "predict", "score", "forecast", "forget", "merge", "refit"]
    model: Annotated[str, Field(max_length=100)]


class Jobs(BaseModel):
    """Jobs, oldest first."""

    jobs: list[dict[str, Any]]


class Problem(BaseModel):
    """An error: its class and message."""

    error: str
    message: str


class Predictions(BaseModel):
    """Predictions by name: one value per point, or one per point and class."""

    model: str
    commit: str
    method: str
    rows: int
    unknown_levels: dict[str, int] | None = None
    """number of rows with a level that training lacks, by column; not there if there are none"""
    predictions: dict[str, list[Any]]


class Kept(BaseModel):
    """Receipt for committed rows; the same for a repeated request."""

    model: str
    rows: int
    partitions: int
    digest: str


class Listed(BaseModel):
    """The models of the service."""

    models: list[dict[str, Any]]


class Figures(BaseModel):
    """Figures by name."""

    model_config = ConfigDict(extra="allow")
