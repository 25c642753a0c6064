"""Chains in ArviZ beside ours."""

from dataclasses import replace

import numpy as np
import pytest

from bcmdist import GBCM, HMC, Mixture, Settings, sample_posterior
from bcmdist.errors import InvalidOption
from bcmdist.learning.sampling.chains import load_chains, split_rhat

pytest.importorskip("arviz", reason="ArviZ: pip install 'bcmdist[interop]'", exc_type=ImportError)
from bcmdist.arviz import to_inference_data

SETTINGS = Settings(kernel="se+constant", mean="zero", query=20)


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (60, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)
    short = HMC(iterations=40, burn_in=10)
    return sample_posterior((X, y), SETTINGS, model=tmp_path_factory.mktemp("mix") / "m", samples=3, hmc=short)


def test_posterior_and_statistics(sampled):
    found = to_inference_data(sampled)
    names, chains = load_chains(sampled.url)
    assert dict(found.posterior.sizes) == {"chain": 2, "draw": 30, "input": 2}
    samples = np.array([chain.samples for chain in chains])
    # log w = -2 log lengthscale; rtol: exp and log of doubles
    w = np.exp(samples[..., [names.index(f"kernel.se.w[{k}]") for k in range(2)]])
    np.testing.assert_allclose(found.posterior["kernel.se.lengthscale"], w**-0.5, rtol=1e-12)
    noise = np.exp(samples[..., names.index("likelihood.noise_variance")])
    np.testing.assert_allclose(found.posterior["likelihood.noise_variance"], noise, rtol=1e-12)
    np.testing.assert_array_equal(found.sample_stats["lp"], [chain.log_density for chain in chains])


def test_arviz_agrees_on_convergence(sampled):
    """Split R-hat of logs: what was sampled is -2 log lengthscale or a log itself, and R-hat knows no units."""
    import arviz

    found = to_inference_data(sampled)
    names, chains = load_chains(sampled.url)
    ours = dict(zip(names, split_rhat(np.array([chain.samples for chain in chains])), strict=True))
    theirs = arviz.rhat(np.log(found.posterior), method="split")
    assert float(theirs["likelihood.noise_variance"]) == pytest.approx(ours["likelihood.noise_variance"], rel=1e-9)
    wanted = [ours["kernel.se.w[0]"], ours["kernel.se.w[1]"]]
    np.testing.assert_allclose(theirs["kernel.se.lengthscale"], wanted, rtol=1e-9)


def test_by_hand_there_are_no_chains(wave):
    path, _, _ = wave
    with pytest.raises(InvalidOption, match="use `sample_posterior`"):
        to_inference_data(Mixture([GBCM.fit(path, replace(SETTINGS, learn=False))]))
