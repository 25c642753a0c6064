"""Remarks on a model from rows with targets: what the reader of a report should know before trusting the model.

Each function returns a sentence, or None where there is nothing to remark.
"""

from dataclasses import dataclass

import numpy as np

from bcmdist.prediction.scored_rows import Judged

# Targets with at most so many distinct values are not checked for truncation. Arbitrary.
SEVERAL_VALUES = 20
# Targets look truncated if at least this share equals the largest (or smallest) value. Arbitrary.
CAPPED_SHARE = 0.02
# Scores with a smaller relative difference are called equal.
AS_GOOD = 0.02
# Scores for the comparison with baselines, in order of preference; the value: whether larger is better.
COMPARED = {"rmse": False, "log_loss": False, "deviance": False}
CALLED = {"rmse": "root mean square error", "log_loss": "log loss", "deviance": "deviance"}


def of_baselines(scores: dict, baselines: dict[str, dict[str, float]]) -> str | None:
    """Compare the model with the best baseline, where it is better than that."""
    found = _compared(scores, baselines)
    if found is None or found.ours > found.theirs * (1.0 - AS_GOOD):
        return None
    return f"better than simple baselines: {found.description}, {1.0 - found.ours / found.theirs:.0%} less"


def of_better_baselines(scores: dict, baselines: dict[str, dict[str, float]]) -> str | None:
    """Compare the model with the best baseline, where it is no better than that."""
    found = _compared(scores, baselines)
    if found is None or found.ours <= found.theirs * (1.0 - AS_GOOD):
        return None
    if found.ours > found.theirs * (1.0 + AS_GOOD):
        return f"worse than a simple baseline: {found.description}; do not use it before you know why"
    return f"no better than a simple baseline: {found.description}"


@dataclass(frozen=True)
class _Compared:
    """Losses of the model and of the best baseline."""

    ours: float
    theirs: float
    description: str


def _compared(scores, baselines) -> _Compared | None:
    name = next(name for name in COMPARED if name in scores)
    others = {other: found[name] for other, found in baselines.items() if np.isfinite(found[name])}
    if not others or not np.isfinite(scores[name]):
        return None
    best = min(others, key=others.__getitem__)
    ours, theirs = scores[name], others[best]
    return _Compared(
        ours, theirs, f"the {CALLED[name]} is {ours:.4g}, {theirs:.4g} of the best simple baseline ({best})"
    )


def of_capped_targets(y) -> str | None:
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
    """Warn that fewer than 100 rows give imprecise figures."""
    n = len(rows)
    return f"{n} rows say little: shares are known to about {0.5 / np.sqrt(n):.0%} only" if n < 100 else None
