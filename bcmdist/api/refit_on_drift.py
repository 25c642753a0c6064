"""Refit a model during an ingestion where what arrives is worse than expected."""

from bcmdist.api.refitting import refit, refuse_fixed
from bcmdist.api.requests import RefitOptions
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import BcmdistError
from bcmdist.prediction.errors.arrival_watch import ArrivalWatch
from bcmdist.runtime.interface import Runtime


class RefitOnDrift(ArrivalWatch):
    """An observer that refits the model when it would only warn of drift.

    Rows wait in their source meanwhile, and the model is served as before. What arrives later is compared with the
    refitted model.

    Raises
    ------
    InvalidOption
        The model cannot be refitted.
    """

    def __init__(self, snapshot: Snapshot, runtime: Runtime, options: RefitOptions | None = None):
        refuse_fixed(snapshot)
        super().__init__(snapshot)
        self.runtime, self.options = runtime, options or RefitOptions()
        self.refitted = False

    def warning(self, snapshot, before) -> str | None:
        """As `ArrivalWatch.warning`, after a refit; the text says how it went."""
        text = super().warning(snapshot, before)
        if text is None:
            return None
        try:
            after = refit(snapshot.newest(), self.options, self.runtime)
        except BcmdistError as error:
            return f"{text}; a refit failed: {error}"
        self.refitted, self._warned = True, False
        return f"{text}; refitted in commit {after.commit}"
