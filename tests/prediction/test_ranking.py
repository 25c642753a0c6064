"""Order counts over all pairs of rows, however they are cut into partitions and added."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from bcmdist import GBCM, Settings
from bcmdist.data.writing import write_dataset
from bcmdist.prediction.scoring import ranking
from bcmdist.prediction.scoring.ranking import Comparable, comparable, ranked

ROWS = 400


def lifetimes(rows=ROWS):
    """y, event, predicted (n,) each, with ties and censored rows."""
    rng = np.random.default_rng(3)
    predicted = rng.normal(size=rows).round(2)
    y = np.exp(predicted + rng.normal(size=rows)).round(1)
    return y, (rng.uniform(size=rows) < 0.8) * 1.0, predicted


def naive_concordance(y, event, predicted):
    """Harrell (1982): pairs of which one is known to end before the other."""
    pairs = right = 0.0
    for i, j in itertools.permutations(range(len(y)), 2):
        if event[i] and y[i] < y[j]:
            pairs += 1
            right += (predicted[i] < predicted[j]) + 0.5 * (predicted[i] == predicted[j])
    return right / pairs


def cut(edges, make):
    """What `make` makes of consecutive ranges of rows, added in some order."""
    bounds = [0, *sorted(edges), ROWS]
    parts = [make(slice(a, b)) for a, b in itertools.pairwise(bounds)]
    parts = [parts[k] for k in np.random.default_rng(len(edges)).permutation(len(parts))]
    return functools.reduce(lambda a, b: a + b, parts)


EDGES = st.lists(st.integers(0, ROWS), max_size=6)


@settings(max_examples=20, deadline=None)
@given(edges=EDGES, kept=st.sampled_from([60, ROWS]))
def test_any_partitioning_orders_the_same_pairs(edges, kept):
    columns, number = lifetimes(), np.arange(ROWS)
    whole = comparable(*columns, number, most=kept).concordance(ROWS)
    assert cut(edges, lambda r: comparable(*(c[r] for c in columns), number[r], most=kept)).concordance(ROWS) == whole


def test_concordance_is_that_over_all_pairs():
    columns = lifetimes()
    one, other = (comparable(*(c[r] for c in columns), np.arange(ROWS)[r]) for r in (slice(0, 90), slice(90, ROWS)))
    found, error = (one + other).concordance(ROWS)
    assert found == pytest.approx(naive_concordance(*columns), rel=1e-14)
    assert error == 0.0


def test_a_sample_errs_as_it_says():
    """Over samples of 300 of 2000 rows, z has a standard deviation of about one."""
    columns = lifetimes(2000)
    exact, _ = comparable(*columns, np.arange(2000)).concordance(2000)
    z = []
    for start in range(0, 2000 * 100, 2000):  # other numbers are another sample
        found, error = comparable(*columns, np.arange(start, start + 2000), most=300).concordance(2000)
        z.append((found - exact) / error)
    assert abs(np.mean(z)) < 4 / np.sqrt(100)
    assert 0.7 < np.std(z) < 1.3  # +- 4 standard errors of a standard deviation of 100


def test_what_is_kept_is_bounded():
    columns, number = lifetimes(), np.arange(ROWS)
    halves = [comparable(*(c[r] for c in columns), number[r], most=50) for r in (slice(0, 200), slice(200, ROWS))]
    assert [len(half.priority) for half in (*halves, halves[0] + halves[1])] == [50, 50, 50]


def test_nothing_comparable_has_no_concordance():
    nothing = comparable(*np.zeros((3, 4)), np.arange(4))
    assert np.isnan(nothing.concordance(4)[0])
    empty = comparable(*np.zeros((3, 0)), np.arange(0))
    assert isinstance(empty + nothing, Comparable)
    assert len((empty + nothing).priority) == 4


def three_classes():
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.ones(3), ROWS).round(2) + 0.01
    p /= p.sum(axis=1, keepdims=True)
    return p, np.array([rng.choice(3, p=row) for row in p])


@settings(max_examples=20, deadline=None)
@given(edges=EDGES, kept=st.sampled_from([60, ROWS]))
def test_any_partitioning_ranks_the_same_classes(edges, kept):
    p, y = three_classes()
    whole = ranked(p, y, most=kept).area_under_curve()
    parted = cut(edges, lambda r: ranked(p[r], y[r], most=kept)).area_under_curve()
    assert parted == pytest.approx(whole, rel=1e-14)  # sums of whole numbers, divided once


@pytest.mark.parametrize("classes", [2, 3])
def test_the_area_under_the_curve_is_exact_with_few_rows_and_bounded_with_many(classes):
    p, y = three_classes()
    if classes == 2:
        p, y = np.column_stack([1.0 - p[:, 0], p[:, 0]]), (y == 0) * 1
    exact = metrics.roc_auc_score(y, p[:, 1] if classes == 2 else p, multi_class="ovr")
    few, many = ranked(p, y).area_under_curve(), ranked(p, y, most=50).area_under_curve()
    assert few == (pytest.approx(exact, rel=1e-13), 0.0)
    assert 0.0 < many[1] < 0.02
    assert abs(many[0] - exact) <= many[1]


def test_odds_that_bins_cannot_tell_apart_are_ranked():
    """Log odds 0.0001 apart, all in one bin or two."""
    odds = 1e-4 * np.arange(10)
    p = 1.0 / (1.0 + np.exp(-odds))
    few = ranked(np.column_stack([1 - p, p]), (odds > 4.5e-4) * 1)
    assert few.area_under_curve() == (1.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["counts", "classes"])
def test_a_score_does_not_depend_on_the_chunks_of_the_test_set(tmp_path, rng, monkeypatch, kind):
    X = rng.uniform(-2, 2, (300, 1))
    rate = np.exp(1.0 + np.sin(2 * X[:, 0]))
    y = rng.poisson(rate) * 1.0 if kind == "counts" else (rng.uniform(size=300) < rate / 8) * 1.0
    write_dataset(tmp_path / "train.zarr", {"X": X, "y": y}, rows_per_chunk=100)
    for rows in (40, 90, 300):
        write_dataset(tmp_path / f"{rows}.zarr", {"X": X, "y": y}, rows_per_chunk=rows)
    task = "counts" if kind == "counts" else "classification"
    likelihood = "poisson" if kind == "counts" else None
    given = Settings(kernel="se", learn=False, query=8, rows_per_expert=100, task=task, likelihood=likelihood)
    gbcm = GBCM.fit(tmp_path / "train.zarr", given)
    name = "concordance" if kind == "counts" else "auc"
    for kept in (ranking.KEPT_ROWS, 50):
        monkeypatch.setattr(ranking, "KEPT_ROWS", kept)
        scores = [gbcm.score(tmp_path / f"{rows}.zarr") for rows in (40, 90, 300)]
        assert (f"{name}_error" in scores[0]) == (kept == 50)
        for score in scores:
            for figure, value in scores[0].items():
                np.testing.assert_allclose(score[figure], value, rtol=1e-9)
