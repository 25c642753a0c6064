"""When a climb by L-BFGS stops: callbacks of `scipy.optimize.minimize`."""

import itertools
from collections.abc import Callable

# Learning stops when iterations gain less than this, and a linear mean that gains less is rejected: half a nat is no
# evidence.
GAIN_NATS = 0.5
IDLE_STEPS = 2


def stop_when_idle() -> Callable[..., None]:
    """Return a callback that stops L-BFGS when `IDLE_STEPS` iterations in a row gain less than `GAIN_NATS` each."""
    losses: list[float] = []

    def callback(intermediate_result):
        losses.append(intermediate_result.fun)
        recent = losses[-IDLE_STEPS - 1 :]
        if len(recent) > IDLE_STEPS and all(a - b < GAIN_NATS for a, b in itertools.pairwise(recent)):
            raise StopIteration

    return callback


def stop_out_of_reach(goal, steps) -> Callable[..., None]:
    """Return a callback that stops L-BFGS when the rest of `steps` iterations, each like the last, misses a loss."""
    losses: list[float] = []

    def callback(intermediate_result):
        losses.append(intermediate_result.fun)
        if len(losses) > 1 and losses[-1] - (steps - len(losses)) * (losses[-2] - losses[-1]) > goal:
            raise StopIteration

    return callback


def stop_at_first(*callbacks) -> Callable[..., None]:
    """Return a callback that stops L-BFGS as soon as one of several does."""

    def callback(intermediate_result):
        for each in callbacks:
            each(intermediate_result)

    return callback
