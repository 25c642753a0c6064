"""Two coordinators of one spatial fit, as after a pause of the first: every row counts once, and both end."""

import numpy as np
import pytest

from bcmdist import GBCM, SerialRuntime, Settings
from bcmdist.api import fit
from bcmdist.committee.cells import arranged_alike
from bcmdist.committee.snapshot import Snapshot
from bcmdist.data.dataset import open_data
from bcmdist.errors import CommitConflict
from bcmdist.prediction.local import arrange
from problems import assert_same_committee

CELLS = Settings(partition="spatial", kernel="se", learn=False, query=30, rows_per_expert=60, effort="quick")


@pytest.fixture
def both(make_data, rng, tmp_path):
    """The rows, and the states of two coordinators that have both put them in the order of cells."""
    X = rng.uniform(-2, 2, (600, 2))
    path = make_data("rows.zarr", X=X, y=np.sin(X[:, 0]))
    runtime = SerialRuntime()
    first, data = fit.prepare(path, CELLS, tmp_path / "model", runtime)
    second = Snapshot.load(tmp_path / "model")
    return path, [arrange.arrange(one, data, runtime) for one in (first, second)]


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_second_goes_on_where_the_first_has_committed(both, share):
    path, (first, second) = both
    assert arranged_alike(first, second)
    runtime, parts = SerialRuntime(), arrange.cell_partitions(first)
    some = parts[: int(share * len(parts))]
    done = fit.absorb_without_errors(first, some, runtime)
    found = fit.absorb_without_errors(second, parts, runtime)
    assert found.commit >= done.commit
    assert sorted(entry.key for entry in found.ledger) == sorted(part.key for part in found.named(parts))
    calm = GBCM.fit(path, CELLS)
    assert found.committee.total.rows == 600
    assert_same_committee(found.committee, calm.committee)
    whole = fit.complete(Snapshot.load(found.url), open_data(path), runtime, several=False)
    assert whole.facts.method == "local"


def test_another_change_that_is_not_committed_is_not_lost_silently(both):
    _, (first, second) = both
    runtime, parts = SerialRuntime(), arrange.cell_partitions(first)
    fit.absorb_without_errors(first, parts[:2], runtime)
    odd = second.changed(cells=second.facts.cells.changed(array="elsewhere/X"))
    assert not arranged_alike(first, odd)
    with pytest.raises(CommitConflict):
        odd.committed()
