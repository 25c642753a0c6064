"""Experts of rows that observe several outputs: against dense processes, and gradients against finite differences."""

import numpy as np
import pytest

from bcmdist.committee.committee import Committee
from bcmdist.data.observations import Observations
from bcmdist.experts.evidence import leave_one_out, local_evidence
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero
from bcmdist.learning.evidence import committee_gradient as ce
from bcmdist.learning.evidence.independent_rows_gradient import adjoints, expert_share
from bcmdist.model.kernels import parse_kernel, split_parameters
from bcmdist.model.likelihoods import Gaussian
from bcmdist.model.mean import WEIGHT_SD, Mean
from bcmdist.model.shared.query import prepare
from bcmdist.prediction.joint.committee import joint_latent
from bcmdist.prediction.latent import predict_latent
from oracles import central_differences, pitc_covariance, several_outputs
from problems import split

KERNELS = {1: "coregionalised(0, 1, 2)*matern32(3, 4)", 2: "coregionalised(0, 1, 2, rank=2)*se(3, 4)"}
SUM = "coregionalised(0, 1, 2)*matern12(3, 4) + coregionalised(0, 1, 2, rank=2)*se(3, 4)"
NOISE = np.array([0.05, 0.2, 0.01])


class Case:
    """36 rows of three outputs at 16 places, none with all outputs of them; a kernel, and a noise for each output."""

    def __init__(self, rng, expression):
        kernel = parse_kernel(expression, inputs=5)
        self.kernel = kernel.with_theta(kernel.theta + 0.3 * rng.standard_normal(len(kernel.theta)))
        self.places = rng.uniform(-2.0, 2.0, (16, 2))
        both = rng.permutation(48)[:36]
        self.place, self.number = both // 3, both % 3
        self.X = np.hstack([np.eye(3)[self.number], self.places[self.place]])
        y = np.sin(2.0 * self.X[:, 3]) * (self.number - 0.5) + 0.1 * rng.standard_normal(36)
        self.obs = Observations(y, np.ones(36), output=self.number)
        self.likelihood = Gaussian().for_outputs(3).with_parameters({"noise_variance": NOISE})

    @property
    def theta(self):
        return np.concatenate([self.kernel.theta, np.log(self.likelihood.noise_variance)])

    def at(self, theta):
        P = len(self.kernel.theta)
        values = split_parameters(self.likelihood.parameters, np.exp(theta[P:]))
        return self.kernel.with_theta(theta[:P]), self.likelihood.with_parameters(values)


def close(found, numeric):
    np.testing.assert_allclose(found, numeric, atol=1e-6 * np.abs(numeric).max())


@pytest.mark.parametrize("rank", [1, 2])
def test_one_expert_is_the_dense_process_of_all_outputs(rng, rank):
    case = Case(rng, KERNELS[rank])
    shared = prepare(case.X, kernel=case.kernel, mean=Mean("constant(0, 1, 2)"), jitters=(0.0,))
    belief = Committee(expert_message(shared, case.likelihood, case.X, case.obs)).posterior
    numbers = np.array([0, 1, 2, 0, 1, 2])
    new = np.hstack([np.eye(3)[numbers], np.repeat(rng.uniform(-2.0, 2.0, (2, 2)), 3, axis=0)])
    of_outputs, of_places = case.kernel.parts
    B, k = of_outputs.kernel.covariance, of_places.kernel
    about = case.number, case.obs.y, NOISE, WEIGHT_SD**2
    mean, covariance = several_outputs(B, k, case.X[:, 3:], *about, new[:, 3:], numbers)
    found, variance = predict_latent(shared, belief, new)
    np.testing.assert_allclose(found, mean, atol=1e-10)
    np.testing.assert_allclose(variance, np.diag(covariance), atol=1e-10)
    found, joint = joint_latent(shared, belief, new)
    np.testing.assert_allclose(joint, covariance, atol=1e-10)
    assert np.abs(joint[0, 1:3]).max() > 1e-3  # outputs of one place are known together


@pytest.mark.parametrize("mean", ["zero", "constant(0, 1, 2)", "linear(0, 1, 2)"])
@pytest.mark.parametrize("expression", [*KERNELS.values(), SUM])
@pytest.mark.parametrize("value", [local_evidence, leave_one_out])
def test_gradients_of_the_evidence_of_a_block(rng, expression, mean, value):
    case = Case(rng, expression)

    def at(theta):
        kernel, likelihood = case.at(theta)
        return value(kernel, Mean(mean), likelihood, case.X, case.obs)

    close(at(case.theta)[1], central_differences(lambda theta: at(theta)[0], case.theta))


def test_gradient_of_the_evidence_of_the_committee(rng):
    case, blocks, mean = Case(rng, KERNELS[2]), split(36, [10, 25]), Mean("constant(0, 1, 2)")
    points = case.X[rng.permutation(36)[:9]]

    def made(theta):
        kernel, likelihood = case.at(theta)
        query = prepare(points, kernel=kernel, mean=mean, jitters=(1e-8,))
        messages = (expert_message(query, likelihood, case.X[b], case.obs[b]) for b in blocks)
        return query, likelihood, Committee(sum(messages, zero(query.size)))

    query, likelihood, committee = made(case.theta)
    jitter = query.jitter_share * case.kernel.diagonal(points).mean()
    dense = pitc_covariance(case.kernel, mean.design, points, jitter, [case.X[b] for b in blocks])
    S = dense + np.diag(likelihood.noise(case.obs))
    y = case.obs.y
    evidence = -0.5 * (y @ np.linalg.solve(S, y) + np.linalg.slogdet(S)[1] + 36 * np.log(2.0 * np.pi))
    assert committee.log_evidence == pytest.approx(evidence, abs=1e-7)
    belief = committee.posterior
    total = sum(ce.expert_share(query, likelihood, case.X[b], case.obs[b], belief, None) for b in blocks)
    numeric = central_differences(lambda theta: made(theta)[2].log_evidence, case.theta)
    close(ce.committee_gradient(query, belief, total, None), numeric)


@pytest.mark.parametrize("residual", ["diagonal", "none"])
def test_gradient_with_independent_rows(rng, residual):
    case, mean = Case(rng, KERNELS[1]), Mean("constant(0, 1, 2)")
    points = case.X[rng.permutation(36)[:9]]

    def made(theta):
        kernel, likelihood = case.at(theta)
        query = prepare(points, kernel=kernel, mean=mean, residual=residual, jitters=(1e-8,))
        return query, likelihood, Committee(expert_message(query, likelihood, case.X, case.obs))

    query, likelihood, committee = made(case.theta)
    belief = committee.posterior
    covariance = np.linalg.inv(np.tril(belief.factor) @ np.tril(belief.factor).T)
    own = adjoints(query, likelihood, case.X, case.obs, belief.mean, covariance)
    found = ce.committee_gradient(query, belief, expert_share(query, case.X, own))
    close(found, central_differences(lambda theta: made(theta)[2].log_evidence, case.theta))
