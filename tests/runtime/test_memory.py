import tracemalloc

import pytest

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import unweighted
from bcmdist.errors import MemoryLimit
from bcmdist.experts.evidence import local_evidence
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.model.kernels import kernel_parts
from bcmdist.model.kernels.interface import BLOCK_COLUMNS
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.joint.committee import joint_latent, sample_latent
from bcmdist.prediction.latent import predict_latent
from bcmdist.runtime import memory
from problems import make_kernel
from some_likelihoods import SOFTMAX


def peak_of(work):
    """Peak bytes of numpy arrays that are alive during a call."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def used_and_projected(rng, name, rows, points, likelihood):
    """Pairs of bytes for an expert, the evidence of its rows, and a prediction."""
    laplace = likelihood.name == "bernoulli"
    X, kernel = rng.standard_normal((rows, 5)), make_kernel(name, inputs=5)
    X[0] = 300.0  # one outlier: all distances are computed twice
    parts = kernel_parts(kernel)
    obs = unweighted((rng.standard_normal(rows) > 0) * 1.0)
    query = prepare(rng.standard_normal((points, 5)), kernel=kernel, mean=Mean("constant"))
    message = expert_message(query, likelihood, X, obs)
    belief = Committee(message).posterior
    return [
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


def test_kernels_are_projected_by_the_columns_in_which_they_are_written():
    assert memory.KERNEL_COLUMNS == BLOCK_COLUMNS


SIZES = pytest.mark.parametrize(("rows", "points"), [(600, 100), (100, 600), (400, 400)])
LIKELIHOODS = pytest.mark.parametrize("likelihood", [Gaussian(0.1), Bernoulli()])


@pytest.mark.slow
@SIZES
@LIKELIHOODS
@pytest.mark.parametrize("name", ["se", "matern52", "matern32+matern52+rq", "se*matern52*rq"])
def test_projections_bound_what_is_used(rng, name, rows, points, likelihood):
    for used, projected in used_and_projected(rng, name, rows, points, likelihood):
        assert used <= projected + 500_000  # blocks and vectors, which matter for small matrices only
        assert projected <= 6 * used + 1e6  # a projection that refuses everything helps nobody


@pytest.mark.slow
@SIZES
@LIKELIHOODS
@pytest.mark.parametrize("name", ["poly3", "poly2+linear+constant"])
def test_kernels_without_distances_need_less(rng, name, rows, points, likelihood):
    for used, projected in used_and_projected(rng, name, rows, points, likelihood):
        assert used <= projected + 500_000


@pytest.mark.slow
@SIZES
@pytest.mark.parametrize("name", ["matern12", "matern52", "matern32+matern52+rq"])
def test_projections_of_joint_predictions(rng, name, rows, points):
    X, kernel = rng.standard_normal((rows, 2)), make_kernel(name)
    X[0] = 300.0
    query = prepare(rng.standard_normal((points, 2)), kernel=kernel, mean=Mean("constant"))
    belief = Committee(zero(points + 1)).posterior
    for samples, work in [
        (0, lambda: joint_latent(query, belief, X)),
        (3000, lambda: sample_latent(query, belief, X, size=3000, seed=0)),
    ]:
        used = peak_of(work)
        projected = memory.joint_bytes(rows, points + 1, kernels=kernel_parts(kernel), samples=samples)
        assert used <= projected + 500_000
        assert projected <= 6 * used + 1e6


def test_both_numbers_are_named():
    with pytest.raises(
        MemoryLimit, match=r"expert: expected to need at most 1 GB per worker thread, would need 4\.\d+ GB; do less"
    ):
        memory.refuse_above(4e9, 1e9, what="expert", remedy="do less")
    memory.refuse_above(1e6, 1e9, what="expert", remedy="do less")


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["poisson", "fisher", "coupled"])
@pytest.mark.parametrize(("rows", "points"), [(300, 60), (80, 200)])
def test_projections_bound_what_classes_use(rng, weights, rows, points):
    C, X, kernel = 4, rng.standard_normal((rows, 3)), make_kernel("matern32", inputs=3)
    obs = unweighted(rng.integers(0, C, rows).astype(float))
    query = prepare(rng.standard_normal((points, 3)), kernel=kernel, mean=Mean("constant"))
    likelihood = SOFTMAX[weights](C)
    message = expert_message(query, likelihood, X, obs)
    used = peak_of(lambda: message + expert_message(query, likelihood, X, obs))
    projected = memory.expert_bytes(rows, points + 1, kernels=1, laplace=True, classes=C, coupled=weights == "coupled")
    assert used <= projected + memory.BASE_BYTES / 100
