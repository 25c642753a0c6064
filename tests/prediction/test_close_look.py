"""How far cells disagree at their borders, measured at some of them."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.prediction.local.arrange import mean_and_error
from bcmdist.prediction.local.neighbours import Neighbours, load_neighbours

GIVEN = {"learn": False, "kernel": "se", "query": 10, "rows_per_expert": 100, "partition": "spatial"}


def test_mean_and_error_follow_from_moments(rng):
    x = rng.standard_normal(50)
    moments = sum(np.array([len(a), a.sum(), (a**2).sum()]) for a in (x[:20], x[20:]))
    assert mean_and_error(moments) == pytest.approx((x.mean(), x.std(ddof=1) / np.sqrt(50)))
    assert mean_and_error(np.zeros(3)) == (0.0, None)


@pytest.mark.slow
def test_cells_agree_where_all_see_the_same_rows(rng, make_data, monkeypatch):
    X = rng.uniform(-2, 2, (400, 2))
    path = make_data(X=X, y=np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(400))
    seeing_all = GBCM.fit(path, Settings(**GIVEN)).snapshot.facts.cells
    assert seeing_all.border_jump < 1e-6
    for name, rows in {"LEAST_NEARBY": 30, "NEARBY_PER_INPUT": 0, "CORE": 20}.items():
        monkeypatch.setattr(f"bcmdist.prediction.local.halos.{name}", rows)
    seeing_few = GBCM.fit(path, Settings(**GIVEN)).snapshot.facts.cells
    assert seeing_few.border_jump > 0.01
    assert 0.0 < seeing_few.border_jump_error < seeing_few.border_jump


def test_rows_of_the_fit_are_predicted_once(rng, make_data, monkeypatch):
    """Rows in cells of the fit, as `latent` predicts them; 1e-12: the order of rows in sums may differ."""
    X = rng.uniform(-2, 2, (240, 2))
    path = make_data(X=X, y=np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(240))
    gbcm = GBCM.fit(path, Settings(**GIVEN))
    near = load_neighbours(gbcm.snapshot.reference)
    edges = near.arrangement.edges
    numbers = np.concatenate([np.arange(*edges[cell : cell + 2]) for cell in (0, len(edges) - 2)])
    X = near.rows.read(numbers)[0]
    found = near.latent_of_fit(numbers, X)
    np.testing.assert_allclose(found, near.latent(X), rtol=1e-12, atol=1e-12)
    monkeypatch.delattr(Neighbours, "latent")
    np.testing.assert_array_equal(near.latent_of_fit(numbers, X), found)
