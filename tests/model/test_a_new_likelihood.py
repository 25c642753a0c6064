"""A likelihood that somebody adds: one class and one call, and all else follows from it.

Shares y in (0, 1) of a beta distribution, here for a task of their own, through everything a user does with them;
against brute force by scipy's beta densities.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import integrate, optimize, stats
from scipy.special import digamma, expit, gammaln, logit, logsumexp, polygamma

from bcmdist import GBCM, IngestOptions, Settings, register_likelihood
from bcmdist.app.cli.main import cli
from bcmdist.data.observations import Observations, unweighted
from bcmdist.errors import InvalidOption, ModelDamaged, UnsupportedTarget
from bcmdist.learning.option_fields import choices_of, hints_of
from bcmdist.model.likelihoods import LIKELIHOODS, OneProcess, make_likelihood, parameter, slopes, tasks
from bcmdist.model.likelihoods.multiclass import AnySoftmax
from bcmdist.model.units import SHARE
from bcmdist.prediction.observation import observe, predictive, unit_deviance
from bcmdist.testing import check_likelihood
from problems import assert_same_committee
from some_likelihoods import ONE_PROCESS

PRECISION = 12.0
GIVEN = {"kernel.variance": 1.5, "kernel.lengthscale": 0.7, "likelihood.precision": PRECISION}
HOW = {"task": "shares", "kernel": "se", "mean": "zero", "learn": False, "set": GIVEN, "query": 60}


@dataclass(frozen=True)
class Beta(OneProcess):
    """Shares of mean m = 1 / (1 + exp(-f)) and variance m (1 - m) / (1 + precision).

    With a = m precision, b = (1 - m) precision and v = m (1 - m) precision: score v (logit y - psi(a) + psi(b)).
    """

    precision: np.ndarray = parameter(8.0, (1e-1, 1e5), widens=-1.0)
    name = "beta"
    task = "shares"
    support = "numbers between 0 and 1"
    units = SHARE
    log_concave = False

    def unsupported(self, obs):
        return ~((obs.y > 0) & (obs.y < 1))

    def _parts(self, f):
        f = np.clip(f, -300.0, 300.0)
        m, rest = expit(f), expit(-f)
        return m * self.precision, rest * self.precision, m * rest * self.precision, rest - m

    def log_density(self, obs, f):
        a, b, _, _ = self._parts(f)
        constant = gammaln(self.precision) - gammaln(a) - gammaln(b)
        return obs.weight * (constant + (a - 1.0) * np.log(obs.y) + (b - 1.0) * np.log1p(-obs.y))

    def score(self, obs, f):
        a, b, v, _ = self._parts(f)
        return obs.weight * v * (logit(obs.y) - digamma(a) + digamma(b))

    def curvature(self, obs, f):
        a, b, v, _ = self._parts(f)
        return obs.weight * v**2 * (polygamma(1, a) + polygamma(1, b))

    def third(self, obs, f):
        a, b, v, tilt = self._parts(f)
        slope = v * (polygamma(2, a) - polygamma(2, b))
        return -obs.weight * v**2 * (2.0 * tilt * (polygamma(1, a) + polygamma(1, b)) + slope)

    def hessian(self, obs, f):
        return self.curvature(obs, f) - self.score(obs, f) * self._parts(f)[3]

    def distribution(self, obs, f):
        a, b, _, _ = self._parts(f)
        return stats.beta(a, b)

    def saturated(self, obs):
        low, high = np.full(len(obs), -300.0), np.full(len(obs), 300.0)
        for _ in range(64):
            f = 0.5 * (low + high)
            a, b, _, _ = self._parts(f)
            above = digamma(a) - digamma(b) > logit(obs.y)
            low, high = np.where(above, low, f), np.where(above, f, high)
        return 0.5 * (low + high)


@pytest.fixture
def beta(monkeypatch):
    """The likelihood, registered for one test."""
    monkeypatch.setattr(LIKELIHOODS, "_things", dict(LIKELIHOODS._things))
    return register_likelihood(Beta)


def asked(**changes):
    return Settings(**{"partition": "chunks"} | HOW | changes)


def shares(rng, rows):
    X = rng.uniform(-2, 2, (rows, 2))
    m = expit(np.sin(2 * X[:, 0]) + 0.8 * X[:, 1] - 1.0)
    y = rng.beta(PRECISION * m, PRECISION * (1.0 - m)).clip(1e-6, 1.0 - 1e-6)
    assert y.shape == (rows,)
    return X, y


# --- Brute force, by scipy's densities ---


def log_p(y, f, precision=PRECISION):
    return stats.beta.logpdf(y, precision * expit(f), precision * expit(-f))


def fisher(f, step=1e-4):
    """E (d log p / df)^2, (n,): by the trapezoid rule over logit y, along which all is smooth and falls off."""
    u = np.linspace(-30.0, 30.0, 2001)
    y, g = expit(u), np.asarray(f)[:, None]
    slope = (log_p(y, g + step) - log_p(y, g - step)) / (2.0 * step)
    return integrate.trapezoid(slope**2 * np.exp(log_p(y, g)) * expit(u) * expit(-u), u)


def dense_laplace(model, X, y, new):
    """Mean and variance of f at new points by the Laplace approximation of a Gaussian process at all rows at once."""
    Z, N, kernel = model.scaling.inputs(X), model.scaling.inputs(new), model.query.kernel
    K, cross = kernel.cross(Z, Z), kernel.cross(N, Z)
    L = np.linalg.cholesky(K + 1e-10 * np.eye(len(K)))
    slope, step = np.zeros_like(y), 1e-5

    def loss(a):
        f = L @ a
        slope[:] = (log_p(y, f + step) - log_p(y, f - step)) / (2.0 * step)
        return 0.5 * a @ a - log_p(y, f).sum(), a - L.T @ slope

    f = L @ optimize.minimize(loss, np.zeros(len(y)), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    W = fisher(f)
    inside = np.linalg.inv(K + np.diag(1.0 / W))
    return cross @ slope, kernel.diagonal(N) - np.einsum("ij,jk,ik->i", cross, inside, cross)


def dense_mixture(mean, variance, precision=PRECISION, points=4001):
    """Values (K,) of f and their shares of one belief, and the beta distributions there."""
    z = np.linspace(-9.0, 9.0, points)
    share = stats.norm.pdf(z)
    f = mean + np.sqrt(variance) * z
    return share / share.sum(), stats.beta(precision * expit(f), precision * expit(-f))


# --- The class itself ---


def test_derivatives(rng):
    likelihood, f = Beta(5.0), rng.standard_normal(9)
    obs = Observations(rng.uniform(0.02, 0.98, 9), rng.uniform(0.5, 2.0, 9))
    np.testing.assert_allclose(likelihood.log_density(obs, f), obs.weight * log_p(obs.y, f, 5.0), rtol=1e-10)
    check_likelihood(likelihood, obs, f)
    np.testing.assert_allclose(Beta(PRECISION).curvature(unweighted(obs.y), f), fisher(f), rtol=1e-5)
    assert all(np.all(np.isfinite(s)) for s in slopes(likelihood, obs, f, "precision"))


@pytest.mark.parametrize("name", [name for name in ONE_PROCESS if LIKELIHOODS[name].events])
def test_links_are_what_bisection_finds(name, rng):
    likelihood = make_likelihood(name)
    ones, trials = np.ones(6), rng.integers(1, 9, 6) * 1.0
    obs = Observations(ones, ones, rng.uniform(0.5, 2.0, 6), trials)
    mean = rng.uniform(0.1, 0.9, 6) * (trials if name == "binomial" else 1.0)
    f = likelihood.link(obs, mean)
    np.testing.assert_allclose(f, OneProcess.link(likelihood, obs, mean), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(likelihood.distribution(obs, f).mean(), mean, rtol=1e-10)


def test_deviance_follows_from_the_distribution(rng):
    y, mean = rng.uniform(0.05, 0.95, 5), rng.uniform(0.2, 0.8, 5)
    likelihood, obs = Beta(PRECISION), Observations(y, rng.uniform(0.5, 2.0, 5))
    best = [optimize.minimize_scalar(lambda f, one=one: -log_p(one, f), bounds=(-9, 9), method="bounded") for one in y]
    wanted = 2.0 * (-np.array([found.fun for found in best]) - log_p(y, logit(mean)))
    np.testing.assert_allclose(unit_deviance(likelihood, obs, mean), wanted, rtol=1e-7)


# --- What is predicted ---


@pytest.mark.parametrize("precision", [0.7, 12.0, 3000.0])
def test_predictions_are_those_of_the_dense_mixture(precision):
    """Also where densities pile up at 0 and 1, and where they are narrow."""
    mean, variance = np.array([-3.0, 0.0, 0.4, 2.0]), np.array([0.5, 1e-3, 0.3, 2.0])
    told = observe(Beta(precision), mean, variance, unweighted(np.full(4, np.nan)))
    assert set(told) == {"observation_mean", "observation_variance", "lower95", "upper95"}
    for k, belief in enumerate(zip(mean, variance, strict=True)):
        share, mixed = dense_mixture(*belief, precision)
        center = share @ mixed.mean()
        spread = share @ (mixed.var() + (mixed.mean() - center) ** 2)
        np.testing.assert_allclose(told["observation_mean"][k], center, rtol=1e-7)
        np.testing.assert_allclose(told["observation_variance"][k], spread, rtol=1e-6)
        for name, level in [("lower95", 0.025), ("upper95", 0.975)]:
            # Of piled-up densities the level may lie between two numbers side by side.
            below, at = (share @ mixed.cdf(y) for y in (np.nextafter(told[name][k], 0.0), told[name][k]))
            assert below - 2e-5 <= level <= at + 2e-5


def test_log_densities_are_those_of_the_dense_mixture(rng):
    y, mean, variance = rng.uniform(0.05, 0.95, 6), rng.standard_normal(6), rng.uniform(0.01, 2.0, 6)
    found = predictive(Beta(PRECISION), mean, variance, unweighted(y)).log_density(unweighted(y))
    for k, belief in enumerate(zip(mean, variance, strict=True)):
        share, mixed = dense_mixture(*belief)
        np.testing.assert_allclose(found[k], np.log(share @ mixed.pdf(y[k])), rtol=1e-7)


# --- What users do with it ---


@pytest.mark.parametrize("changes", [{}, {"rows_per_expert": 15, "passes": "auto"}], ids=["one", "passes"])
def test_a_fit_is_the_dense_laplace_approximation(beta, rng, changes):
    """Query points at all rows: the committee is the whole model, of several partitions after some passes."""
    (X, y), new = shares(rng, 60), rng.uniform(-2, 2, (20, 2))
    gbcm = GBCM.fit((X, y), asked(**changes))
    told = gbcm.predict(new)
    mean, variance = dense_laplace(gbcm.model, X, y, new)
    close = 5e-5 if not changes else 2e-3  # of standard deviations; passes end at a thousandth
    assert np.max(np.abs(told["mean"] - mean) / np.sqrt(variance)) < close
    np.testing.assert_allclose(told["variance"], variance, rtol=close)


@pytest.mark.slow
def test_scores_are_those_of_brute_force(beta, make_data, rng, monkeypatch):
    for user in ("errors.error_distribution", "measuring.measurement"):  # errors stay as the model says
        monkeypatch.setattr(f"bcmdist.prediction.{user}.LEAST", 1000)
    (X, y), (Xs, ys) = shares(rng, 200), shares(rng, 60)
    gbcm = GBCM.fit((X, y), asked(query=40))
    told, figures = gbcm.predict(Xs), gbcm.score(make_data("test.zarr", X=Xs, y=ys))
    grid = np.linspace(0.0, 1.0, 1001)
    mixtures = [dense_mixture(*belief) for belief in zip(told["mean"], told["variance"], strict=True)]
    center = np.array([share @ mixed.mean() for share, mixed in mixtures])
    at = np.array([share @ mixed.cdf(one) for (share, mixed), one in zip(mixtures, ys, strict=True)])
    error = ys - center
    assert figures["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-6)
    assert figures["nmse"] == pytest.approx(np.mean(error**2) / np.mean((ys - y.mean()) ** 2), rel=1e-6)
    assert figures["mae"] == pytest.approx(np.mean(np.abs(error)), rel=1e-6)
    density = [np.log(share @ mixed.pdf(one)) for (share, mixed), one in zip(mixtures, ys, strict=True)]
    assert figures["mnlp"] == pytest.approx(-np.mean(density), rel=1e-6)
    assert figures["coverage80"] == np.mean((at >= 0.1) & (at < 0.9))
    ranked = []
    for belief, one in zip(zip(told["mean"], told["variance"], strict=True), ys, strict=True):
        share, mixed = dense_mixture(*belief, points=31)
        below = mixed.cdf(grid[:, None]) @ share
        ranked.append(integrate.trapezoid((below - (grid >= one)) ** 2, grid))
    assert figures["crps"] == pytest.approx(np.mean(ranked), rel=0.02)  # of twenty quantiles
    assert figures["nmse"] < 0.6
    assert 0.9 <= figures["coverage95"] <= 1.0


@pytest.mark.slow
def test_saved_loaded_and_ingested(beta, make_data, tmp_path, rng):
    X, y = shares(rng, 200)
    path, how, new = make_data(X=X, y=y), asked(query=40, rows_per_expert=50), rng.uniform(-2, 2, (9, 2))
    whole = GBCM.fit(path, how, model=tmp_path / "whole")
    told, loaded = whole.predict(new, quantiles=(0.5,)), GBCM.load(tmp_path / "whole")
    assert loaded.model.likelihood.name == "beta"
    again = loaded.predict(new, quantiles=(0.5,))
    assert all(np.array_equal(values, again[name]) for name, values in told.items())
    assert np.all((told["lower95"] < told["quantile0.5"]) & (told["quantile0.5"] < told["upper95"]))
    prepared = GBCM.prepare(path, how, model=tmp_path / "prepared")
    absorbed, tally = prepared.ingest(prepared.source(path), IngestOptions(commit_every=1))
    assert (tally.partitions, tally.rows) == (4, 200)
    assert_same_committee(absorbed.committee, whole.committee)
    assert all(np.all(np.isfinite(entry.arrival)) for entry in absorbed.ledger)


@pytest.mark.slow
def test_precision_is_learned_and_kept_within_bounds(beta, rng):
    gbcm = GBCM.fit(
        shares(rng, 400), Settings(partition="chunks", task="shares", kernel="se", query=30, effort="quick")
    )
    assert 0.6 * PRECISION < gbcm.model.likelihood.precision[0] < 1.6 * PRECISION
    assert gbcm.model.likelihood.bounds == {"precision": (1e-1, 1e5)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"approximation": "ep"}, {"linearise": "running"}, {"objective": "committee", "learn": True, "set": {}}],
    ids=["ep", "running", "committee"],
)
def test_what_needs_one_process_and_a_probability_works(beta, make_data, rng, changes):
    path = make_data(X=(data := shares(rng, 80))[0], y=data[1])
    gbcm = GBCM.fit(path, asked(**{"query": 20, "rows_per_expert": 40, "effort": "quick"} | changes))
    assert gbcm.score(path)["nmse"] < 0.6


@pytest.mark.slow
def test_cells_and_local_prediction(beta, make_data, tmp_path, rng):
    path = make_data(X=(data := shares(rng, 300))[0], y=data[1])
    how = asked(query=20, rows_per_expert=100, partition="spatial", effort="quick")
    gbcm = GBCM.fit(path, how, model=tmp_path / "model")
    assert gbcm.facts["method"] == "local"
    assert gbcm.score(path)["nmse"] < 0.6


def test_targets_outside_are_refused(beta, make_data, rng):
    X, y = shares(rng, 60)
    y[7] = 1.0
    with pytest.raises(
        UnsupportedTarget, match="expected numbers between 0 and 1 in y for the likelihood beta, got 1 at"
    ):
        GBCM.fit(make_data(X=X, y=y), asked())


def test_command_line(beta, make_data, tmp_path, rng):
    path = make_data(X=(data := shares(rng, 80))[0], y=data[1])
    given = ["--kernel", "se", "--no-learn", "--set", "likelihood.precision=12", "--query", "20", "--serial", "--json"]
    words = ["fit", path, "--model", str(tmp_path / "model"), "--task", "shares", *given]
    out = CliRunner().invoke(cli, words)
    assert out.exit_code == 0, out.output
    assert GBCM.load(tmp_path / "model").model.likelihood.name == "beta"
    out = CliRunner().invoke(cli, ["fit", path, "--model", str(tmp_path / "other"), "--task", "sharse"])
    assert out.exit_code == 2
    assert (
        "'sharse' is not one of 'regression', 'classification', 'counts', 'lifetimes', 'binomial', 'shares'"
        in out.output
    )


# --- A process for each class ---


@dataclass(frozen=True)
class SoftmaxAgain(AnySoftmax):
    """Softmax under another name, with the curvature written out."""

    name = "softmax_again"

    def curvature(self, obs, f):
        return obs.weight[:, None] * np.exp(f - logsumexp(f, axis=1, keepdims=True))


def test_classes_of_ones_own(monkeypatch, make_data, tmp_path, rng):
    monkeypatch.setattr(LIKELIHOODS, "_things", dict(LIKELIHOODS._things))
    register_likelihood(SoftmaxAgain)
    X = rng.uniform(-2, 2, (120, 2))
    path, told = make_data(X=X, y=np.digitize(np.sin(2 * X[:, 0]) + X[:, 1], [-0.7, 0.7]) * 1.0), []
    for name in ("softmax", "softmax_again"):
        how = Settings(
            partition="chunks",
            task="classification",
            likelihood=name,
            kernel="se",
            query=20,
            rows_per_expert=40,
            learn=False,
        )
        GBCM.fit(path, how, model=tmp_path / name)
        gbcm = GBCM.load(tmp_path / name)
        told.append(gbcm.predict(X[:9]) | gbcm.score(path))
        assert gbcm.model.likelihood.name == name
    for name, values in told[0].items():
        np.testing.assert_allclose(values, told[1][name], rtol=1e-9, err_msg=name)
    with pytest.raises(InvalidOption, match="approximation: expected laplace with softmax_again, got ep"):
        Settings(partition="chunks", likelihood="softmax_again", approximation="ep")


# --- Names ---


def test_names_of_others_are_refused(beta):
    assert register_likelihood(Beta) is Beta  # the same again

    class Other(Beta):
        name = "gaussian"

    with pytest.raises(InvalidOption, match="likelihood: expected a name of its own, 'gaussian' is that of"):
        register_likelihood(Other)
    with pytest.raises(InvalidOption, match=r"expected one of gaussian, .* for regression, got beta"):
        Settings(partition="chunks", task="regression", likelihood="beta")


def test_a_model_of_a_likelihood_that_is_not_there(beta, tmp_path, rng, monkeypatch):
    GBCM.fit(shares(rng, 60), asked(), model=tmp_path / "model")
    monkeypatch.delitem(LIKELIHOODS._things, "beta")
    with pytest.raises(ModelDamaged, match=r"the name of a known likelihood as likelihood, found 'beta'"):
        GBCM.load(tmp_path / "model").model  # noqa: B018


def test_tasks_of_the_command_line_are_those_of_the_likelihoods():
    assert list(choices_of(hints_of(Settings)["task"])) == list(tasks())


def test_settings_know_what_is_registered():
    with pytest.raises(InvalidOption, match=r"task: expected one of regression, .* binomial, got 'shares'"):
        Settings(partition="chunks", task="shares")
    with pytest.raises(InvalidOption, match=r"likelihood: expected one of gaussian, .*onehot, .*got 'beta'"):
        Settings(partition="chunks", likelihood="beta")
