"""Remarks on a model from rows with targets: what the reader of a report should know before trusting the model.

Each function returns a sentence, or None where there is nothing to remark.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bcmdist.api.comparison.boosted_trees import NAME as TREES
from bcmdist.linalg.arrays import FloatArray
from bcmdist.prediction.scored_rows import Judged
from bcmdist.prediction.scoring.scores import Scores
from bcmdist.prediction.scoring.verdicts import verdict

# Targets with at most so many distinct values are not checked for truncation. Arbitrary.
SEVERAL_VALUES = 20
# Targets look truncated if at least this share equals the largest (or smallest) value. Arbitrary.
CAPPED_SHARE = 0.02
# Fewer rows are few. Arbitrary.
FEW_ROWS = 100
# Scores with a smaller relative difference are called equal.
AS_GOOD = 0.02
# Boosted trees with a loss smaller by this share are far better: the table may suit them, not the model. Arbitrary.
FAR_BETTER = 0.2
# Losses for the comparison with baselines, in order of preference, and their names.
COMPARED = ("weighted_rmse", "rmse", "log_loss", "deviance")
CALLED = {
    "weighted_rmse": "root mean square error, weighted by known variances,",
    "rmse": "root mean square error",
    "log_loss": "log loss",
    "deviance": "deviance",
}


def trust(totals: Scores, baselines: dict[str, dict[str, float]], learned_from: int | None = None) -> str:
    """The verdict on predictions of rows with targets: first whether baselines or boosted trees predict them as well.

    `learned_from`: number of training rows that baselines have learned from; None if it is unknown.
    """
    scores = totals.summary()
    return verdict(totals, *of_better_models(scores, baselines, learned_from), far=trees_far_better(scores, baselines))


def of_better_models(
    scores: dict[str, Any], baselines: dict[str, dict[str, float]], learned_from: int | None, **how: Any
) -> tuple[str | None, str | None]:
    """`of_better_baselines` and `of_better_trees`, this where trees are far better or simple baselines are not."""
    simple = of_better_baselines(scores, baselines, **how)
    if simple and not trees_far_better(scores, baselines):
        return simple, None
    return simple, of_better_trees(scores, baselines, learned_from, **how)


def of_baselines(scores: dict[str, Any], baselines: dict[str, dict[str, float]]) -> str | None:
    """Compare the model with the best simple baseline, where it is better than that."""
    found = _compared(scores, baselines)
    if found is None or found.ours > found.theirs * (1.0 - AS_GOOD):
        return None
    return f"better than simple baselines: {found.description}, {1.0 - found.ours / found.theirs:.0%} less"


def of_better_baselines(
    scores: dict[str, Any], baselines: dict[str, dict[str, float]], *, margin: float = AS_GOOD, where: str = ""
) -> str | None:
    """Compare the model with the best simple baseline, where it is no better than that.

    Parameters
    ----------
    margin : largest relative difference of equal losses
    where : of which rows the losses are, in words
    """
    found = _compared(scores, baselines, where)
    if found is None or found.ours <= found.theirs * (1.0 - AS_GOOD):
        return None
    if found.ours > found.theirs * (1.0 + margin):
        return f"worse than a simple baseline: {found.description}; do not use it before you know why"
    return f"no better than a simple baseline: {found.description}"


def of_better_trees(
    scores: dict[str, Any],
    baselines: dict[str, dict[str, float]],
    learned_from: int | None,
    *,
    margin: float = AS_GOOD,
    where: str = "",
) -> str | None:
    """Compare the model with boosted trees, where these are better.

    Parameters
    ----------
    learned_from : number of training rows that the trees have learned from; None if it is unknown
    margin, where : as of `of_better_baselines`
    """
    name, ours, theirs = _model_and_trees(scores, baselines)
    if not theirs < ours * (1.0 - margin):
        return None
    rows = "" if learned_from is None else f" learned from {learned_from:,} of the training rows"
    far = trees_far_better(scores, baselines)
    losses = f"the {CALLED[name]}{where} is {ours:.4g}, theirs {theirs:.4g}"
    if far:
        return f"boosted trees{rows} predict better: {losses}; this table may not suit a Gaussian process"
    return f"boosted trees{rows} predict a little better: {losses}"


def trees_far_better(scores: dict[str, Any], baselines: dict[str, dict[str, float]]) -> bool:
    """Whether the loss of boosted trees is at least `FAR_BETTER` less than that of the model."""
    _, ours, theirs = _model_and_trees(scores, baselines)
    return bool(theirs <= ours * (1.0 - FAR_BETTER))


def _model_and_trees(scores: dict[str, Any], baselines: dict[str, dict[str, float]]) -> tuple[str, float, float]:
    """Name of the loss, that of the model and that of boosted trees; nan where there are none."""
    name = next(name for name in COMPARED if name in scores)
    return name, scores[name], baselines.get(TREES, {}).get(name, float("nan"))


@dataclass(frozen=True)
class _Compared:
    """Losses of the model and of the best simple baseline."""

    ours: float
    theirs: float
    description: str


def _compared(scores: dict[str, Any], baselines: dict[str, dict[str, float]], where: str = "") -> _Compared | None:
    name = next(name for name in COMPARED if name in scores)
    others = {other: found[name] for other, found in baselines.items() if np.isfinite(found[name]) and other != TREES}
    if not others or not np.isfinite(scores[name]):
        return None
    best = min(others, key=others.__getitem__)
    ours, theirs = scores[name], others[best]
    return _Compared(
        ours, theirs, f"the {CALLED[name]}{where} is {ours:.4g}, {theirs:.4g} of the best simple baseline ({best})"
    )


def of_capped_targets(y: FloatArray) -> str | None:
    """Warn that regression targets (n,) look truncated: many equal the largest or smallest value."""
    for end, word in ((np.max(y), "largest"), (np.min(y), "smallest")):
        share = np.mean(y == end)
        if share >= CAPPED_SHARE and len(np.unique(y)) > SEVERAL_VALUES:
            return (
                f"{share:.1%} of targets are the {word} one, {end:,.6g}: they look cut off there, as no error is normal"
            )
    return None


def of_same_rows(same: bool) -> str | None:
    """Warn that the scored rows are the training rows."""
    return "these rows are those that the model was fitted to: every figure here flatters it" if same else None


def of_few_rows(rows: Judged) -> str | None:
    """Warn that fewer than `FEW_ROWS` rows give imprecise figures."""
    n = len(rows)
    return f"{n} rows say little: shares are known to about {0.5 / np.sqrt(n):.0%} only" if n < FEW_ROWS else None
