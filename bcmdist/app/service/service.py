"""The service behind the routes: models, limits and metrics, from start to stop."""

import asyncio
import functools
import logging
import os
from concurrent.futures import Future
from typing import Any

import anyio

from bcmdist.api.requests import absolute
from bcmdist.app.finite import finite
from bcmdist.app.service.catalogue import Catalogue
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.metrics import Metrics
from bcmdist.app.service.work import Work
from bcmdist.runtime.dask.scheduler import SchedulerMachine

log = logging.getLogger("bcmdist.app.service")


class Service:
    """Models of a directory that are asked by many; closed, it has committed what waited.

    Raises
    ------
    DataNotFound, InvalidOption
    """

    def __init__(
        self,
        folder,
        limits: Limits,
        *,
        jobs: str,
        data: str | None = None,
        scheduler: str | None = None,
        security: Any = None,
    ):
        self.limits, self.metrics, self.closing = limits, Metrics(), False
        self.catalogue = Catalogue(folder)
        machine = functools.partial(SchedulerMachine, security=security)
        self.work = Work(absolute(jobs), self.catalogue.folder, data and os.path.realpath(data), scheduler, machine)
        self.computing = anyio.CapacityLimiter(max(2, os.cpu_count() or 1))

    def listed(self) -> dict:
        """Models by name, and those that cannot be read."""
        known = [{"name": name, **self._brief(served)} for name, served in self.catalogue]
        broken = [{"name": name, "error": why} for name, why in sorted(self.catalogue.unreadable.items())]
        return {"models": known + [one for one in broken if one["name"] not in {m["name"] for m in known}]}

    def _brief(self, served):
        with served.using() as loaded:
            member = loaded.member
            return {
                "commit": loaded.state,
                "rows": member.committee.total.rows,
                "inputs": member.model.inputs,
                "likelihood": member.model.likelihood.name,
            }

    def told(self, name) -> dict:
        """Figures of `bcmdist info`, but for places."""
        served = self.catalogue[name]
        with served.using() as loaded:
            figures = loaded.fitted.info()
        return finite(figures | {"model": name, "waiting_rows": served.writer.waiting, "renewed": served.heard_at})

    def history(self, name) -> dict:
        """Commits of a model, oldest first, without offsets, which name places."""
        with self.catalogue[name].using() as loaded:
            found = loaded.committee.store.history()
        return {"model": name, "history": [{n: v for n, v in one.items() if n != "offsets"} for one in found]}

    async def committed(self, done: Future) -> None:
        """Until rows are committed; they will be, also where nobody waits any more."""
        await asyncio.shield(asyncio.wrap_future(done))

    def metrics_text(self) -> str:
        """All that is measured."""
        gauges: dict[str, list] = {"bcmdist_models_unreadable": [({}, float(len(self.catalogue.unreadable)))]}
        for name, served in self.catalogue:
            with served.using() as loaded:
                values = {
                    "bcmdist_model_rows": loaded.member.committee.total.rows,
                    "bcmdist_model_partitions": len(loaded.member.ledger),
                    "bcmdist_model_commit": loaded.member.commit,
                    "bcmdist_model_waiting_rows": served.writer.waiting,
                    "bcmdist_model_renewed_timestamp_seconds": served.heard_at,
                }
            for metric, value in values.items():
                gauges.setdefault(metric, []).append(({"model": name}, float(value)))
        return self.metrics.text(gauges)

    def log_error(self, error: BaseException) -> None:
        """Note what we could not do, without words that may name places or rows."""
        log.error("%s", type(error).__name__)

    def close(self) -> None:
        """Commit what waits."""
        self.closing = True
        self.catalogue.close()
