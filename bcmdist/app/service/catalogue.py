"""The catalogue: the models of a directory by name, loaded when they appear and reloaded when they change."""

import itertools
import logging
import math
import os
import threading
import time

from bcmdist.app.service.answers import Refused
from bcmdist.app.service.background import in_background
from bcmdist.app.service.names import NAME
from bcmdist.app.service.served import Served
from bcmdist.app.service.waiting import WaitingRows
from bcmdist.errors import BcmdistError, DataNotFound, InvalidOption
from bcmdist.storage.locate import open_storage
from bcmdist.storage.urls import normal_url, on_objects

ROWS = ".rows"  # folder for the rows of requests, with one subfolder per model
RENEW_SECONDS = 0.5
KEEP_DAYS = 30.0  # for which rows that are in no ledger are kept
SWEEP_SECONDS = 3600.0
SELDOM = 4  # factor on RENEW_SECONDS for an object store, where each request costs money
OTHER = 5  # looks at an object store of which one is for new models, aliases and ingesters too
MODEL = {"commits", "mixture.json"}  # a model's folder has one of these
log = logging.getLogger("bcmdist.app.service")


def refuse_unusable(folder, rows) -> None:
    """Raise an error if models cannot be served from `folder`, or rows of requests cannot be stored in `rows`."""
    for name, place in {"MODELS_DIR": folder, "--rows": rows}.items():
        if "://" in str(place or "") and not on_objects(place):
            scheme = str(place).partition("://")[0]
            raise InvalidOption(
                f"{name}: expected a directory on a disk or an object store (s3://, gs:// or az://), got {scheme}://; "
                "name one of these"
            )
    if not on_objects(folder) and not os.path.isdir(folder):
        raise DataNotFound(f"MODELS_DIR: expected a directory of models, {folder} is none; check the path")


class Catalogue:
    """The models in a directory or below a prefix of an object store.

    Each subfolder that holds commits or a mixture is a model; symbolic links are not followed.

    Parameters
    ----------
    rows : directory, or prefix of an object store, for the rows of requests; by default a subfolder of `folder`
    keep_rows : days for which rows that are not in the ledger of their model are kept

    Raises
    ------
    DataNotFound, InvalidOption, StorageUnreachable
    """

    def __init__(self, folder, waiting: WaitingRows, rows=None, keep_rows: float = KEEP_DAYS):
        self.folder = normal_url(folder) if on_objects(folder) else os.path.realpath(folder)
        self._on_objects = on_objects(folder)
        refuse_unusable(folder, rows)
        self._waiting = waiting
        rows = rows or f"{self.folder}/{ROWS}"
        self._rows = normal_url(rows) if on_objects(rows) else os.path.realpath(rows)
        self._keep_rows, self._swept = keep_rows, -math.inf
        self._served: dict[str, Served] = {}
        self.unreadable: dict[str, str] = {}
        """error class by name of each model that could not be loaded or reloaded"""
        self._closing, self._looks = threading.Event(), itertools.count(1)
        self.look()
        self._thread = in_background(self._renew, "renewal of models")

    def __getitem__(self, name: str) -> Served:
        """Return the model called `name`.

        Raises
        ------
        Refused
            400: the name is invalid. 404: there is no such model. 503: the model cannot be read.
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
        """Number of sources whose ingester should wait for rows but is dead, over all models."""
        return sum(served.dead_ingesters for _, served in self)

    def look_again(self) -> None:
        """As `look`; on an object store only for changed models, except in each `OTHER`th look."""
        self.look(only_changed=self._on_objects and next(self._looks) % OTHER != 0)

    def look(self, *, only_changed=False) -> None:
        """Load new models, close removed ones and reload changed ones; read aliases and heartbeats.

        only_changed : only reload changed models
        """
        found = self._served.keys() | self.unreadable.keys() if only_changed else set(self._found())
        for name in self._served.keys() - found:
            self._served.pop(name).close()
        self.unreadable = {name: why for name, why in self.unreadable.items() if name in found}
        for name in sorted(found):
            try:
                self._load(name)
                if not only_changed:
                    self._served[name].look_at_ingesters()
                    self._served[name].commits.look()
                self.unreadable.pop(name, None)
            except (BcmdistError, OSError) as error:
                if self.unreadable.get(name) != type(error).__name__:
                    log.warning("model %s cannot be loaded: %s", name, type(error).__name__)
                self.unreadable[name] = type(error).__name__

    def _found(self):
        if self._on_objects:
            storage = open_storage(self.folder)
            named = filter(NAME.fullmatch, storage.names(""))
            readable = self._served.keys() - self.unreadable.keys()  # a model that is gone becomes unreadable
            yield from (name for name in named if name in readable or MODEL & set(storage.names(name)))
            return
        with os.scandir(self.folder) as entries:
            for entry in entries:
                whole = entry.is_dir(follow_symlinks=False) and NAME.fullmatch(entry.name)
                if whole and MODEL & set(os.listdir(entry.path)):
                    yield entry.name

    def _load(self, name):
        if name not in self._served:
            self._served[name] = Served(name, f"{self.folder}/{name}", f"{self._rows}/{name}", self._waiting)
            log.info("model %s is served", name)
        elif self._served[name].renew():
            log.info("model %s was renewed", name)

    def _renew(self):
        while not self._closing.wait(RENEW_SECONDS * (SELDOM if self._on_objects else 1)):
            try:
                self.look_again()
                self._sweep()
            except Exception as error:  # the next attempt may succeed
                log.warning("models cannot be looked at: %s", type(error).__name__)

    def _sweep(self):
        """Remove stored rows that are no longer needed, at most once per `SWEEP_SECONDS`; skip unreadable models."""
        if time.monotonic() - self._swept < SWEEP_SECONDS:
            return
        self._swept = time.monotonic()
        for name, served in self:
            if name not in self.unreadable and (removed := served.sweep(self._keep_rows)):
                log.info("model %s: %d files of rows that were not needed were removed", name, removed)

    def close(self) -> None:
        """Commit waiting rows and close all models."""
        self._closing.set()
        self._thread.join()
        for _, served in self:
            served.close()
        self._served.clear()
