"""What a fit of any size costs: arithmetic over a few constants, each of them measured, none of them here.

    expert   a (2 n Q^2 + 2 n^2 Q + n^3 / 3) + b (n Q + n^2)      seconds: V, precision; R, W; Cholesky; kernel entries
    message  8 Q (Q + 3) / 2 + c                                  bytes: packed lower triangle and eta
    add      d (bytes of a message)                               seconds: one received, unpacked and added
    commit   e + f Q^2 + g Q^3                                    seconds
    scheduler, client   h_s + k_s (partitions)                    seconds on a core of one process each

Letters are fitted by non-negative least squares of relative errors.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls


def expert_terms(n, Q):
    """Floating-point operations, and entries of kernel matrices, of a Gaussian expert."""
    return 2.0 * n * Q**2 + 2.0 * n**2 * Q + n**3 / 3.0, float(n * Q + n**2)


def message_terms(Q):
    """Bytes of its numbers, and one for the rest."""
    return 8.0 * Q * (Q + 3) / 2, 1.0


def commit_terms(Q):
    """A commit at all, what is written, what is factored."""
    return 1.0, float(Q**2), float(Q**3)


def fitted(terms, values):
    """Constants, none negative, with which the terms add up to the values: least squares of relative errors.

    Parameters
    ----------
    terms : (cases, constants)
    values : (cases,), positive
    """
    terms, values = np.asarray(terms, dtype=float), np.asarray(values, dtype=float)
    scale = np.abs(terms).max(axis=0)
    return nnls(terms / scale / values[:, None], np.ones(len(values)))[0] / scale


def error_of(terms, values, constants):
    """The largest relative error of a fit."""
    return float(np.max(np.abs(np.asarray(terms) @ constants / np.asarray(values) - 1.0)))


@dataclass(frozen=True)
class Constants:
    """What was measured on one machine."""

    expert: tuple[float, float]
    message: tuple[float, float]
    add: float
    """seconds a byte"""
    commit: tuple[float, float, float]
    scheduler: tuple[float, float]
    """seconds in all, and for each partition"""
    client: tuple[float, float]
    told_bytes: float
    """to the client, for each partition"""

    def expert_seconds(self, n, Q):
        return float(np.dot(self.expert, expert_terms(n, Q)))

    def message_bytes(self, Q):
        return float(np.dot(self.message, message_terms(Q)))

    def commit_seconds(self, Q):
        return float(np.dot(self.commit, commit_terms(Q)))


@dataclass(frozen=True)
class Plan:
    """A fit."""

    rows: int
    workers: int
    """of one thread each"""
    n: int
    """rows of an expert"""
    Q: int
    fan_in: int
    bytes_a_second: float
    """between two workers; taken, not measured"""
    group: int
    """partitions of a task"""
    few: int
    """terms that a worker adds at a time, each sum being one of the next"""
    commit_share: int
    """a commit comes at most once in so many times its own seconds"""
    commit_every: float
    """seconds, at least"""


def depth(workers, fan_in):
    """Levels of a tree that adds one term of each worker, so many at a time."""
    return math.ceil(math.log(workers) / math.log(fan_in) - 1e-9) if workers > 1 else 0


def sums_seconds(plan: Plan, found: Constants):
    """The scheduler's share in a commit: a task for each worker, and those of the tree, each as any other task."""
    tasks_of_a_group = 1.0 + 1.0 / (plan.few - 1)
    task = found.scheduler[1] * plan.group / tasks_of_a_group
    return task * plan.workers * plan.fan_in / (plan.fan_in - 1)


def a_second(seconds):
    """How many of them in a second; without end where a measured share was too small to be told from nothing."""
    return 1.0 / seconds if seconds > 0.0 else math.inf


def projected(plan: Plan, found: Constants):
    """Figures of a fit by name: seconds of each part, as if it were alone, and which of them bounds the whole."""
    partitions = math.ceil(plan.rows / plan.n)
    message = found.message_bytes(plan.Q)
    add = found.add * message
    experts = partitions * (found.expert_seconds(plan.n, plan.Q) + add) / plan.workers
    levels = depth(plan.workers, plan.fan_in)
    tree = levels * (plan.fan_in - 1) * (message / plan.bytes_a_second + add) + message / plan.bytes_a_second
    scheduler = found.scheduler[0] + partitions * found.scheduler[1]
    client = found.client[0] + partitions * found.client[1]
    bounds = {"experts": experts, "scheduler": scheduler, "client": client}
    bound = max(bounds, key=bounds.__getitem__)
    commit = sums_seconds(plan, found) + tree + found.commit_seconds(plan.Q)
    commits = max(1, int(bounds[bound] / max(plan.commit_every, plan.commit_share * commit)))
    return {
        "partitions": partitions,
        "experts_seconds": experts,
        "scheduler_seconds": scheduler,
        "client_seconds": client,
        "tree_depth": levels,
        "tree_seconds": tree,
        "sums_scheduler_seconds": sums_seconds(plan, found),
        "commits": commits,
        "commits_seconds": commits * commit,
        "seconds": bounds[bound] + commits * commit,
        "partitions_a_second_wanted": partitions / experts,
        "partitions_a_second_scheduler": a_second(found.scheduler[1]),
        "partitions_a_second_client": a_second(found.client[1]),
        "message_megabytes": message / 1e6,
        "client_megabytes": (partitions * found.told_bytes + commits * message) / 1e6,
        "bound": bound,
    }
