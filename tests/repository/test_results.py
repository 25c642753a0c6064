"""Results of the papers' tables outlive the process that computes them."""

import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import papers_again
import pytest

from published import tables
from published.results import Experiment, Results, completed, mean_and_error, paired
from published.tables import Column, Table

EXPERIMENTS = [Experiment(split, "wave", method) for split in range(3) for method in ("one", "two")]
RUN = """
import sys
from published.results import Results, completed
from test_results import EXPERIMENTS, slowly

if __name__ == "__main__":
    completed(Results("table", sys.argv[1]), EXPERIMENTS, slowly, minutes=1)
"""


def slowly(experiment):
    """Figures of an experiment; the later splits take so long that the process is killed before."""
    time.sleep(0.05 if experiment.split == 0 else 60.0)
    return {"rmse": 1.0 + experiment.split}


def at_once(experiment):
    return {"rmse": 1.0 + experiment.split + 0.5 * (experiment.method == "two")}


def never(experiment):
    raise AssertionError("it was computed before")


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(tmp_path):
    command = [sys.executable, "-c", RUN, tmp_path]
    with subprocess.Popen(command, env={"PYTHONPATH": ":".join(sys.path)}, start_new_session=True) as process:
        while len(Results("table", tmp_path).by_experiment) < 2:
            assert process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    results = Results("table", tmp_path)
    assert set(results.by_experiment) == set(EXPERIMENTS[:2])
    completed(results, EXPERIMENTS, at_once, minutes=1)
    again = Results("table", tmp_path)
    assert set(again.by_experiment) == set(EXPERIMENTS)
    assert again.figures("wave", "one")[0]["rmse"] == 1.0, "of the killed run"
    completed(again, EXPERIMENTS, never, minutes=1)


def fails_once(experiment):
    if experiment == EXPERIMENTS[0]:
        raise ValueError("no figures")
    return at_once(experiment)


@pytest.mark.slow
def test_a_failure_loses_no_other_figures(tmp_path):
    results = Results("table", tmp_path)
    with pytest.raises(ValueError, match="no figures"):
        completed(results, EXPERIMENTS, fails_once, minutes=1)
    assert set(Results("table", tmp_path).by_experiment) == set(EXPERIMENTS[1:])


@pytest.mark.slow
def test_no_case_begins_after_the_time_is_over(tmp_path):
    results = Results("table", tmp_path)
    completed(results, EXPERIMENTS, at_once, minutes=0.0)
    assert results.by_experiment == {}


def test_figures_are_stored_by_experiment(tmp_path):
    results = Results("table", tmp_path)
    for experiment in reversed(EXPERIMENTS):
        results.add(experiment, at_once(experiment))
    assert Results("table", tmp_path).by_experiment == results.by_experiment
    stored = json.loads((tmp_path / "table.json").read_text())
    assert [(entry["split"], entry["method"]) for entry in stored] == [(c.split, c.method) for c in EXPERIMENTS]
    mean, error, splits = paired(results.figures("wave", "two"), results.figures("wave", "one"), "rmse")
    assert (mean, error, splits) == (0.5, 0.0, 3)


def test_the_page_is_made_from_the_results():
    assert papers_again.PAGE.read_text() == papers_again.page()


WAVE = Table("Waves", ("one", "two"), ("wave",), (Column("rmse", "RMSE", {"wave": {"one": 1.5}}),))


def test_a_table_shows_splits_published_figures_and_paired_differences(tmp_path):
    results = Results("table", tmp_path)
    for experiment in EXPERIMENTS:
        results.add(experiment, at_once(experiment))
    title, _, heads, _, one, two = tables.lines_of(WAVE, results)
    assert (title, heads) == ("## Waves", "|  | method | splits | RMSE | paper | less one |")
    assert one == "| wave | one | 3 | 2.000 ± 0.577 | 1.500 |  |"
    assert two == "| wave | two | 3 | 2.500 ± 0.577 |  | +0.500 ± 0.000 |"


def test_a_star_says_that_a_difference_is_significant(tmp_path):
    """By Student's paired test of three splits: +1.0, +1.1, +1.2 is, +1.0, -0.5, +1.2 is not."""
    column = WAVE.columns[0]
    one = {split: {"rmse": float(split)} for split in range(3)}
    for gaps, star in (((1.0, 1.1, 1.2), True), ((1.0, -0.5, 1.2), False)):
        other = {split: {"rmse": split + gap} for split, gap in enumerate(gaps)}
        assert tables.difference(other, one, column).endswith("*") == star
    assert tables.difference({0: {"rmse": 1.0}}, one, column) == "", "one split"


def test_figures_of_methods_that_are_computed_together(tmp_path):
    results = Results("table", tmp_path)
    results.add(Experiment(0, "wave", "all"), {"one rmse": 1.0, "two rmse": 3.0, "seconds": 1.0})
    table = replace(WAVE, together="all")
    assert table.found(results, "wave", "two") == {0: {"rmse": 3.0}}
    assert tables.lines_of(table, results)[-1] == "| wave | two | 1 | 3.000 |  |  |"


def test_a_table_without_results_is_not_shown(tmp_path):
    assert tables.lines_of(WAVE, Results("table", tmp_path)) == []
    assert tables.text([WAVE], Results("table", tmp_path)) == ""


def test_the_error_of_one_value_is_unknown():
    assert mean_and_error([2.0]) == (2.0, math.inf)
    assert mean_and_error([1.0, 3.0]) == (2.0, pytest.approx(1.0))


def test_critical_differences_are_those_of_the_table():
    """Demsar 2006, table 5(a): q of 2 to 5 classifiers; and the example of section 3.2.4, 4 of them on 14 sets."""
    for methods, q in ((2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728)):
        scaled = tables.critical(6, methods) * 6 / math.sqrt(methods * (methods + 1))
        assert scaled == pytest.approx(q, abs=2e-3)
    assert tables.critical(14, 4) == pytest.approx(1.25, abs=5e-3)


def test_ranks_are_of_sets_that_all_methods_have(tmp_path):
    results, methods = Results("table", tmp_path), ("GP 50", "DGP-2 50", "dgp", "never computed")
    table = Table("Waves", methods, "abcd", (Column("rmse", "RMSE"), Column("time", "time", better="neither")))
    for k, name in enumerate(table.sets):
        for error, method in enumerate(methods[:3]):
            if (name, error) != ("d", 2):  # a method without figures of this set
                results.add(Experiment(0, name, method), {"rmse": (error + k) % 3 + 1.0, "time": 1.0})
    (_, line) = tables.ranks(table, results)
    assert line.startswith("Mean ranks of RMSE over 3 sets: GP 50 2.00, DGP-2 50 2.00, dgp 2.00; critical difference")
    results.add(Experiment(0, "d", "dgp"), {"rmse": 9.0, "time": 1.0})
    assert "over 4 sets: GP 50 1.75, DGP-2 50 2.00, dgp 2.25;" in tables.ranks(table, results)[1]
    higher = replace(table, columns=(Column("rmse", "RMSE", better="higher"),))
    assert "over 4 sets: GP 50 2.25, DGP-2 50 2.00, dgp 1.75;" in tables.ranks(higher, results)[1]
    assert tables.ranks(replace(table, sets="ab"), results) == []


SCRIPTS = [script.__name__ for script in papers_again.SCRIPTS]


def test_the_page_shows_all_scripts_that_keep_results():
    examples = papers_again.FOLDER.parent
    assert {path.stem for path in examples.glob("paper0*.py") if "TABLES = " in path.read_text()} == set(SCRIPTS)
    assert {path.stem for path in papers_again.FOLDER.glob("*.json")} <= set(SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_show_what_they_have_kept_without_computing(script, tmp_path):
    """Those of the folder of results; with no time nothing is begun. Pictures are in the current folder."""
    command = [sys.executable, papers_again.FOLDER.parent / f"{script}.py", "--full", "--minutes", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    together = {table.together for table in importlib.import_module(script).TABLES}
    for name, method in {(one.set, one.method) for one in Results(script).by_experiment}:
        assert name in done.stdout
        assert method in done.stdout or method in together
