"""What a second look at the data finds."""

from dataclasses import dataclass

from bcmdist.model.targets import model_rows
from bcmdist.prediction.diagnosis.degrees import degrees_share
from bcmdist.prediction.fitted import load_fitted
from bcmdist.storage.commits import Reference


@dataclass(frozen=True)
class Degrees:
    """Effective degrees of freedom of a partition under a fitted model."""

    fitted: Reference

    def __call__(self, part, rows) -> float:
        fitted = load_fitted(self.fitted)
        model = fitted.model
        X, obs = model_rows(model, part, rows)
        return part.weight * degrees_share(model.shared, model.likelihood, X, obs, fitted.belief)
