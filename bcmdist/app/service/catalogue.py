"""The catalogue: the models of a directory by name, loaded when they appear, and renewed when they change."""

import logging
import math
import os
import threading
import time

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.background import in_background
from bcmdist.app.service.names import NAME
from bcmdist.app.service.served import Served
from bcmdist.errors import BcmdistError, DataNotFound, InvalidOption
from bcmdist.storage.locate import open_storage
from bcmdist.storage.urls import normal_url, on_objects

ROWS = ".rows"  # rows of requests, in a folder for each model
RENEW_SECONDS = 0.5
KEEP_DAYS = 30.0  # of rows that no ledger names
SWEEP_SECONDS = 3600.0
SELDOM = 4  # times that an object store, where every look is paid for, is looked at more seldom
MODEL = {"commits", "mixture.json"}  # of which a model's folder has one
log = logging.getLogger("bcmdist.app.service")


def refuse_unusable(folder, rows) -> None:
    """Raise where models cannot be served from a place, or rows of requests not be kept in another."""
    for name, place in {"MODELS_DIR": folder, "--rows": rows}.items():
        if "://" in str(place or "") and (name == "--rows" or not on_objects(place)):
            scheme = str(place).partition("://")[0]
            raise InvalidOption(f"{name}: expected a directory on a disk, got {scheme}://; serve a copy, or name one")
    if on_objects(folder) and not rows:
        raise InvalidOption(
            "MODELS_DIR: expected --rows DIR on a disk beside s3://, got none; name one that outlives this service: "
            "rows of requests are kept there until they are committed"
        )
    if not on_objects(folder) and not os.path.isdir(folder):
        raise DataNotFound(f"MODELS_DIR: expected a directory of models, {folder} is none; check the path")


class Catalogue:
    """Models of a directory, or below s3://; each of its folders that holds commits is one, links are not followed.

    Parameters
    ----------
    rows : directory for the rows of requests, on a disk; by default beside the models
    keep_rows : days for which rows are kept that the ledger of their model does not name

    Raises
    ------
    DataNotFound, InvalidOption, StorageUnreachable
    """

    def __init__(self, folder, rows=None, keep_rows: float = KEEP_DAYS):
        self.folder = normal_url(folder) if on_objects(folder) else os.path.realpath(folder)
        self._on_objects = on_objects(folder)
        refuse_unusable(folder, rows)
        self._rows = os.path.realpath(rows or f"{self.folder}/{ROWS}")
        self._keep_rows, self._swept = keep_rows, -math.inf
        self._served: dict[str, Served] = {}
        self.unreadable: dict[str, str] = {}
        """why models cannot be served, or renewed, by name: the class of the error"""
        self._closing = threading.Event()
        self.look()
        self._thread = in_background(self._renew, "renewal of models")

    def __getitem__(self, name: str) -> Served:
        """The model of a name.

        Raises
        ------
        Refused
            400 where it is no name, 404 where there is no such model, 503 where it cannot be read.
        """
        if not NAME.fullmatch(name):
            raise Refused(
                400,
                "InvalidOption",
                "model: expected a name of letters, digits and . _ - that begins with a letter or digit, got another; "
                "GET /models lists those that there are",
            )
        try:
            return self._served[name]
        except KeyError:
            pass
        if name in self.unreadable:
            raise Refused(503, self.unreadable[name], f"model: expected {name} to be readable, it is not; mend it")
        raise Refused(
            404, "ModelNotFound", f"model: expected one of those that GET /models lists, {name} is not; name one"
        )

    def __iter__(self):
        return iter(sorted(self._served.items()))

    @property
    def dead_ingesters(self) -> int:
        """Ingesters that were to wait for rows, and are dead."""
        return sum(served.dead_ingesters for _, served in self)

    def look(self) -> None:
        """Load models that have appeared, leave those that have gone, and renew the others."""
        found = set(self._found())
        for name in self._served.keys() - found:
            self._served.pop(name).close()
        self.unreadable = {name: why for name, why in self.unreadable.items() if name in found}
        for name in sorted(found):
            try:
                self._load(name)
                self.unreadable.pop(name, None)
            except (BcmdistError, OSError) as error:
                if self.unreadable.get(name) != type(error).__name__:
                    log.warning("model %s cannot be loaded: %s", name, type(error).__name__)
                self.unreadable[name] = type(error).__name__

    def _found(self):
        if self._on_objects:
            storage = open_storage(self.folder)
            named = filter(NAME.fullmatch, storage.names(""))
            yield from (name for name in named if MODEL & set(storage.names(name)))
            return
        with os.scandir(self.folder) as entries:
            for entry in entries:
                whole = entry.is_dir(follow_symlinks=False) and NAME.fullmatch(entry.name)
                if whole and MODEL & set(os.listdir(entry.path)):
                    yield entry.name

    def _load(self, name):
        if name not in self._served:
            self._served[name] = Served(name, f"{self.folder}/{name}", f"{self._rows}/{name}")
            log.info("model %s is served", name)
        elif self._served[name].renew():
            log.info("model %s was renewed", name)
        self._served[name].look_at_ingesters()

    def _renew(self):
        while not self._closing.wait(RENEW_SECONDS * (SELDOM if self._on_objects else 1)):
            try:
                self.look()
                self._sweep()
            except Exception as error:  # the next look may find more
                log.warning("models cannot be looked at: %s", type(error).__name__)

    def _sweep(self):
        """Remove kept rows that nobody needs, now and then; those of models that cannot be read stay."""
        if time.monotonic() - self._swept < SWEEP_SECONDS:
            return
        self._swept = time.monotonic()
        for name, served in self:
            if name not in self.unreadable and (removed := served.sweep(self._keep_rows)):
                log.info("model %s: %d files of rows that were not needed were removed", name, removed)

    def close(self) -> None:
        """Commit what waits, and let go of all models."""
        self._closing.set()
        self._thread.join()
        for _, served in self:
            served.close()
        self._served.clear()
