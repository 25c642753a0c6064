"""How many rows are left out to measure errors: a few of many cells, all of them where there are few cells."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.prediction.local.neighbours import load_neighbours
from bcmdist.prediction.measuring.measurement import FEWEST, LOCAL_ROWS, NUMBERS, OF_A_CELL, left_out_sizes

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
    sizes = left_out_sizes(parts, rows, inputs, core)
    cells, each = sizes.partitions * sizes.rows / core, min(core, sizes.of_a_cell)
    least = min(rows, LOCAL_ROWS[0], max(FEWEST, NUMBERS // inputs))
    assert 0.9 * least <= cells * each
    assert cells * each <= max(FEWEST, min(LOCAL_ROWS[1], NUMBERS // inputs)) * 1.1 + sizes.partitions
    assert each == min(core, OF_A_CELL) or cells >= 0.9 * rows / core  # more of a cell: of every cell
    assert 1 <= sizes.partitions <= parts


@pytest.mark.parametrize(("rows", "parts"), [(100, 1), (5000, 20), (10**6, 2000)])
def test_the_committee_leaves_out_rows_of_few_partitions(rows, parts):
    sizes = left_out_sizes(parts, rows, 3, 0)
    assert sizes.of_a_cell == sizes.committee_every == 1
    assert sizes.partitions <= max(16, -(-FEWEST * parts // rows))
    assert sizes.partitions * sizes.rows >= min(FEWEST, rows)


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
    sizes = left_out_sizes(len(gbcm.ledger), 1200, 2, core)
    found, cells_of_all = [], 0
    for record in (entry.residuals for entry in gbcm.ledger if entry.residuals):
        distance = np.abs(arranged[:, None] - record.places[None, :, :-1]).sum(axis=2)
        assert distance.min(axis=0).max() < 1e-5  # places are stored with six decimals
        cells = np.searchsorted(near.arrangement.edges, distance.argmin(axis=0), side="right")
        found += np.unique(cells, return_counts=True)[1].tolist()
        cells_of_all += len(np.unique(cells))
        assert record.committee is None or len(record.committee) == len(record.local)
    assert max(found) <= sizes.of_a_cell
    assert sum(found) == pytest.approx(min(wanted, 1200), rel=0.35)
    if wanted == 2400:
        assert sum(found) == 1200  # every row of a small table
    else:
        assert cells_of_all > 0.8 * wanted / sizes.of_a_cell
