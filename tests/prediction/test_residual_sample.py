"""How many rows are left out to measure errors: a few of many cells, all of them where there are few cells."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.data.rows import read_all
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.prediction.measuring.left_out_errors import LeaveOut
from bcmdist.prediction.measuring.measurement import (
    FEWEST,
    LOCAL_ROWS,
    NUMBERS,
    ROWS_PER_CELL,
    fitted_partitions,
    residual_sample,
)

SETTINGS = Settings(
    partition="spatial",
    effort="quick",
    kernel="se",
    learn=False,
    set={"kernel.lengthscale": 0.6, "likelihood.noise_variance": 0.05},
    query=40,
    rows_per_expert=200,
)


@pytest.mark.parametrize("inputs", [2, 8, 60])
@pytest.mark.parametrize("parts", [1, 7, 40, 1000])
@pytest.mark.parametrize("rows", [50, 700, 5000, 40_000, 10**7])
@pytest.mark.parametrize("core", [20, 80, 100])
def test_residuals_are_as_many_as_wanted_from_many_cells(rows, parts, inputs, core):
    parts = min(parts, max(1, rows // core))
    sample = residual_sample(parts, rows, inputs, core)
    cells, each = sample.partitions * sample.count, min(core, sample.rows_per_cell)
    most = max(FEWEST, min(LOCAL_ROWS[1], NUMBERS // inputs))
    assert min(rows, LOCAL_ROWS[0], most) <= 1.5 * cells * each
    assert min(rows, cells * each) <= 1.5 * most
    assert each == min(core, ROWS_PER_CELL) or cells > rows / core - 1.0  # more of a cell: of every cell
    assert 1 <= sample.partitions <= parts


@pytest.mark.parametrize(("rows", "parts"), [(100, 1), (5000, 20), (10**6, 2000)])
def test_the_committee_leaves_out_rows_of_few_partitions(rows, parts):
    sample = residual_sample(parts, rows, 3, 0)
    assert sample.rows_per_cell == sample.committee_stride == 1
    assert sample.partitions <= max(16, -(-FEWEST * parts // rows))
    assert sample.partitions * sample.count >= min(FEWEST, rows)


@pytest.mark.parametrize("wanted", [200, 2400])
def test_residuals_are_of_so_many_rows_of_each_cell(make_data, rng, monkeypatch, wanted):
    """Rows of the residuals are found again by their scaled inputs; both kinds of residuals are of the same rows."""
    monkeypatch.setattr("bcmdist.prediction.measuring.measurement.LOCAL_ROWS", (wanted, wanted))
    monkeypatch.setattr("bcmdist.prediction.measuring.measurement.FEWEST", 50)
    X = rng.uniform(-2, 2, (1200, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(1200)
    gbcm = GBCM.fit(make_data(X=X, y=y), SETTINGS)
    near, core = load_neighbours(gbcm.snapshot.reference), gbcm.snapshot.facts.cells.core
    arranged = near.rows.read(np.arange(1200))[0]
    sample = residual_sample(len(gbcm.ledger), 1200, 2, core)
    found, cells_of_all = [], 0
    for record in (entry.residuals for entry in gbcm.ledger if entry.residuals):
        distance = np.abs(arranged[:, None] - record.places[None, :, :-1]).sum(axis=2)
        assert distance.min(axis=0).max() < 1e-5  # places are stored with six decimals
        cells = np.searchsorted(near.arrangement.edges, distance.argmin(axis=0), side="right")
        found += np.unique(cells, return_counts=True)[1].tolist()
        cells_of_all += len(np.unique(cells))
    assert max(found) <= sample.rows_per_cell
    assert sum(found) == pytest.approx(min(wanted, 1200), rel=0.35)
    if wanted == 2400:
        assert sum(found) == 1200  # every row of a small table
    else:
        assert cells_of_all > 0.8 * wanted / sample.rows_per_cell


def test_committee_and_local_residuals_are_of_the_same_rows(make_data, rng):
    X = rng.uniform(-2, 2, (1200, 2))
    gbcm = GBCM.fit(make_data(X=X, y=np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(1200)), SETTINGS)
    snapshot, part = gbcm.snapshot, fitted_partitions(gbcm.snapshot)[0]
    ((_, rows),) = read_all([part])
    each = [LeaveOut(snapshot.reference, 2, True, 7, local=way)(part, rows).by_key[part.key] for way in (True, False)]
    near, far = each
    assert len(near) == 14
    np.testing.assert_array_equal(near.places[:, :-1], far.places[:, :-1])
    assert near.committee is far.local is None
    assert not np.allclose(near.local, far.committee)
