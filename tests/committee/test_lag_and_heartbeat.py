"""A lag that is unknown is absent, and an ingester that waits for rows can be seen to be alive."""

import pytest

from bcmdist import GBCM, Settings
from bcmdist.committee.ingest.options import IngestOptions
from bcmdist.data.dataset import open_data
from bcmdist.data.partition import partitions
from bcmdist.data.sources.delivery import Delivery
from bcmdist.errors import SourceUnreachable
from bcmdist.storage.heartbeats import heartbeats

GIVEN = Settings(kernel="se", learn=False, query=10, rows_per_expert=20)


class Listed:
    """Some partitions, and whatever it says of those that wait."""

    name = "redis://h:6379/0/rows"

    def __init__(self, parts, lags, seen=lambda: None):
        self.parts, self.lags, self.seen = parts, list(lags), seen

    def read(self, after, most):
        self.seen()
        first = after or 0
        return [Delivery((part,), first + k + 1) for k, part in enumerate(self.parts[first : first + most])]

    def ack(self, offset, keys):
        pass

    def lag(self, after):
        return self.lags.pop(0) if len(self.lags) > 1 else self.lags[0]

    def close(self):
        pass


@pytest.fixture
def prepared(make_data, wave, tmp_path):
    _, X, y = wave
    path = make_data("chunks.zarr", rows_per_chunk=20, X=X, y=y)
    return GBCM.prepare(path, GIVEN, model=tmp_path / "model"), partitions(open_data(path), 20)


def test_a_lag_that_became_unknown_is_not_that_of_before(prepared):
    gbcm, parts = prepared
    some, _ = gbcm.ingest(Listed(parts[:3], [0]))
    assert some.info()["lag"]["rows"] == 0
    rest, report = some.ingest(Listed(parts, [None]))
    assert report.partitions == len(parts) - 3
    lag = GBCM.load(rest.url).info()["lag"]
    assert (lag["rows"], lag["seconds"], lag["sources"]) == (None, None, {Listed.name: None})


def test_nobody_was_behind_before_anything_was_ingested(prepared):
    assert prepared[0].info()["lag"] is None


def test_an_ingester_that_waits_leaves_a_heartbeat_while_it_runs(prepared):
    gbcm, parts = prepared
    seen = []
    source = Listed(parts[:3], [0], seen=lambda: seen.append(heartbeats(gbcm.store)))
    after, _ = gbcm.ingest(source, IngestOptions(watch=True, max_partitions=3))
    assert [(one.source, one.alive) for one in seen[0]] == [(Listed.name, True)]
    assert heartbeats(gbcm.store) == []
    assert after.info()["ingesters"] is None
    seen.clear()
    after.ingest(Listed(parts[:5], [0], seen=source.seen))
    assert seen
    assert not any(seen)  # one that does not wait has none


def test_an_ingester_that_fails_leaves_its_heartbeat_until_another_has_ended_properly(prepared, monkeypatch):
    gbcm, parts = prepared

    def lost():
        raise SourceUnreachable("source: expected an answer, got none; start it")

    with pytest.raises(SourceUnreachable):
        gbcm.ingest(Listed(parts, [0], seen=lost), IngestOptions(watch=True))
    assert gbcm.info()["ingesters"][0] | {"seconds": 0.0} == {"source": Listed.name, "seconds": 0.0, "alive": True}
    monkeypatch.setattr("bcmdist.storage.heartbeats.STALE_SECONDS", 0.0)
    assert gbcm.info()["ingesters"][0]["alive"] is False
    gbcm.ingest(Listed(parts, [0]))
    assert gbcm.info()["ingesters"] is None
