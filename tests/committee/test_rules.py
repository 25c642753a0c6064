import numpy as np
import pytest
from scipy.special import ndtri

from bcmdist.errors import InvalidData
from oracles import committee_by_inverses, expert_posterior, full_gp
from problems import make_kernel, regression_problem, split
from published import rules
from published.rules import POINTWISE_RULES, expert_predictions, gbcm, grbcm, npae, npae_joint

NOISE = 0.05
NO_ROWS = (np.zeros((0, 2)), np.zeros(0))
KERNEL = make_kernel("matern32")


def no_mean(X):
    return np.zeros((len(X), 0))


@pytest.fixture
def problem(rng):
    return regression_problem(rng)


def make_parts(problem, edges):
    return [(problem.X[rows], problem.obs.y[rows]) for rows in split(len(problem.X), edges)]


@pytest.fixture
def parts(problem):
    """Experts of 25, 20 and 15 rows."""
    return make_parts(problem, [25, 45])


def posteriors(parts, X):
    """What pointwise rules take: means, variances, prior variance."""
    return *expert_predictions(KERNEL, NOISE, parts, X), KERNEL.diagonal(X)


def exact(problem):
    mean, covariance, _ = full_gp(KERNEL, no_mean, problem.X, problem.obs.y, NOISE, problem.Xs)
    return mean, np.diag(covariance)


def assert_same(one, other, tolerance=1e-10):
    """Mean and variance equal; prior variance 1.3 and noise 0.05 keep rounding near 1e-14."""
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_experts_are_the_papers(problem, parts):
    means, variances = expert_predictions(KERNEL, NOISE, [*parts, NO_ROWS], problem.Xs)
    for k, (X, y) in enumerate(parts):
        mean, covariance = expert_posterior(KERNEL, problem.Xs, X, y, np.full(len(y), NOISE))
        assert_same((means[k], variances[k]), (mean, np.diag(covariance)))
    assert_same((means[-1], variances[-1]), (np.zeros(11), KERNEL.diagonal(problem.Xs)), tolerance=0)


@pytest.mark.parametrize("name", [name for name in POINTWISE_RULES if name != "rBCM"])
def test_one_expert_is_returned(problem, name):
    """By every rule but the robust committee machine."""
    assert_same(POINTWISE_RULES[name](*posteriors(make_parts(problem, []), problem.Xs)), exact(problem))


def test_robust_committee_does_not_return_its_only_expert(problem):
    m, s2, k = (a.reshape(-1) for a in posteriors(make_parts(problem, []), problem.Xs))
    weight = 0.5 * np.log(k / s2)
    precision = weight / s2 + (1 - weight) / k
    mean, variance = rules.rbcm(m[None], s2[None], k)
    assert_same((mean, variance), (weight * m / s2 / precision, 1 / precision))
    assert np.abs(variance / s2 - 1).max() > 0.1


def test_rules_with_rows_are_exact_for_one_part(problem):
    (whole,) = make_parts(problem, [])
    first, rest = make_parts(problem, [20])
    mean, covariance = gbcm(KERNEL, NOISE, [whole], problem.Xs)
    assert_same((mean, np.diag(covariance)), exact(problem))
    assert_same(npae(KERNEL, NOISE, [whole], problem.Xs), exact(problem))
    assert_same(grbcm(KERNEL, NOISE, first, [rest], problem.Xs), exact(problem))
    assert_same(grbcm(KERNEL, NOISE, whole, [], problem.Xs), exact(problem))
    assert_same(grbcm(KERNEL, NOISE, whole, [NO_ROWS, NO_ROWS], problem.Xs), exact(problem))


@pytest.mark.parametrize("name", ["gPoE entropy", "BCM pointwise", "rBCM"])
def test_experts_without_rows_say_nothing(problem, parts, name):
    rule = POINTWISE_RULES[name]
    assert_same(
        rule(*posteriors([NO_ROWS, *parts, NO_ROWS], problem.Xs)), rule(*posteriors(parts, problem.Xs)), tolerance=1e-12
    )


@pytest.mark.parametrize("rule", [npae, grbcm, gbcm])
def test_parts_without_rows_say_nothing(problem, parts, rule):
    given = (parts[0],) if rule is grbcm else ()
    with_empty, without = [*parts, NO_ROWS], parts
    assert_same(
        rule(KERNEL, NOISE, *given, with_empty, problem.Xs),
        rule(KERNEL, NOISE, *given, without, problem.Xs),
        tolerance=1e-12,
    )


def test_experts_without_rows_move_the_other_rules_as_theory_says(problem, parts):
    means, variances, prior = posteriors(parts, problem.Xs)
    more = posteriors([*parts, NO_ROWS], problem.Xs)
    precision = (1 / variances).sum(axis=0)
    assert_same((rules.poe(*more)[1],), (1 / (precision + 1 / prior),))
    assert_same((rules.gpoe_uniform(*more)[1],), (4 / (precision + 1 / prior),))
    mean, variance = rules.barycentre(*more)
    sd = (np.sqrt(variances).sum(axis=0) + np.sqrt(prior)) / 4
    assert_same((mean, variance), (means.sum(axis=0) / 4, sd**2))


@pytest.mark.parametrize("name", POINTWISE_RULES)
def test_only_experts_without_rows_give_the_prior(problem, name):
    """But the product of experts, which counts the prior once per expert."""
    mean, variance = POINTWISE_RULES[name](*posteriors([NO_ROWS] * 4, problem.Xs))
    share = 4 if name == "PoE" else 1
    assert_same((mean, variance), (np.zeros(11), KERNEL.diagonal(problem.Xs) / share), tolerance=1e-12)


@pytest.mark.parametrize("name", ["gPoE uniform", "gPoE entropy", "barycentre"])
def test_rules_with_weights_of_sum_one_return_what_all_experts_say(problem, parts, name):
    m, s2, k = posteriors(parts[:1], problem.Xs)
    assert_same(POINTWISE_RULES[name](np.repeat(m, 5, axis=0), np.repeat(s2, 5, axis=0), k), (m[0], s2[0]))


def test_committees_of_identical_experts(problem, parts):
    """M copies are absorbed as M independent experts: PoE divides the variance by M, BCM takes M - 1 priors off."""
    m, s2, k = posteriors(parts[:1], problem.Xs)
    copies = np.repeat(m, 5, axis=0), np.repeat(s2, 5, axis=0), k
    precision = 5 / s2[0] - 4 / k
    assert_same(rules.poe(*copies), (m[0], s2[0] / 5))
    assert_same(rules.bcm_pointwise(*copies), (5 * m[0] / s2[0] / precision, 1 / precision))


def test_nested_kriging_is_not_fooled_by_copies(problem, parts):
    """Two experts that say the same, up to noise below rounding, count as one."""
    assert_same(
        npae(KERNEL, 1e-15, [*parts, parts[0], parts[2]], problem.Xs),
        npae(KERNEL, 1e-15, parts, problem.Xs),
        tolerance=1e-6,  # rounding of 1e-16 over eigenvalues from the threshold 1e-12 on
    )


@pytest.mark.parametrize("name", POINTWISE_RULES)
def test_order_of_experts_does_not_matter(problem, parts, rng, name):
    rule = POINTWISE_RULES[name]
    m, s2, k = posteriors(parts, problem.Xs)
    order = rng.permutation(3)
    assert_same(rule(m[order], s2[order], k), rule(m, s2, k), tolerance=1e-12)


@pytest.mark.parametrize("rule", [npae, npae_joint, gbcm])
def test_order_of_parts_does_not_matter(problem, parts, rule):
    assert_same(rule(KERNEL, NOISE, parts[::-1], problem.Xs), rule(KERNEL, NOISE, parts, problem.Xs), tolerance=1e-9)


def test_order_matters_to_grbcm_in_the_first_part_only(problem):
    communication, *parts = make_parts(problem, [10, 25, 45])
    a, b, c = (
        grbcm(KERNEL, NOISE, communication, [parts[k] for k in order], problem.Xs)
        for order in [(0, 1, 2), (0, 2, 1), (1, 0, 2)]
    )
    assert_same(a, b, tolerance=1e-12)
    assert np.abs(a[1] / c[1] - 1).max() > 1e-3


def test_generalised_product_is_a_tempered_product(problem, parts):
    """With all weights equal, M times the precision of gPoE is that of PoE, and the means agree."""
    given = posteriors(parts, problem.Xs)
    mean, variance = rules.poe(*given)
    assert_same(rules.gpoe_uniform(*given), (mean, 3 * variance))


def test_robust_committee_with_weights_of_one_is_the_committee(rng):
    """Variances of prior / e^2 are an entropy gain of one nat."""
    prior = rng.uniform(0.5, 2, 7)
    means, variances = rng.standard_normal((4, 7)), np.tile(prior * np.exp(-2), (4, 1))
    assert_same(rules.rbcm(means, variances, prior), rules.bcm_pointwise(means, variances, prior))


def test_an_expert_above_the_prior_has_no_weight():
    """As approximate posteriors may be, and exact ones by rounding."""
    assert_same(rules.rbcm(np.ones((1, 1)), np.full((1, 1), 1.5), np.ones(1)), ([0.0], [1.0]))


def test_entropy_weights(problem, parts):
    m, s2, k = posteriors(parts, problem.Xs)
    weights = np.log(k / s2) / np.log(k / s2).sum(axis=0)
    precision = (weights / s2).sum(axis=0)
    assert_same(rules.gpoe_entropy(m, s2, k), ((weights * m / s2).sum(axis=0) / precision, 1 / precision))


def test_grbcm_is_a_robust_committee_about_the_communication_expert(problem):
    """Precision and shift as sums of prior-corrected terms, the weight of the first part set to one."""
    communication, *parts = make_parts(problem, [10, 25, 45])
    ((m0,), (s0,)) = expert_predictions(KERNEL, NOISE, [communication], problem.Xs)
    unions = [(np.vstack([communication[0], X]), np.append(communication[1], y)) for X, y in parts]
    m, s2 = expert_predictions(KERNEL, NOISE, unions, problem.Xs)
    beta = np.vstack([np.ones(11), 0.5 * np.log(s0 / s2[1:])])
    precision = (beta / s2).sum(axis=0) - (beta.sum(axis=0) - 1) / s0
    shift = (beta * m / s2).sum(axis=0) - (beta.sum(axis=0) - 1) * m0 / s0
    assert_same(grbcm(KERNEL, NOISE, communication, parts, problem.Xs), (shift / precision, 1 / precision))


def test_pointwise_committee_is_the_joint_one_with_a_single_query_point(problem, parts):
    """And so, with many query points, it is not the joint committee."""
    mean, variance = rules.bcm_pointwise(*posteriors(parts, problem.Xs))
    for k, x in enumerate(problem.Xs):
        joint_mean, joint_covariance = gbcm(KERNEL, NOISE, parts, x[None])
        assert_same((mean[[k]], variance[[k]]), (joint_mean, joint_covariance[0]))
    together, _ = gbcm(KERNEL, NOISE, parts, problem.Xs)
    assert np.abs(together - mean).max() > 1e-3


def test_joint_committee_against_published_form(problem, parts):
    experts = [expert_posterior(KERNEL, problem.Xs, X, y, np.full(len(y), NOISE)) for X, y in parts]
    published = committee_by_inverses(KERNEL.cross(problem.Xs, problem.Xs), *zip(*experts, strict=True))
    assert_same(gbcm(KERNEL, NOISE, parts, problem.Xs), published, tolerance=1e-8)  # differences of inverses


def test_barycentre_averages_quantiles(problem, parts):
    """The optimal transport plan on the line joins equal quantiles."""
    m, s2, k = posteriors(parts, problem.Xs)
    weights = np.array([0.5, 0.2, 0.3])
    mean, variance = rules.barycentre(m, s2, k, weights=weights)
    for p in (0.01, 0.3, 0.9):
        quantiles = weights @ (m + ndtri(p) * np.sqrt(s2))
        np.testing.assert_allclose(mean + ndtri(p) * np.sqrt(variance), quantiles, rtol=1e-10, atol=1e-12)


def test_nested_kriging_against_dense_algebra(problem, parts):
    """Conditioning f on the experts' predictions, from the joint prior of all rows."""
    inverse = np.linalg.inv
    mean, variance = npae(KERNEL, NOISE, parts, problem.Xs)
    Kyy = KERNEL.cross(problem.X, problem.X) + NOISE * np.eye(60)
    for k, x in enumerate(problem.Xs):
        A = np.zeros((3, 60))
        for i, (rows, (X, y)) in enumerate(zip(split(60, [25, 45]), parts, strict=True)):
            A[i, rows] = KERNEL.cross(x[None], X)[0] @ inverse(KERNEL.cross(X, X) + NOISE * np.eye(len(y)))
        among, with_f = A @ Kyy @ A.T, A @ KERNEL.cross(problem.X, x[None])[:, 0]
        np.testing.assert_allclose(mean[k], with_f @ inverse(among) @ (A @ problem.obs.y), rtol=1e-9)
        np.testing.assert_allclose(variance[k], 1.3 - with_f @ inverse(among) @ with_f, rtol=1e-9)


def test_nested_kriging_reports_its_true_error(problem, parts):
    """The mean is B y; the covariance of f - B y under the prior, with B found from answers to unit targets."""
    units = [[(X, e[rows]) for (X, _), rows in zip(parts, split(60, [25, 45]), strict=True)] for e in np.eye(60)]
    B = np.column_stack([npae(KERNEL, NOISE, unit, problem.Xs)[0] for unit in units])
    cross = B @ KERNEL.cross(problem.X, problem.Xs)
    Kyy = KERNEL.cross(problem.X, problem.X) + NOISE * np.eye(60)
    error = KERNEL.cross(problem.Xs, problem.Xs) - cross - cross.T + B @ Kyy @ B.T
    mean, variance = npae(KERNEL, NOISE, parts, problem.Xs)
    assert_same((mean, variance), (B @ problem.obs.y, np.diag(error)))
    assert_same(npae_joint(KERNEL, NOISE, parts, problem.Xs), (mean, error))


def test_nested_kriging_is_between_the_best_expert_and_the_full_gp(problem, parts):
    _, variances, _ = posteriors(parts, problem.Xs)
    _, variance = npae(KERNEL, NOISE, parts, problem.Xs)
    assert np.all(variance <= variances.min(axis=0) + 1e-12)
    assert np.all(variance >= exact(problem)[1] - 1e-12)


def test_far_from_all_rows_only_the_prior_is_left(parts):
    """Covariances underflow to zero there: 1e3 lengthscales."""
    far = np.full((1, 2), 1e3)
    for mean, variance in (npae(KERNEL, NOISE, parts, far), rules.rbcm(*posteriors(parts, far))):
        assert_same((mean, variance), ([0.0], [1.3]))


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(InvalidData, match=r"expected means \(M, n\).* got \(3,\), \(3,\) and \(3,\); stack"):
        rules.poe(np.zeros(3), np.ones(3), np.ones(3))
    with pytest.raises(InvalidData, match=r"expected means \(M, n\)"):
        rules.poe(np.zeros((0, 3)), np.ones((0, 3)), np.ones(3))
    with pytest.raises(InvalidData, match=r"expected positive numbers, got 0; raise the noise"):
        rules.poe(np.zeros((1, 2)), np.array([[1.0, 0.0]]), np.ones(2))
    with pytest.raises(InvalidData, match=r"expected no expert above its prior, got a combined precision of -0.5"):
        rules.bcm_pointwise(np.zeros((3, 1)), np.full((3, 1), 2.0), np.ones(1))
    with pytest.raises(InvalidData, match=r"that sum to 1, got shape \(2,\) and sums \[0.7\]; normalise"):
        rules.barycentre(np.zeros((2, 1)), np.ones((2, 1)), np.ones(1), weights=[0.3, 0.4])
