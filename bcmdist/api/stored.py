"""What a committee at one commit of a model directory holds."""

from dataclasses import dataclass
from typing import Any

from bcmdist.api.advice import advised
from bcmdist.api.facade import Facade
from bcmdist.api.info import info
from bcmdist.api.relevance import Lengthscales, lengthscales
from bcmdist.committee import fading
from bcmdist.committee.committee import Committee
from bcmdist.committee.snapshot import Snapshot
from bcmdist.model.model import Model
from bcmdist.prediction.predictive_model import CommitteeModel
from bcmdist.storage.commits import ModelStore
from bcmdist.storage.ledger import Ledger


@dataclass(frozen=True)
class StoredCommittee(Facade):
    """A committee at one commit: its parts and figures; `PredictiveCommittee` adds predictions."""

    snapshot: Snapshot

    @property
    def predictive(self) -> CommitteeModel:
        return CommitteeModel(self.snapshot)

    @property
    def model(self) -> Model:
        return self.snapshot.model

    @property
    def committee(self) -> Committee:
        return self.snapshot.committee

    @property
    def url(self) -> str:
        """URL of the model directory."""
        return self.snapshot.url

    @property
    def commit(self) -> int:
        return self.snapshot.commit

    @property
    def ledger(self) -> Ledger:
        """The absorbed partitions."""
        return self.snapshot.ledger

    @property
    def weights(self) -> dict[str, float]:
        """Current weights of the partitions in the ledger, by key, after reweighting and fading."""
        return fading.weights(self.snapshot.facts.fading, self.ledger)

    @property
    def facts(self) -> dict[str, Any]:
        """Records of the fit, JSON-ready: job, kernels tried, seconds per stage, ..."""
        return self.snapshot.facts.to_json()

    def info(self) -> dict[str, Any]:
        return info(self.snapshot)

    def advised(self) -> list[str]:
        return advised(self.snapshot)

    def lengthscales(self) -> list[Lengthscales]:
        return lengthscales(self.snapshot)

    def history(self) -> list[dict[str, Any]]:
        return self.store.history()

    @property
    def store(self) -> ModelStore:
        """Access to the model directory: its history and pruning."""
        return self.snapshot.store

    @property
    def offsets(self) -> dict[str, Any]:
        """Offset of each source, by its name: where ingestion resumes. JSON-ready."""
        return self.snapshot.offsets

    @property
    def degrees_of_freedom(self) -> float:
        """Effective degrees of freedom of one latent process, as far as the query set represents the data."""
        return self.snapshot.degrees_of_freedom
