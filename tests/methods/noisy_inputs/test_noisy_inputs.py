"""Noisy inputs: the posterior of true inputs, its maximum and draws, moment matching, and fits that account for it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from bcmdist import GBCM, Settings, sample_posterior
from bcmdist.api.plan.plan import plan
from bcmdist.committee.absorbed import absorbed_partitions
from bcmdist.committee.loading import sound_facts
from bcmdist.data.dataset import open_data
from bcmdist.data.groups import open_group
from bcmdist.data.observations import unweighted
from bcmdist.data.writing import write_dataset
from bcmdist.errors import InvalidData, InvalidOption, ModelDamaged
from bcmdist.experts.message import Message
from bcmdist.learning.first_commit import _job
from bcmdist.learning.point import Point
from bcmdist.methods.noisy_inputs.evidence import InputSteps, kept_rows, left_out_density
from bcmdist.methods.noisy_inputs.expert import NormalErrors, load_draws, matched
from bcmdist.methods.noisy_inputs.hmc import log_evidence, sampled
from bcmdist.methods.noisy_inputs.posterior import NoisyRows, Process, log_density, maximized, temperatures
from bcmdist.methods.noisy_inputs.training import AlternatingLearner, Estimate, learn_inputs
from bcmdist.model.likelihoods import make_likelihood
from bcmdist.model.loading import sound_model
from bcmdist.model.mean import Mean
from bcmdist.runtime.interface import SerialRuntime
from bcmdist.storage.commits import BlobReference
from problems import assert_same_committee, make_kernel, regression_problem

CLEAN = Settings(partition="chunks", noisy_inputs="clean", rows_per_expert=50, query=30, effort="quick")
GIVEN = {"kernel.variance": 1.5, "kernel.lengthscale": 0.4, "likelihood.noise_variance": 0.02}
KNOWN = replace(CLEAN, learn=False, set=GIVEN, kernel="se")
DRAWN = replace(KNOWN, noisy_inputs="hmc")


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """As workers have: where rounding differs, what is found does too, within what searches and chains leave open."""
    with threadpool_limits(1, user_api="blas"):
        yield


def process_of(kernel="se", *, mean="constant", noise=0.04, inputs=2):
    likelihood = make_likelihood("gaussian").with_parameters({"noise_variance": np.array([noise])})
    return Process(make_kernel(kernel, inputs), Mean(mean), likelihood)


def noisy_rows(rng, rows=12, inputs=2):
    """Rows with errors that are correlated, and differ from row to row."""
    p = regression_problem(rng, rows=rows, inputs=inputs)
    return NoisyRows(
        p.X, 0.3 * rng.standard_normal((rows, inputs, inputs)), replace(p.obs, weight=rng.uniform(0.5, 2, rows))
    )


def of_one_number():
    """Process, one row beside one whose input is known, and log densities of its input (1201,) on a grid."""
    process = process_of(mean="zero", inputs=1, noise=0.05)
    noisy = NoisyRows(np.array([[0.0], [0.8]]), np.array([[[0.0]], [[1.0]]]), unweighted(np.array([1.0, 0.7])))
    grid = np.linspace(-6, 6, 1201)
    log_p = np.array([log_density(process, noisy, np.array([[0.0], [z]]))[0] for z in grid])
    return process, noisy, grid, log_p


# --- Densities ---


@pytest.mark.parametrize("kernel", ["se", "matern52", "linear + se", "se*matern32", "arcsine"])
@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
def test_the_gradient_in_steps_agrees_with_differences(rng, kernel, mean):
    process, noisy = process_of(kernel, mean=mean), noisy_rows(rng)
    steps, move, h = rng.standard_normal((12, 2)), rng.standard_normal((12, 2)), 1e-5
    _, gradient = log_density(process, noisy, steps)
    above, below = (log_density(process, noisy, steps + sign * h * move)[0] for sign in (1, -1))
    # Central differences err by h^2 times a third derivative, and by rounding of values of about 1e2 over h.
    assert np.vdot(gradient, move) == pytest.approx((above - below) / (2 * h), rel=1e-6, abs=1e-6)


def test_the_density_is_the_evidence_times_the_prior(rng):
    process, noisy, steps = process_of(mean="zero"), noisy_rows(rng), rng.standard_normal((12, 2))
    X = np.array([u + R @ z for u, R, z in zip(noisy.inputs, noisy.root, steps, strict=True)])
    K = process.kernel.cross(X, X) + np.diag(0.04 / noisy.obs.weight)
    fit = noisy.obs.y @ np.linalg.solve(K, noisy.obs.y) + np.linalg.slogdet(K)[1] + 12 * np.log(2 * np.pi)
    expected = -0.5 * (fit + (steps**2).sum())
    assert log_density(process, noisy, steps)[0] == pytest.approx(expected, abs=1e-9)  # rounding of sums of about 1e2


# --- Cleaning and drawing ---


def test_temperatures_go_down_to_one():
    assert list(temperatures(3.0)) == [3.0, 1.5, 1.0]
    assert list(temperatures(0.3)) == [1.0]


def test_a_search_ends_where_the_density_is_level_and_higher(rng):
    process, noisy = process_of(), noisy_rows(rng)
    start = np.zeros((12, 2))
    found = maximized(process, noisy, start, 500)
    value, gradient = log_density(process, noisy, found)
    assert value > log_density(process, noisy, start)[0] + 0.1
    assert np.abs(gradient).max() < 1e-2  # L-BFGS ends where it gains less than 1e-9 of the value


def test_inputs_without_errors_stay(rng):
    noisy = noisy_rows(rng)
    exact = replace(noisy, root=np.zeros_like(noisy.root))
    found = maximized(process_of(), exact, np.zeros((12, 2)), 50)
    np.testing.assert_array_equal(exact.at(found), noisy.inputs)


@pytest.mark.slow
def test_draws_of_a_row_without_a_say_are_its_prior(rng):
    """Where targets are noise, inputs are N(u, R R'); where they are not, draws have the density's own mean."""
    noisy = noisy_rows(rng, rows=2)
    found = sampled(process_of(noise=1e6), noisy, np.zeros((2, 2)), count=200, burn_in=50, seed=3).steps
    # 200 draws, nearly independent: four standard errors of 1 / sqrt(200) = .07, and of .05 for deviations.
    assert np.abs(found.mean(axis=0)).max() < 0.28
    np.testing.assert_allclose(found.std(axis=0), 1.0, atol=0.2)


@pytest.mark.slow
def test_draws_have_the_moments_of_a_grid():
    """Of one row beside one whose input is known: a density of one number, integrated on a grid."""
    process, noisy, grid, log_p = of_one_number()
    p = np.exp(log_p - log_p.max())
    mean = (p @ grid) / p.sum()
    deviation = np.sqrt(p @ (grid - mean) ** 2 / p.sum())
    found = sampled(process, noisy, np.zeros((2, 1)), count=400, burn_in=100, seed=1)
    assert 0.6 < found.acceptance < 0.99
    # Four standard errors of 400 nearly independent draws: .2 deviations for their mean, .14 for their deviation.
    assert found.steps[:, 1, 0].mean() == pytest.approx(mean, abs=0.2 * deviation)
    assert found.steps[:, 1, 0].std() == pytest.approx(deviation, rel=0.14)


@pytest.mark.slow
def test_the_evidence_is_averaged_over_inputs():
    """Of one row beside one whose input is known: against an integral on a grid; 20 seeds, four standard errors."""
    process, noisy, grid, log_p = of_one_number()
    expected = np.log(np.exp(log_p).sum() * (grid[1] - grid[0]) / np.sqrt(2 * np.pi))
    found = np.array([log_evidence(process, noisy, seed=k) for k in range(20)])
    assert found.std() < 0.5
    assert found.mean() == pytest.approx(expected, abs=4 * found.std() / np.sqrt(20) + 0.02)  # the log of a mean is low


def test_the_evidence_of_known_inputs_is_that_of_their_rows(rng):
    process, noisy = process_of(), noisy_rows(rng)
    exact = replace(noisy, root=np.zeros_like(noisy.root))
    expected = log_density(process, exact, np.zeros((12, 2)))[0]
    assert log_evidence(process, exact, seed=1) == pytest.approx(expected, abs=1e-9)  # powers add up to one


def test_rows_left_out_are_predicted_by_the_others_at_their_inputs(rng):
    """Of inputs without errors: the density of a Gaussian process given the kept rows."""
    process, noisy = process_of(mean="zero"), noisy_rows(rng)
    exact, kept = replace(noisy, root=np.zeros_like(noisy.root)), kept_rows(12)
    K = process.kernel.cross(noisy.inputs, noisy.inputs)
    noise = 0.04 / noisy.obs.weight
    A = np.linalg.solve(K[np.ix_(kept, kept)] + np.diag(noise[kept]), K[np.ix_(kept, ~kept)])
    mean = A.T @ noisy.obs.y[kept]
    variance = (K[np.ix_(~kept, ~kept)] - A.T @ K[np.ix_(kept, ~kept)]).diagonal() + noise[~kept]
    expected = -0.5 * ((noisy.obs.y[~kept] - mean) ** 2 / variance + np.log(2 * np.pi * variance)).sum()
    assert (~kept).sum() == 2
    assert left_out_density(process, exact, np.zeros((12, 2)), 0) == pytest.approx(expected, abs=1e-10)


# --- Messages of several versions ---


def a_message(rng, size=4, rows=7):
    W = rng.standard_normal((3, size))
    return Message(rng.standard_normal(size), W.T @ W, float(rng.standard_normal()), rows)


def test_one_version_says_its_message(rng):
    message = a_message(rng)
    assert matched([message]) is message


def test_equal_versions_say_the_message_of_one(rng):
    message = a_message(rng)
    found = matched([message] * 3)
    for name in ("eta", "precision", "evidence", "rows"):  # matrices are inverted on the way: 1e-12 of numbers near 10
        np.testing.assert_allclose(getattr(found, name), getattr(message, name), atol=1e-10)


def test_the_message_gives_the_moments_of_the_mixture(rng):
    messages = [a_message(rng) for _ in range(5)]
    messages = [replace(one, eta=0.2 * one.eta, precision=one.precision + np.eye(4)) for one in messages]
    found = matched(messages)
    each = [(np.linalg.solve(np.eye(4) + m.precision, m.eta), np.linalg.inv(np.eye(4) + m.precision)) for m in messages]
    mean = np.mean([m for m, _ in each], axis=0)
    covariance = np.mean([C + np.outer(m, m) for m, C in each], axis=0) - np.outer(mean, mean)
    assert np.linalg.eigvalsh(covariance).max() < 1  # nothing is cut
    np.testing.assert_allclose(np.linalg.inv(np.eye(4) + found.precision), covariance, atol=1e-12)
    np.testing.assert_allclose(covariance @ found.eta, mean, atol=1e-12)


def test_versions_that_disagree_say_nothing_of_where_they_do(rng):
    message = a_message(rng)
    other = replace(message, eta=message.eta + 50.0)
    found = matched([message, other])
    assert np.linalg.eigvalsh(found.precision).min() >= -1e-10
    gap = np.linalg.solve(np.eye(4) + message.precision, other.eta - message.eta)
    assert abs(gap @ found.precision @ gap) / (gap @ gap) < 1e-2 * np.abs(message.precision).max()


# --- Fits ---


def write_sinc(folder, name="data.zarr", *, rows=200, variance=0.6, seed=1, stored=True):
    """sin(x) / x in rows whose inputs were seen with errors; its path."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-10, 10, rows)
    y = np.sinc(x / np.pi) + 0.05 * rng.standard_normal(rows)
    columns = {"X": (x + np.sqrt(variance) * rng.standard_normal(rows))[:, None], "y": y}
    columns |= {"X_variance": np.full((rows, 1), variance)} if stored else {}
    write_dataset(str(folder / name), columns, rows_per_chunk=50)
    return str(folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("noisy")


@pytest.fixture(scope="module")
def noisy(folder):
    return write_sinc(folder)


@pytest.fixture(scope="module")
def cleaned(noisy, folder):
    return GBCM.fit(noisy, KNOWN, model=folder / "cleaned")


def test_as_errors_vanish_the_fit_is_the_plain_one(folder):
    exact, tiny = write_sinc(folder, "exact.zarr", variance=0.0), write_sinc(folder, "tiny.zarr", variance=1e-10)
    plain = GBCM.fit(exact, replace(KNOWN, noisy_inputs="no", noise="constant"))
    assert_same_committee(plain.committee, GBCM.fit(exact, KNOWN).committee)
    grid = np.linspace(-10, 10, 50)[:, None]
    near = GBCM.fit(tiny, KNOWN).predict(grid)["mean"]
    # Inputs move by at most some 1e-5 standard deviations; targets are of size 1, and vary within .5.
    np.testing.assert_allclose(near, plain.predict(grid)["mean"], atol=1e-4)


def test_a_partition_keeps_its_inputs_and_repeats_its_message(cleaned, noisy, folder):
    entry = cleaned.snapshot.ledger[0]
    versions = load_draws(BlobReference(cleaned.url, entry.state), 50, 1)
    assert versions.std(axis=0).min() > 0.0
    moved = np.abs(cleaned.model.scaling.original_inputs(versions[0]) - np.asarray(open_group(noisy)["X"])[:50])
    assert 0.1 < moved.mean() < 1.0
    part = next(part for part in absorbed_partitions(cleaned.snapshot) if part.key == entry.key)
    again = cleaned.snapshot.compute_messages([part], SerialRuntime(), label="again")
    assert again.entries[entry.key].state == entry.state


@pytest.mark.nightly
@pytest.mark.slow
def test_bands_of_a_cleaned_fit_hold_the_function(folder):
    """Of .95 as often as not much less than that, and with a density no lower than without cleaning."""
    grid, held, gains = np.linspace(-9.5, 9.5, 200), [], []
    for seed in range(410, 414):
        path = write_sinc(folder, f"bands-{seed}.zarr", seed=seed)
        densities = []
        for way in ("no", "clean"):
            asked = replace(CLEAN, noisy_inputs=way, kernel="se", rows_per_expert=200, query=50, seed=seed)
            found = GBCM.fit(path, asked).predict(grid[:, None])
            error, variance = np.sinc(grid / np.pi) - found["mean"], found["variance"]
            densities.append(np.mean(-0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)))
        held.append(np.mean(np.abs(error) <= 1.96 * np.sqrt(variance)))
        gains.append(densities[1] - densities[0])
    assert np.mean(held) >= 0.85
    assert np.mean(gains) >= 0.0


@pytest.mark.slow
@pytest.mark.parametrize("way", ["clean", "hmc"])
def test_forgetting_what_was_ingested_gives_the_model_of_before(way, noisy, folder):
    gbcm = GBCM.fit(noisy, replace(KNOWN, noisy_inputs=way), model=folder / f"forgets-{way}")
    before = gbcm.predict(np.zeros((1, 1)))
    more = write_sinc(folder, f"more-{way}.zarr", rows=50, seed=4)
    known = {entry.key for entry in gbcm.snapshot.ledger}
    gbcm = gbcm.partial_fit(more)
    assert gbcm.info()["rows"] == 250
    gbcm = gbcm.forget([entry.key for entry in gbcm.snapshot.ledger if entry.key not in known])
    # What was added is subtracted: rounding of sums of about 1e3.
    np.testing.assert_allclose(gbcm.predict(np.zeros((1, 1)))["mean"], before["mean"], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [KNOWN, DRAWN], ids=["clean", "hmc"])
def test_the_cluster_says_the_same(noisy, cluster, asked):
    assert_same_committee(GBCM.fit(noisy, asked).committee, GBCM.fit(noisy, asked, runtime=cluster).committee)


@pytest.mark.slow
@pytest.mark.parametrize("way", [pytest.param("clean", marks=pytest.mark.nightly), "hmc"])
def test_learning_on_a_cluster_is_learning_in_one_process(way, folder, cluster, monkeypatch):
    """Through rounds of moved inputs or draws, of more partitions than two, whose sums depend on their order."""
    monkeypatch.setattr("bcmdist.methods.noisy_inputs.training.ROUNDS", {"quick": 3})
    monkeypatch.setattr("bcmdist.methods.noisy_inputs.training.LEVELS", 3)
    data = write_sinc(folder, f"same-{way}.zarr", rows=120)
    effort = {"clean": "normal", "hmc": "quick"}[way]  # several beginnings, or one
    asked = replace(CLEAN, noisy_inputs=way, kernel="se", rows_per_expert=25, query=20, effort=effort)
    one, other = GBCM.fit(data, asked), GBCM.fit(data, asked, runtime=cluster)
    assert len(one.ledger) > 2
    for name, value in one.info()["hyperparameters"].items():
        np.testing.assert_allclose(other.info()["hyperparameters"][name], value, rtol=1e-10)
    assert_same_committee(one.committee, other.committee)


@pytest.mark.slow
def test_rows_in_memory_bring_their_errors(noisy, cleaned):
    group = open_group(noisy)
    X, y, variance = (np.asarray(group[name]) for name in ("X", "y", "X_variance"))
    beside = {"X_variance": variance}
    found = GBCM.fit(X, y, KNOWN, companions=beside)
    assert_same_committee(found.committee, cleaned.committee)
    array, dask = pytest.importorskip("dask.array"), pytest.importorskip("dask")
    lazy = [array.from_array(values, chunks=(60, *values.shape[1:])) for values in (X, y)]
    beside = {"X_variance": array.from_array(variance, chunks=(100, 1))}
    with dask.config.set(scheduler="synchronous"):  # whose threads would outlive it
        found = GBCM.fit(*lazy, KNOWN, companions=beside)
    assert found.info()["input_errors"]["way"] == "clean"
    covariances = variance[:, :, None]
    assert_same_committee(
        GBCM.fit(X, y, KNOWN, companions={"X_variance": covariances}).committee, cleaned.committee, 1e-8
    )
    with pytest.raises(InvalidOption, match="expected companions among"):
        GBCM.fit(X, y, KNOWN, companions={"X_deviation": variance})


class Killed(BaseException):
    """As by a signal."""


@pytest.mark.parametrize("way", ["clean", pytest.param("hmc", marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_a_killed_learning_goes_on_with_the_next_round(way, folder, monkeypatch):
    few = write_sinc(folder, f"few-{way}.zarr", rows=60)
    asked = replace(CLEAN, noisy_inputs=way, kernel="se", rows_per_expert=30)
    name = {"clean": "at_level", "hmc": "sampled"}[way]
    turn, made, most = getattr(AlternatingLearner, name), [], 10_000

    def counted(self, *arguments):
        if len(made) == most:
            raise Killed
        made.append(1)
        return turn(self, *arguments)

    whole = GBCM.fit(few, asked)
    monkeypatch.setattr(AlternatingLearner, name, counted)
    most = 2
    with pytest.raises(Killed):
        GBCM.fit(few, asked, model=folder / f"killed-{way}")
    most = 10_000
    again = GBCM.fit(few, asked, model=folder / f"killed-{way}")
    info = whole.info()["input_errors"]
    assert len(made) == (info["rounds"] if way == "hmc" else len(info["densities"]))  # none twice
    assert_same_committee(whole.committee, again.committee)


@pytest.mark.nightly
@pytest.mark.slow
def test_learning_with_errors_predicts_the_function_better(noisy):
    """Nats a row of sin(x) / x itself."""
    plain, clean, drawn_from = (
        GBCM.fit(
            noisy,
            Settings(partition="chunks", noisy_inputs=way, rows_per_expert=100, query=30, effort="quick", kernel="se"),
        )
        for way in ("no", "clean", "hmc")
    )
    grid = np.linspace(-10, 10, 300)[:, None]

    def rmse_and_loss(gbcm):
        said, truth = gbcm.predict(grid), np.sinc(grid[:, 0] / np.pi)
        error, variance = said["mean"] - truth, said["observation_variance"]
        return np.sqrt((error**2).mean()), (0.5 * np.log(2 * np.pi * variance) + 0.5 * error**2 / variance).mean()

    (rmse, loss), (rmse_clean, loss_clean), (rmse_drawn, loss_drawn) = map(rmse_and_loss, (plain, clean, drawn_from))
    # Of five sets of data: errors .52 to .68 of the plain ones after cleaning and .21 to .95 by draws; .35 to .94 nats
    # gained, and .79 to 1.03.
    assert rmse_clean < 0.8 * rmse
    assert rmse_drawn < rmse
    assert loss_clean < loss - 0.3
    assert loss_drawn < loss - 0.6


# --- What is refused ---


def test_data_that_do_not_say_how_far_off_they_are_are_refused(folder, cleaned):
    silent = write_sinc(folder, "silent.zarr", stored=False)
    with pytest.raises(InvalidData, match="expected an array X_variance with the error variance"):
        GBCM.fit(silent, CLEAN, model=folder / "silent")
    assert not (folder / "silent").exists()
    with pytest.raises(InvalidData, match="expected an array X_variance"):
        cleaned.partial_fit(silent)
    assert cleaned.score(silent)["rows"] == 200  # which is predicted as it is


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"expert": "fitc"}, "noisy_inputs: expected the expert bcm with it, got fitc"),
        ({"approximation": "ep"}, "approximation: expected laplace"),
        ({"linearise": "running"}, "linearise: expected own"),
        ({"precision": "mixed"}, "precision: expected double"),
        ({"noise": "varying"}, "noise: expected auto"),
        ({"objective": "committee"}, "objective: expected local, leave-one-out or subset"),
        ({"likelihood": "onehot"}, "likelihood: expected one latent process"),
        ({"noisy_inputs": "washed"}, "noisy_inputs: expected one of"),
    ],
)
def test_what_does_not_go_together_is_refused(other, expected):
    with pytest.raises(InvalidOption, match=expected):
        replace(Settings(partition="chunks", noisy_inputs="clean"), **other)


def test_a_chain_of_another_shape_is_damage(cleaned):
    digest = cleaned.snapshot.store.put_arrays({"": np.zeros((1, 7, 1))})[""]
    with pytest.raises(ModelDamaged, match="inputs"):
        load_draws(BlobReference(cleaned.url, digest), 50, 1)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"way": "washed"}, "input_errors of a method that is known here"),
        ({"way": ["clean"]}, "input_errors of a method that is known here"),
        ({"highest": 0.0}, "input_errors: expected a number > 0.0 as highest"),
        ({"variance": [0.1, 0.2]}, "expected 1 variances of input_errors"),
        ({"seed": -1}, "input_errors: expected a whole number >= 0 as seed"),
    ],
)
def test_a_stored_part_that_cannot_be_is_damage(cleaned, changed, expected):
    arrays, facts = cleaned.model.to_arrays()
    facts = json.loads(json.dumps(facts))
    assert sound_model(arrays, facts, "here").input_errors == cleaned.model.input_errors
    with pytest.raises(ModelDamaged, match=expected):
        sound_model(arrays, facts | {"input_errors": facts["input_errors"] | changed}, "here")


@pytest.mark.parametrize("changed", [{"rows": 0}, {"noise_seen": "loud"}, {"rounds": 0}, {"densities": [True]}])
def test_facts_that_cannot_be_are_damage(cleaned, changed):
    facts = cleaned.snapshot.facts.to_json() | {"input_errors": {"rows": 200, "noise_seen": 0.1}}
    sound_facts(facts, cleaned.model, "here")
    (name,) = changed
    with pytest.raises(ModelDamaged, match=f"here: expected .* as input_errors.{name}"):
        sound_facts(facts | {"input_errors": facts["input_errors"] | changed}, cleaned.model, "here")


def test_fits_of_before_are_the_same_job(cleaned):
    data = open_data(cleaned.facts["data"])
    settings = Settings(partition="chunks")
    assert _job(data, settings) == _job(data, replace(settings, noisy_inputs="no"))
    assert _job(data, settings) != _job(data, replace(settings, noisy_inputs="clean"))


def test_info_says_what_experts_know_of_errors(cleaned):
    errors = cleaned.info()["input_errors"]
    assert (errors["way"], errors["deviations"]) == ("clean", None)
    again = GBCM.load(cleaned.url)
    assert again.model.input_errors == cleaned.model.input_errors


def test_what_reads_rows_where_they_are_stored_is_refused(cleaned, noisy, folder):
    for ask in (cleaned.effective_parameters, cleaned.evidence_gradient, cleaned.calibration):
        with pytest.raises(InvalidOption, match="expected a model of exact inputs"):
            ask()
    with pytest.raises(InvalidOption, match="--plan: expected inputs as they were seen"):
        plan(noisy, CLEAN)
    with pytest.raises(InvalidOption, match="hmc: expected inputs as they were seen"):
        sample_posterior(noisy, replace(CLEAN, kernel="se"), model=folder / "sampled")
    assert not (folder / "sampled").exists()


def begun_roughly(start, *arguments):
    """Learning that begins at a lengthscale that is far too short."""
    parameters = start.kernel.parameters | {"lengthscale": np.array([0.05])}
    return learn_inputs(replace(start, kernel=start.kernel.with_parameters(parameters)), *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["clean", "hmc"])
def test_it_begins_smoothly_too_and_the_best_end_counts(way, folder, monkeypatch):
    """Where inputs as they were seen are fitted by a rough function."""
    few = write_sinc(folder, f"rough-{way}.zarr", rows=40, variance=1.0, seed=2)
    begun, scores = [], iter([-3.0, -1.0, -2.0])
    smoother = AlternatingLearner.smoother

    def noted(learner, at, shortest):
        begun.append((at, smoother(learner, at, shortest)))
        return begun[-1][1]

    monkeypatch.setattr(AlternatingLearner, "smoother", noted)
    monkeypatch.setattr("bcmdist.methods.noisy_inputs.training._score", lambda *_: next(scores))
    monkeypatch.setattr("bcmdist.methods.noisy_inputs.training.ROUNDS", {"normal": 2})
    monkeypatch.setattr("bcmdist.methods.noisy_inputs.training.LEVELS", 2)
    monkeypatch.setattr("bcmdist.methods.noisy_inputs.method.learn_inputs", begun_roughly)
    asked = replace(CLEAN, noisy_inputs=way, kernel="se", rows_per_expert=40, effort="normal")
    info = GBCM.fit(few, asked).info()
    assert info["input_errors"]["beginnings"] == [-3.0, -1.0, -2.0]
    for (at, smooth), shortest in zip(begun, (0.5, 1.0), strict=True):
        assert at.point.kernel.parameters["lengthscale"] == [0.05]
        assert smooth.point.kernel.parameters["lengthscale"] == [shortest]
        assert smooth.point.fixed == ()
        # What a smooth function does not explain is noise.
        assert smooth.errors.highest == smooth.point.likelihood.parameters["noise_variance"][0] > at.errors.highest


@pytest.mark.slow
def test_the_errors_of_inputs_are_learned_where_nobody_tells_them(folder):
    silent = write_sinc(folder, "untold.zarr", rows=160, stored=False)
    asked = Settings(partition="chunks", noisy_inputs="hmc", rows_per_expert=80, query=30, kernel="se", effort="quick")
    gbcm = GBCM.fit(silent, asked, model=folder / "untold")
    (deviation,) = gbcm.info()["input_errors"]["deviations"]
    # It is .77; half of ten rounds of ten draws of 160 rows leave it uncertain by more than 10 %.
    assert 0.5 < deviation < 1.1
    again = GBCM.load(gbcm.url)
    assert again.model.input_errors == gbcm.model.input_errors
    assert again.partial_fit(write_sinc(folder, "untold2.zarr", rows=50, seed=9, stored=False)).info()["rows"] == 210


def test_learned_errors_are_the_mean_squares_of_draws(rng):
    likelihood, kernel = process_of().likelihood, make_kernel("se")
    steps = {"a": rng.standard_normal((3, 5, 2)), "b": rng.standard_normal((3, 7, 2))}
    errors = NormalErrors("hmc", 0.1, (0.04, 0.25))
    found = Estimate(Point("se", kernel, likelihood, 0.0), InputSteps(steps), errors).with_fitting_errors()
    each = np.concatenate([one.reshape(-1, 2) for one in steps.values()]) * [0.2, 0.5]
    np.testing.assert_allclose(found.errors.variance, (each**2).mean(axis=0), rtol=1e-12)
    for key, one in steps.items():  # inputs stay
        np.testing.assert_allclose(found.steps.by_key[key] * np.sqrt(found.errors.variance), one * [0.2, 0.5])
