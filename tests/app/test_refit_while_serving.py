"""A served model is refitted and returned to an earlier state without a failed request."""

import signal
import threading
import time

import numpy as np
import pytest
from processes import LONG, wait_until
from services import Server, httpx

from bcmdist import GBCM, Settings, write_dataset
from bcmdist.api.requests import RefitOptions

POINTS = {"X": [[0.5, 1.0], [0.0, 0.0]]}


@pytest.fixture
def server(tmp_path):
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (1000, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(1000)
    write_dataset(tmp_path / "rows.zarr", {"X": X, "y": y}, rows_per_chunk=100)
    settings = Settings(partition="chunks", query=40, learn=False, kernel="se", rows_per_expert=100)
    GBCM.fit(tmp_path / "rows.zarr", settings, model=tmp_path / "models" / "wave")
    server = Server(tmp_path / "models")
    yield server
    server.end(signal.SIGKILL)


@pytest.mark.slow
def test_requests_go_on_while_a_model_is_refitted_and_reverted(server, tmp_path):
    answers, done = [], threading.Event()

    def ask():
        with httpx.Client(base_url=server.url, timeout=LONG) as http:
            while not done.is_set():
                try:
                    answer = http.post("/models/wave/predict", json=POINTS)
                except httpx.RemoteProtocolError:  # the server has closed a connection that idled: ask on another one
                    continue
                time.sleep(0.01)  # fewer than the requests a second that are allowed
                answers.append((time.monotonic(), answer.status_code, answer.json()))

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    gbcm = GBCM.load(tmp_path / "models" / "wave")
    try:
        wait_until(lambda: answers, "answers")
        for change in (
            lambda: gbcm.refit(RefitOptions(effort="quick")),
            lambda: GBCM.load(gbcm.url).revert(gbcm.commit),
        ):
            after = change()
            committed = time.monotonic()
            wait_until(
                lambda after=after: answers[-1][2].get("commit") == str(after.commit), "answers by the new state"
            )
            live = next(at for at, _, answer in answers if answer.get("commit") == str(after.commit))
            print(f"live {live - committed:.2f} s after the commit")
            np.testing.assert_allclose(
                answers[-1][2]["predictions"]["mean"], after.predict(np.array(POINTS["X"]))["mean"], rtol=1e-10
            )
    finally:
        done.set()
        asker.join(LONG)
    assert {code for _, code, _ in answers} == {200}, [answer for _, code, answer in answers if code != 200][:3]
    np.testing.assert_allclose(
        answers[-1][2]["predictions"]["mean"], gbcm.predict(np.array(POINTS["X"]))["mean"], rtol=1e-10
    )
