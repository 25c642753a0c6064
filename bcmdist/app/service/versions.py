"""HTTP routes of the versions of a model: return to an earlier commit, and aliases of commits."""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from bcmdist.app.service.answers import encoded
from bcmdist.app.service.bodies import Aliases, Naming, Revert, Reverted
from bcmdist.app.service.json_requests import JSONRoute
from bcmdist.app.service.routes import INGEST, PROBLEMS, READ, Asked, Key, Name, in_thread
from bcmdist.app.service.served import Served
from bcmdist.committee.mixture_commits import commit_log
from bcmdist.storage.aliases import NAME

router = APIRouter(responses=PROBLEMS, route_class=JSONRoute)
Alias = Annotated[str, Path(pattern=f"^{NAME.pattern}$")]


@router.post("/models/{name}/revert", dependencies=[INGEST], response_model=Reverted)
async def revert(name: Name, asked: Revert, service: Asked, idempotency_key: Key) -> Response:
    """Return a model to an earlier commit, as a new commit, exactly once.

    A retry with the same Idempotency-Key gets the same response. Rows that were absorbed after that commit are absorbed
    again if they are sent again.
    """
    served = service.catalogue[name]
    made, before = await in_thread(service, served.revert, idempotency_key, asked.to)
    return encoded({"model": name, **made}, headers={"Idempotent-Replayed": "true" if before else "false"})


@router.get("/models/{name}/aliases", dependencies=[READ], response_model=Aliases)
async def aliases(name: Name, service: Asked) -> Response:
    """List the aliases of a model, and the commits that they name."""
    return encoded(await in_thread(service, _aliases, service.catalogue[name]))


@router.put("/models/{name}/aliases/{alias}", dependencies=[INGEST], response_model=Aliases)
async def set_alias(name: Name, alias: Alias, asked: Naming, service: Asked) -> Response:
    """Let an alias name a commit, which is kept while it does; list the aliases."""
    return encoded(await in_thread(service, _with_alias, service.catalogue[name], alias, asked.commit))


@router.delete("/models/{name}/aliases/{alias}", dependencies=[INGEST], response_model=Aliases)
async def remove_alias(name: Name, alias: Alias, service: Asked) -> Response:
    """Remove an alias; list those that are left."""
    return encoded(await in_thread(service, _without_alias, service.catalogue[name], alias))


def _with_alias(served: Served, alias, commit) -> dict:
    commit_log(served.url).set_alias(alias, commit)
    return _aliases(served)


def _without_alias(served: Served, alias) -> dict:
    commit_log(served.url).remove_alias(alias)
    return _aliases(served)


def _aliases(served: Served) -> dict:
    served.commits.look()
    return {"model": served.name, "aliases": {name: one.commit for name, one in served.commits.aliases.items()}}
