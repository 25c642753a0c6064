"""Results of the papers' tables outlive the process that computes them."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import papers_again
import pytest

from published.results import Experiment, Results, completed, mean_and_error, paired

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


def test_a_table_shows_splits_published_figures_and_paired_differences(tmp_path):
    table = papers_again.Table("table", "Waves", "rmse", {"wave": {"one": 1.5}}, ("one", "two"))
    results = Results("table", tmp_path)
    for experiment in EXPERIMENTS:
        results.add(experiment, at_once(experiment))
    *_, line = papers_again.lines_of(table, results)
    assert line == "| wave | 2.000 ± 0.577 (3) | 1.50 | 2.500 ± 0.577 (3) |  | +0.500 ± 0.000 |"


def test_the_error_of_one_value_is_unknown():
    assert mean_and_error([2.0]) == (2.0, math.inf)
    assert mean_and_error([1.0, 3.0]) == (2.0, pytest.approx(1.0))


def test_critical_differences_are_those_of_the_table():
    """Demsar 2006, table 5(a): q of 2 to 5 classifiers; and the example of section 3.2.4, 4 of them on 14 sets."""
    for methods, q in ((2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728)):
        scaled = papers_again.critical(6, methods) * 6 / math.sqrt(methods * (methods + 1))
        assert scaled == pytest.approx(q, abs=2e-3)
    assert papers_again.critical(14, 4) == pytest.approx(1.25, abs=5e-3)


def test_ranks_are_of_sets_that_all_methods_have(tmp_path):
    results, first = Results("table", tmp_path), papers_again.TABLES[1]
    table = papers_again.Table("table", "RMSE", "rmse", {name: {} for name in "abcd"}, first.methods)
    for k, name in enumerate("abcd"):
        for error, method in enumerate(table.methods):
            if (name, error) != ("d", 2):  # a method without figures of this set
                results.add(Experiment(0, name, method), {"rmse": (error + k) % 3 + 1.0})
    (_, line) = papers_again.ranks(table, results)
    assert line.startswith("Mean ranks over 3 sets: GP 50 2.00, DGP-2 50 2.00, dgp 2.00; critical difference")
    results.add(Experiment(0, "d", table.methods[2]), {"rmse": 9.0})
    assert "over 4 sets: GP 50 1.75, DGP-2 50 2.00, dgp 2.25;" in papers_again.ranks(table, results)[1]
    none = papers_again.Table("table", "RMSE", "rmse", {"a": {}, "b": {}}, first.methods)
    assert papers_again.ranks(none, results) == []


SCRIPTS = {
    "paper000_networks": [],
    "paper001_figure1": [],
    "paper001_table1": [],
    "paper002_deep": [],
    "paper002_classes": [],
    "paper003_robot_arm": [],
    "paper004_tables": [os.environ.get("BCMDIST_DATA", "../shared/data")],
}


def test_the_page_shows_all_scripts_that_keep_results():
    assert {table.script for table in papers_again.TABLES} == set(SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_show_what_they_have_kept_without_computing(script, capsys):
    """Those of the folder of results; with no time nothing is begun."""
    examples = papers_again.FOLDER.parent
    command = [sys.executable, f"{script}.py", *SCRIPTS[script], "--full", "--minutes", "0"]
    done = subprocess.run(command, cwd=examples, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, method in {(one.set, one.method) for one in Results(script).by_experiment}:
        assert name in done.stdout
        assert method in done.stdout
