import tracemalloc

import pytest

from bcmdist import memory
from bcmdist.committee import Committee
from bcmdist.errors import MemoryLimit
from bcmdist.evidence import local_evidence
from bcmdist.expert import expert_message
from bcmdist.kernels import kernel_parts
from bcmdist.likelihoods import Bernoulli, Gaussian, unweighted
from bcmdist.mean import Mean
from bcmdist.prediction import predict_latent
from bcmdist.query import prepare
from problems import make_kernel


def peak_of(work):
    """Peak bytes of numpy arrays that are alive during a call."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("rows", "points"), [(600, 100), (100, 600), (400, 400)])
@pytest.mark.parametrize("likelihood", [Gaussian(0.1), Bernoulli()])
@pytest.mark.parametrize("name", ["se", "matern52", "matern32+matern52+rq", "se*matern52*rq"])
def test_projections_bound_what_is_used(rng, name, rows, points, likelihood):
    laplace = likelihood.name == "bernoulli"
    X, kernel = rng.standard_normal((rows, 5)), make_kernel(name, inputs=5)
    X[0] = 300.0  # one outlier: all distances are computed twice
    parts = kernel_parts(kernel)
    obs = unweighted((rng.standard_normal(rows) > 0) * 1.0)
    query = prepare(rng.standard_normal((points, 5)), kernel=kernel, mean=Mean("constant"))
    message = expert_message(query, likelihood, X, obs)
    belief = Committee(message).posterior
    pairs = [
        (
            peak_of(lambda: message + expert_message(query, likelihood, X, obs)),
            memory.expert_bytes(rows, points + 1, kernels=parts, laplace=laplace),
        ),
        (
            peak_of(lambda: local_evidence(kernel, Mean("constant"), likelihood, X, obs)),
            memory.evidence_bytes(rows, 5, kernels=parts, laplace=laplace),
        ),
        (peak_of(lambda: predict_latent(query, belief, X)), memory.prediction_bytes(rows, points + 1, kernels=parts)),
    ]
    for used, projected in pairs:
        assert used <= projected + 500_000  # blocks and vectors, which matter for small matrices only
        assert projected <= 6 * used + 1e6  # a projection that refuses everything helps nobody


def test_both_numbers_are_named():
    with pytest.raises(
        MemoryLimit, match=r"expert: expected to need at most 1 GB per worker thread, would need 4\.\d+ GB; do less"
    ):
        memory.refuse_above(4e9, 1e9, what="expert", remedy="do less")
    memory.refuse_above(1e6, 1e9, what="expert", remedy="do less")
