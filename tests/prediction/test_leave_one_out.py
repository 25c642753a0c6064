"""A row that is left out of a committee: by a change of rank one, as by hearing all others anew."""

import numpy as np
import pytest

from bcmdist.committee.committee import Committee
from bcmdist.experts.expert import expert_message
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.latent import predict_latent
from bcmdist.prediction.leave_one_out import left_out_of_committee
from problems import make_kernel, regression_problem


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.parametrize("residual", ["block", "diagonal", "none"])
def test_a_row_left_out_is_one_never_heard(residual, weight, rng):
    p, likelihood = regression_problem(rng), Gaussian(0.05)
    shared = prepare(p.Xq, kernel=make_kernel("matern32"), mean=Mean("linear"), residual=residual)
    parts = [slice(0, 35), slice(35, 60)]
    first, second = (expert_message(shared, likelihood, p.X[part], p.obs[part]) for part in parts)
    belief, rows = Committee(first.weighted(weight) + second).posterior, np.array([0, 7, 34])
    here = parts[0]
    mean, variance = left_out_of_committee(shared, likelihood, belief, p.X[here], p.obs[here], rows, weight=weight)
    for k, row in enumerate(rows):
        others = np.delete(np.arange(35), row)
        rest = expert_message(shared, likelihood, p.X[others], p.obs[others]).weighted(weight)
        m, v = predict_latent(shared, Committee(rest + second).posterior, p.X[row : row + 1])
        # Two ways to the same numbers; the precision of a row is a difference of nearly equal ones at worst.
        np.testing.assert_allclose([mean[k], variance[k]], [m[0], v[0]], rtol=1e-9)
