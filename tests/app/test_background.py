"""Who works while others wait for answers: threads of a lower priority, none of those who answer, and BLAS in one."""

import os
import sys
import threading

import pytest
import threadpoolctl
from processes import wait_until
from services import asked, fitted, new_rows, send

from bcmdist.app.service import server
from bcmdist.app.service.background import LEAST, NICER, in_background
from bcmdist.app.service.limits import Limits

linux = pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads: only Linux has them")


def priority(thread=None):
    """Of a thread of ours; of this one by default."""
    return os.getpriority(os.PRIO_PROCESS, thread.native_id if thread else threading.get_native_id())


@linux
def test_a_thread_behind_has_a_lower_priority_and_no_other():
    found, ours = [], priority()
    in_background(lambda: found.append(priority()), "work").join()
    assert found == [min(LEAST, ours + NICER)]
    assert priority() == ours


@linux
def test_commits_and_renewals_are_behind_predictions(tmp_path):
    ours, X = priority(), [[0.5, 1.0]]
    fitted(tmp_path)

    def threads(name):
        return [thread for thread in threading.enumerate() if thread.name.startswith(name)]

    with asked(tmp_path) as client:
        assert send(client, new_rows(), "a").status_code == 200
        assert client.post("/models/wave/predict", json={"X": X}).status_code == 200
        for name in ("writer of wave", "renewal of models"):
            (thread,) = threads(name)
            wait_until(
                lambda thread=thread: priority(thread) == min(LEAST, ours + NICER), f"a lower priority of {name}"
            )
        answering = threads("AnyIO worker thread")
        assert answering
        assert {priority(thread) for thread in answering} == {ours}


def blas_threads():
    return {one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"}


def test_blas_has_one_thread_while_it_serves(tmp_path, monkeypatch):
    found = []

    def run(self, sockets):
        found.append(blas_threads())
        self._service.close()

    monkeypatch.setattr(server._Server, "run", run)
    monkeypatch.setattr(server, "log_to_stderr", lambda log_format: None)
    fitted(tmp_path / "models")
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        server.serve(tmp_path / "models", server.Listening(port=0), Limits(), jobs=str(tmp_path / "jobs"))
        assert (found, blas_threads()) == ([{1}], {2})
