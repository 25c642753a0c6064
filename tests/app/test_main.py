"""The command line as a user types it: in processes of their own where speed or exit codes matter."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from unittest.mock import Mock

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from bcmdist import GBCM
from bcmdist.api import sampling as posterior
from bcmdist.app.cli.main import cli
from bcmdist.app.cli.output import in_words, note_warning, readable
from bcmdist.model.kernels import KERNEL_NAMES, KERNELS
from bcmdist.storage.commits import open_store
from some_likelihoods import ONE_PROCESS

CHUNKS = ["--partition", "chunks"]
FIT = ["--no-learn", "--serial", "--query", "30", "--rows-per-expert", "60", "--kernel", "se"]


def run(*arguments):
    """Exit code and stdout of `bcmdist ... --json`, parsed."""
    command = [sys.executable, "-m", "bcmdist", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout) if "--json" in arguments else done.stdout, done.stderr


@pytest.mark.slow
def test_the_whole_job(tmp_path, rng):
    X = rng.uniform(-2, 2, (300, 2))
    np.savez(tmp_path / "a.npz", X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300))
    train, test, model = tmp_path / "train.zarr", tmp_path / "test.zarr", tmp_path / "model"
    for part, path in [("train", train), ("test", test)]:
        code, out, _ = run("import", tmp_path / "a.npz", path, "--holdout", 0.2, "--seed", 3, "--part", part, "--json")
        assert (code, out["rows"]) == (0, {"train": 240, "test": 60}[part])
    code, fit, _ = run("fit", train, "--model", model, "--task", "regression", *FIT, *CHUNKS, "--json")
    assert code == 0
    for key in [
        "rows",
        "partitions",
        "query",
        "seconds",
        "log_evidence",
        "kernel",
        "hyperparameters",
        "p_eff",
        "jitter",
        "model",
        "commit",
    ]:
        assert key in fit
    assert (fit["rows"], fit["partitions"], fit["commit"]) == (240, 4, 2)
    code, score, _ = run("score", model, test, "--serial", "--json")
    assert code == 0
    numbers = ["rmse", "nmse", "mae", "mnlp", "crps", "coverage50", "coverage80", "coverage95", "interval_score"]
    assert list(score) == ["rows", "method", *numbers, "pit_distance", "pit", "trust"]
    assert len(score["pit"]) == 20
    assert score["nmse"] < 0.1
    code, predict, _ = run("predict", model, test, "--out", tmp_path / "p.zarr", "--serial", "--json")
    assert (code, predict["rows"], predict["method"]) == (0, 60, "committee")
    assert set(predict) == {"rows", "seconds", "out", "method", "unused"}
    names = set(zarr.open_group(tmp_path / "p.zarr", mode="r").array_keys())
    assert names == {"row", "mean", "variance", "observation_mean", "observation_variance", "lower95", "upper95"}
    code, info, _ = run("info", model, "--json")
    assert code == 0
    for key in ["rows", "partitions", "commit", "query", "p_eff", "hyperparameters", "likelihood", "kernel"]:
        assert key in info
    assert info["hyperparameters"] == fit["hyperparameters"]
    code, text, _ = run("info", model)
    assert code == 0
    assert "kernel.lengthscale" in text


@pytest.mark.slow
def test_classification_scores(classes, tmp_path):
    path, *_ = classes
    assert run("fit", path, "--model", tmp_path / "m", *FIT)[0] == 0
    code, score, _ = run("score", tmp_path / "m", path, "--serial", "--json")
    assert code == 0
    assert list(score) == ["rows", "method", "accuracy", "log_loss", "brier", "ece", "auc", "trust"]


@pytest.mark.slow
def test_cells_and_methods(wave, tmp_path):
    path, *_ = wave
    given = ["--set", "kernel.lengthscale=0.5", "--set", "likelihood.noise_variance=0.01", "--effort", "quick"]
    fit = call("fit", path, "--model", tmp_path / "m", *FIT, *given, "--partition", "spatial")
    keys = "rows partitions query seconds log_evidence kernel hyperparameters p_eff jitter model commit"
    assert set(keys.split()) <= set(fit)
    assert fit["method"] == "local"
    assert fit["cells"]["count"] >= 2
    assert {"cells", "halos", "experts"} <= set(fit["seconds_by_stage"])
    info = call("info", tmp_path / "m")
    assert (info["method"], info["cells"]) == (fit["method"], fit["cells"])
    assert "local" in CliRunner().invoke(cli, ["info", str(tmp_path / "m")]).output
    for options, method in [([], "local"), (["--method", "committee"], "committee"), (["--method", "local"], "local")]:
        out = tmp_path / f"{len(options)}{method}.zarr"
        score = call("score", tmp_path / "m", path, "--serial", *options)
        assert list(score)[:2] == ["rows", "method"]
        assert {"rmse", "nmse", "mae", "mnlp", "crps", "coverage95", "interval_score"} <= set(score)
        predict = call("predict", tmp_path / "m", path, "--out", out, "--serial", *options)
        assert set(predict) == {"rows", "seconds", "out", "method", "unused"}
        assert (score["rows"], score["method"], predict["rows"], predict["method"]) == (240, method, 240, method)
        assert zarr.open_group(out, mode="r").attrs["method"] == method
    ingested = call("ingest", tmp_path / "m", path, "--serial")
    assert (ingested["partitions"], ingested["rows"], ingested["duplicates"]) == (0, 0, 5)
    call("fit", path, "--model", tmp_path / "chunks", *FIT, *CHUNKS)
    command = ["score", str(tmp_path / "chunks"), path, "--serial", "--method", "local"]
    refused = CliRunner().invoke(cli, command)
    assert refused.exit_code == 1
    assert "InvalidOption: method: expected a model fitted with --partition spatial" in refused.stderr
    assert "use --method committee" in refused.stderr
    coupled = ["fit", path, "--model", str(tmp_path / "no"), "--partition", "spatial", "--serial", "--likelihood"]
    refused = CliRunner().invoke(cli, [*coupled, "softmax_coupled"])
    assert refused.exit_code == 1
    assert "--likelihood softmax or onehot" in refused.stderr
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("kind", ["wave", "classes"])
def test_pictures_of_scores(kind, request, tmp_path):
    pytest.importorskip("matplotlib")
    path, *_ = request.getfixturevalue(kind)
    call("fit", path, "--model", tmp_path / "m", *FIT)
    figures = call("score", tmp_path / "m", path, "--serial", "--picture", tmp_path / "s.png")
    assert figures["picture"] == str(tmp_path / "s.png")
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"
    for name, said in [("s.doc", "expected a name that ends in"), ("no/s.png", "expected a directory at")]:
        command = ["score", str(tmp_path / "m"), path, "--serial", "--picture", str(tmp_path / name)]
        assert f"InvalidOption: picture: {said}" in CliRunner().invoke(cli, command).stderr


def test_calibration_in_info(wave, tmp_path):
    path, *_ = wave
    call("fit", path, "--model", tmp_path / "m", *FIT)
    told = call("info", tmp_path / "m", "--calibration")["calibration"]
    assert set(told) >= {"rows", "coverage50", "coverage80", "coverage95", "variance_ratio"}
    assert "calibration" not in call("info", tmp_path / "m")
    assert "coverage95 0." in CliRunner().invoke(cli, ["info", str(tmp_path / "m"), "--calibration"]).output


@pytest.mark.slow
def test_config_file_and_set(wave, tmp_path):
    path, *_ = wave
    config = tmp_path / "fit.toml"
    config.write_text(
        'query = 20\nkernel = "matern32"\nlearn = false\nserial = true\n[set]\n"kernel.lengthscale" = [0.7, 0.9]\n'
    )
    code, fit, _ = run("fit", path, "--model", tmp_path / "m", "--config", config, "--query", 10, "--json")
    assert code == 0
    assert (fit["query"], fit["kernel"]) == (10, "matern32")  # the command line wins
    assert fit["hyperparameters"]["kernel.lengthscale"] == [0.7, 0.9]
    config.write_text(
        'no-learn = true\nscheduler = "tcp://127.0.0.1:1"\nkernel = "se"\n[set]\nkernel.lengthscale = 0.7\n'
    )
    code, fit, _ = run("fit", path, "--model", tmp_path / "o", "--config", config, "--serial", "--query", 10, "--json")
    assert code == 0, fit
    assert fit["hyperparameters"]["kernel.lengthscale"] == [0.7, 0.7]
    config.write_text("querry = 20\n")
    code, error, _ = run("fit", path, "--model", tmp_path / "n", "--config", config, "--json")
    assert (code, error["error"]) == (1, "InvalidOption")
    assert "got querry" in error["message"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("query = [1, 2]", "expected a number or a text for query, got [1, 2]"),
        ("learn = 3", "expected true or false for learn, got 3"),
        ("query = ", "expected TOML"),
        ("rows-per-expert = 1.5", "fit.toml: expected a whole number for rows-per-expert, got 1.5; correct the file"),
        ("rows-per-expert = true", "expected a whole number for rows-per-expert, got true"),
        ("workers = 2.0", "expected a whole number for workers, got 2.0"),
        ("seed = inf", "expected a whole number for seed, got inf"),
        ("query = 1.5", "expected a whole number or a text for query, got 1.5"),
        ("query = true", "expected a number or a text for query, got true"),
        ("kernel = 2020-01-01", "expected a number or a text for kernel, got datetime.date"),
        ("no-learn = 1", "expected true or false for no-learn, got 1"),
        ("no-learn = true\nlearn = true", "expected --learn once, got no-learn too; leave out one of them"),
        ('set = "kernel.variance=1"', "expected a table of numbers by name for set, got 'kernel.variance=1'"),
        ('seed = "1.5"', "'1.5' is not a valid integer"),
    ],
)
def test_config_files_with_other_types(tmp_path, text, shown):
    (tmp_path / "fit.toml").write_text(text)
    result = CliRunner().invoke(cli, ["fit", "d", "--model", "m", "--config", str(tmp_path / "fit.toml")])
    assert result.exit_code == (2 if "valid" in shown else 1)  # a text is read as on the command line
    assert shown in result.output


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["fit", "d", "--model", "m", "--x", "a", "--x", "b"], "expected --x once, got it 2 times; give one"),
        (["fit", "d", "--model=m", "--learn", "--no-learn"], "expected --learn/--no-learn once, got it 2 times"),
        (["submit", "fit", "d", "--model", "m", "--model", "m"], "expected --model once, got it 2 times"),
        (["jobs", "--jobs", "a", "--jobs", "b"], "expected --jobs once, got it 2 times"),
        (["import", "a", "b", *3 * ["--seed", "1"]], "expected --seed once, got it 3 times"),
    ],
)
def test_an_option_with_one_value_is_given_once(command, said):
    """Else the last one would win in silence."""
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2
    assert f"bcmdist: UsageError: {said}" in done.stderr
    assert "--help`)" in done.stderr


def test_options_that_may_come_again(tmp_path):
    command = ["info", str(tmp_path), "--json", "--json", "--history"]
    assert "ModelNotFound" in CliRunner().invoke(cli, command).stderr
    given = ["--set", "kernel.variance=1", "--set", "kernel.variance=2", "--no-learn", "--serial"]
    done = CliRunner().invoke(cli, ["fit", str(tmp_path), "--model", str(tmp_path / "m"), *given])
    assert "UsageError: Invalid value for '--set': expected kernel.variance once" in done.stderr


@pytest.mark.slow
def test_prepare_only_then_fit(wave, tmp_path):
    path, *_ = wave
    code, prepared, _ = run("fit", path, "--model", tmp_path / "m", *FIT, "--prepare-only", "--json")
    assert (code, prepared["rows"], prepared["commit"]) == (0, 0, 1)
    assert run("fit", path, "--model", tmp_path / "m", *FIT, "--json")[1]["rows"] == 240


@pytest.mark.slow
def test_errors_are_one_line_and_json(tmp_path, wave):
    path, *_ = wave
    code, out, err = run("fit", tmp_path / "no.zarr", "--model", tmp_path / "m", "--serial")
    assert (code, out) == (1, "")
    assert err.startswith("bcmdist: DataNotFound: data: expected a Zarr group at ")
    assert err.count("\n") == 1
    code, out, _ = run("info", tmp_path, "--json")
    assert (code, out["error"]) == (1, "ModelNotFound")
    code, out, err = run("fit", path, "--json")
    assert (code, out["error"]) == (2, "UsageError")
    assert "Missing option '--model'" in err
    code, _, err = run("fit", path, "--model", tmp_path / "m", "--serial", "--workers", 2)
    assert code == 2
    assert "expected one of --scheduler, --workers and --serial" in err
    code, _, err = run("fit", path, "--model", tmp_path / "m", "--set", "kernel.variance=x", "--serial")
    assert code == 2
    assert "expected NAME=NUMBER" in err
    code, out, _ = run("fit", path, "--model", tmp_path / "m", "--scheduler", "tcp://127.0.0.1:1", "--json")
    assert (code, out["error"]) == (1, "SchedulerUnreachable")


@pytest.mark.parametrize("command", ["demo", "import", "fit", "predict", "score", "info", "doctor"])
def test_every_command_has_help_with_an_example(command):
    out = CliRunner().invoke(cli, [command, "--help"])
    assert out.exit_code == 0
    assert "Example: bcmdist" in out.output
    assert "--json" in out.output


def test_help_of_fit_says_what_the_parameters_of_families_mean():
    text = CliRunner().invoke(cli, ["fit", "--help"]).output.split("Families and the parameters")[1]
    families = {name: make() for name, make in ONE_PROCESS.items() if name != "svm"}
    wanted = {*families, *(name for likelihood in families.values() for name in likelihood.parameters)}
    assert {name for name in wanted if name not in text} == set()
    assert "a precision" in text
    assert "a frequency" in text
    assert "\n    weibull            P(T > t) = exp(-(t / scale)^shape)" in text  # in lines of their own


def test_help_of_fit_names_all_kernels():
    """It is text: the registry would take a numpy to load."""
    text = CliRunner().invoke(cli, ["fit", "--help"]).output
    ours = [name for name in KERNEL_NAMES if KERNELS[name].__module__.startswith("bcmdist.")]
    assert re.search("--kernel NAME.auto +By name: (.*?), or", " ".join(text.split()))[1].split() == ours


def test_help_loads_nothing_heavy():
    heavy = {"numpy", "scipy", "dask", "zarr", "sklearn"}
    code = f"import sys, bcmdist.app.cli.main; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_dask_knows_the_command():
    from importlib.metadata import entry_points

    (entry,) = [e for e in entry_points(group="dask_cli") if e.name == "bcm"]
    assert entry.load() is cli


@pytest.mark.slow
def test_doctor():
    code, found, _ = run("doctor", "--json")
    assert {c["check"] for c in found["checks"]} >= {
        "python",
        "packages",
        "blas",
        "allocation",
        "storage",
        "zarr",
        "cluster",
    }
    assert code == 0, found
    assert found["ok"]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("sigma", "bar"), [(0, 0.98), (8, 0.70)])
def test_full_demo(tmp_path, sigma, bar):
    """The paper reports more than 98.5 % and more than 70 % against noise-free labels (figure 2)."""
    code, d, err = run("demo", "--sigma", sigma, "--out", tmp_path / "demo", "--json")
    assert code == 0, err
    assert d["majority_share"] <= 0.65
    assert d["accuracy_noise_free"] >= max(bar, d["majority_share"] + 0.10)
    assert (d["rows"], d["experts"]) == (60_000, 60)
    keys = "seconds rows_per_second accuracy_noisy log_loss ece out"
    assert set(keys.split()) <= set(d)
    assert (tmp_path / "demo/predictions.zarr").is_dir()
    code, out, _ = run("demo", "--out", tmp_path / "demo", "--json")
    assert (code, out["error"]) == (1, "DataExists")


def call(*arguments):
    """The figures of a command that must succeed, in this process."""
    result = CliRunner().invoke(cli, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_ingest_forget_and_merge(tmp_path, make_data, rng):
    X = rng.uniform(-2, 2, (240, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(240)
    one, other = make_data("one.zarr", X=X[:120], y=y[:120]), make_data("other.zarr", X=X[120:], y=y[120:])
    a, b, both = tmp_path / "a", tmp_path / "b", tmp_path / "both"
    call("fit", one, "--model", a, "--prepare-only", *FIT)
    shutil.copytree(a, b)
    figures = call("ingest", a, one, "--serial")
    assert (figures["partitions"], figures["rows"], figures["duplicates"], figures["commit"]) == (3, 120, 0, 2)
    told = {"partitions", "rows", "duplicates", "expired", "retries", "skipped", "waiting", "stopped"}
    told |= {"same_rows", "drift", "capacity"}
    assert set(figures) == told | {"seconds", "rows_per_second", "commit"}
    again = call("ingest", a, one, "--serial")
    assert (again["partitions"], again["duplicates"], again["commit"]) == (0, 3, 2)
    call("ingest", b, other, "--serial")
    assert call("merge", a, b, "--model", both)["rows"] == 240
    ledger = call("info", both, "--ledger", "--p-eff-data")
    assert ledger["p_eff_data"] > 0
    keys = [entry["key"] for entry in ledger["ledger"] if "other" in entry["key"]]
    assert call("forget", both, *keys, "--serial")["rows"] == 120
    assert call("info", both)["p_eff"] == pytest.approx(call("info", a)["p_eff"], rel=1e-9)


def test_a_key_that_is_not_there(tmp_path, make_data, rng):
    path = make_data(X=rng.uniform(-2, 2, (120, 2)), y=rng.standard_normal(120))
    call("fit", path, "--model", tmp_path / "m", *FIT)
    result = CliRunner().invoke(cli, ["forget", str(tmp_path / "m"), "nothing", "--serial"])
    assert result.exit_code == 1
    assert "bcmdist: InvalidOption: " in result.stderr
    assert "bcmdist info --ledger" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a\nb", "été [1:2]", "\x1b[31m"])
def test_names_that_are_odd_but_allowed(name, make_data, rng, tmp_path):
    """Keys hold them, tables show them on one line."""
    X = rng.uniform(-2, 2, (120, 2))
    path, model = make_data(f"{name}.zarr", X=X, y=X[:, 0]), str(tmp_path / f"{name} model")
    call("fit", path, "--model", model, *FIT, *CHUNKS)
    assert call("ingest", model, path, "--serial")["duplicates"] == 3
    key = call("info", model, "--ledger")["ledger"][0]["key"]
    assert key == f"{path}/X[0:50]"
    shown = CliRunner().invoke(cli, ["info", model, "--ledger"]).output
    assert name.encode("unicode_escape").decode() in shown or name.isprintable()
    assert all(line.isprintable() for line in shown.removesuffix("\n").split("\n"))
    assert call("predict", model, path, "--out", tmp_path / f"{name} out", "--serial")["rows"] == 120
    assert call("forget", model, key, "--serial")["rows"] == 70


def test_a_name_that_is_no_text(tmp_path):
    command = ["fit", str(tmp_path / "a\udcff.zarr"), "--model", str(tmp_path / "m"), *FIT]
    assert "InvalidOption: data: expected a path of Unicode text, got " in CliRunner().invoke(cli, command).stderr


def changes_of(model, make_data, path):
    """What each command answers that changes a mixture."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (60, 2))
    more = make_data("more.zarr", X=X, y=np.sin(2 * X[:, 0]))
    found = {"at 1": call("info", model, "--at", 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # rows of another function
        found["ingest"] = call("ingest", model, more, "--sample-weights", "evidence", "--serial")
        key = call("info", model, "--ledger")["ledger"][0]["key"]
        found["forget"] = call("forget", model, key, "--serial")
        found["revert"] = call("revert", model, "--to", 2)
    found["info"] = call("info", model, "--history", "--ledger")
    return found | {"prune": call("prune", model, "--keep", 2)}


@pytest.mark.slow
def test_sampled_hyperparameters(wave, make_data, tmp_path, monkeypatch):
    monkeypatch.setitem(posterior.LENGTHS, "quick", (30, 10))
    path, *_ = wave
    model, sampling = tmp_path / "m", ["--hyperparameters", "hmc", "--samples", 3, "--chains", 2, "--effort", "quick"]
    options = ["--serial", "--query", 20, "--rows-per-expert", 120, "--kernel", "se", *CHUNKS]
    fit = call("fit", path, "--model", model, *sampling, *options)
    wanted = "rows partitions query seconds log_evidence kernel hyperparameters p_eff jitter model commit"
    assert set(fit) > {*wanted.split(), "samples", "acceptance", "rhat", "ess"}
    assert (fit["rows"], fit["partitions"], fit["samples"]) == (240, 3, 3)
    again = call("fit", path, "--model", model, *sampling, *options)
    assert again["hyperparameters"] == fit["hyperparameters"]
    info = call("info", model)
    assert set(info) > {"rows", "partitions", "commit", "query", "p_eff", "hyperparameters", "likelihood", "kernel"}
    assert info["rhat"] == fit["rhat"]
    score = call("score", model, path, "--serial")
    assert {"rows", "method", "rmse", "nmse", "mae", "mnlp", "crps", "coverage95", "interval_score"} < set(score)
    said = call("predict", model, path, "--out", tmp_path / "p.zarr", "--serial")
    assert set(said) == {"rows", "seconds", "out", "method", "unused"}
    assert said["rows"] == 240
    for command in [
        ("refit", model, "--serial"),
        ("info", model, "--calibration"),
    ]:
        result = CliRunner().invoke(cli, list(map(str, command)))
        assert result.exit_code == 1
        assert "InvalidOption" in result.stderr
        assert "it holds a mixture of sampled ones; name one of its members/" in result.stderr
    changed = changes_of(model, make_data, path)
    assert changed["ingest"]["sample_weights"] == "evidence"
    assert [changed[name]["commit"] for name in ("ingest", "forget", "revert")] == [2, 3, 4]
    assert [changed[name]["rows"] for name in ("ingest", "forget", "revert", "at 1")] == [60, 200, 300, 240]
    assert [one["operation"] for one in changed["info"]["history"]] == ["fit", "ingest", "forget", "revert"]
    assert (len(changed["info"]["ledger"]), changed["prune"]["kept"]) == (4, [3, 4])
    shutil.rmtree(model / "revisions")
    (model / "mixture.json").unlink()
    assert "let sampling finish" in CliRunner().invoke(cli, ["score", str(model), path, "--serial"]).stderr


def test_sampling_that_is_none(wave, tmp_path):
    path, *_ = wave
    command = ["fit", path, "--model", str(tmp_path / "m"), "--hyperparameters", "hmc", "--serial"]
    for options, said in [([], "expected a kernel by name"), (["--prepare-only"], "--prepare-only: expected")]:
        result = CliRunner().invoke(cli, [*command, *options])
        assert f"InvalidOption: {'hmc: ' if not options else ''}{said}" in result.stderr
    assert not (tmp_path / "m").exists()


def test_history_and_pruning(wave, tmp_path):
    path, *_ = wave
    model = str(tmp_path / "m")
    assert run_here("fit", path, "--model", model, *FIT, *CHUNKS)[0] == 0
    key = GBCM.load(model).ledger[0].key
    assert run_here("forget", model, key, "--serial")[0] == 0
    _, info = run_here("info", model, "--history", "--json")
    assert [(c["number"], c["rows"], c["partitions"]) for c in info["history"]] == [(1, 0, 0), (2, 240, 5), (3, 190, 4)]
    assert {c["format"] for c in info["history"]} == {6}
    assert [bool(re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", c["date"])) for c in info["history"]] == 3 * [
        True
    ]
    lines = run_here("info", model, "--history")[1].splitlines()
    commits = [
        line
        for line in lines
        if re.search(r"commit \d \(\w+\) of 20[\d-]+ [\d:]+ UTC: [\d,]+ rows in \d partitions$", line)
    ]
    assert len(commits) == 3
    assert run_here("prune", model, "--keep", "0")[0] == 2
    with open_store(model).hold(1):
        code, pruned = run_here("prune", model, "--keep", "1", "--json")
    assert (code, pruned["kept"], pruned["removed"], list(pruned["held"])) == (0, [1, 3], [2], ["1"])
    assert run_here("prune", model, "--keep", "1", "--json")[1]["removed"] == [1]
    assert run_here("info", model, "--at", "2")[0] == 1
    assert run_here("info", model, "--json")[1]["rows"] == 190


@pytest.mark.parametrize(
    ("error", "name", "text"),
    [
        (KeyboardInterrupt(), "Interrupted", "expected to finish, got an interrupt; run the same command again"),
        (
            OSError(28, "No space left on device"),
            "DiskFull",
            ".*/.*: expected room .*, got: No space left.* MB free there",
        ),
    ],
)
def test_interrupts_and_full_disks_are_one_line(monkeypatch, error, name, text):
    monkeypatch.setattr("bcmdist.app.cli.info._load", Mock(side_effect=error))
    monkeypatch.setattr(sys, "argv", ["bcmdist", "info", "model", "--json"])
    done = CliRunner().invoke(cli, ["info", "model", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["error"] == name
    assert re.fullmatch(f"bcmdist: {name}: {text}.*\n", done.stderr)


def test_a_request_to_end_is_an_interrupt(monkeypatch):
    """As systems that stop a process make it; the handler of before is put back."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("bcmdist.app.cli.info._load", lambda *_: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(5))
    done = CliRunner().invoke(cli, ["info", "model"])
    assert (done.exit_code, signal.getsignal(signal.SIGTERM)) == (1, before)
    assert done.stderr.startswith("bcmdist: Interrupted: expected to finish, got an interrupt")


def run_here(*arguments):
    """Exit code and output, parsed if JSON, in this process."""
    done = CliRunner().invoke(cli, list(arguments))
    return done.exit_code, json.loads(done.stdout) if "--json" in arguments else done.stdout


def test_decisions_and_shared_lengthscales_are_told_in_words():
    figures = {
        "hyperparameters": {"kernel.variance": [1.5], "kernel.lengthscale": [0.25, 0.25, 0.25]},
        "shared_lengthscales": {"kernel.lengthscale": 3},
        "decisions": [
            {"of": "mean", "taken": "linear", "judge": "evidence", "over": {"constant": {"nats": 3.5, "error": None}}},
            {
                "of": "kernel",
                "taken": "se",
                "judge": "rows left out",
                "over": {"rq": {"nats": 0.25, "error": 0.125}, "matern12": {"nats": None, "error": None}},
            },
            {
                "of": "kernel",
                "taken": "se",
                "judge": "evidence",
                "over": {"rq": {"nats": -0.25, "error": 0.5}, "matern12": {"nats": 0.75, "error": 0.125}},
                "unit": "nats a row",
            },
        ],
    }
    told = in_words(figures)
    assert told["hyperparameters"] == {"kernel.variance": [1.5], "kernel.lengthscale": "0.25 (shared by 3 inputs)"}
    assert told["decisions"] == (
        "mean: linear over constant by 3.5 nats, by evidence; "
        "kernel: se over rq by 0.25 +- 0.125 nats a row, matern12 (which failed), by rows left out; "
        "kernel: se kept: rq gains only 0.25 nats a row, error 0.5, matern12 loses 0.75 nats a row, error 0.125"
    )
    assert "shared_lengthscales" not in told
    assert in_words({"rows": 3}) == {"rows": 3}


def test_times_of_a_lag_are_dates():
    source = {"partitions": 2, "rows": 20, "seconds": 1.5, "at": 1.8e9}
    figures = {"lag": {"rows": 20, "seconds": 1.5, "sources": {"stream": source}}}
    assert readable(in_words(figures)["lag"]) == (
        "rows 20, seconds 1.5, sources stream partitions 2, rows 20, seconds 1.5, at 2027-01-15 08:00:00 UTC"
    )
    assert figures["lag"]["sources"]["stream"]["at"] == 1.8e9


def test_a_finished_fit_says_that_nothing_is_left_to_do(wave, tmp_path):
    command = ["fit", wave[0], "--model", str(tmp_path / "m"), *FIT]
    first, again = run_here(*command, "--json")[1], run_here(*command, "--json")[1]
    assert "resumed" not in first
    assert again["resumed"] == "finished"
    commit = again["commit"]
    assert commit == first["commit"]
    shown = run_here(*command)[1]
    assert f"already complete (commit {commit})" in shown
    assert "hyperparameters" not in shown


def test_an_unfinished_fit_says_that_it_was_continued(wave, tmp_path):
    command = ["fit", wave[0], "--model", str(tmp_path / "m"), "--partition", "chunks", *FIT, "--json"]
    run_here(*command, "--prepare-only")
    assert run_here(*command)[1]["resumed"] == "continued"


def test_a_warning_is_printed_once_in_a_command(monkeypatch, wave, tmp_path):
    def warned(request, *_, **__):
        for number in (1, 1, 2):
            note_warning(f"warning {number}")
        return {"rows": 1}

    monkeypatch.setattr("bcmdist.api.carry_out.carry_out", warned)
    done = CliRunner().invoke(cli, ["fit", wave[0], "--model", str(tmp_path / "m"), "--json"])
    assert done.stderr.splitlines() == ["bcmdist: warning: warning 1", "bcmdist: warning: warning 2"]
    assert json.loads(done.stdout)["warnings"] == ["warning 1", "warning 2"]


def test_what_does_not_exist_is_not_printed(wave, tmp_path):
    path, *_ = wave
    _, text = run_here("fit", path, "--model", str(tmp_path / "m"), *FIT)
    for shown in (text, run_here("info", str(tmp_path / "m"))[1], run_here("info", str(tmp_path / "m"), "--ledger")[1]):
        assert "None" not in shown
        assert "nan" not in shown
        assert [line for line in shown.splitlines() if len(line.split()) < 2 and not line.startswith(" ")] == []
    assert run_here("info", str(tmp_path / "m"), "--json")[1]["drift"] is None  # machines are told


def test_scores_are_judged_in_words(wave, tmp_path):
    path, *_ = wave
    run_here("fit", path, "--model", str(tmp_path / "m"), *FIT)
    _, text = run_here("score", str(tmp_path / "m"), path, "--serial")
    assert re.search(r"^trust +\S.* of rows lie in the middle 50%", text, re.MULTILINE)


def test_help_of_fit_is_in_groups_with_each_option_once():
    text = CliRunner().invoke(cli, ["fit", "--help"]).output.split("Families and the parameters")[0]
    headings = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert headings[:2] == ["Data, and the columns of a table", "Model of the target"]
    assert headings[-1] == "Where to run, and output"
    options = re.findall(r"^  (--[\w-]+)", text, re.MULTILINE)
    assert (
        len(options) == len(set(options)) == len([one for one in cli.commands["fit"].params if one.opts[0][0] == "-"])
    )
    assert text.index("--missing") < text.index("--kernel") < text.index("--effort") < text.index("--scheduler")
