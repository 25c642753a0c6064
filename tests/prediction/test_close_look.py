"""How far cells disagree at their borders, measured at some of them."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.prediction.local.arrange import mean_and_error

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
