"""What workers tell of results comes with the news that there is a result: nobody is asked."""

import asyncio
import time
from dataclasses import dataclass
from typing import ClassVar

import distributed.core
import pytest

from bcmdist import DaskRuntime
from bcmdist.data.partition import Span
from bcmdist.runtime.dask import summaries
from bcmdist.runtime.interface import Parted, run_batch

SPANS = [Span(k, k + 1) for k in range(40)]


@dataclass(frozen=True)
class Numbers:
    """Adds, and counts as often as asked."""

    numbers: tuple[float, ...]

    def __add__(self, other):
        return Numbers(self.numbers + other.numbers)

    def weighted(self, weight):
        return Numbers(tuple(weight * number for number in self.numbers))


@dataclass(frozen=True)
class Naming:
    """The start of a span; its name is told."""

    parted: ClassVar[bool] = True

    def __call__(self, part, rows):
        return Parted((part.key,), Numbers((float(part.start),)))


@pytest.fixture
def asked(monkeypatch):
    """What this process has asked schedulers and workers, as it is asked."""
    found, send = [], distributed.core.send_recv

    async def sending(comm, **question):
        found.append(question.get("op"))
        return await send(comm, **question)

    monkeypatch.setattr(distributed.core, "send_recv", sending)
    return found


def test_nobody_is_asked_what_is_told(cluster, asked):
    outcomes = list(cluster.each(((Naming(), [span]) for span in SPANS), label="tell"))
    assert sorted(name for outcome in outcomes for name in outcome.result) == sorted(span.key for span in SPANS)
    assert not {"who_has", "broadcast", "gather", "get_data"} & set(asked)
    workers = cluster._client.scheduler_info(n_workers=-1)["workers"]
    assert {term.worker for outcome in outcomes for term in outcome.kept.terms} <= workers.keys()


def test_nothing_is_kept_of_what_was_told(cluster):
    list(cluster.each([(Naming(), [span]) for span in SPANS], label="forget"))
    deadline = time.monotonic() + 5
    while (cluster._channel._expected or cluster._channel._received) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (cluster._channel._expected, cluster._channel._received) == (set(), {})


def test_what_nobody_has_told_is_fetched_as_a_whole(cluster, monkeypatch):
    monkeypatch.setattr(summaries, "LATE_SECONDS", 0.2)
    client = cluster._client
    future = client.submit(run_batch, Naming(), SPANS[:3], key="silent")
    found = asyncio.run_coroutine_threadsafe(cluster._channel.summary(future), client.loop.asyncio_loop).result(60)
    assert found == summaries.Summary(tuple(span.key for span in SPANS[:3]), "")


def test_what_others_log_for_the_client_is_left_alone(cluster):
    client = cluster._client
    client.log_event(client.id, {"key": "another", "summary": b"", "worker": ""})
    client.log_event(client.id, {"action": "something"})
    (outcome,) = cluster.each([(Naming(), SPANS[:1])], label="others")
    assert outcome.result == (SPANS[0].key,)


def test_leaving_a_cluster_is_no_error_of_its_scheduler(caplog):
    with DaskRuntime(workers=1) as runtime:
        list(runtime.each([(Naming(), SPANS[:2])], label="leave"))
    assert not [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
