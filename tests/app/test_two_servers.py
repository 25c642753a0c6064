"""Two servers of one folder of models: the same rows under one key, sent to both at once, count once."""

import threading

import pytest
from services import asked, fitted, new_rows, send

from bcmdist import GBCM
from bcmdist.app.service.inbox import Inbox


# fastapi hides it with `warnings.catch_warnings`, which two threads of one process undo for each other.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.UnsupportedFieldAttributeWarning")
@pytest.mark.parametrize("attempt", range(3))
def test_rows_sent_to_two_servers_at_once_have_one_answer(tmp_path, monkeypatch, attempt):
    """Both have found no rows under the key when they write them."""
    gbcm = fitted(tmp_path)
    together, write, answers = threading.Barrier(2, timeout=20), Inbox._write, {}

    def written_together(*arguments):
        together.wait()
        return write(*arguments)

    monkeypatch.setattr(Inbox, "_write", written_together)

    def ask(number):
        with asked(tmp_path) as client:
            answers[number] = send(client, new_rows(attempt), "a")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [answers[number].status_code for number in range(2)] == [200, 200], [one.text for one in answers.values()]
    assert answers[0].json() == answers[1].json()
    assert GBCM.load(tmp_path / "wave").committee.total.rows == gbcm.committee.total.rows + 30
