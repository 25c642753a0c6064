"""Requests that are computed together: each has its own answer, and no other's failure."""

import asyncio
import collections
import threading

import numpy as np
import pytest
from services import asked, fitted

from bcmdist import GBCM
from bcmdist.app.service import asking
from bcmdist.app.service.asking import Question

ROUNDED = {"rtol": 1e-12, "atol": 1e-14}  # matrix products of other shapes add up in another order


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fitted(folder)
    fitted(folder, "local", partition="spatial")
    return folder


@pytest.fixture
def computed(monkeypatch):
    """How many questions were computed together, each time; the first waits until `go_on`."""
    sizes, go_on, compute = [], threading.Event(), asking.answered

    def held(served, questions):
        sizes.append(len(questions))
        assert len(sizes) > 1 or go_on.wait(20)
        return compute(served, questions)

    monkeypatch.setattr(asking, "answered", held)
    return sizes, go_on


def all_at_once(client, bodies, sizes, go_on, name="wave"):
    """Answers to requests of which the first is being computed while the others come."""

    async def run():
        waiting, served = client.service.micro_batcher._waiting, client.service.catalogue[name]
        asks = []
        for count, body in enumerate(bodies):
            asks.append(asyncio.create_task(client.http.post(f"/models/{name}/predict", json=body)))
            while not sizes or len(waiting[served]) < count:
                await asyncio.sleep(0.01)
        go_on.set()
        return await asyncio.gather(*asks)

    return client._run(run())


@pytest.mark.parametrize("name", ["wave", "local"])
def test_those_that_wait_are_computed_together(models, computed, name):
    sizes, go_on = computed
    points = [np.random.default_rng(k).uniform(-2, 2, (k + 1, 2)) for k in range(10)]
    with asked(models) as client:
        answers = all_at_once(client, [{"X": X.tolist(), "intervals": [0.5]} for X in points], sizes, go_on, name)
    assert sizes == [1, 9]
    gbcm = GBCM.load(models / name)
    for X, answer in zip(points, answers, strict=True):
        said, expected = answer.json(), gbcm.predict(X, quantiles=(0.25,))
        assert said["rows"] == len(X)
        np.testing.assert_allclose(said["predictions"]["mean"], expected["mean"], **ROUNDED)
        np.testing.assert_allclose(said["predictions"]["variance"], expected["variance"], rtol=1e-9)  # a difference
        np.testing.assert_allclose(said["predictions"]["lower50"], expected["quantile0.25"], rtol=1e-9)


def test_another_way_is_another_batch(models, computed):
    sizes, go_on = computed
    bodies = [{"X": [[0.0, 1.0]], "quantiles": levels} for levels in ([], [0.1], [], [0.1], [])]
    with asked(models) as client:
        answers = all_at_once(client, bodies, sizes, go_on)
    assert sizes == [1, 2, 2]
    assert ["quantile0.1" in answer.json()["predictions"] for answer in answers] == [False, True, False, True, False]


def test_errors_of_inputs_are_another_way(models, computed):
    """Exact points, those with variances and those with covariances; each has its own answer."""
    sizes, go_on = computed
    X, variance = np.array([[0.5, 1.0]]), np.array([[0.04, 0.09]])
    errors = [None, variance, None, variance[:, :, None] * np.eye(2), 2.0 * variance]
    bodies = [{"X": X.tolist()} | ({} if one is None else {"X_variance": one.tolist()}) for one in errors]
    with asked(models) as client:
        answers = all_at_once(client, bodies, sizes, go_on)
    assert sizes == [1, 2, 1, 1]
    gbcm = GBCM.load(models / "wave")
    for one, answer in zip(errors, answers, strict=True):
        expected = gbcm.predict(X, X_variance=one)["variance"]
        np.testing.assert_allclose(answer.json()["predictions"]["variance"], expected, rtol=1e-9)  # a difference


def test_those_that_take_long_are_not_together_with_many():
    loop = asyncio.new_event_loop()
    X, variance = np.zeros((10, 1)), np.ones((10, 1))
    ask = [(Question(X, None, (), {}, {}, variance), loop.create_future()) for _ in range(3)]
    waiting = collections.deque(ask)
    assert asking._batch(waiting) == ask[:1]  # ten count as 2560
    assert list(waiting) == ask[1:]
    loop.close()


def test_one_that_fails_spoils_no_other(models, computed, monkeypatch):
    sizes, go_on = computed
    compute = asking.answered

    def picky(served, questions):
        found = compute(served, questions)
        if any(one.X[0, 0] == 7.0 for one in questions):
            raise MemoryError
        return found

    monkeypatch.setattr(asking, "answered", picky)
    with asked(models) as client:
        answers = all_at_once(client, [{"X": [[x, 0.0]]} for x in (0.0, 1.0, 7.0, 2.0)], sizes, go_on)
    assert [answer.status_code for answer in answers] == [200, 200, 500, 200]
    assert sizes == [1, 3, 1, 1, 1]


def test_what_is_wrong_is_told_before_it_waits(models):
    with asked(models) as client:
        answer = client.post("/models/wave/predict", json={"X": [[1.0]]})
    assert answer.status_code == 422


def test_those_that_have_gone_are_left_out():
    loop = asyncio.new_event_loop()
    ask = [(Question(np.zeros((1500, 1)), None, (), {}, {}), loop.create_future()) for _ in range(5)]
    waiting = collections.deque(ask)
    ask[1][1].cancel()
    assert asking._batch(waiting) == [ask[0], ask[2]]  # a third would be more than 4096 rows
    assert list(waiting) == [ask[3], ask[4]]
    loop.close()
