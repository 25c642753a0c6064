"""Who is to blame when workers die: events in, verdicts out, without a cluster."""

import pytest

from bcmdist.data.partition import Span
from bcmdist.runtime.dask.one_by_one import MOST_TRIALS, Quarantine

TASK = None
PARTS = [Span(k, k + 1) for k in range(4)]


def tried(quarantine, kills, deaths):
    """Try all that wait; those that kill add a death."""
    for suspect in list(quarantine.waiting):
        quarantine.waiting.popleft()
        if kills(suspect.part):
            deaths.append(f"worker {len(deaths)}")
            quarantine.killed(suspect, deaths[-1])
        else:
            quarantine.survived(suspect)


def test_two_deaths_convict_where_nothing_else_kills():
    quarantine, deaths = Quarantine(), ["worker 0"]
    quarantine.accuse(TASK, PARTS, "worker 0")
    tried(quarantine, lambda part: part is PARTS[2], deaths)
    (guilty,) = quarantine.convict(deaths)
    assert (guilty.part, guilty.deaths, guilty.trials) == (PARTS[2], 2, 1)
    assert not quarantine.waiting
    assert not quarantine.convicted


def test_two_poisons_of_one_worker_explain_each_other():
    quarantine, deaths = Quarantine(), ["worker 0"]
    quarantine.accuse(TASK, PARTS[:2], "worker 0")
    quarantine.accuse(TASK, PARTS[2:], "worker 0")
    tried(quarantine, lambda part: part in PARTS[1:3], deaths)
    assert [s.part for s in quarantine.convict(deaths)] == PARTS[1:3]


@pytest.mark.parametrize("why", ["its suspects survived", "nobody was suspected"])
def test_after_an_unexplained_death_the_convicted_are_tried_again(why):
    quarantine, deaths = Quarantine(), ["worker 0", "worker 1"]
    quarantine.accuse(TASK, PARTS[:1], "worker 0")
    if why == "its suspects survived":
        quarantine.accuse(TASK, PARTS[1:], "worker 1")
    tried(quarantine, lambda part: part is PARTS[0], deaths)
    assert quarantine.convict(deaths) == []
    assert [s.part for s in quarantine.waiting] == PARTS[:1]
    tried(quarantine, lambda part: False, deaths)
    assert quarantine.convict(deaths) == []
    assert not quarantine.waiting


def test_a_partition_that_always_kills_is_given_up_in_the_end():
    quarantine, deaths = Quarantine(), ["worker 0", "another"]
    quarantine.accuse(TASK, PARTS[:1], "worker 0")
    guilty = []
    while quarantine.waiting:
        tried(quarantine, lambda part: True, deaths)
        guilty = quarantine.convict(deaths)
    assert [(s.part, s.trials, s.deaths) for s in guilty] == [(PARTS[0], MOST_TRIALS, MOST_TRIALS + 1)]
