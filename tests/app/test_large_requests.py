"""Large requests: read and computed in pieces, a few at a time, while small ones are answered."""

import asyncio
import json
import threading

import numpy as np
import pytest
from services import HERE, ask, asked, fitted, httpx, new_rows

from bcmdist import GBCM
from bcmdist.app.service import json_requests
from bcmdist.app.service.answers import Refused
from bcmdist.app.service.application import make_app
from bcmdist.app.service.asking import Question
from bcmdist.app.service.large import MOST_WAITING, SMALL_BYTES, LargeRequests, Visit
from bcmdist.app.service.limits import Limits
from bcmdist.app.service.loaded import Loaded
from bcmdist.data.arrow import MEDIA_TYPE, read_table
from bcmdist.errors import InvalidData

URL = "/models/wave/predict"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fitted(folder)
    return folder


def points(rows, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, (rows, 2))


# --- Read and computed in pieces ---


@pytest.mark.parametrize("accept", ["application/json", MEDIA_TYPE])
def test_answers_in_pieces_are_those_of_one_call(models, accept):
    if accept == MEDIA_TYPE:
        pytest.importorskip("pyarrow", reason="Arrow: pip install 'bcmdist[tables]'")
    X = points(10_000)
    with asked(models) as client:
        answer = client.post(URL, json={"X": X.tolist(), "intervals": [0.5]}, headers={"Accept": accept})
    assert answer.status_code == 200, answer.text
    expected = GBCM.load(models / "wave").predict(X, quantiles=(0.25, 0.75))
    if accept == MEDIA_TYPE:
        _, _, found = read_table(answer.content, others=("mean", "lower50"), tables=[])
    else:
        found = answer.json()["predictions"]
        assert answer.json()["rows"] == len(X)
        np.testing.assert_allclose(found["variance"], expected["variance"], rtol=1e-9)  # a difference
        np.testing.assert_allclose(found["upper50"], expected["quantile0.75"], rtol=1e-9)
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found["lower50"], expected["quantile0.25"], rtol=1e-9)


def test_a_question_in_pieces_has_its_companions_with_it():
    X, each = points(10), list(range(10))
    question = Question(X, None, (0.1,), {}, {"exposure": each, "trials": 2.0, "other": None}, np.ones((10, 2)))
    found = list(question.pieces(3 * 256))
    assert [len(one.X) for one in found] == [3, 3, 3, 1]
    np.testing.assert_array_equal(np.concatenate([one.X for one in found]), X)
    assert [one.companions["exposure"] for one in found] == [each[:3], each[3:6], each[6:9], each[9:]]
    assert {one.companions["trials"] for one in found} == {2.0}
    assert [len(one.X_variance) for one in found] == [3, 3, 3, 1]
    with pytest.raises(InvalidData, match="exposure: expected one number or 10 of them, got 9"):
        list(Question(X, None, (), {}, {"exposure": each[1:]}).pieces(3))


def test_one_commit_answers_all_pieces(models, monkeypatch):
    seen, predict = set(), Loaded.predict

    def noted(self, X, **how):
        seen.add((id(self), len(X)))
        return predict(self, X, **how)

    monkeypatch.setattr(Loaded, "predict", noted)
    with asked(models) as client:
        assert client.post(URL, json={"X": points(9000).tolist()}).status_code == 200
    assert {rows for _, rows in seen} == {4096, 808}
    assert len({one for one, _ in seen}) == 1


def test_what_nobody_waits_for_is_not_computed_on(models, monkeypatch):
    seen, predict = [], Loaded.predict

    def noted(self, X, **how):
        seen.append(len(X))
        return predict(self, X, **how)

    body, sent = json.dumps({"X": points(40_000).tolist()}).encode(), []

    async def receive():
        sent.append(1)
        return {"type": "http.request", "body": body} if len(sent) == 1 else {"type": "http.disconnect"}

    monkeypatch.setattr(Loaded, "predict", noted)
    with asked(models) as client:
        status, _ = client._run(ask(client, receive, {}))
    assert (status, seen) == (408, [])


def test_too_many_numbers_in_an_answer_are_refused(models):
    """Rows by columns; of few bytes in, a thousand times as many would come out."""
    levels = {"quantiles": [k / 100 for k in range(1, 100)], "intervals": [k / 50 for k in range(1, 50)]}
    with asked(models, limits=Limits(rows=10_000)) as client:
        most = client.post(URL, json={"X": points(10_000).tolist(), "quantiles": [0.1]})
        many = client.post(URL, json={"X": points(10_000).tolist(), **levels})
        few = client.post(URL, json={"X": points(900).tolist(), **levels})
    assert (most.status_code, many.status_code, few.status_code) == (200, 413, 200)
    assert "expected at most 200000 numbers in an answer, got 10000 rows of" in many.json()["message"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"X":[%s]}' % b",".join([b"[0]"] * 500_000), 413),
        (b"{%s}" % b",".join(b'"a%d":1' % k for k in range(100_000)), 422),
        (b'{"X":[[1.0,2.0]],"y":[%s]}' % b",".join([b'""'] * 100_000), 422),
    ],
    ids=["rows", "unknown", "texts"],
)
def test_large_bodies_are_refused_at_the_first_mistake(models, body, status):
    with asked(models) as client:
        answer = client.post(URL, content=body, headers=JSON)
    assert answer.status_code == status
    assert len(answer.json()["message"]) < 300


def test_a_large_job_is_refused(models):
    with asked(models) as client:
        job = {"request": "fit", "model": "a", "data": "x" * SMALL_BYTES}
        answer = client.post("/jobs", json=job)
    assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")


def test_others_are_answered_while_a_large_body_is_read(models, monkeypatch):
    """Reading waits until the event loop has turned, which it could not do if it read the body itself."""
    body, read = json.dumps({"X": points(40_000).tolist()}).encode(), json_requests.read_body
    begun, turned = threading.Event(), threading.Event()

    def waiting(*arguments, **how):
        begun.set()
        assert turned.wait(20)
        return read(*arguments, **how)

    async def turns(client):
        task = asyncio.create_task(client.http.post(URL, content=body, headers=JSON))
        while not task.done():
            await asyncio.sleep(0.001)
            if begun.is_set():
                turned.set()
        return task.result().status_code

    monkeypatch.setattr(json_requests, "read_body", waiting)
    with asked(models) as client:
        status = client._run(turns(client))
    assert (status, turned.is_set()) == (200, True)


@pytest.mark.parametrize("what", ["predict", "rows"])
def test_small_requests_do_not_wait_for_large_ones(models, monkeypatch, what):
    """While three large ones compute, whatever they do."""
    going, go_on, predict = threading.Semaphore(0), threading.Event(), Loaded.predict

    def held(self, X, **how):
        if len(X) > 1000:
            going.release()
            assert go_on.wait(20)
        return predict(self, X, **how)

    async def run(client):
        large = [client.http.post(URL, json={"X": points(5000).tolist()}) for _ in range(3)]
        tasks = [asyncio.create_task(one) for one in large]
        while not going.acquire(blocking=False):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        try:
            async with asyncio.timeout(10):
                if what == "predict":
                    small = await client.http.post(URL, json={"X": [[0.5, 1.0]]})
                else:
                    small = await client.http.get("/models/wave")
        finally:
            go_on.set()
            answers = await asyncio.gather(*tasks)
        return small.status_code, {one.status_code for one in answers}

    monkeypatch.setattr(Loaded, "predict", held)
    with asked(models) as client:
        assert client._run(run(client)) == (200, {200})


def test_rows_of_a_large_request_are_heard(models, tmp_path):
    gbcm = fitted(tmp_path, "grown")
    with asked(tmp_path) as client:
        answer = client.post("/models/grown/rows", json=new_rows(rows=3000), headers={"Idempotency-Key": "a"})
    assert answer.status_code == 200, answer.text
    assert GBCM.load(tmp_path / "grown").committee.total.rows == gbcm.committee.total.rows + 3000


# --- Places ---


def run(test):
    large = LargeRequests(5.0, places=2)
    try:
        return asyncio.run(test(large))
    finally:
        large.close()


def test_each_asker_has_one_place():
    async def test(large):
        await large.enter("a")
        second = asyncio.create_task(large.enter("a"))
        await asyncio.sleep(0.01)
        assert not second.done()
        await large.enter("b")
        third = asyncio.create_task(large.enter("c"))
        await asyncio.sleep(0.01)
        assert not third.done()
        large.leave("a")
        await second
        assert not third.done()
        large.leave("b")
        await third

    run(test)


def test_who_waits_too_long_or_too_often_is_refused_and_leaves_no_trace():
    async def test(large):
        large.seconds = 0.05
        await large.enter("a")
        with pytest.raises(Refused, match="503"):
            await large.enter("a")
        large.seconds = 5.0
        waiting = [asyncio.create_task(large.enter("a")) for _ in range(MOST_WAITING)]
        await asyncio.sleep(0.01)
        with pytest.raises(Refused, match="503"):
            await large.enter("a")
        await large.enter("b")
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        large.leave("a")
        large.leave("b")
        assert large._waiting == []
        assert (large._free, large._inside) == (2, set())

    run(test)


def test_a_request_gives_back_its_place_whatever_happens():
    async def test(large):
        with pytest.raises(ZeroDivisionError), Visit(large, "a") as visit:
            await visit.run(lambda: 1 / 0)
        with Visit(large, "a") as visit:
            assert await visit.run(lambda: threading.current_thread().name) == "large requests_0"
        assert (large._free, large._inside) == (2, set())

    run(test)


def test_nobody_has_more_requests_at_a_time_than_half_of_all(models, monkeypatch):
    async def run(client):
        held = asyncio.Event()

        async def slow():
            await held.wait()
            return "ok"

        client.app.app.add_api_route("/slow", slow)
        app = make_app(client.service, tokens=None)
        app.app.add_api_route("/slow", slow)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE) as http:
            tasks = [asyncio.create_task(http.get("/slow")) for _ in range(5)]
            await asyncio.sleep(0.1)
            health = await http.get("/health")
            held.set()
            return health.status_code, sorted([one.status_code for one in await asyncio.gather(*tasks)])

    with asked(models, limits=Limits(connections=6)) as client:
        assert client._run(run(client)) == (200, [200, 200, 200, 429, 429])
