"""HTTP routes of the versions of a model: return to an earlier commit, and aliases of commits."""

import functools
from typing import Annotated

from fastapi import APIRouter, Path, Response

from bcmdist.api.mixture import refuse_mixture
from bcmdist.app.service.answers import encoded
from bcmdist.app.service.bodies import Aliases, Naming, Revert, Reverted
from bcmdist.app.service.json_requests import JSONRoute
from bcmdist.app.service.routes import INGEST, PROBLEMS, READ, Asked, Key, Name, in_thread
from bcmdist.app.service.served import Served
from bcmdist.storage.aliases import NAME
from bcmdist.storage.commits import ModelStore, open_store

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
    change = functools.partial(ModelStore.set_alias, name=alias, commit=asked.commit)
    return encoded(await in_thread(service, _changed, service.catalogue[name], change))


@router.delete("/models/{name}/aliases/{alias}", dependencies=[INGEST], response_model=Aliases)
async def remove_alias(name: Name, alias: Alias, service: Asked) -> Response:
    """Remove an alias; list those that are left."""
    change = functools.partial(ModelStore.remove_alias, name=alias)
    return encoded(await in_thread(service, _changed, service.catalogue[name], change))


def _changed(served: Served, change) -> dict:
    refuse_mixture(served.url, "name a commit of")
    change(open_store(served.url))
    return _aliases(served)


def _aliases(served: Served) -> dict:
    served.commits.look()
    return {"model": served.name, "aliases": {name: one.commit for name, one in served.commits.aliases.items()}}
