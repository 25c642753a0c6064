"""Estimate of the number of evaluations of a search for hyper-parameters, before it begins."""

import numpy as np

from bcmdist.learning.cross_validation import CONTENDERS
from bcmdist.learning.hyperparameters import AUTO_KERNEL, may_slope, requested_kernel
from bcmdist.learning.mean_choice import MEAN_STEPS
from bcmdist.learning.search import AUTO_KERNELS
from bcmdist.learning.starts import START_LENGTHSCALES

# Evaluations of the evidence per allowed step of a search, with one common lengthscale and afterwards: medians of
# elevators and uci_power for exact likelihoods, of bike_hourly_counts and magic for others.
PER_STEP = {True: (1.1, 0.7), False: (0.9, 0.4)}


def evaluations(case) -> tuple[float, float, float]:
    """Estimate the evaluations of a `FitContext`: in the first search, in the one that follows, and in further rounds.

    The first search uses the first blocks, the second one blocks of rows that are near in the metric found by the
    first. Further rounds are made for spatial partitions only.
    """
    effort, spatial, starts = case.effort, case.settings.partition == "spatial", len(START_LENGTHSCALES)
    first, later = PER_STEP[case.likelihood.learned_as().exact]
    others = len(AUTO_KERNELS) - 1 if requested_kernel(case.settings) == AUTO_KERNEL else 0
    unequal = bool(np.ptp(case.scaling.x_scale) > 0)  # scales of the inputs
    coarse = first * (starts + unequal + others) * effort.isotropic_steps + (1 + unequal) * starts + 3 * others
    slopes = may_slope(case.settings, case.likelihood) and not spatial
    # Of the sums that are tried one has two kernels, and one effects of columns, for as much time as three kernels.
    sums = (2 + 3 * (case.data.inputs > 1)) * bool(others and effort.sums)
    fine = later * (effort.steps + (others + sums) * effort.isotropic_steps + 2 * slopes * MEAN_STEPS) + 2 + 2 * others
    further = effort.rounds * effort.steps // 2 + min(others, CONTENDERS) * effort.isotropic_steps
    return coarse, fine, later * further * spatial
