"""Variances grow where rows left out ask for it, and only there."""

import math

import numpy as np
import pytest

from bcmdist.learning.left_out.adjust_variances import LARGEST_NOISE, NoiseAdjusted, noise_adjusted
from bcmdist.model.kernels import RationalQuadratic, parse_kernel
from bcmdist.model.likelihoods import (
    Gamma,
    Gaussian,
    InverseGaussian,
    NegativeBinomial,
    OneHot,
    Poisson,
    StudentT,
    Weibull,
)

SE = parse_kernel("se", inputs=1)


def by_noise(slope, likelihood, best=math.inf):
    """Settled by a judge that gains so many nats with each doubling of the noise up to a best one."""

    def judge(_, likelihood):
        steps = np.log2(likelihood.noise_variance[0])
        return slope * min(steps, 2.0 * best - steps)

    return noise_adjusted(judge, SE, likelihood)


@pytest.mark.parametrize("slope", [0.05, -3.0, 0.0])
def test_noise_stays_where_nothing_gains_a_nat_and_never_falls(slope):
    found = by_noise(slope, Gaussian(0.1))
    assert found.factors == {"noise": 1.0, "kernel": 1.0}
    assert found.likelihood.noise_variance[0] == 0.1


@pytest.mark.parametrize("best", [-4, -2, 0])
def test_noise_rises_to_the_best_power_of_four(best):
    found = by_noise(3.0, Gaussian(2.0**-4), best)
    assert found.factors["noise"] == 2.0 ** (best + 4)
    assert found.likelihood.noise_variance[0] == 2.0**best
    assert found.value == 3.0 * best


def test_noise_does_not_exceed_that_of_the_targets():
    assert 0.25 * LARGEST_NOISE < by_noise(3.0, Gaussian(0.1)).likelihood.noise_variance[0] <= LARGEST_NOISE
    assert by_noise(3.0, Gaussian(3.0)).likelihood.noise_variance[0] == 3.0


def test_the_variances_of_a_kernel_are_settled_too(monkeypatch):
    kernel = parse_kernel("se+rq", inputs=1)
    judge = lambda kernel, _: -5.0 * abs(np.log2(kernel.parameters["rq.variance"][0]) - 2.0)  # noqa: E731
    found = noise_adjusted(judge, kernel, Gaussian(0.1))
    assert found.factors == {"noise": 1.0, "kernel": pytest.approx(4.0)}
    values = found.kernel.parameters
    assert values["se.variance"][0] == values["rq.variance"][0] == pytest.approx(4.0)
    assert values["se.lengthscale"] == kernel.parameters["se.lengthscale"]
    monkeypatch.setitem(RationalQuadratic.bounds, "variance", (1e-4, 2.5))
    assert noise_adjusted(judge, kernel, Gaussian(0.1)).kernel.parameters["rq.variance"][0] <= 2.5


def test_a_kernel_without_variance_and_one_hot_targets_settle_the_noise_only():
    judge = lambda _, likelihood: 10.0 * np.log(likelihood.noise_variance[0])  # noqa: E731
    for kernel, likelihood in [(parse_kernel("linear", inputs=1), Gaussian(0.1)), (SE, OneHot(3, 0.1 * np.ones(1)))]:
        found = noise_adjusted(judge, kernel, likelihood)
        assert set(found.factors) == {"noise"}
        assert found.factors["noise"] > 1.0
        assert found.kernel is kernel


@pytest.mark.parametrize("best", [-6, -4, -2, 0])
def test_the_noise_of_labels_falls_too(best):
    found = by_noise(3.0, OneHot(3, np.full(1, 2.0**-2)), best)
    assert found.likelihood.noise_variance[0] == 2.0**best
    assert found.factors == {"noise": 2.0 ** (best + 2)}


SPREADS = [
    (NegativeBinomial(32.0), "shape", 32.0 / 4.0),
    (Gamma(32.0), "shape", 32.0 / 4.0),
    (Weibull(32.0), "shape", 32.0 / 4.0),
    (InverseGaussian(0.5), "dispersion", 0.5 * 4.0),
    (StudentT(0.5, 4.0), "noise_variance", 0.5 * 4.0),
]


@pytest.mark.parametrize(("likelihood", "name", "wanted"), SPREADS, ids=[case[0].name for case in SPREADS])
def test_every_family_settles_its_dispersion_upwards(likelihood, name, wanted):
    def judge(_, other):
        return -3.0 * abs(math.log2(other.parameters[name][0] / wanted))

    found = noise_adjusted(judge, SE, likelihood)
    assert found.factors == {"dispersion": pytest.approx(4.0)}
    assert found.likelihood.parameters[name][0] == pytest.approx(wanted)
    assert found.kernel is SE
    there = noise_adjusted(judge, SE, found.likelihood)
    assert there.factors == {"dispersion": 1.0}
    assert noise_adjusted(lambda *_: 0.0, SE, likelihood).likelihood == likelihood


def test_a_dispersion_stays_within_its_bounds():
    def judge(_, likelihood):
        return 3.0 * math.log2(likelihood.dispersion[0])

    found = noise_adjusted(judge, SE, InverseGaussian(InverseGaussian().bounds["dispersion"][1] / 2.0))
    assert found.likelihood.dispersion[0] <= found.likelihood.bounds["dispersion"][1]


def test_nothing_is_settled_where_nothing_can_be_judged():
    assert noise_adjusted(lambda *_: -math.inf, SE, Gaussian(0.1)) == NoiseAdjusted(SE, Gaussian(0.1), -math.inf)
    assert noise_adjusted(lambda *_: -2.0, SE, Poisson()) == NoiseAdjusted(SE, Poisson(), -2.0)
