import numpy as np
import pytest

from bcmdist.learning.sampling.chains import effective_sample_size, split_rhat


def autoregressive(rng, chains, length, rho):
    """Chains (M, n, 1) whose effective sample size is M n (1 - rho) / (1 + rho)."""
    x = np.empty((chains, length))
    x[:, 0] = rng.standard_normal(chains)
    for t in range(1, length):
        x[:, t] = rho * x[:, t - 1] + np.sqrt(1.0 - rho**2) * rng.standard_normal(chains)
    return x[:, :, None]


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9])
def test_effective_sample_size_of_autoregressive_chains(rng, rho):
    found = effective_sample_size(autoregressive(rng, 4, 4000, rho))
    assert found == pytest.approx(16_000 * (1.0 - rho) / (1.0 + rho), rel=0.2)  # its own sampling error


def test_rhat_sees_chains_that_disagree_and_chains_that_drift(rng):
    chains = rng.standard_normal((4, 500, 1))
    assert split_rhat(chains) == pytest.approx(1.0, abs=0.01)
    apart = chains + np.arange(4.0)[:, None, None]
    # Within 1, between the means (0, 1, 2, 3 twice) 10/7.
    assert split_rhat(apart) == pytest.approx(np.sqrt(1.0 + 10.0 / 7.0), rel=0.05)
    drifting = chains[:1] + np.linspace(0.0, 4.0, 500)[:, None]
    assert split_rhat(drifting) > 1.3


def test_columns_do_not_mix(rng):
    a, b = autoregressive(rng, 2, 500, 0.8), autoregressive(rng, 2, 500, 0.1)
    both = np.concatenate([a, b], axis=2)
    for function in (split_rhat, effective_sample_size):
        np.testing.assert_allclose(function(both), np.concatenate([function(a), function(b)]), rtol=1e-10)


def test_effective_sample_size_of_disagreeing_chains_is_about_their_number(rng):
    apart = rng.standard_normal((4, 400, 1)) + 10.0 * np.arange(4.0)[:, None, None]
    assert effective_sample_size(apart) < 10
