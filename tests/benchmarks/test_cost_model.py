"""The cost model's arithmetic, and the simulated cluster that it is fitted to."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scale
from cost_model import Constants, Plan, commit_terms, depth, error_of, expert_terms, fitted, message_terms, projected

FOUND = Constants(
    expert=(1e-10, 1e-8),
    message=(1.0, 100.0),
    add=1e-9,
    commit=(0.1, 0.0, 1e-9),
    scheduler=(2.0, 1e-3),
    client=(1.0, 5e-4),
    told_bytes=500.0,
)
PLAN = Plan(
    rows=10**6,
    workers=10,
    n=500,
    Q=500,
    fan_in=8,
    bytes_a_second=1e9,
    group=4,
    few=4,
    commit_share=20,
    commit_every=5.0,
)


@pytest.mark.parametrize(
    ("workers", "levels"), [(1, 0), (2, 1), (8, 1), (9, 2), (64, 2), (200, 3), (512, 3), (1000, 4)]
)
def test_levels_of_a_tree_that_adds_eight_at_a_time(workers, levels):
    left, counted = workers, 0
    while left > 1:
        left, counted = -(-left // 8), counted + 1
    assert depth(workers, 8) == counted == levels


def test_fits_find_the_constants_that_made_the_figures():
    sizes = [(250, 250), (500, 250), (500, 500), (1000, 500)]
    terms = np.array([expert_terms(n, Q) for n, Q in sizes])
    constants = fitted(terms, terms @ [3e-10, 2e-8])
    np.testing.assert_allclose(constants, [3e-10, 2e-8], rtol=1e-9)
    assert error_of(terms, terms @ [3e-10, 2e-8], constants) < 1e-12
    assert error_of(terms, 2.0 * (terms @ [3e-10, 2e-8]), constants) == pytest.approx(0.5)


def test_constants_are_never_negative():
    terms = np.array([commit_terms(Q) for Q in (100, 200, 400)])
    assert (fitted(terms, [0.3, 0.2, 0.1]) >= 0).all()


def test_bytes_of_a_message_are_those_that_are_sent():
    message, _ = scale.expert_seconds(30, 20, 1)
    size = message.eta.size
    assert message_terms(size)[0] == message.eta.nbytes + 8 * size * (size + 1) / 2


def test_what_a_fit_costs():
    found = projected(PLAN, FOUND)
    flops = 2 * 500**3 + 2 * 500**3 + 500**3 / 3
    message = 8 * 500 * 503 / 2 + 100
    expert = 1e-10 * flops + 1e-8 * (500 * 500 + 500**2) + 1e-9 * message
    assert found["partitions"] == 2000
    assert found["experts_seconds"] == pytest.approx(2000 * expert / 10)
    assert found["scheduler_seconds"] == pytest.approx(2.0 + 2000 * 1e-3)
    assert found["tree_depth"] == 2
    assert found["tree_seconds"] == pytest.approx(2 * 7 * (message / 1e9 + 1e-9 * message) + message / 1e9)
    # Four partitions are a task and a third of a sum: three quarters of 4 ms a task, 80 / 7 tasks a commit.
    assert found["sums_scheduler_seconds"] == pytest.approx(3e-3 * 80 / 7)
    commit = found["sums_scheduler_seconds"] + found["tree_seconds"] + FOUND.commit_seconds(500)
    assert found["commits_seconds"] == pytest.approx(found["commits"] * commit)
    assert found["commits"] == max(1, int(found["experts_seconds"] / max(5.0, 20 * commit)))
    assert found["bound"] == "experts"
    assert found["seconds"] == pytest.approx(found["experts_seconds"] + found["commits_seconds"])
    assert found["client_megabytes"] == pytest.approx((2000 * 500 + found["commits"] * message) / 1e6)


def test_ten_times_the_rows_take_as_much_longer_and_more_workers_end_at_the_scheduler():
    once, larger = projected(PLAN, FOUND), projected(replace(PLAN, rows=10**7), FOUND)
    assert larger["experts_seconds"] == pytest.approx(10 * once["experts_seconds"])
    many = projected(replace(PLAN, rows=10**7, workers=1000), FOUND)
    assert many["experts_seconds"] == pytest.approx(once["experts_seconds"] / 10)
    assert many["bound"] == "scheduler"
    assert many["seconds"] >= many["scheduler_seconds"] == larger["scheduler_seconds"]


def test_a_share_too_small_to_measure_bounds_nothing():
    found = projected(PLAN, replace(FOUND, scheduler=(0.2, 0.0)))
    assert found["partitions_a_second_scheduler"] == math.inf
    assert found["scheduler_seconds"] == 0.2
    assert found["bound"] == "experts"


@pytest.mark.slow  # three processes
@pytest.mark.alone
def test_the_simulation_runs():
    figures = scale.main(quick=True)
    assert [run["partitions"] for run in figures["simulation"]] == [200, 400]
    for run in figures["simulation"]:
        assert run["tree_depth"] == 2
        assert 100 < run["client_bytes"] <= 2000
        assert 0 < run["scheduler_ms"] < 10  # about .6 on a quiet machine
    assert all("bound" in found for found in figures["extrapolated"].values())
    assert "1,000,000,000 rows" in "\n".join(scale.told(figures))
