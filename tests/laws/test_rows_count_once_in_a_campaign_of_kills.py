"""A campaign against a stream, its readers and their model directory: kills, and restores from older copies.

BCMDIST_KILLS=400 for a long night.
"""

import os
import random
import shutil
import time

import numpy as np
import pytest
from test_rows_count_once_in_streams import ROWS, finish, ingester, prepared, some_rows

from bcmdist import GBCM, SerialRuntime
from bcmdist.committee.revision import messages

pytest.importorskip("redis", reason="Redis: pip install 'bcmdist[redis]'")

from bcmdist.data.entries import publish

pytestmark = pytest.mark.alone

SEED, ENTRIES_PER_EVENT = 28, 4


class Campaign:
    """Two ingesters of one model directory, a server, and copies of the directory."""

    def __init__(self, model, server, copies):
        self.model, self.server, self.copies, self.chance = model, server, copies, random.Random(SEED)
        self.published = self.killed = 0
        self.saved = []
        self.readers = [self.reader(), self.reader()]

    def reader(self):
        grows = ("--grow", "--grow-share", "0.02", "--query-most", "200")
        how = ("--watch", "--take-over", "0.5", "--commit-every", "3")
        return ingester(self.model, self.server.url(), *how, *grows)

    def publish(self, entries):
        for k in range(self.published, self.published + entries):
            publish(self.server.url(), *some_rows(k))
        self.published += entries

    def wait(self):
        """For some commits, unless there is nothing left to commit, or for a moment."""
        store, deadline = GBCM.load(self.model).store, time.monotonic() + 4.0
        wanted = store.head() + self.chance.randint(0, 3)
        while store.head() < wanted and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(self.chance.uniform(0.0, 0.02))

    def kill_server(self):
        self.server.kill()
        time.sleep(self.chance.uniform(0.0, 0.2))
        self.server.start()

    def kill_reader(self):
        k = self.chance.randrange(len(self.readers))
        self.end(self.readers[k])
        self.readers[k] = self.reader()

    def restore(self):
        """The machine goes down, and comes up with an older copy of the model directory."""
        both = self.chance.random() < 0.5
        if both:
            self.server.kill()
        for reader in self.readers:
            self.end(reader)
        self.saved.append(self.copies / str(len(self.saved)))
        shutil.copytree(self.model, self.saved[-1])
        shutil.rmtree(self.model)
        shutil.copytree(self.chance.choice(self.saved), self.model)
        if both:
            self.server.start()
        self.readers = [self.reader(), self.reader()]

    def end(self, reader):
        self.killed += reader.poll() is None
        reader.kill()
        reader.communicate()


@pytest.mark.slow
def test_kills_and_restores_from_copies_lose_nothing(redis_server, tmp_path):
    model, kills = prepared(tmp_path), int(os.environ.get("BCMDIST_KILLS", "40"))
    print(f"seed {SEED}")
    campaign = Campaign(model, redis_server, tmp_path)
    events = ["restore"] * (kills // 4) + ["kill_server", "kill_reader"] * (3 * kills // 8)
    campaign.chance.shuffle(events)
    try:
        for event in events:
            campaign.publish(ENTRIES_PER_EVENT)
            campaign.wait()
            getattr(campaign, event)()
    finally:
        for reader in campaign.readers:
            campaign.end(reader)
    finish(ingester(model, redis_server.url()))

    ours = GBCM.load(model)
    entries = [number.decode() for number, _ in redis_server.client.xrange("rows")]
    assert sorted(e.key for e in ours.ledger) == sorted(f"{redis_server.url()}[{k}]/X[0:{ROWS}]" for k in entries)
    assert len(entries) == campaign.published
    assert ours.committee.total.rows == ROWS * campaign.published
    print(f"{ours.model.shared.functions} query points, {len(ours.model.earlier)} sets before")
    assert ours.model.earlier
    counts = {entry.key: 1.0 for entry in ours.ledger}
    again = messages(ours.snapshot, counts, SerialRuntime())
    for name in ("eta", "precision"):  # sums of the same messages, in another order
        one, other = getattr(ours.committee.total, name), getattr(again, name)
        difference = np.abs(one - other).max() / np.abs(other).max()
        print(f"{name}: {difference:.1e}")
        assert difference <= 1e-10
    print(f"{len(events)} events, {events.count('restore')} restores, {campaign.killed} readers killed at work")
    assert campaign.killed > len(events) // 2
