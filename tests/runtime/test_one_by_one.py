"""What both runtimes promise of `each`: every partition in one outcome, lazily, errors narrowed down."""

from dataclasses import dataclass

import pytest

from bcmdist import SerialRuntime
from bcmdist.data.partition import Span
from bcmdist.errors import NotPositiveDefinite
from bcmdist.runtime.dask import cluster as module


@dataclass(frozen=True)
class Square:
    """A number for each span, except for some that fail."""

    bad: tuple[int, ...] = ()

    def __call__(self, part, rows):
        if part.start in self.bad:
            raise NotPositiveDefinite("R: not today")
        return part.start**2


@dataclass(frozen=True)
class Broken:
    """A task with a mistake."""

    def __call__(self, part, rows):
        raise ZeroDivisionError("a mistake")


SPANS = [Span(k, k + 1) for k in range(40)]
BATCHES = [SPANS[k : k + 4] for k in range(0, 40, 4)]


@pytest.fixture(params=["serial", "dask"])
def runtime(request):
    return SerialRuntime() if request.param == "serial" else request.getfixturevalue("cluster")


def test_every_partition_is_in_one_outcome(runtime):
    outcomes = list(runtime.each(((Square(), batch) for batch in BATCHES), label="each"))
    assert sorted((o.parts for o in outcomes), key=lambda parts: parts[0].start) == BATCHES
    for outcome in outcomes:
        assert outcome.error is None
        assert outcome.result == sum(part.start**2 for part in outcome.parts)


def test_no_work_has_no_outcome(runtime):
    assert list(runtime.each([], label="each")) == []


def test_an_error_is_of_one_partition_and_the_others_have_results(runtime):
    task = Square(bad=(5, 6, 39))
    outcomes = list(runtime.each([(task, batch) for batch in BATCHES], label="each"))
    assert sorted(part.start for o in outcomes for part in o.parts) == list(range(40))
    failed = {o.parts[0].start: o for o in outcomes if o.error}
    assert sorted(failed) == [5, 6, 39]
    for start, outcome in failed.items():
        assert (len(outcome.parts), outcome.result) == (1, None)
        with pytest.raises(NotPositiveDefinite, match=rf"output\[{start}:{start + 1}\]: R: not today"):
            raise outcome.error
    assert sum(o.result for o in outcomes if not o.error) == sum(k**2 for k in range(40) if k not in task.bad)


def test_each_pair_has_its_own_task(runtime):
    outcomes = runtime.each([(Square(), SPANS[:2]), (Square(bad=(0,)), SPANS[:1])], label="each")
    assert sorted((len(o.parts), o.result or 0) for o in outcomes) == [(1, 0), (2, 1)]


def test_work_is_pulled_as_there_is_room_for_it(runtime):
    pulled = []

    def work():
        for batch in BATCHES * 10:
            pulled.append(batch)
            yield Square(), batch

    outcomes = runtime.each(work(), label="each")
    assert not pulled
    for done in range(1, 6):
        next(outcomes)
        assert len(pulled) <= done + module.WINDOW * runtime.threads * 2
    outcomes.close()
    assert len(pulled) < 50
    assert sum(o.result for o in runtime.each([(Square(), SPANS)], label="after")) == sum(k**2 for k in range(40))


def test_a_mistake_in_a_task_is_raised_as_it_is(runtime):
    with pytest.raises(ZeroDivisionError, match="a mistake"):
        list(runtime.each([(Broken(), SPANS[:2])], label="each"))
