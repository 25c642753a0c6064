"""The loaded state of a model directory: one commit of a committee, or a mixture, ready to predict."""

import contextlib
import functools
import threading
from typing import Any

import numpy as np

from bcmdist.api.gbcm import GBCM
from bcmdist.api.mixture import Mixture, opened
from bcmdist.app.service.answers import Refused
from bcmdist.app.service.form import start_of
from bcmdist.committee.facts import Lag
from bcmdist.committee.ingest.lag_meter import lags
from bcmdist.committee.mixture_commits import REVISIONS, Contents, contents_of, is_mixture, revision_store
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.prediction.errors.drift import drift_in
from bcmdist.prediction.in_memory import predict_by
from bcmdist.prediction.predictive_model import PREDICTORS, RowPredictor
from bcmdist.prediction.scoring.excess_loss import from_facts
from bcmdist.storage.commits import MIXTURE, Reference, open_store
from bcmdist.storage.locate import open_objects
from bcmdist.storage.records import record_name
from bcmdist.storage.urls import on_objects

Version = Reference | Contents
MOST_LISTS = 30  # between two full looks for the newest state: a minute


class Loaded:
    """One immutable state of a model, protected from pruning until it is closed."""

    def __init__(self, fitted: GBCM | Mixture, lease: contextlib.ExitStack | None = None):
        self.fitted, self.model, self._lease = fitted, fitted.predictive, lease or contextlib.ExitStack()
        self.version, self.state = self.model.version, self.model.state
        self._predictors: dict[str, RowPredictor] = {}
        self._ways: dict[tuple, str] = {}
        """method of averaging over uncertain inputs, by prediction method and requested averaging method"""
        self._making = threading.Lock()
        if not PREDICTORS[self.snapshot.facts.method].reads_rows:
            self._predictor(self.model.chosen_method())  # make the default predictor before the first request

    def _predictor(self, method):
        with self._making:
            if method not in self._predictors:
                self._predictors[method] = self.model.predictor(method)
            return self._predictors[method]

    def _chosen(self, method):
        method = method or self.snapshot.facts.method
        if method in PREDICTORS and PREDICTORS[method].reads_rows:
            raise InvalidOption(
                f"method: expected one that reads no rows of the data, got {method}; give augmented_sparse or "
                "committee, or predict a data set by a job"
            )
        return self.model.chosen_method(method)

    def _way(self, method, inputs):
        if (method, inputs) not in self._ways:
            self._ways[method, inputs] = self.model.way(method, inputs)
        return self._ways[method, inputs]

    def predict(self, X, *, method, X_variance=None, inputs=None, **how) -> tuple[str, dict[str, np.ndarray]]:
        """Return the method used, and predictions named as in `GBCM.predict`; callable from any thread."""
        method = self._chosen(method)
        averaging = None if X_variance is None else self._way(method, inputs)
        return method, predict_by(self._predictor(method), X, X_variance=X_variance, way=averaging, **how)

    @property
    def snapshot(self) -> Snapshot:
        """Snapshot of the committee, or of a mixture's first one: all have the same inputs and targets."""
        return self.model.snapshot

    @functools.cached_property
    def drifts(self) -> bool | None:
        """Whether what arrives is predicted worse than expected; None if that is not known."""
        found = drift_in(self.snapshot.ledger, from_facts(self.snapshot.facts.errors.expected))
        return None if found is None or found["expected"] is None else found["worse"]

    @functools.cached_property
    def start(self) -> dict[str, Any]:
        """Row at which a form starts (`form.start_of`)."""
        return start_of(self.snapshot)

    @property
    def lag(self) -> dict[str, Lag | None]:
        """Lag of ingestion behind each source at this commit; None where it is unknown."""
        return lags(self.snapshot)

    def close(self) -> None:
        """Release the lease of the commit."""
        self._lease.close()


class Changes:
    """Whether a model directory may hold another state than the one that is loaded.

    On an object store one list answers, from the record of the loaded commit on. While it is the same as when the
    newest state was last looked for, and that was the loaded one, nothing was committed or replaced. Only the loss of a
    later record does not show: after `MOST_LISTS` lists the newest state is looked for again. On a disk, where looking
    costs nothing, the answer is always yes.
    """

    def __init__(self, url):
        self._objects = open_objects(url) if on_objects(url) else None
        self._listed: dict[str, str] = {}
        self._confirmed: dict[str, str] = {}
        self._left = 0

    def since(self, version: Version | None) -> bool:
        """Whether the newest state must be looked for, because it may not be `version`."""
        if self._objects is None or version is None:
            return True
        self._listed = self._objects.between(*_names_since(version))
        self._left -= 1
        return self._left < 0 or not self._listed or self._listed != self._confirmed

    def confirm(self, version: Version | None) -> None:
        """Record that the newest state, as looked for after the last `since`, is `version`."""
        if version is None:
            return
        first, _ = _names_since(version)
        found = {name: stored for name, stored in self._listed.items() if name >= first}
        self._confirmed, self._left = found if first in found else {}, MOST_LISTS


def _names_since(version: Version) -> tuple[str, str]:
    """First name and end of the names of the records from a version on."""
    if isinstance(version, Contents):
        return MIXTURE, f"{REVISIONS}/commits0"
    return record_name(version.number), "commits0"


def newest_version(url) -> Version:
    """Return the version of a model directory's newest state without loading the state; errors as of `load`."""
    return contents_of(url) if is_mixture(url) else open_store(url).newest()


def load(url, commit: int | None = None) -> Loaded:
    """Load the newest state of a model directory, or a given commit.

    Raises
    ------
    ModelNotFound, ModelDamaged, VersionMismatch
    """
    with contextlib.ExitStack() as lease:
        return Loaded(lease.enter_context(opened(url, commit=commit)), lease.pop_all())


def missing_commit(url, name: str, number: int) -> Refused:
    """Return the error for a commit that cannot be loaded because it was pruned, or never existed."""
    pruned = 1 <= number <= (revision_store(url).pruned() + 1 if is_mixture(url) else open_store(url).pruned())
    text = f"commit: expected one that GET /models/{name}/history lists, {number}"
    if pruned:
        return Refused(410, "ModelNotFound", f"{text} was pruned; name a later one: commits with an alias are kept")
    return Refused(404, "ModelNotFound", f"{text} is none; name one of them")


def hold(fitted: GBCM | Mixture) -> Loaded:
    """Return the state of a commit that was just made, with a lease of its own."""
    with contextlib.ExitStack() as lease:
        lease.enter_context(fitted.predictive.held())
        return Loaded(fitted, lease.pop_all())
