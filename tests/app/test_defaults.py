"""Where options come from when they are not typed: environment and files; and how little a command may say."""

import json
import os
import re
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from bcmdist.app.cli.main import cli

FIT = ["--no-learn", "--kernel", "se", "--serial", "--json"]


@pytest.fixture
def fit(wave, tmp_path):
    """Fit with some options; what is printed as JSON, and on stderr."""
    path, _, _ = wave
    count = iter(range(100))

    def run(*options, before=(), **environment):
        model = str(tmp_path / f"model{next(count)}")
        done = CliRunner().invoke(cli, [*before, "fit", path, "--model", model, *FIT, *options], env=environment)
        return json.loads(done.stdout.splitlines()[0]), done.stderr

    return run


def file(folder, name, text):
    (folder / name).write_text(text)
    return str(folder / name)


def test_each_wins_over_the_next(fit, tmp_path):
    every = file(tmp_path, "all.toml", "[fit]\nquery = 11\nrows-per-expert = 50\n[predict]\nquiet = true\n")
    own = file(tmp_path, "fit.toml", "query = 12\n")
    assert fit(before=["--config", every])[0]["query"] == 11
    found, _ = fit("--config", own, BCMDIST_CONFIG=every)
    assert (found["query"], found["partitions"]) == (12, 5)  # of 50 rows: the rest of the file for all still holds
    assert fit("--config", own, BCMDIST_CONFIG=every, BCMDIST_FIT_QUERY="13")[0]["query"] == 13
    assert fit("--config", own, "--query", "14", BCMDIST_CONFIG=every, BCMDIST_FIT_QUERY="13")[0]["query"] == 14


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fits]\nquery = 3\n", "expected tables named as commands"),
        ("query = 3\n", "expected tables named as commands"),
        ("[fit]\nqueries = 3\n", r"\[fit\]: expected names of options, got queries"),
        ("[fit]\nseed = true\n", r"\[fit\]: expected a whole number for seed, got true"),
        ("[fit", "expected TOML"),
    ],
)
def test_files_that_cannot_be_used(text, message, tmp_path):
    done = CliRunner().invoke(cli, ["--config", file(tmp_path, "all.toml", text), "fit", "train.zarr", "--model", "m"])
    assert done.exit_code == 1
    assert re.search(message, done.stderr), done.stderr


def test_quiet(fit):
    assert "experts" in fit("--query", "10")[1]
    assert fit("--query", "10", BCMDIST_FIT_QUIET="1")[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    """Of the installed name; the script is the shell's, its words are ours."""
    run = [sys.executable, "-c", "from bcmdist.app.cli.main import cli; cli(prog_name='bcmdist')"]

    def asked(**environment):
        env = os.environ | environment
        return subprocess.run(run, env=env, capture_output=True, text=True, check=True).stdout

    if shell != "bash":  # of which click looks for the version of the one installed
        assert "_BCMDIST_COMPLETE" in asked(_BCMDIST_COMPLETE=f"{shell}_source")
    words = {"COMP_WORDS": "bcmdist fit --que", "COMP_CWORD": "--que" if shell == "fish" else "2"}
    assert "--query-method" in asked(_BCMDIST_COMPLETE=f"{shell}_complete", **words)


@pytest.mark.parametrize(
    ("command", "begun", "offered"),
    [
        ("fit", ["--eff"], ["--effort"]),
        ("fit", ["--effort", "th"], ["thorough"]),
        ("fit", ["--kernel", "au"], ["auto"]),
        ("fit", ["--kernel", "matern3"], ["matern32"]),
        ("fit", ["--kernel", "matern32 + per"], ["matern32 + periodic"]),
        ("fit", ["--kernel", "se*rq+au"], []),
        ("fit", ["--likelihood", "weib"], ["weibull"]),
        ("fit", ["--expert", "fit"], ["fitc"]),
        ("predict", ["--method", "comm"], ["committee"]),
    ],
)
def test_names_are_completed(command, begun, offered):
    completion = ShellComplete(cli, {}, "bcmdist", "_BCMDIST_COMPLETE")
    found = completion.get_completions([command, *begun[:-1]], begun[-1])
    assert [one.value for one in found] == offered
