"""What a second look at the data finds: degrees of freedom, and the gradient of the evidence."""

from dataclasses import dataclass

from bcmdist.committee_evidence import ModeShare, expert_share, mode_share
from bcmdist.degrees import degrees_share
from bcmdist.likelihoods import Likelihood
from bcmdist.store import BlobReference, Reference
from bcmdist.tasks.loading import load_array, load_fitted
from bcmdist.tasks.targets import model_rows


@dataclass(frozen=True)
class Degrees:
    """Effective degrees of freedom of a partition under a fitted model."""

    fitted: Reference

    def __call__(self, part, rows) -> float:
        fitted = load_fitted(self.fitted)
        model = fitted.model
        X, obs = model_rows(model, part, rows)
        return part.weight * degrees_share(model.query, model.likelihood, X, obs, fitted.belief)


@dataclass(frozen=True)
class Modes:
    """First round of the gradient of a Laplace committee's evidence: how the modes pull."""

    fitted: Reference

    def __call__(self, part, rows) -> ModeShare:
        fitted = load_fitted(self.fitted)
        model = fitted.model
        X, obs = model_rows(model, part, rows)
        assert isinstance(model.likelihood, Likelihood)
        return mode_share(model.query, model.likelihood, X, obs, fitted.belief)


@dataclass(frozen=True)
class Gradient:
    """A partition's part of the gradient of the committee's log evidence."""

    fitted: Reference
    shift: BlobReference | None

    def __call__(self, part, rows):
        fitted = load_fitted(self.fitted)
        model = fitted.model
        X, obs = model_rows(model, part, rows)
        assert isinstance(model.likelihood, Likelihood)
        shift = None if self.shift is None else load_array(self.shift)
        return expert_share(model.query, model.likelihood, X, obs, fitted.belief, shift)
