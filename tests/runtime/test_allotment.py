"""Runtimes that ask for part of a cluster: their workers, who waits, and what it computes."""

import os
import threading
import time
from dataclasses import dataclass

import distributed
import pytest
from processes import no_hang, wait_until
from test_changing_cluster import Busy

from bcmdist import GBCM, DaskRuntime, Settings
from bcmdist.data.partition import Span
from bcmdist.errors import InvalidOption
from bcmdist.runtime.dask.allotment import Allotments
from bcmdist.runtime.interface import SumLost
from bcmdist.runtime.portion import Portion
from problems import assert_same_committee

pytestmark = pytest.mark.alone

SPANS = [Span(k, k + 1) for k in range(24)]
HALF = Portion(0.5)


def allotments(workers, threads=1):
    """Of so many workers."""
    known = Allotments()
    for worker in range(workers):
        known.come(f"w{worker}", threads)
    return known


def usable(known, client):
    return list(known.usable(client))


def test_halves_do_not_overlap_and_a_third_waits_for_who_leaves():
    known = allotments(4)
    for client in ("a", "b", "c"):
        known.ask(client, HALF)
    assert [usable(known, client) for client in "abc"] == [["w0", "w1"], ["w2", "w3"], []]
    assert known.allotted_threads() == 4
    known.leave("a")
    assert usable(known, "c") == ["w0", "w1"]


def test_to_ask_again_changes_nothing():
    known = allotments(4)
    known.ask("a", HALF)
    known.ask("a", HALF)
    assert usable(known, "a") == ["w0", "w1"]


@pytest.mark.parametrize(
    ("portion", "workers", "threads", "given"),
    [
        (Portion(1 / 3), 3, 1, 1),  # a third of three, whatever the rounding
        (Portion(0.1), 3, 1, 1),  # one at least
        (Portion(0.5), 3, 2, 1),  # no part of a worker
        (Portion(1.0), 3, 2, 3),
        (Portion(workers=2), 3, 4, 2),
        (Portion(workers=9), 3, 1, 3),  # at most
        (Portion(0.9, 1), 3, 1, 1),  # both hold
    ],
)
def test_a_portion_in_workers(portion, workers, threads, given):
    known = allotments(workers, threads)
    known.ask("a", portion)
    assert len(usable(known, "a")) == given


def test_what_comes_free_goes_to_who_has_least():
    known = allotments(2)
    for client in ("a", "b", "c"):
        known.ask(client, Portion(1.0))
    assert [len(usable(known, client)) for client in "abc"] == [2, 0, 0]
    known.leave("a")
    assert [len(usable(known, client)) for client in "bc"] == [1, 1]
    known.leave("b")
    assert usable(known, "c") == ["w0", "w1"]


def test_a_lost_worker_is_replaced_by_a_free_one_or_by_the_next_to_come():
    known = allotments(3)
    known.ask("a", Portion(workers=1))
    known.go("w0")
    assert usable(known, "a") == ["w1"]
    known.ask("b", Portion(workers=1))
    known.go("w2")
    assert usable(known, "b") == []
    known.come("w3", 1)
    assert (usable(known, "a"), usable(known, "b")) == (["w1"], ["w3"])


def test_others_keep_to_what_nobody_has_and_use_all_where_that_is_nothing():
    known = allotments(3)
    assert usable(known, "other") == ["w0", "w1", "w2"]
    known.ask("a", Portion(workers=1))
    assert usable(known, "other") == ["w1", "w2"]
    known.ask("b", Portion(workers=2))
    assert usable(known, "other") == ["w0", "w1", "w2"]
    known.come("w3", 1)
    assert usable(known, "other") == ["w3"]
    known.go("w3")
    assert usable(known, "other") == ["w0", "w1", "w2"]
    known.leave("b")
    assert usable(known, "other") == ["w1", "w2"]


@pytest.mark.parametrize("share", [0, -0.5, 1.01, float("nan"), "half", True])
def test_shares_that_are_none(share):
    with pytest.raises(InvalidOption, match=r"--share: expected a part .* above 0 and at most 1, got"):
        DaskRuntime("tcp://127.0.0.1:1", share=share)


def test_a_share_needs_an_address_and_workers_are_counted():
    with pytest.raises(InvalidOption, match="share: expected the address of a cluster"):
        DaskRuntime(share=0.5)
    with pytest.raises(InvalidOption, match="workers: expected at least 1, got 0"):
        DaskRuntime("tcp://127.0.0.1:1", workers=0)


# --- On a cluster ---


@dataclass(frozen=True)
class Addresses:
    """Workers, which add as sets."""

    seconds: float = 0.0

    def __call__(self, part, rows):
        time.sleep(self.seconds)
        return Found(frozenset([distributed.get_worker().address]))


@dataclass(frozen=True)
class Found:
    """Addresses."""

    workers: frozenset

    def __add__(self, other):
        return Found(self.workers | other.workers)


def used(runtime, seconds=0.0):
    """Workers that a sum, and pairs one by one, are computed on."""
    summed = runtime.sum(Addresses(seconds), SPANS, label="where").workers
    outcomes = runtime.each(((Addresses(seconds), [span]) for span in SPANS), label="where")
    return summed | frozenset().union(*(outcome.result.workers for outcome in outcomes))


def used_together(one, two):
    """Workers that each of two uses while the other does."""
    found = {}
    thread = threading.Thread(target=lambda: found.update(two=used(two, 0.02)))
    thread.start()
    found["one"] = used(one, 0.02)
    thread.join()
    return found["one"], found["two"]


@pytest.fixture
def address(cluster):
    return cluster._client.scheduler.address


@pytest.mark.slow
def test_two_halves_of_a_cluster_keep_apart(cluster, address):
    with no_hang(60), DaskRuntime(address, share=0.5) as one, DaskRuntime(address, workers=1) as two:
        assert (one.threads, two.threads) == (1, 1)
        ours, theirs = used_together(one, two)
        assert len(ours) == len(theirs) == 1
        assert not ours & theirs
        assert len(used(cluster, 0.02)) == 2  # nothing is left for who asks for nothing


@pytest.mark.slow
def test_who_asks_for_nothing_keeps_off_what_another_has(address):
    """Two at the same time, of which the one without a part was there first."""
    with no_hang(60), DaskRuntime(address) as all_of_it:
        assert len(used(all_of_it, 0.02)) == 2
        with DaskRuntime(address, share=0.5) as half:
            ours, theirs = used_together(all_of_it, half)
            assert len(ours) == len(theirs) == 1
            assert not ours & theirs
        wait_until(lambda: len(used(all_of_it, 0.02)) == 2, "all workers again")


@pytest.mark.slow
def test_who_finds_all_taken_waits_and_says_for_what(address):
    told, came = [], []
    with no_hang(60):
        with DaskRuntime(address, share=1.0) as first:

            def second():
                with DaskRuntime(address, share=0.5, waits=told.append) as runtime:
                    came.append(used(runtime))

            thread = threading.Thread(target=second)
            thread.start()
            wait_until(lambda: told, "somebody who waits")
            assert len(used(first)) == 2
            assert not came
        thread.join()
    assert told == ["waiting for worker threads: other jobs hold 2 of 2"]
    assert len(came[0]) == 1


@pytest.mark.slow
def test_a_fit_beside_another_is_that_alone(address, wave, tmp_path):
    """Half the threads each, at the same time and alone: the same but for the order in which messages add up."""
    settings = Settings(kernel="se", query=20, rows_per_expert=10, learn=False)
    fitted = {}

    def fit(name):
        with DaskRuntime(address, share=0.5) as runtime:
            fitted[name] = GBCM.fit(wave[0], settings, model=tmp_path / name, runtime=runtime)

    fit("alone")
    threads = [threading.Thread(target=fit, args=(name,)) for name in ("one", "two")]
    with no_hang(120):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in ("one", "two"):
        assert_same_committee(fitted[name].committee, fitted["alone"].committee)


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_tasks_wait_for_it(tmp_path):
    with no_hang(120), DaskRuntime(workers=2) as own:
        address = own._client.scheduler.address
        with DaskRuntime(address, share=0.5) as one, DaskRuntime(address, share=0.5) as two:
            before = used(one)
            found = []
            thread = threading.Thread(target=lambda: found.append(used(one, 0.1)))
            thread.start()
            time.sleep(0.5)
            own._client.run(_end, workers=list(before), on_error="ignore")
            thread.join()
            theirs = used(two)
            assert found[0] - before  # the nanny's next one
            assert not found[0] & theirs


@pytest.mark.slow
def test_a_kept_sum_of_workers_that_all_left_is_lost_and_not_waited_for(tmp_path):
    """Its tasks may run on the workers of the portion at the time only; new tasks run on those of now."""
    with no_hang(120), DaskRuntime(workers=2) as own, DaskRuntime(own._client.scheduler.address, workers=1) as one:
        (outcome,) = one.each([(Busy(str(tmp_path), 0.0), SPANS)], label="kept")
        ((_, worker), *_) = outcome.result
        own._client.run(_end, workers=[worker], on_error="ignore")
        with pytest.raises(SumLost, match="kept: the workers of our portion have left"):
            one.total(outcome.kept, label="kept")
        (outcome,) = one.each([(Busy(str(tmp_path), 0.0), SPANS)], label="kept")
        assert sorted(one.total(outcome.kept, label="kept").names) == sorted(span.key for span in SPANS)
        assert outcome.result[0][1] != worker


@pytest.mark.slow
def test_other_clients_of_a_scheduler_use_all_workers(address, tmp_path):
    with no_hang(60), DaskRuntime(address, share=0.5), distributed.Client(address, set_as_default=False) as other:
        assert len(set(other.gather(other.map(_where, range(16), pure=False)))) == 2


def _where(_):
    time.sleep(0.05)
    return distributed.get_worker().address


def _end():
    os._exit(1)
