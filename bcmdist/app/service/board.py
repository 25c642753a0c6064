"""The board: the live page's data on models and jobs, computed once for all viewers and again after a change."""

import threading
import time
from collections.abc import Iterator

from bcmdist.app import figures
from bcmdist.app.finite import finite
from bcmdist.app.journal import Journal
from bcmdist.app.service.answers import without_places
from bcmdist.app.service.catalogue import Catalogue
from bcmdist.app.service.loaded import Version
from bcmdist.app.service.names import of_figures
from bcmdist.app.service.served import Served
from bcmdist.app.service.work import Work
from bcmdist.errors import BcmdistError, InvalidOption

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
            "waiting_rows": served.writer.waiting,
            "lag": lag | {"seconds": None if lag["seconds"] is None else round(lag["seconds"], 1)},
            "dead_ingesters": served.dead_ingesters,
        }


def _figures(loaded, folders):
    try:
        snapshot = loaded.committee.snapshot
    except InvalidOption:  # a mixture
        return {}
    return {
        "relevance": figures.relevance(snapshot),
        "calibration": figures.calibration(snapshot),
        **of_figures(figures.drift(snapshot), snapshot.ledger),
        "history": figures.growth(snapshot),
        "view": _view(loaded, snapshot, folders),
    }


def _view(loaded, snapshot, folders):
    """Return predictions to plot, or an error message where predictions need more than inputs."""
    try:
        return figures.view(snapshot, lambda X: loaded.predict(X, method=None)[1])
    except BcmdistError as error:
        return {"message": without_places(str(error), folders)}
