"""Rows may be stored in the order of their labels or targets: what is learned is what shuffled rows teach.

Each partition is then a slice of the targets. Learning and calibration look at random rows of all of them.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import Partition, partitions
from bcmdist.data.rows import read_all, read_rows
from bcmdist.data.slices import share_between
from bcmdist.data.writing import write_dataset
from bcmdist.errors import BcmdistWarning
from bcmdist.experts.expert import expert_message
from bcmdist.experts.message import zero_message
from bcmdist.learning import prepare as module
from bcmdist.model.targets import model_rows
from bcmdist.prediction.errors.held_out import HELD_OUT_EVERY, held_out_count, held_out_rows, without_some
from bcmdist.prediction.errors.platt_scaling import HeldOutRows, fit_calibration
from bcmdist.prediction.local.neighbours import load_neighbours

LEARNED_FROM = Settings(partition="chunks", kernel="se", query=20, rows_per_expert=200, effort="quick")


def sorted_by_target(X, y):
    order = np.argsort(y, kind="stable")
    return {"X": X[order], "y": y[order]}


@pytest.mark.slow
@pytest.mark.parametrize("rows", [150, 5000])
def test_blocks_of_learning_have_the_targets_of_all_rows(make_data, rng, monkeypatch, rows):
    """By Kolmogorov and Smirnov: of a block that is a sample, one in a thousand has a smaller p than this."""
    seen = []

    def watched(settings, blocks, *others, **named):
        seen.extend(read_all(blocks(None)))
        raise RuntimeError("seen enough")

    monkeypatch.setattr(module, "find_hyperparameters", watched)
    y = rng.standard_normal(rows)
    path = make_data(**sorted_by_target(rng.standard_normal((rows, 2)), y))
    with pytest.raises(RuntimeError, match="seen enough"):
        GBCM.prepare(path, LEARNED_FROM)
    assert sum(len(found.X) for _, found in seen) == min(rows, 2000)  # of quick effort
    assert min(stats.ks_2samp(found.obs.y, y).pvalue for _, found in seen) > 1e-3


@pytest.mark.slow
def test_any_order_of_partitions_and_either_runtime_learn_from_the_same_rows(make_data, rng, cluster):
    path = make_data(**sorted_by_target(rng.standard_normal((3000, 2)), rng.standard_normal(3000)))
    look, parts = module.Survey(0, 500, None), partitions(open_data(path), 200)
    one = SerialRuntime().sum(look, parts, label="test").sample
    for runtime, some in ((SerialRuntime(), parts[::-1]), (cluster, parts)):
        other = runtime.sum(look, some, label="test").sample
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.obs.y, other.obs.y)


# --- Held out rows ---


@pytest.mark.parametrize("start", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("counts", [(1,), (4, 4), (5, 40, 3), (100, 100, 100)])
def test_of_every_class_a_quarter_is_held_out(rng, start, counts):
    """Rounded up or down, so at least one of four rows; however the rows of the partition are stored."""
    y = rng.permutation(np.repeat(np.arange(len(counts)), counts)).astype(float)
    part = Partition(None, start, start + len(y))
    which = held_out_rows(part, y)
    assert which.sum() == held_out_count(part)
    for label, count in enumerate(counts):
        assert np.sum(which & (y == label)) in (count // HELD_OUT_EVERY, -(-count // HELD_OUT_EVERY))
    np.testing.assert_array_equal(which, held_out_rows(part, y))


def test_rows_that_are_held_out_are_spread_over_a_partition(rng):
    """Of one class, the places of the held out rows are uniform: neither first nor last ones."""
    places = np.concatenate(
        [np.flatnonzero(held_out_rows(Partition(None, s, s + 80), np.zeros(80))) for s in range(50)]
    )
    assert stats.kstest(places / 80, "uniform").pvalue > 1e-3


CLASSES = Settings(partition="chunks", task="classification", likelihood="onehot", kernel="se", learn=False, query=20)


def three_classes(rng, rows=60):
    y = np.repeat([0.0, 1.0, 2.0], rows)
    return rng.standard_normal((3 * rows, 2)) + 4.0 * np.array([[0, 0], [1, 0], [0, 1]])[y.astype(int)], y


@pytest.mark.slow
@pytest.mark.parametrize("rows_per_expert", [1, 15])
@pytest.mark.parametrize("likelihood", ["onehot", "svm"])
def test_who_predicts_held_out_rows_has_heard_the_others_only(make_data, rng, rows_per_expert, likelihood):
    """By experts of the other rows alone; a partition of one row may lose it. Messages add to rounding."""
    X, y = three_classes(rng, rows=9)
    y = y if likelihood == "onehot" else np.minimum(y, 1.0)
    path = make_data(X=X, y=y, rows_per_chunk=1)
    gbcm = GBCM.fit(path, replace(CLASSES, likelihood=likelihood, rows_per_expert=rows_per_expert))
    chosen, without = without_some(gbcm.snapshot, SerialRuntime())
    query, model_likelihood = gbcm.model.query, gbcm.model.likelihood
    total, rest = zero_message(query, model_likelihood), 0
    for part, rows in read_all(partitions(open_data(path), rows_per_expert)):
        kept = ~held_out_rows(part, rows.obs.y)
        _, obs = model_rows(gbcm.model, part, rows)
        total += expert_message(query, model_likelihood, gbcm.model.scaling.inputs(rows.X[kept]), obs[kept])
        rest += kept.sum()
    assert {part.key for part in chosen} <= {entry.key for entry in gbcm.ledger}
    assert without.total.rows == rest < len(y)
    np.testing.assert_allclose(without.total.eta, total.eta, atol=1e-9)
    np.testing.assert_allclose(without.total.precision, total.precision, atol=1e-9)


def test_too_few_rows_to_hold_one_out_leave_latents_as_they_are(make_data):
    """Of three rows, by their place in the store."""
    path = make_data(X=np.arange(3.0)[:, None], y=np.array([0.0, 1.0, 1.0]))
    gbcm = GBCM.fit(path, replace(CLASSES, query=2))
    assert held_out_count(Partition(open_data(path), 0, 3)) == 0
    assert gbcm.facts.get("calibration") is None
    np.testing.assert_allclose(gbcm.predict(np.zeros((1, 1)))["probability"].sum(), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["onehot", "svm"])
@pytest.mark.parametrize("rows_per_expert", [50, 1000])
def test_probabilities_do_not_depend_on_the_order_of_rows(make_data, rng, likelihood, rows_per_expert):
    """Held-out rows are others: log losses of shuffled rows differ by less than a third of this."""
    X, y = three_classes(rng)
    y = y if likelihood == "onehot" else np.minimum(y, 1.0)
    settings = replace(CLASSES, likelihood=likelihood, rows_per_expert=rows_per_expert)
    found = []
    for name, order in (("sorted", np.arange(len(y))), ("shuffled", rng.permutation(len(y)))):
        path = make_data(f"{name}.zarr", X=X[order], y=y[order])
        found.append(GBCM.fit(path, settings).score(path))
    assert min(figures["accuracy"] for figures in found) > 0.9
    assert abs(found[0]["log_loss"] - found[1]["log_loss"]) < 0.05


def test_a_class_without_held_out_rows_can_still_be_predicted(rng):
    """Its latent decides: of two classes with rows and one without, the third is as good as the mean of the others."""
    target = rng.integers(0, 2, 200)
    mean = np.eye(3)[target] + 0.2 * rng.standard_normal((200, 3))
    mean[:, 2] = 0.05 * rng.standard_normal(200)
    found = fit_calibration(HeldOutRows(mean, np.zeros((200, 3)), target.astype(float), np.ones(200)))
    assert found.bias[2] == pytest.approx(np.mean(found.bias[:2]))
    p = found.probability(np.array([[0.0, 0.0, 1.0]]), np.zeros((1, 3)))
    assert p[0, 2] > 0.8


def test_one_class_alone_has_no_biases():
    mean = np.column_stack([np.ones(30), np.zeros(30)])
    found = fit_calibration(HeldOutRows(mean, np.zeros((30, 2)), np.zeros(30), np.ones(30)))
    assert found.bias == (0.0, 0.0)
    assert found.probability(np.array([[0.0, 1.0]]), np.zeros((1, 2)))[0, 1] > 0.5


@pytest.mark.slow
def test_local_experts_see_any_of_the_rows_that_coincide(make_data):
    """50 rows at each of 40 places, sorted by target: where an expert sees some of them, any of them."""
    place, rank = np.divmod(np.arange(2000.0), 50)
    settings = Settings(partition="spatial", kernel="se", learn=False, query=20, rows_per_expert=500, effort="quick")
    gbcm = GBCM.fit(make_data(X=place[:, None], y=rank), settings)
    near, seen = load_neighbours(gbcm.snapshot.reference), []
    for owner in range(len(near.arrangement.bounds) - 1):
        for cell in range(*near.arrangement.tree.first[owner : owner + 2]):
            X, obs = read_rows(near.arrangement.data, near.rows.rows_of(near.rows.leaves_of(cell)[0]))
            groups = [obs.y[X[:, 0] == at] for at in np.unique(X)]
            seen += [ranks for ranks in groups if len(ranks) < 50]
    assert len(seen) > 10
    for ranks in seen:  # drawn without replacement: their mean is within four standard errors
        error = np.std(rank) * np.sqrt((50 - len(ranks)) / (49 * len(ranks)))
        assert abs(ranks.mean() - rank.mean()) < 4.0 * error


# --- Slices: experts that see hardly any other targets ---


@pytest.mark.parametrize("parts", [2, 4, 20])
def test_sorted_rows_lie_between_partitions(rng, parts):
    """Of M slices all but 1 / M^2 of the variance of ranks, whatever the scale of targets, up or down."""
    y = np.sort(rng.standard_cauchy(2000))
    starts = np.arange(parts) * (2000 // parts)
    sampled = rng.permutation(2000)[:1000]
    expected = pytest.approx(1.0 - parts**-2.0, abs=0.02)  # of 1000 rows
    assert share_between(y[sampled], sampled, starts) == expected
    assert share_between(-y[sampled], sampled, starts) == expected


@pytest.mark.parametrize("parts", [1, 2, 20, 500])
def test_shuffled_rows_do_not(rng, parts):
    """Unbiased: within four standard errors, sqrt(2 M) / n about."""
    row = np.arange(1000)
    share = share_between(rng.standard_normal(1000), row, np.arange(parts) * (1000 // parts))
    assert abs(share) <= 4.0 * np.sqrt(2.0 * parts) / (1000 - parts)


def test_where_nothing_can_be_said_nothing_lies_between():
    assert share_between(np.arange(3.0), np.arange(3), np.arange(3)) == 0.0  # a row each
    assert share_between(np.ones(9), np.arange(9), np.array([0, 5])) == 0.0
    assert share_between(np.ones(1), np.arange(1), np.array([0])) == 0.0


COUNTS = Settings(partition="chunks", task="counts", kernel="se", learn=False, query=20, rows_per_expert=20)


@pytest.fixture
def counts(make_data, rng):
    """Sorted and shuffled counts, 96 rows: fewer than tell of errors, so that only the committee is compared."""
    X = rng.uniform(-2, 2, (96, 1))
    y = rng.poisson(np.exp(1.0 + np.sin(2 * X[:, 0]))).astype(float)
    return make_data("sorted.zarr", **sorted_by_target(X, y)), make_data("shuffled.zarr", X=X, y=y)


@pytest.mark.slow
def test_sorted_counts_are_gone_over_again(counts):
    """Until the committee stops moving, as shuffled ones would be with several passes; these are absorbed once."""
    by_target, shuffled = counts
    gbcm, once = GBCM.fit(by_target, COUNTS), GBCM.fit(shuffled, COUNTS)
    assert len(once.facts["passes"]) == 1
    assert gbcm.facts["passes"][-1]["change"] <= 1e-3
    rested = once.refine()
    figures = [one.score(shuffled) for one in (gbcm, rested)]
    assert figures[0]["mnlp"] == pytest.approx(figures[1]["mnlp"], abs=0.005)  # partitions are others


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"passes": "1"}, {"linearise": "running"}])
def test_who_wants_one_pass_over_sorted_counts_is_told(counts, changes):
    with pytest.warns(BcmdistWarning, match=r"in the order of y \(9\d% of .* leave out --passes and --linearise"):
        gbcm = GBCM.fit(counts[0], replace(COUNTS, **changes))
    assert len(gbcm.facts["passes"]) == 1


@pytest.mark.slow
def test_a_fit_with_one_pass_is_the_one_that_says_nothing_of_passes(counts, tmp_path):
    """Fits that were begun when one pass was the default are continued."""
    begun = GBCM.prepare(counts[1], replace(COUNTS, passes="1"), model=tmp_path / "model")
    assert GBCM.fit(counts[1], COUNTS, model=tmp_path / "model").commit == begun.commit + 1


# --- Whole fits of sorted real data, beside shuffled ones ---


@dataclass(frozen=True)
class Sorted:
    """A data set whose rows are sorted by target, and what is compared with shuffled rows."""

    name: str
    task: str
    figures: tuple[str, ...]
    rows: int = 1000
    """to train on, at most, and to score"""

    def parts(self, path):
        """Training rows in the order of targets, and others."""
        with np.load(path) as columns:
            X, y = columns["X"].astype(float), columns["y"].astype(float)
        order = np.random.default_rng(0).permutation(len(y))
        train, test = np.sort(order[: min(self.rows, 2 * len(y) // 3)]), order[-min(self.rows, len(y) // 3) :]
        train = train[np.argsort(y[train], kind="stable")]  # wine is stored so as it is
        return (X[train], y[train]), (X[test], y[test])


NUMBERS = ("nmse", "mnlp", "coverage95")
SETS = (
    Sorted("wine", "classification", ("accuracy", "log_loss")),
    Sorted("magic", "classification", ("accuracy", "log_loss")),
    Sorted("uci_kin8nm", "regression", NUMBERS),
    Sorted("uci_power", "regression", NUMBERS),
    Sorted("doctor_visits", "counts", ("mnlp", "deviance", "coverage95"), rows=500),
)
SHUFFLES = 5
LONG = ("magic", "doctor_visits")  # only every night


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [pytest.param(one, marks=pytest.mark.nightly if one.name in LONG else ()) for one in SETS],
    ids=lambda case: case.name,
)
def test_a_fit_of_sorted_rows_is_one_of_shuffled_rows(real_data, tmp_path, case):
    """Within what a sixth shuffle would differ from five with a probability of .999, by Student's t of their figures.

    Where all shuffles agree, one row that is scored may differ.
    """
    (X, y), test = case.parts(real_data(case.name))
    write_dataset(tmp_path / "test.zarr", dict(zip("Xy", test, strict=True)))
    settings = Settings(partition="chunks", task=case.task, effort="quick", query=100, rows_per_expert=200)

    def scores(name, order):
        write_dataset(tmp_path / f"{name}.zarr", {"X": X[order], "y": y[order]}, rows_per_chunk=50)
        figures = GBCM.fit(tmp_path / f"{name}.zarr", settings).score(tmp_path / "test.zarr")
        return np.array([figures[figure] for figure in case.figures])

    found = scores("sorted", np.arange(len(y)))
    shuffles = np.array([scores(seed, np.random.default_rng(seed).permutation(len(y))) for seed in range(SHUFFLES)])
    spread = shuffles.std(axis=0, ddof=1) * np.sqrt(1.0 + 1.0 / SHUFFLES)
    allowed = np.maximum(stats.t.ppf(0.9995, SHUFFLES - 1) * spread, (1.0 + 1e-9) / len(test[1]))
    print(case.name, found, shuffles.mean(axis=0), allowed)  # shown with -s
    assert np.all(np.abs(found - shuffles.mean(axis=0)) <= allowed), (found, shuffles)
