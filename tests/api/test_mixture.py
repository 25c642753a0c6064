"""Committees mixed over samples of their hyper-parameters."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy import integrate, stats
from scoringrules import crps_mixnorm

from bcmdist import GBCM, Settings
from bcmdist.api.mixture import Mixture
from bcmdist.api.mixtures import tasks
from bcmdist.api.sampling import Coordinates, default_objective, local_objective, sample_posterior, thinned
from bcmdist.committee.mixture_commits import references
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.errors import (
    BcmdistError,
    BcmdistWarning,
    InvalidData,
    InvalidOption,
    ModelDamaged,
    ModelExists,
    ModelNotFound,
)
from bcmdist.experts.hmc import HMC, Chain
from bcmdist.learning.evidence.objectives import LocalObjective
from bcmdist.learning.sampling.chains import load_chains, mixing, mixing_advice
from bcmdist.model.kernels import parse_kernel
from bcmdist.model.likelihoods import Gaussian
from bcmdist.prediction.normal_mixtures import (
    mixture_cdf,
    mixture_crps,
    mixture_log_density,
    mixture_moments,
    mixture_quantile,
)
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.storage.commits import MIXTURE as CONTENTS

pytestmark = pytest.mark.slow

SETTINGS = Settings(partition="chunks", kernel="se+linear-iso+constant", mean="zero", query=60, rows_per_expert=60)
SHORT = HMC(iterations=30, burn_in=10)


@pytest.fixture
def data(make_data, rng):
    """Path of 60 rows with a trend and a wave."""
    X = rng.uniform(-2, 2, (60, 2))
    y = 3.0 + 2.0 * np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(60)
    return make_data("wave.zarr", rows_per_chunk=100, X=X, y=y)


@pytest.fixture
def pair(data):
    """Two committees that disagree about the noise."""
    members = []
    for noise in (0.01, 1.0):
        settings = Settings(
            partition="chunks", kernel="se", query=30, learn=False, set={"likelihood.noise_variance": noise}
        )
        members.append(GBCM.fit(data, settings))
    return members


# --- Mixtures of normal distributions ---


def test_one_component_is_a_normal_distribution(rng):
    m, s, y = rng.standard_normal((1, 7)), rng.uniform(0.1, 2.0, (1, 7)), rng.standard_normal(7)
    one = stats.norm(m[0], s[0])
    np.testing.assert_allclose(mixture_cdf(m, s, y), one.cdf(y))
    np.testing.assert_allclose(mixture_quantile(m, s, 0.9), one.ppf(0.9), rtol=1e-12)
    np.testing.assert_allclose(mixture_log_density(m, s, y), one.logpdf(y))


def test_quantiles_are_those_of_the_mixture_and_not_of_its_moments():
    m, s = np.array([[0.0], [0.0]]), np.array([[0.1], [3.0]])
    upper = mixture_quantile(m, s, 0.975)
    assert mixture_cdf(m, s, upper) == pytest.approx(0.975, abs=1e-12)
    assert upper[0] == pytest.approx(3.0 * stats.norm.ppf(0.95), rel=1e-6)  # half of the mass is near 0
    _, variance = mixture_moments(m, s**2)
    assert upper[0] > 1.15 * 1.96 * np.sqrt(variance[0])


def test_density_and_crps_are_those_of_numerical_integration(rng):
    m, s, y = 2.0 * rng.standard_normal((4, 3)), rng.uniform(0.2, 1.5, (4, 3)), rng.standard_normal(3)
    crps, log_density = mixture_crps(m, s, y), mixture_log_density(m, s, y)
    for k in range(3):

        def cdf(x, k=k):
            return stats.norm.cdf(x, m[:, k], s[:, k]).mean()

        below = integrate.quad(lambda x: cdf(x) ** 2, -15.0, y[k])[0]
        above = integrate.quad(lambda x: (1.0 - cdf(x)) ** 2, y[k], 15.0)[0]
        assert crps[k] == pytest.approx(below + above, abs=1e-7)
        slope = (cdf(y[k] + 1e-5) - cdf(y[k] - 1e-5)) / 2e-5
        assert log_density[k] == pytest.approx(np.log(slope), abs=1e-6)


def test_crps_is_that_of_scoringrules(rng):
    m, s, y = rng.standard_normal((5, 40)), rng.uniform(0.1, 2.0, (5, 40)), rng.standard_normal(40)
    np.testing.assert_allclose(mixture_crps(m, s, y), crps_mixnorm(y, m.T, s.T, backend="numpy"), rtol=1e-12)


def test_crps_does_not_depend_on_the_rows_held_at_a_time(rng, monkeypatch):
    m, s, y = rng.standard_normal((3, 10)), rng.uniform(0.2, 1.5, (3, 10)), rng.standard_normal(10)
    whole = mixture_crps(m, s, y)
    monkeypatch.setattr("bcmdist.prediction.normal_mixtures.PAIRS_AT_A_TIME", 20)
    np.testing.assert_allclose(mixture_crps(m, s, y), whole, rtol=1e-14)


# --- Mixtures of committees ---


def test_a_mixture_of_one_is_that_one(pair, data):
    X = np.random.default_rng(0).uniform(-2, 2, (9, 2))
    one, mixture = pair[0].predict(X, quantiles=(0.3,)), Mixture(pair[:1]).predict(X, quantiles=(0.3,))
    assert set(one) == set(mixture)
    for name, value in one.items():
        np.testing.assert_allclose(mixture[name], value, rtol=1e-10)
    scores, expected = Mixture(pair[:1]).score(data), pair[0].score(data)
    np.testing.assert_allclose(scores.pop("pit"), expected.pop("pit"), rtol=1e-9)
    assert scores == pytest.approx(expected, rel=1e-9)


def test_moments_are_averages_and_densities_too(pair, data, rng):
    X = rng.uniform(-2, 2, (9, 2))
    a, b = (member.predict(X) for member in pair)
    mixed = Mixture(pair).predict(X)
    for mean, variance in [("mean", "variance"), ("observation_mean", "observation_variance")]:
        m, v = np.array([a[mean], b[mean]]), np.array([a[variance], b[variance]])
        np.testing.assert_allclose(mixed[mean], m.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(mixed[variance], (v + m**2).mean(axis=0) - m.mean(axis=0) ** 2, rtol=1e-9)
    y = mixed["upper95"]
    tails = [stats.norm.sf(y, s["observation_mean"], np.sqrt(s["observation_variance"])) for s in (a, b)]
    np.testing.assert_allclose(np.mean(tails, axis=0), 0.025, rtol=1e-6)
    # The log of an average is above the average of logs.
    assert Mixture(pair).score(data)["mnlp"] < np.mean([member.score(data)["mnlp"] for member in pair])


def test_probabilities_of_classes_are_averages(classes, rng):
    path, _, _ = classes
    members = [
        GBCM.fit(path, Settings(partition="chunks", kernel="se", query=30, learn=False, set={"kernel.variance": v}))
        for v in (0.1, 30.0)
    ]
    X = rng.uniform(-2, 2, (20, 2))
    mixed = Mixture(members).predict(X)
    p = np.mean([member.predict(X)["probability"] for member in members], axis=0)
    np.testing.assert_allclose(mixed["probability"], p)
    np.testing.assert_array_equal(mixed["label"], p.argmax(axis=1))
    assert set(Mixture(members).score(path)) == set(members[0].score(path))


def test_labels_are_those_of_the_data(make_data, rng):
    X = rng.uniform(-2, 2, (90, 2))
    path = make_data(X=X, y=np.array([3.0, 5.0, 9.0])[np.digitize(X[:, 0], [-0.5, 0.5])])
    fitted = GBCM.fit(path, Settings(partition="chunks", task="classification", kernel="se", query=30, learn=False))
    np.testing.assert_array_equal(Mixture([fitted, fitted]).predict(X)["label"], fitted.predict(X)["label"])
    assert Mixture([fitted, fitted]).score(path) == pytest.approx(fitted.score(path), nan_ok=True)


def test_what_cannot_be_mixed_is_refused(make_data, rng, pair):
    with pytest.raises(InvalidOption, match="at least one committee"):
        Mixture([])
    path = make_data("counts.zarr", X=rng.uniform(-2, 2, (40, 1)), y=rng.poisson(3.0, 40).astype(float))
    counts = GBCM.fit(path, Settings(partition="chunks", task="counts", kernel="se", query=10, learn=False))
    with pytest.raises(InvalidOption, match=r"a gaussian or a class likelihood, .*, got \w+; fit a single GBCM"):
        Mixture([counts])
    with pytest.raises(InvalidData, match="expected 2 columns in X, as in training, got 1"):
        Mixture(pair).score(path)


@pytest.mark.parametrize("kind", ["wave", "classes"])
def test_predictions_in_a_store_are_those_of_predict(kind, request, make_data, tmp_path):
    path, X, y = request.getfixturevalue(kind)
    if kind == "classes":
        path = make_data("labels.zarr", X=X, y=np.where(y > 0, 7.0, 3.0))
    settings = Settings(
        partition="chunks", kernel="se", query=20, learn=False, task="classification" if kind == "classes" else None
    )
    mixture = Mixture([GBCM.fit(path, replace(settings, seed=seed)) for seed in (0, 1)])
    assert mixture.predict_zarr(path, tmp_path / "p.zarr") == 240
    group, expected = zarr.open_group(tmp_path / "p.zarr", mode="r"), mixture.predict(X)
    assert set(group.array_keys()) == set(expected) | ({"class"} if kind == "classes" else set())
    for name, value in expected.items():
        np.testing.assert_allclose(group[name][:], value, rtol=1e-9, atol=1e-12)
    assert [url for url, _ in group.attrs["members"]] == [member.url for member in mixture.members]


def test_rows_in_memory_are_scored_as_those_of_a_data_set(pair, data):
    X, y = (zarr.open_group(data, mode="r")[name][:] for name in ("X", "y"))
    assert Mixture(pair).score(X, y)["mnlp"] == pytest.approx(Mixture(pair).score(data)["mnlp"], rel=1e-12)


def test_coverage_is_counted_in_the_mixture_itself(pair, data):
    X, y = (zarr.open_group(data, mode="r")[name][:] for name in ("X", "y"))
    said, score = Mixture(pair).predict(X, quantiles=(0.1, 0.25, 0.75, 0.9)), Mixture(pair).score(data)
    for level, low, high in [(95, "lower95", "upper95"), (80, "quantile0.1", "quantile0.9")]:
        assert score[f"coverage{level}"] == pytest.approx(np.mean((said[low] <= y) & (y <= said[high])))


# --- Sampling ---


@pytest.fixture
def sampled(data, tmp_path):
    """A stored mixture of four members with three experts each."""
    hmc = HMC(iterations=12, burn_in=4)
    settings = replace(SETTINGS, query=20, rows_per_expert=20)
    return sample_posterior(data, settings, model=tmp_path / "sampled", samples=4, hmc=hmc)


def test_a_cluster_samples_predicts_and_scores_the_same(sampled, data, tmp_path, cluster):
    hmc = HMC(iterations=12, burn_in=4)
    settings = replace(SETTINGS, query=20, rows_per_expert=20)
    there = sample_posterior(data, settings, model=tmp_path / "there", samples=4, hmc=hmc, runtime=cluster)
    for a, b in zip(sampled.members, there.members, strict=True):
        for name, value in a.info()["hyperparameters"].items():
            np.testing.assert_allclose(b.info()["hyperparameters"][name], value, rtol=1e-6)  # sums in another order
    there.predict_zarr(data, tmp_path / "p.zarr", runtime=cluster)
    X = zarr.open_group(data, mode="r")["X"][:]
    for name, value in there.predict(X).items():
        np.testing.assert_allclose(zarr.open_group(tmp_path / "p.zarr")[name][:], value, rtol=1e-9)
    here, scores = there.score(data), there.score(data, runtime=cluster)
    np.testing.assert_allclose(scores.pop("pit"), here.pop("pit"))
    assert scores == pytest.approx(here)


def test_tasks_do_not_grow_with_the_members(sampled, data, monkeypatch):
    sizes = []

    class Weigh(SerialRuntime):
        def sum(self, task, parts, *, label):
            sizes.append(len(pickle.dumps(task)))
            return super().sum(task, parts, label=label)

    sampled.score(data, runtime=Weigh())
    replace(sampled, members=sampled.members[:1]).score(data, runtime=Weigh())
    assert sizes[0] == sizes[1] < 1000


def test_a_mixture_stays_what_it_was_when_its_members_go_on(sampled, make_data, rng):
    X = np.zeros((1, 2))
    before = sampled.predict(X)["mean"]
    more = make_data("more.zarr", X=rng.uniform(-2, 2, (30, 2)), y=np.zeros(30))
    with pytest.warns(BcmdistWarning, match="worse than expected"):  # these are other rows indeed
        assert sampled.members[0].partial_fit(more).commit == 3
    np.testing.assert_array_equal(Mixture.load(sampled.url).predict(X)["mean"], before)
    path = Path(sampled.url, CONTENTS)
    path.write_text(json.dumps(json.loads(path.read_text())[:2]))
    with pytest.raises(ModelDamaged, match=r"expected mixture\.json .* use a shared one"):
        references.__wrapped__(sampled.contents)


def test_info_averages_over_members(sampled):
    info = sampled.info()
    every = [member.info() for member in sampled.members]
    assert set(info) > {"acceptance", "rhat", "ess", "advice", "jitter", "kernel", "query"}
    assert (info["samples"], info["rows"], info["partitions"], info["commit"]) == (4, 60, 3, 1)
    assert info["p_eff"] == pytest.approx(np.mean([one["p_eff"] for one in every]))
    noise = np.log([one["hyperparameters"]["likelihood.noise_variance"][0] for one in every])
    assert np.log(info["hyperparameters"]["likelihood.noise_variance"]) == pytest.approx(noise.mean())
    assert info["acceptance"] == np.mean([chain.acceptance for chain in load_chains(sampled.url)[1]])
    json.dumps(info)


def test_chains_that_never_moved_have_no_rhat():
    still = Chain(np.zeros((4, 2)), np.zeros(4), 0.0)
    figures = mixing([still, still])
    assert figures["acceptance"] == 0.0
    assert np.isnan(figures["rhat"])
    assert np.isnan(mixing([Chain(np.zeros((1, 2)), np.zeros(1), 0.0)])["rhat"])
    assert "have not mixed" in mixing_advice(figures)


def test_chains_are_said_to_have_mixed_where_they_have(rng):
    same = [Chain(rng.standard_normal((500, 2)), np.zeros(500), 0.9) for _ in range(2)]
    assert mixing_advice(mixing(same)).startswith("chains have mixed: R-hat is at most 1.0")
    apart = [same[0], replace(same[1], samples=same[1].samples + 3.0)]
    assert "at most 1.1, got" in mixing_advice(mixing(apart))


def test_a_directory_of_a_mixture_is_no_committee(tmp_path):
    (tmp_path / "mixture.json").write_text("[]")
    with pytest.raises(ModelNotFound, match=r"found a mixture of committees; load it with `bcmdist.Mixture.load`"):
        GBCM.load(tmp_path)


@pytest.mark.parametrize("listed", ["{", "{}", "[]", "[" * 10**5, "[[1]]", '[["0", 0, "x"]]', '[["0", true, "x"]]'])
def test_a_list_of_members_that_cannot_be_is_damage(tmp_path, listed):
    (tmp_path / "mixture.json").write_text(listed)
    with pytest.raises(ModelDamaged, match=r"mixture.json: expected .* found .*; restore the directory from a copy"):
        Mixture.load(tmp_path)


def test_a_directory_of_a_committee_is_refused(data, tmp_path):
    GBCM.fit(data, replace(SETTINGS, learn=False), model=tmp_path / "m")
    with pytest.raises(ModelExists, match=r"expected a new or empty directory.* it holds acknowledged"):
        sample_posterior(data, SETTINGS, model=tmp_path / "m", hmc=SHORT, samples=1)
    assert not (tmp_path / "m" / "prepared").exists()


def test_sampled_committees_are_at_the_samples_and_a_second_run_finds_them(data, tmp_path, monkeypatch):
    model = tmp_path / "model"
    mixture = sample_posterior(data, SETTINGS, model=model, samples=3, chains=2, hmc=SHORT)
    names, chains = load_chains(model)
    assert names[:2] == ["kernel.se.variance", "kernel.se.w[0]"]
    assert [chain.samples.shape for chain in chains] == [(20, 6), (20, 6)]
    last = mixture.members[2].info()["hyperparameters"]
    assert last["likelihood.noise_variance"] == pytest.approx([np.exp(chains[1].samples[-1, 5])])
    assert last["kernel.se.lengthscale"] == pytest.approx(np.exp(-0.5 * chains[1].samples[-1, 1:3]))
    X = np.zeros((1, 2))
    before = mixture.predict(X)
    monkeypatch.setattr(tasks, "sample", lambda *_, **__: pytest.fail("sampled again"))
    again = sample_posterior(data, SETTINGS, model=model, samples=3, chains=2, hmc=SHORT)
    for mix in (again, Mixture.load(model)):
        assert len(mix.members) == 3
        np.testing.assert_array_equal(mix.predict(X)["mean"], before["mean"])


def test_a_run_that_was_killed_is_continued(data, tmp_path, monkeypatch):
    whole = sample_posterior(data, SETTINGS, model=tmp_path / "whole", samples=3, chains=2, hmc=SHORT)
    model, inner, fitted = tmp_path / "killed", GBCM.fit, []

    def fit(*arguments, **options):
        if len(fitted) == 2:
            raise KeyboardInterrupt
        fitted.append(options["model"])
        return inner(*arguments, **options)

    monkeypatch.setattr(GBCM, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        sample_posterior(data, SETTINGS, model=model, samples=3, chains=2, hmc=SHORT)
    with pytest.raises(ModelNotFound, match=f"no {CONTENTS}.*let sampling finish"):
        Mixture.load(model)
    monkeypatch.setattr(GBCM, "fit", inner)
    second = model / "chains" / "commits" / "00000002.json"
    second.unlink()  # as if it had been killed while the second chain ran
    stamps = [Path(url, "commits", "00000002.json").stat().st_mtime_ns for url in fitted]
    resumed = sample_posterior(data, SETTINGS, model=model, samples=3, chains=2, hmc=SHORT)
    assert second.exists()
    assert [Path(url, "commits", "00000002.json").stat().st_mtime_ns for url in fitted] == stamps
    X = np.zeros((1, 2))
    np.testing.assert_array_equal(resumed.predict(X)["mean"], whole.predict(X)["mean"])


def test_a_directory_of_another_job_is_refused(data, tmp_path):
    sample_posterior(data, SETTINGS, model=tmp_path / "m", samples=1, chains=1, hmc=SHORT)
    with pytest.raises(ModelExists, match=r"expected chains of this job"):
        sample_posterior(data, SETTINGS, model=tmp_path / "m", samples=1, chains=1, hmc=HMC(30, 10, step=0.01))
    with pytest.raises(ModelNotFound):
        Mixture.load(tmp_path / "nowhere")
    moved = shutil.move(tmp_path / "m", tmp_path / "elsewhere")
    assert len(Mixture.load(moved).members) == 1


@pytest.mark.parametrize(
    ("settings", "options", "text"),
    [
        (Settings(partition="chunks"), {}, "expected a kernel by name"),
        (Settings(partition="chunks", kernel="se", learn=False), {}, "expected a kernel by name"),
        (SETTINGS, {"samples": 41}, "1 to 40 samples of 2, got 41"),
        (SETTINGS, {"chains": 0}, "at least one chain"),
    ],
)
def test_jobs_that_are_none_write_nothing(data, tmp_path, settings, options, text):
    with pytest.raises(InvalidOption, match=text):
        sample_posterior(data, settings, model=tmp_path / "m", hmc=SHORT, **options)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("likelihood", ["svm", "poisson"])
def test_likelihoods_without_gradient_or_mixture_are_refused(make_data, rng, tmp_path, likelihood):
    path = make_data("two.zarr", X=rng.uniform(-2, 2, (30, 1)), y=(rng.uniform(size=30) > 0.5) * 1.0)
    settings = Settings(partition="chunks", kernel="se", query=10, likelihood=likelihood)
    with pytest.raises(BcmdistError, match=rf"expected .*got {likelihood}"):
        sample_posterior(path, settings, model=tmp_path / "m", hmc=SHORT, samples=1)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("rows_per_expert", [60, 20])
def test_gradient_in_the_coordinates_of_the_paper(data, rows_per_expert):
    settings = Settings(
        partition="chunks",
        kernel="se+linear-iso+constant",
        mean="zero",
        learn=False,
        query=20,
        rows_per_expert=rows_per_expert,
    )
    prepared = GBCM.prepare(data, settings)
    parts = partitions(open_data(data), rows_per_expert)
    objective = default_objective(prepared, parts, SerialRuntime())
    coordinates = Coordinates(prepared.model.query.kernel, prepared.model.likelihood)
    density, phi, h = coordinates.log_density(objective), coordinates.start(1), 1e-5
    _, gradient = density(phi)
    numeric = [(density(phi + h * e)[0] - density(phi - h * e)[0]) / (2.0 * h) for e in np.eye(6)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-6)  # h^2 and rounding over h


def test_several_partitions_are_sampled_by_the_evidence_of_their_committee(data):
    settings = Settings(partition="chunks", kernel="se", learn=False, query=20, rows_per_expert=20)
    prepared, parts = GBCM.prepare(data, settings), partitions(open_data(data), 20)
    at = prepared.model.query.kernel, prepared.model.likelihood
    value, _ = default_objective(prepared, parts, SerialRuntime())(*at)
    assert len(parts) == 3
    assert value == pytest.approx(prepared.absorb(parts).committee.log_evidence, rel=1e-6)  # jitter 1e-10
    assert value != pytest.approx(local_objective(prepared, parts, SerialRuntime())(*at)[0], rel=0.01)
    one, _ = default_objective(prepared, parts[:1], SerialRuntime())(*at)
    assert one == local_objective(prepared, parts[:1], SerialRuntime())(*at)[0]


def test_long_lengthscales_are_not_ruled_out(data):
    prepared = GBCM.prepare(data, replace(SETTINGS, kernel="se", learn=False, query=40, rows_per_expert=20))
    objective = default_objective(prepared, partitions(open_data(data), 20), SerialRuntime())
    coordinates = Coordinates(prepared.model.query.kernel, prepared.model.likelihood)
    for w in (-25.0, -10.0, 10.0):
        value, _ = objective(*coordinates.at(np.array([0.0, w, w, -2.0])))
        assert np.isfinite(value), objective.reasons


def test_classes_in_several_partitions_are_sampled_on_their_own(classes):
    path, *_ = classes
    prepared = GBCM.prepare(path, Settings(partition="chunks", kernel="se", learn=False, query=20, rows_per_expert=60))
    assert isinstance(
        default_objective(prepared, partitions(open_data(path), prepared.facts["rows_per_expert"]), SerialRuntime()),
        LocalObjective,
    )


def test_chains_begin_where_the_paper_says():
    kernel = parse_kernel("se+linear-iso+constant", inputs=2)
    coordinates = Coordinates(kernel, Gaussian(np.ones(1)))
    np.testing.assert_array_equal(coordinates.start(0), [0.0, -2.0, -2.0, 0.0, 0.0, -2.0])  # v0, w, w, a1, a0, v1
    kernel, likelihood = coordinates.at(coordinates.start(0))
    assert kernel.parts[0].lengthscale == pytest.approx(np.exp([1.0, 1.0]))  # w = exp(-2)
    assert likelihood.noise_variance == pytest.approx(np.exp(-2.0))
    assert np.any(coordinates.start(1) != coordinates.start(2))
    value, _ = coordinates.log_density(lambda *_: pytest.fail("evaluated"))(np.full(6, 31.0))
    assert value == -np.inf


def test_samples_are_evenly_spaced_and_end_with_the_last():
    chains = [Chain(np.arange(a, a + 10.0)[:, None], np.zeros(10), 1.0) for a in (0, 10)]
    np.testing.assert_array_equal(thinned(chains, 4)[:, 0], [4, 9, 14, 19])
    np.testing.assert_array_equal(thinned(chains, 20)[:, 0], np.arange(20))


def test_an_objective_of_ones_own(data, tmp_path):
    """With no data the chain is one of the prior, whatever made the objective."""

    def nothing(prepared, parts, runtime):
        assert [part.rows for part in parts] == [60]
        return lambda kernel, likelihood: (0.0, np.zeros(len(kernel.theta) + 1))

    hmc = HMC(iterations=6000, burn_in=100, step=1.0)
    sample_posterior(data, SETTINGS, model=tmp_path / "m", samples=1, chains=1, hmc=hmc, objective=nothing)
    _, (chain,) = load_chains(tmp_path / "m")
    np.testing.assert_allclose(chain.samples.mean(axis=0), -3.0, atol=0.8)
    np.testing.assert_allclose(chain.samples.std(axis=0), 3.0, rtol=0.2)
    ((name, number, _),) = json.loads((tmp_path / "m" / CONTENTS).read_text())
    assert (name, number) == ("members/0000", 2)


def test_a_member_that_was_replaced_is_named(tmp_path):
    rng = np.random.default_rng(0)
    X, settings = rng.uniform(-1, 1, (40, 1)), Settings(partition="chunks", query=5, learn=False, kernel="se")
    member = GBCM.fit(X, X[:, 0], settings, model=tmp_path / "mixed" / "0")
    reference = member.snapshot.reference
    (tmp_path / "mixed" / "mixture.json").write_text(json.dumps([["0", reference.number, reference.digest]]))
    mixture = Mixture.load(tmp_path / "mixed")
    (tmp_path / "mixed" / "0").rename(tmp_path / "before")
    assert GBCM.fit(X, -X[:, 0], settings, model=tmp_path / "mixed" / "0").commit == reference.number
    with pytest.raises(ModelDamaged, match=r"expected record .* found .* load the mixture again"):
        mixture.predict(X)
