"""The service behind the HTTP routes: models, jobs, limits and metrics."""

import asyncio
import functools
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import anyio

from bcmdist.api.requests import absolute
from bcmdist.app import figures
from bcmdist.app.finite import finite
from bcmdist.app.journal import Journal
from bcmdist.app.service.answers import Refused, without_places
from bcmdist.app.service.asking import MicroBatcher
from bcmdist.app.service.catalogue import KEEP_DAYS, Catalogue
from bcmdist.app.service.form import fields_of
from bcmdist.app.service.large import LargeRequests
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.loaded import Version
from bcmdist.app.service.logs import log_error
from bcmdist.app.service.metrics import Metrics
from bcmdist.app.service.names import of_figures
from bcmdist.app.service.records import target_name
from bcmdist.app.service.served import Served
from bcmdist.app.service.shared import SharedTable
from bcmdist.app.service.waiting import WaitingRows
from bcmdist.app.service.work import Work
from bcmdist.committee.growth import capacity
from bcmdist.errors import BcmdistError, DataNotFound
from bcmdist.runtime.dask.scheduler import SchedulerMachine
from bcmdist.runtime.portion import ALL, Portion

LOOK_SECONDS = 0.25  # between two checks for changes
JOBS_SHOWN = 20  # newest jobs on the page


class Board:
    """Cached data of the live page; methods may be called from any thread."""

    def __init__(self, catalogue: Catalogue, work: Work):
        self._catalogue, self._work, self._lock = catalogue, work, threading.Lock()
        self._looked: dict[str, tuple[float, object]] = {}
        """time and result of the last check, by kind of data"""
        self._shown: dict[str, tuple[Version | None, dict]] = {}
        """version and figures of each model"""
        self._journals: dict[str, Journal] = {}

    def models(self) -> list[dict]:
        """Return summaries of all models, as in `GET /models`."""
        models = [{"name": name, **_brief(served)} for name, served in self._catalogue]
        names = {one["name"] for one in models}
        broken = sorted(self._catalogue.unreadable.items())
        return models + [{"name": name, "error": why} for name, why in broken if name not in names]

    def model(self, name: str) -> dict:
        """Return figures of a model: `relevance`, `calibration`, `drift`, `curve`, `history`, `view` (may be None).

        Raises
        ------
        Refused
        """
        served = self._catalogue[name]
        with served.using() as loaded, self._lock:
            version, shown = self._shown.get(name, (None, {}))
            if version != loaded.version:
                shown = finite({"model": name, "commit": loaded.state, **_figures(loaded, self._work.folders)})
                self._shown[name] = loaded.version, shown
        return shown

    def jobs(self) -> list[dict]:
        """Return the status of the newest jobs, newest first, each with the end of its log."""
        with self._lock:
            return self._work.newest(JOBS_SHOWN, self._journals)

    def now(self, name: str | None) -> Iterator[tuple[str, object]]:
        """Yield events as (name, data): `models`, `model` if `name` is given, and `jobs`."""
        yield "models", self._fresh("models", self.models)
        if name is not None:
            yield "model", self.model(name)
        yield "jobs", self._fresh("jobs", self.jobs)

    def _fresh(self, what, ask):
        """Return the cached result of `ask` if it is younger than `LOOK_SECONDS`, otherwise a new one."""
        at, found = self._looked.get(what, (0.0, None))
        if time.monotonic() - at >= LOOK_SECONDS:
            found = ask()
            self._looked[what] = time.monotonic(), found
        return found


def _brief(served: Served) -> dict:
    lag = served.lag()
    with served.using() as loaded:
        snapshot = loaded.snapshot
        return {
            "commit": loaded.state,
            "rows": snapshot.committee.total.rows,
            "inputs": snapshot.model.inputs,
            "likelihood": snapshot.model.likelihood.name,
            "waiting_rows": served.waiting_rows,
            "lag": lag | {"seconds": None if lag["seconds"] is None else round(lag["seconds"], 1)},
            "dead_ingesters": served.dead_ingesters,
            "drifts": loaded.drifts,
        }


def _figures(loaded, folders):
    snapshot, several = loaded.snapshot, loaded.model.several > 1  # residuals of left-out rows are those of one member
    return {
        "relevance": figures.relevance(loaded.fitted),
        "calibration": None if several else figures.calibration(snapshot),
        **of_figures(figures.drift(snapshot), snapshot.ledger),
        "history": figures.growth(loaded.fitted),
        "capacity": capacity(snapshot),
        "view": _view(loaded, snapshot, folders),
    }


def _view(loaded, snapshot, folders):
    """Return predictions to plot, or an error message where predictions need more than inputs."""
    try:
        return figures.view(snapshot, lambda X: loaded.predict(X, method=None)[1])
    except BcmdistError as error:
        return {"message": without_places(str(error), folders)}


class Service:
    """The models of a directory with what all requests share; `close` commits the waiting rows.

    Parameters
    ----------
    buckets : file of a `SharedTable` of clients' rates, for all processes of the service; None: it has only this one

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
        portion: Portion = ALL,
        rows: str | None = None,
        keep_rows: float = KEEP_DAYS,
        buckets: str | None = None,
    ):
        self.limits, self.metrics, self.closing = limits, Metrics(), False
        self.buckets = SharedTable(buckets)
        self.catalogue = Catalogue(folder, WaitingRows(), rows, keep_rows)
        machine = functools.partial(SchedulerMachine, security=security)
        data = data and os.path.realpath(data)
        self.work = Work(absolute(jobs), self.catalogue.folder, data, scheduler, portion, machine)
        self.board = Board(self.catalogue, self.work)
        self.computing = anyio.CapacityLimiter(max(2, os.cpu_count() or 1))
        self.micro_batcher = MicroBatcher(self.computing)
        self.large = LargeRequests(limits.answer_seconds)
        self.watching = anyio.CapacityLimiter(1)  # separate from `computing`: viewers do not delay predictions
        self.streams, self.ending = 0, False
        """number of open event streams; whether they should end because the server is stopping"""

    def listed(self) -> dict:
        """List the models, including unreadable ones."""
        return {"models": self.board.models()}

    def describe(self, name, *, start: bool = False) -> dict:
        """Return the figures of `bcmdist info` without paths, with waiting rows, lag and ingesters.

        start : whether to add the row at which a form starts (`form.start_of`), which may be read from the data, and
            the `relevance` of columns (`figures.relevance`)
        """
        served = self.catalogue[name]
        with served.using() as loaded:
            model, ranges = loaded.snapshot.model, figures.ranges(loaded.snapshot)
            found = of_figures(loaded.fitted.info(), loaded.snapshot.ledger)
            found |= {"fields": fields_of(model, ranges), "ranges": ranges, "target": target_name(model)}
            found["categorical"] = model.likelihood.categorical
            if start:
                found |= {"start": loaded.start, "relevance": figures.relevance(loaded.fitted)}
        lag = {"waiting_rows": served.waiting_rows, "lag": served.lag()}
        ingesters = [{"alive": one.alive, "seconds": one.seconds} for one in served.ingesters]
        return finite(found | {"model": name, **lag, "ingesters": ingesters, "renewed": served.renewed_at})

    def calibration(self, name, *, under_model) -> dict:
        """Return the coverage of predictive intervals at rows predicted before they were absorbed.

        `under_model` adds the coverage under the model's Gaussian process, as `bcmdist info --calibration`: that takes
        seconds, and the absorbed rows must be readable.

        Raises
        ------
        InvalidOption, MemoryLimit, Refused
        """
        with self.catalogue[name].using() as loaded:
            gbcm = loaded.fitted.single("compute the coverage of")
            found = {"model": name, **figures.calibration(gbcm.snapshot)}
            try:
                return finite(found | ({"under_model": gbcm.calibration()} if under_model else {}))
            except DataNotFound as error:
                text = "under_model: expected rows that can be read again, some are gone; leave it out"
                raise Refused(409, "DataNotFound", text) from error

    def drift(self, name) -> dict:
        """Report whether new rows still look as the model expects."""
        with self.catalogue[name].using() as loaded:
            snapshot = loaded.snapshot
            return {"model": name, **of_figures(figures.drift(snapshot), snapshot.ledger)}

    def history(self, name) -> dict:
        """List the commits of a model, oldest first, without offsets, which contain paths."""
        with self.catalogue[name].using() as loaded:
            found = loaded.fitted.history()
        return {"model": name, "history": [{n: v for n, v in one.items() if n != "offsets"} for one in found]}

    async def committed(self, done: Future) -> bool:
        """Wait until rows are committed; return whether they were before.

        If the client disconnects, they are committed all the same.
        """
        return await asyncio.shield(asyncio.wrap_future(done))

    def metrics_text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        gauges: dict[str, list] = {"bcmdist_models_unreadable": [({}, float(len(self.catalogue.unreadable)))]}
        for name, served in self.catalogue:
            lag = served.lag()
            with served.using() as loaded:
                points = capacity(loaded.snapshot) or {}
                values = {
                    "bcmdist_model_rows": loaded.snapshot.committee.total.rows,
                    "bcmdist_model_partitions": len(loaded.snapshot.ledger),
                    "bcmdist_model_commit": loaded.fitted.commit,
                    "bcmdist_model_query_points": points.get("points"),
                    "bcmdist_model_query_points_most": points.get("most"),
                    "bcmdist_model_waiting_rows": served.waiting_rows,
                    "bcmdist_model_lag_rows": lag["rows"],
                    "bcmdist_model_lag_seconds": lag["seconds"],
                    "bcmdist_model_ingesters": len(served.ingesters) - served.dead_ingesters,
                    "bcmdist_model_dead_ingesters": served.dead_ingesters,
                    "bcmdist_model_drifts": loaded.drifts,
                    "bcmdist_model_renewed_timestamp_seconds": served.renewed_at,
                }
            for metric, value in values.items():
                if value is not None:
                    gauges.setdefault(metric, []).append(({"model": name}, float(value)))
        return self.metrics.text(gauges)

    def log_error(self, error: BaseException) -> None:
        """Log an error by its class only: its message may contain paths or rows."""
        log_error(type(error).__name__)

    def close(self) -> None:
        """Commit the waiting rows and close all models."""
        self.closing = True
        self.large.close()
        self.catalogue.close()
        self.buckets.close()
