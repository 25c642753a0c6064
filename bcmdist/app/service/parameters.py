"""Query parameters: those that the signature of a route declares, and no others."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant

from bcmdist.app.service.answers import Refused


async def only_declared_parameters(request: Request) -> None:
    """FastAPI dependency: refuse query parameters that the route does not declare, which would have no effect.

    Raises
    ------
    Refused
    """
    declared = sorted(set(_declared(request.scope["route"].dependant)))
    unknown = next((name for name in request.query_params if name not in declared), None)
    if unknown is not None:
        expected = f"no other parameters than {', '.join(declared)}" if declared else "no parameters"
        text = f"query: expected {expected}, got {unknown!r:.80}; leave it out or correct it, see /openapi.json"
        raise Refused(422, "InvalidRequest", text)


def _declared(dependant: Dependant) -> Iterator[str]:
    """Yield the names of the query parameters of a route or a dependency, and of its dependencies."""
    yield from (parameter.alias for parameter in dependant.query_params)
    for one in dependant.dependencies:
        yield from _declared(one)
