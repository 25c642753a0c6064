"""The scripts on the GBCM paper compute what their tables and pictures say."""

import numpy as np
import paper000_networks as networks
import paper001_figure1 as figure1
import paper001_figure2 as figure2
import paper001_table1 as table1
import paper003_robot_arm as arm
import paper004_mackey_glass as mackey
import paper004_tables as tables
import pytest
from scipy.special import logsumexp, ndtr
from scipy.stats import multivariate_normal, norm

from bcmdist import GBCM, Settings
from bcmdist.app.demo import AMPLITUDES, WIDTH, make_map, make_rows
from bcmdist.data.observations import unweighted
from bcmdist.model.likelihoods import Bernoulli, Gaussian
from bcmdist.model.mean import Mean
from bcmdist.model.shared.query import prepare
from oracles import full_gp, laplace
from problems import make_kernel
from published.results import Experiment


@pytest.mark.parametrize(("inputs", "sigma"), [(2, 0.1), (5, 0.5), (50, 0.1)])
def test_noise_turns_the_labels_that_appendix_c_says(inputs, sigma):
    columns = make_rows(4000, sigma=sigma, seed=3, part=0, inputs=inputs)
    centers = np.random.default_rng(3).uniform(0, 1, (5, inputs))
    exponents = -((columns["X"][:, None] - centers) ** 2).sum(axis=2) / (2 * WIDTH**2)
    log_up, sign = logsumexp(exponents, axis=1, b=AMPLITUDES, return_sign=True)
    value = sign * np.exp(log_up - logsumexp(exponents, axis=1))
    np.testing.assert_array_equal(columns["y_noise_free"], value > 0)
    turned = ndtr(-np.abs(value) / sigma)
    four_deviations = 4 * np.sqrt((turned * (1 - turned)).sum())
    assert abs((columns["y"] != columns["y_noise_free"]).sum() - turned.sum()) <= four_deviations


def test_one_module_is_the_laplace_classifier_of_the_paper(rng):
    X, points = rng.uniform(-1, 1, (40, 2)), rng.uniform(-1, 1, (15, 2))
    y = (X[:, 0] * X[:, 1] > 0) * 1.0

    def covariance(A, B):
        return 10.0 * np.exp(-((A[:, None] - B) ** 2).sum(axis=2) / (2 * 0.7**2))

    f, _, _ = laplace(covariance(X, X), Bernoulli(), unweighted(y))
    mean, _ = table1.latent(X, y, points, width=0.7, module=40)
    # At the mode K^-1 f is the score; 1e-6 is left by the condition of K, about 1e8.
    np.testing.assert_allclose(mean, covariance(points, X) @ (y - 1 / (1 + np.exp(-f))), atol=1e-6)


@pytest.mark.parametrize(("rows", "points"), [(145, 50), (168, 100), (100, 50), (40, 50)])
def test_query_sets_cover_every_row_and_have_the_asked_size(rows, points):
    sets = [np.arange(rows)[s] for s in table1.query_sets(rows, points)]
    assert {len(s) for s in sets} == {min(rows, points)}
    assert set(np.concatenate(sets)) == set(range(rows))


def test_table_shows_both_figures_and_the_largest_gap():
    column = table1.COLUMNS[2]
    ours = np.add([figure for figure, _ in column.paper], [0.0, 0.0, -2.0, 0.5, 0.0])
    results = {column: np.array([ours - 1, ours + 1])}
    assert "97.3 ±0.5   95.3 ±1.0" in "\n".join(table1.table(results))
    (line,) = table1.gaps(results)
    assert "to the paper -2.0 (GBCM(100, 50))" in line
    assert "our GPR -2.3" in line


def test_nearest_draw_is_the_one_of_the_papers_accuracy(monkeypatch):
    a, b = table1.COLUMNS[2:4]
    right = {(a, 0): 97.0, (b, 0): 80.0, (a, 1): 96.5, (b, 1): 93.0, (a, 2): 90.0, (b, 2): 93.2}
    monkeypatch.setattr(table1, "artificial_split", lambda column, _, centres, repetition: (column, centres))
    monkeypatch.setattr(table1, "exact_accuracy_at_validated_width", right.__getitem__)
    assert table1.nearest_draw([a, b], 10, draws=3, repetitions=range(2)) == 1


def test_exponent_of_a_power_law():
    rows = np.array([1000, 2000, 4000, 8000])
    assert figure1.exponent(rows, [1e9, *(1e-9 * rows[1:] ** 3.0)]) == pytest.approx(3.0)


def test_figure1_predicts_the_sign_of_the_map(rng):
    columns = make_rows(1000, sigma=0.0, seed=1, part=0)
    X, y = columns["X"], 2.0 * columns["y"] - 1.0
    mean, _ = figure1.regress(X[:900], y[:900], X[900:], 100)
    assert np.mean((mean > 0) == (y[900:] > 0)) >= 0.85


def test_figure2_scores_at_training_inputs_in_their_own_units(make_data):
    columns = make_rows(300, sigma=0.0, seed=figure2.DEFAULT_SEED, part=0)
    settings = Settings(query=50, query_method="random", rows_per_expert=100, kernel="se", learn=False)
    gbcm = GBCM.fit(make_data(**columns), settings)
    X = figure2.query_inputs(gbcm)
    gaps = np.abs(X[:, None] - columns["X"]).max(axis=2).min(axis=1)
    assert gaps.max() <= 1e-12
    positive = gbcm.predict(X)["probability"][:, 1] > 0.5
    expected = 100 * np.mean(positive == (make_map(figure2.DEFAULT_SEED)(X) > 0))
    assert figure2.right(gbcm.predict(X)["mean"], X) == pytest.approx(expected)


def test_robot_arm_is_the_one_of_the_paper(rng):
    rows = arm.robot_arm(4000, rng)
    x1, x2 = rows.X[:, 0], rows.X[:, 1]
    assert np.all((np.abs(x1) >= 0.453) & (np.abs(x1) <= 1.932) & (x2 >= 0.534) & (x2 <= 3.142))
    assert abs((x1 > 0).mean() - 0.5) <= 4 * 0.5 / np.sqrt(4000)
    elbow = 2.0 * np.exp(1j * x1)  # the arm's first part ends here, its second is 1.3 long
    hand = rows.F[:, 0] + 1j * rows.F[:, 1]
    np.testing.assert_allclose(np.abs(hand - elbow), 1.3)
    np.testing.assert_allclose(np.angle((hand - elbow) / np.exp(1j * (x1 + x2))), 0.0, atol=1e-12)
    np.testing.assert_allclose((rows.X[:, 2:4] - rows.X[:, :2]).std(axis=0), 0.02, rtol=0.05)
    np.testing.assert_allclose(rows.X[:, 4:].std(axis=0), 1.0, rtol=0.05)
    # Four deviations of a mean of 8000 squares.
    assert arm.error(rows.Y, rows.F) == pytest.approx(1.0, abs=4 * np.sqrt(2 / 8000))


@pytest.mark.slow
def test_conjugate_gradients_find_the_noise_and_what_matters(rng):
    rows = arm.robot_arm(120, rng)
    kernel, likelihood, phi = arm.maximum_likelihood(
        rows.X[:, [0, 1, 4]], rows.Y[:, 1], rng.uniform(-3, 0, (2, 5)), iterations=60
    )
    np.testing.assert_allclose(np.exp(phi), [*kernel.variance, *kernel.lengthscale**-2.0, *likelihood.noise_variance])
    assert likelihood.noise_variance == pytest.approx(arm.NOISE, rel=0.5)
    assert phi[3] < phi[1:3].min() - 3  # noise does not matter
    value, gradient = arm.evidence_of(rows.X[:, [0, 1, 4]], rows.Y[:, 1])(kernel, likelihood)
    assert np.isfinite(value)
    assert np.abs(gradient).max() <= 0.5  # in nats: it stopped at an optimum


def test_one_expert_about_the_test_rows_is_exact_and_four_are_near(rng):
    train, test = arm.robot_arm(120, rng), arm.robot_arm(50, rng)
    X, new, y = train.X[:, :2], test.X[:, :2], train.Y[:, 0]
    kernel, likelihood = make_kernel("se", variance=5.0, lengthscale=1.8), Gaussian(np.full(1, arm.NOISE))
    exact, _, _ = full_gp(kernel, lambda A: np.zeros((len(A), 1)), X, y, arm.NOISE, new)
    one = arm.mean_of(kernel, likelihood, X, y, new, new, experts=1)
    np.testing.assert_allclose(one, exact, atol=1e-6)  # jitter of the query covariance
    four = arm.mean_of(kernel, likelihood, X, y, X[:80], new, experts=4)
    np.testing.assert_allclose(four, exact, atol=0.01)  # a fifth of the noise


def test_the_series_solves_its_equation(monkeypatch):
    """By differences, and as finer steps do before chaos multiplies what these leave."""
    monkeypatch.setattr(mackey, "DISCARDED", 20)
    coarse = mackey.mackey_glass(100)
    monkeypatch.setattr(mackey, "STEPS", 40)
    z = mackey.mackey_glass(100)
    np.testing.assert_allclose(coarse, z, atol=1e-4)
    k = np.arange(mackey.TAU + 1, 99)
    expected = 0.2 * z[k - 17] / (1 + z[k - 17] ** 10) - 0.1 * z[k]
    np.testing.assert_allclose((z[k + 1] - z[k - 1]) / 2.0, expected, atol=0.01)


def test_rows_of_the_series_look_back_96_units():
    X, y = mackey.rows_of(np.arange(100.0))
    assert X.shape == (4, 16)
    np.testing.assert_array_equal(y - X[:, 0], 6.0)
    np.testing.assert_array_equal(X[0, -1], 0.0)


def test_methods_of_the_thesis_that_need_no_learning(rng):
    X, new = rng.standard_normal((60, 2)), rng.standard_normal((20, 2))

    def plane(Z):
        return 1.0 + Z @ [2.0, -1.0]

    np.testing.assert_allclose(mackey.linear(X, plane(X), new), plane(new), atol=1e-9)
    np.testing.assert_allclose(mackey.neighbours(X, plane(X), new), plane(new), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["FITC, m = 8", "FITC, network, m = 8", "mixture, m = 8", networks.CELLS])
def test_networks_are_compared_on_made_data(monkeypatch, tmp_path, method):
    monkeypatch.setenv("BCMDIST_DATA", str(tmp_path))
    assert networks.load("kin40k") is None
    assert networks.computed(Experiment(0, networks.MADE, method), quick=True)["nmse"] < 0.3


@pytest.fixture
def reduced(rng):
    """A reduced-rank process of five support points that is far from certain, and what its rows are."""
    X, Xs, kernel = rng.uniform(-2, 2, (40, 2)), rng.uniform(-3, 3, (9, 2)), make_kernel("se")
    y, ys = np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(40), np.sin(Xs).sum(axis=1)
    query = prepare(X[:5], kernel=kernel, mean=Mean("zero"), residual="none", jitters=(0.0,))
    return tables.Reduced(query, Gaussian(0.04), X, y, Xs, ys)


def degenerate(kernel, support, noise, X, y, x):
    """Mean and variance of an observation at x (1, D), and the log evidence, under K_NM K_MM^-1 K_MN + noise."""
    inner = np.linalg.inv(kernel.cross(support, support))
    K, Ks = kernel.cross(X, support), kernel.cross(x, support)
    C, cross = K @ inner @ K.T + noise * np.eye(len(y)), K @ inner @ Ks.T
    pull = np.linalg.solve(C, cross)
    variance = noise + Ks @ inner @ Ks.T - cross.T @ pull
    return (pull.T @ y).item(), variance.item(), multivariate_normal(np.zeros(len(y)), C).logpdf(y)


def test_the_ways_to_predict_are_those_of_the_thesis(reduced):
    """Its own; and with a support point at each new point, one at a time."""
    one, kernel, support = reduced, reduced.query.kernel, reduced.query.points
    told = {"plain": one.predicted("none"), "*": one.augmented()[:2]}
    for k, x in enumerate(one.Xs[:, None]):
        for way, points in (("plain", support), ("*", np.vstack([support, x]))):
            mean, variance, evidence = degenerate(kernel, points, 0.04, one.X, one.y, x)
            # Of a support set with near points: its covariance has a condition of some 1e4.
            assert told[way][0][k] == pytest.approx(mean, abs=1e-9)
            assert told[way][1][k] == pytest.approx(variance, abs=1e-9)
            if way == "plain":
                assert one.committee()[1].log_evidence == pytest.approx(evidence, abs=1e-8)


def test_variances_of_nystroem_may_be_negative(reduced):
    """As eq. 3.39 has them: the prior of a new point is the exact one, and that of the rows is not."""
    one = reduced
    K, k = one.query.design(one.X), one.query.kernel.cross(one.X, one.Xs)
    C = K @ K.T + 0.04 * np.eye(40)
    expected = one.query.kernel.diagonal(one.Xs) - np.einsum("ij,ij->j", k, np.linalg.solve(C, k))
    np.testing.assert_allclose(one.augmented()[2], expected, atol=1e-9)
    assert expected.min() < 0


def test_losses_are_means_over_rows(rng):
    mean, variance, y = rng.standard_normal(7), rng.uniform(0.1, 1, 7), rng.standard_normal(7)
    squared, absolute, density = tables.losses(mean, variance, y)
    assert squared == pytest.approx(np.mean((y - mean) ** 2))
    assert absolute == pytest.approx(np.mean(np.abs(y - mean)))
    assert density == pytest.approx(-norm(mean, np.sqrt(variance)).logpdf(y).mean())


@pytest.mark.parametrize(("count", "rows"), [(1, 50), (3, 16)])
def test_sets_of_rows_share_none(count, rows):
    X = np.arange(100.0)[:, None]
    parts = tables.disjoint(X, X[:, 0], rows, count)
    seen = np.concatenate([np.concatenate([one.y, one.ys]) for one in parts])
    assert (len(parts), len(seen), len(np.unique(seen))) == (count, 2 * rows * count, 2 * rows * count)
