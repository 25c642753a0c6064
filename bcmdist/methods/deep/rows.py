"""Propagate rows forwards through all layers of a deep Gaussian process, and gradients back.

(Bui et al. 2016, section 5; SYSTEMS D6.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bcmdist.data.observations import Observations
from bcmdist.methods.deep.moments import Passed, Pull, Stage, nothing, passed, pulled
from bcmdist.methods.deep.outputs import log_expectation

# Largest number of entries of a matrix of rows by pairs of centres: a few such matrices fit in a cache.
BLOCK_NUMBERS = 2**18


def blocks(stages: Sequence[Stage], rows) -> Iterator[slice]:
    """Return slices that split `rows` rows (a number) into consecutive blocks.

    A matrix of a block's rows by the pairs j <= k of a layer's centres (inducing inputs) has at most `BLOCK_NUMBERS`
    entries in every layer, unless a single row has more.
    """
    pairs = max(len(stage.pairs.first) for stage in stages)
    step = max(1, BLOCK_NUMBERS // pairs)
    return (slice(start, start + step) for start in range(0, rows, step))


def through(stages: Sequence[Stage], X) -> list[Passed]:
    """Output of each layer for the rows X (n, D)."""
    found = [passed(stages[0], X)]
    for stage in stages[1:]:
        found.append(passed(stage, found[-1].mean, found[-1].variance))
    return found


def log_densities(stages: Sequence[Stage], X, obs: Observations, likelihood, power=1.0) -> tuple[float, list[Pull]]:
    """Sum over rows (n, D) of 1 / power log E p(y | f)^power, f ~ N(m_L, v_L), and its gradient in the stages."""
    value, pulls, noise = 0.0, [nothing(stage) for stage in stages], stages[-1].noise
    for some in blocks(stages, len(X)):
        rows = through(stages, X[some])
        found = log_expectation(likelihood, obs[some], rows[-1].mean, rows[-1].variance, noise, power)
        value += found.value
        more = _back(stages, rows, found.mean, found.variance)
        more[-1] = replace(more[-1], noise=found.noise)
        pulls = [one + other for one, other in zip(pulls, more, strict=True)]
    return value, pulls


def _back(stages, rows, to_mean, to_variance):
    """Gradients in all stages from those in the mean and variance of the last."""
    pulls = []
    for stage, one in zip(stages[::-1], rows[::-1], strict=True):
        pull, to_mean, to_variance = pulled(stage, one, to_mean, to_variance)
        pulls.append(pull)
    return pulls[::-1]
