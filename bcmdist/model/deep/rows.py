"""Rows through all layers of a deep Gaussian process, and back (Bui et al. 2016, section 5; SYSTEMS D6)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from bcmdist.model.deep.moments import Passed, Pull, Stage, nothing, passed, pulled

# Numbers in a matrix of rows and pairs of centres, at most.
BLOCK_NUMBERS = 2**20


def blocks(stages: Sequence[Stage], rows) -> Iterator[slice]:
    """Of rows, so that no matrix of them and of pairs of centres grows large."""
    pairs = max(len(stage.pairs.first) for stage in stages)
    step = max(1, BLOCK_NUMBERS // pairs)
    return (slice(start, start + step) for start in range(0, rows, step))


def through(stages: Sequence[Stage], X) -> list[Passed]:
    """What each layer makes of the rows X (n, D)."""
    found = [passed(stages[0], X)]
    for stage in stages[1:]:
        found.append(passed(stage, found[-1].mean, found[-1].variance))
    return found


def log_densities(stages: Sequence[Stage], X, y, share) -> tuple[float, list[Pull]]:
    """sum log N(y; m_L, v_L) over rows (n, D) with targets (n,), and its gradient in the layers.

    Parameters
    ----------
    share : (n,), of the noise of the last layer that a row has: 1 over its weight
    """
    value, pulls = 0.0, [nothing(stage) for stage in stages]
    for some in blocks(stages, len(X)):
        rows = through(stages, X[some])
        variance = rows[-1].variance[:, 0] + stages[-1].noise * (share[some] - 1.0)
        error = y[some] - rows[-1].mean[:, 0]
        value -= 0.5 * float(np.sum(error**2 / variance + np.log(2.0 * np.pi * variance)))
        to_variance = 0.5 * (error**2 / variance - 1.0) / variance
        more = _back(stages, rows, (error / variance)[:, None], to_variance[:, None])
        more[-1] = replace(more[-1], noise=float(to_variance @ share[some]))
        pulls = [one + other for one, other in zip(pulls, more, strict=True)]
    return value, pulls


def _back(stages, rows, to_mean, to_variance):
    """The gradient in all layers from that in the mean and variance of the last."""
    pulls = []
    for stage, one in zip(stages[::-1], rows[::-1], strict=True):
        pull, to_mean, to_variance = pulled(stage, one, to_mean, to_variance)
        pulls.append(pull)
    return pulls[::-1]
