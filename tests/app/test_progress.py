"""What a user sees of the sums of a fit."""

import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bcmdist import GBCM, Settings
from bcmdist.api.running import running
from bcmdist.app.cli.main import cli
from bcmdist.app.cli.options import MANY, ProgressBar
from bcmdist.runtime.progress import LEARNING, Evaluated, Meter, as_line


@pytest.mark.parametrize("label", MANY)
def test_sums_that_learning_makes_many_of_fill_no_screen(label, capsys):
    bar = ProgressBar()
    for _ in range(500):
        bar(label, 0, 3)
        bar(label, 3, 3)
    assert capsys.readouterr().err == ""
    bar.terminal = True
    bar("learn", 3, 3)
    assert capsys.readouterr().err == f"\r{'learn        evaluation 501, 0 s':79}"
    bar.terminal = False
    bar("experts", 0, 3)
    assert capsys.readouterr().err == "learn        501 evaluations in 0.0 s\n"
    bar("experts", 3, 3)
    assert capsys.readouterr().err.startswith("experts      3 partitions in")


EARLY = Evaluated(done=4, expected=200.0, best=-math.inf, figure="log evidence", seconds=2.0)


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (EARLY, "2 % done"),
        (replace(EARLY, done=50, best=-1812.34), "25 % done, best log evidence -1,812.3, about 6 s left"),
        (replace(EARLY, done=50, seconds=100.0), "25 % done, about 5 min left"),
        (replace(EARLY, done=50, seconds=3600.0), "25 % done, about 3 h left"),
        (replace(EARLY, done=900, best=3.0, seconds=90.0), "99 % done, best log evidence 3.0, about 1 s left"),
        (replace(EARLY, done=50, expected=0.0), "0 % done"),
    ],
)
def test_a_line_of_learning(event, line):
    assert as_line(event) == line


def test_values_over_other_rows_are_not_compared(caplog):
    caplog.set_level("DEBUG", logger=LEARNING.name)
    meter, here, there = Meter(10.0, "log evidence"), object(), object()
    for over, value in ((here, -5.0), (here, -7.0), (here, -3.0), (there, -90.0), (there, -math.inf)):
        meter.count(over, value)
    events = [record.msg for record in caplog.records]
    assert [event.best for event in events] == [-5.0, -5.0, -3.0, -90.0, -90.0]
    assert [event.done for event in events] == [1, 2, 3, 4, 5]


def test_a_terminal_shows_the_search_and_erases_what_was_longer(capsys):
    bar = ProgressBar()
    bar.terminal = True
    bar.evaluated(replace(EARLY, done=50, best=-1812.34))
    bar("learn", 3, 3)
    shown = capsys.readouterr().err
    assert shown == f"\r{'learn        25 % done, best log evidence -1,812.3, about 6 s left, 0 s':79}"
    bar("experts", 3, 3)
    assert capsys.readouterr().err.split("\r")[1] == f"{'learn        1 evaluations in 0.0 s':79}\n"
    bar.drawn = 0.0
    bar("train", 3, 3)
    assert "evaluation 1, 0 s" in capsys.readouterr().err  # that of another stage


def test_a_fit_logs_its_search(wave, tmp_path, caplog):
    caplog.set_level("DEBUG", logger=LEARNING.name)
    made = GBCM.fit(wave[0], Settings(query=20, kernel="se", effort="quick"), model=tmp_path / "m")
    events = [record.msg for record in caplog.records if record.name == LEARNING.name]
    assert len(events) >= 0.9 * made.facts["evaluations"]
    last = events[-1]
    assert last.figure == "log evidence"
    assert 0.2 < last.done / last.expected < 5.0  # an estimate


class Shell:
    """A notebook that keeps what its cell shows."""

    def __init__(self):
        self.shown = []

    def display(self, bundle, *, raw, display_id):
        self.shown.append(bundle["text/plain"])
        return self

    def update(self, bundle, *, raw):
        self.shown[-1] = bundle["text/plain"]


@pytest.fixture
def cell(monkeypatch):
    made, kind = Shell(), type("ZMQInteractiveShell", (), {})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=kind))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=made.display))
    monkeypatch.setattr("bcmdist.api.notebook.FIRST_SECONDS", 0.0)
    return made


def test_a_notebook_has_one_line(cell, wave, capsys):
    seen = []
    with running(None), running(None):
        for number in range(3):
            handler = next(one for one in LEARNING.handlers if one.__class__.__name__ == "_Line")
            handler.drawn = 0.0
            Meter(100.0, "log evidence").count(wave, float(number))
            seen.append(list(cell.shown))
    assert seen == [[f"learning: 1 % done, best log evidence {number:.1f}"] for number in range(3)]
    assert len(cell.shown) == 1
    assert cell.shown[0].startswith("learned, ")
    assert not any(one.__class__.__name__ == "_Line" for one in LEARNING.handlers)
    assert capsys.readouterr() == ("", "")


def test_other_processes_have_no_line(wave, tmp_path, capsys):
    GBCM.fit(wave[0], Settings(query=20, kernel="se", effort="quick"), model=tmp_path / "m")
    assert "% done" not in "".join(capsys.readouterr())


def test_logs_hold_no_carriage_returns(wave, tmp_path):
    command = ["fit", wave[0], "--model", str(tmp_path / "m"), "--query", "20", "--kernel", "se", "--effort", "quick"]
    done = CliRunner().invoke(cli, [*command, "--serial"])
    assert done.exit_code == 0
    assert "\r" not in done.stderr
    assert "% done" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("learn ")]) == 1


def test_other_stages_have_a_line_each(capsys):
    bar = ProgressBar()
    for done in range(4):
        bar("experts", done, 3)
    assert capsys.readouterr().err.startswith("experts      3 partitions in 0.0 s")
