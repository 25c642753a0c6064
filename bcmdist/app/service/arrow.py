"""Arrow input and output for predictions, on the same path as JSON.

The Content-Type of a request selects the route (Arrow or JSON); its Accept header selects the format of the response.
"""

import functools
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import Match

from bcmdist.app.service.asking import OF_NEW_ROWS, load, question_of, refuse_many
from bcmdist.app.service.bodies import Level, Way
from bcmdist.app.service.commits_by_name import ServedState
from bcmdist.app.service.records import inputs_of_table
from bcmdist.app.service.routes import READ, Asked, Commit, Name, answer, in_thread_or_large, predicted, state_of
from bcmdist.data.arrow import MEDIA_TYPE, names_in, read_columns, read_table, rows_of
from bcmdist.data.tables.columns import numbers_of

COMPANIONS, ERRORS = OF_NEW_ROWS, "X_variance"
Levels = Annotated[list[Level], Query(max_length=49)]


class _OfArrow(APIRoute):
    """A route for requests whose body is an Arrow stream."""

    def matches(self, scope):
        kinds = [value for name, value in scope.get("headers", []) if name.lower() == b"content-type"]
        if not kinds or kinds[0].partition(b";")[0].strip().lower() != MEDIA_TYPE.encode():
            return Match.NONE, {}
        return super().matches(scope)


# Not in the OpenAPI schema: the JSON route documents both kinds of body for this path.
router = APIRouter(route_class=_OfArrow, include_in_schema=False)


@router.post("/models/{name}/predict", dependencies=[READ])
async def predict_arrow(
    name: Name,
    request: Request,
    service: Asked,
    commit: Commit = None,
    method: Annotated[str | None, Query(max_length=100)] = None,
    inputs: Way | None = None,
    quantiles: Levels = [],  # noqa: B006
    intervals: Levels = [],  # noqa: B006
) -> Response:
    """Predict at the points of an Arrow stream; options are query parameters."""
    served, body = await state_of(service, name, commit), await request.body()
    X, columns, companions = await in_thread_or_large(request, service, points_of, served, body, service.limits.rows)
    asked = functools.partial(
        question_of,
        served,
        X,
        columns or None,
        companions.get(ERRORS),
        most_rows=service.limits.rows,
        method=method,
        inputs=inputs,
        quantiles=quantiles,
        intervals=intervals,
        companions={name: companions.get(name) for name in COMPANIONS},
    )
    effort = load(len(X), uncertain=ERRORS in companions, levels=len(quantiles) + 2 * len(intervals))
    found = await predicted(request, service, served, asked, load=effort)
    return answer(request, service, found)


def points_of(
    served: ServedState, body: bytes, most_rows: int
) -> tuple[np.ndarray, tuple[str, ...], dict[str, np.ndarray]]:
    """Return points, column names and companion arrays of an Arrow stream, as `read_table`.

    A table with the columns that the model was fitted to, before they were coded as numbers, is coded as in training.
    Rows are counted before any is decoded; more than `most_rows` raise `Refused`.
    """
    refuse_many(rows_of(body), most_rows)
    with served.using() as loaded:
        coding = loaded.snapshot.model.schema.coding
    names = names_in(body)
    if coding and names.issuperset(coding.columns) and not names.issuperset(coding.inputs):
        given = names.intersection(COMPANIONS)
        found = read_columns(body, {*coding.columns, *given})
        return inputs_of_table(found, coding), (), {name: numbers_of(found[name], "body") for name in given}
    return read_table(body, others=COMPANIONS, tables=[ERRORS])
