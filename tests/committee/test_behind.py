"""How far an ingestion is behind, and that what is on its way is bounded, however fast a source is."""

import numpy as np
import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.ingest.lag_meter import LOOK_SECONDS, LagMeter
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import SourceUnreachable
from bcmdist.runtime.interface import SerialRuntime

GIVEN = Settings(kernel="se", learn=False, query=10, rows_per_expert=10)


class Told:
    """A source that says what waits."""

    def __init__(self):
        self.waiting = 0

    def lag(self, after):
        if self.waiting == "gone":
            raise SourceUnreachable("source: expected an answer, got none; start it")
        return self.waiting


@pytest.fixture
def looking():
    """A source, a clock that one sets, and what looks at the source by it."""
    source, now = Told(), [0.0]
    behind = LagMeter(source, clock=lambda: now[0])

    def at(seconds, given, waiting):
        source.waiting, now[0] = waiting, seconds
        behind.look(None, given)
        return behind

    return at


def figures(told):
    return told["partitions"], told["rows"], told["seconds"]


def test_nobody_knows_before_the_first_look(looking):
    assert LagMeter(Told()).lag(0, 10.0) is None
    assert looking(0.0, 0, None).lag(0, 10.0) is None


def test_the_age_is_that_of_the_oldest_that_waits(looking):
    assert figures(looking(0.0, 0, 3).lag(0, 10.0)) == (3, 30, 0.0)
    assert figures(looking(10.0, 3, 4).lag(2, 10.0)) == (5, 50, 10.0)  # the third one has been there from the start
    assert figures(looking(12.0, 5, 2).lag(3, 10.0)) == (4, 40, 2.0)  # those from 10 on
    assert figures(looking(15.0, 7, 0).lag(7, 10.0)) == (0, 0, 0.0)
    assert figures(looking(20.0, 7, 1).lag(7, 10.0)) == (1, 10, 0.0)


def test_a_source_is_not_asked_all_the_time_and_may_be_away(looking):
    looking(0.0, 0, 3)
    assert figures(looking(0.5 * LOOK_SECONDS, 0, 9).lag(0, 1.0))[0] == 3
    assert figures(looking(LOOK_SECONDS, 0, "gone").lag(0, 1.0))[0] == 3
    assert figures(looking(2.0 * LOOK_SECONDS, 0, 9).lag(0, 1.0))[0] == 9


class Counted:
    """A source that has all partitions at once, and counts those that were handed out and are not committed."""

    name = "counted"

    def __init__(self, parts):
        self.parts, self.out, self.most = list(parts), 0, 0

    def read(self, after, most):
        first = after or 0
        taken = self.parts[first : first + most]
        self.out += len(taken)
        self.most = max(self.most, self.out)
        return [Delivery((part,), first + k + 1) for k, part in enumerate(taken)]

    def ack(self, offset, keys):
        self.out -= len(list(keys))

    def lag(self, after):
        return len(self.parts) - (after or 0)

    def close(self):
        pass


@pytest.fixture
def many(make_data, tmp_path):
    """A model that has absorbed nothing, and 120 partitions for it."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (1200, 2))
    path = make_data("many.zarr", rows_per_chunk=10, X=X, y=np.sin(X[:, 0]))
    gbcm = GBCM.prepare(path, GIVEN, model=tmp_path / "model")
    return gbcm, partitions(open_data(path), GIVEN.rows_per_expert)


@pytest.mark.slow
def test_a_fast_source_waits_for_a_slow_reader(many):
    """What is read and not committed yet is what `each` and a commit hold, whatever the source has."""
    gbcm, parts = many
    assert len(parts) == 120
    source, every = Counted(parts), 6
    after, report = gbcm.ingest(source, IngestOptions(commit_every=every), runtime=SerialRuntime())
    assert (len(after.ledger), report.partitions, source.out) == (120, 120, 0)
    group = 4  # of a task, and of a read by one thread
    assert source.most <= every + 2 * group
    assert after.info()["lag"]["rows"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 3600.0], ids=["looked at always", "looked at once"])
def test_the_lag_is_in_what_info_tells(many, monkeypatch, seconds):
    monkeypatch.setattr("bcmdist.committee.ingest.lag_meter.LOOK_SECONDS", seconds)
    gbcm, parts = many
    source = Counted(parts)
    some, _ = gbcm.ingest(source, IngestOptions(max_partitions=20), runtime=SerialRuntime())
    lag = GBCM.load(some.url).info()["lag"]
    assert (lag["rows"], lag["sources"].keys()) == (1000, {"counted"})
    assert lag["seconds"] >= 0.0
    rest, _ = some.ingest(Counted(parts), runtime=SerialRuntime())  # is handed those 20 once more
    assert rest.info()["lag"]["rows"] == 0
