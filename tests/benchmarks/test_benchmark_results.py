"""Benchmarks as JSON, and the page that is made of them: what it says is what was measured."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import baselines
import benchmark_options
import benchmark_page
import records
from benchmark_pictures import SECTIONS, digest
from commands import run
from data_sets import SETS, SUBSETS, Matern, kriging, some_rows_of_field
from measurement import Watched, too_many
from peers import METHODS, REFERENCE, figures_of, methods_of

MAIN = Path(benchmark_page.__file__).with_name("__main__.py")
FILES = sorted(path for path in records.FOLDER.glob("*.json") if path.stem in SETS)


def run_of(split=0, *, busy=False, outcome="done", wall=9.0, **figures):
    cost = {"wall": wall, "cores": 4.0, "megabytes": 300, "others": 0.0, "others_before": 0.0, "load": 0.2}
    found = {"split": split, "date": "2026-01-02T03:04:05+00:00", "busy": busy, "outcome": outcome, "note": "a|b"}
    return found | cost | {"figures": figures}


def record(method, *runs, name="uci_yacht"):
    return {
        "set": name,
        "method": method,
        "task": SETS[name].task,
        "train_rows": 277,
        "test_rows": 31,
        "inputs": 6,
        "outcome": runs[-1]["outcome"],
        "seconds_allowed": 60.0,
        "versions": {"python": "3.11"},
        "machine": {"processor": "some", "cores": 2, "memory_gb": 8, "system": "Linux"},
        "commit": "abc",
        "runs": list(runs),
    }


# --- The page says what the results say ---


def test_the_page_is_made_from_the_results():
    assert benchmark_page.PAGE.read_text() == benchmark_page.page(), "cd tests && python -m benchmarks --write"


def test_the_table_of_readme_is_made_from_the_results():
    assert benchmark_page.readme_table() in benchmark_page.README.read_text(), (
        "cd tests && python -m benchmarks --write"
    )


def test_the_times_of_readme_are_those_of_the_results():
    text, found = benchmark_page.README.read_text(), records.load_trial("billion_rows")
    of_map = re.search(
        r"`--expert fourier`, (\d+) million cells of a map took (\d+) minutes on (\w+) cores, (\w+) kills", text
    )
    assert of_map
    expected = round(found["absorbed"] / 1e6), round(found["wall_s"] / 60), found["machine"]["cores"], found["kills"]
    words = {"two": 2, "three": 3}
    assert (int(of_map[1]), int(of_map[2]), words[of_map[3]], words[of_map[4]]) == expected
    assert found["absorbed"] == found["expected"]
    assert "predicting 30,000 takes less than a minute (table below)" in text
    ours = records.load(benchmark_page.README_SET)[benchmark_page.OURS]
    assert records.median(ours, "wall") < 60.0
    assert (ours["train_rows"], ours["test_rows"]) == (10_000, 30_000)


@pytest.mark.parametrize("section", [one for one in SECTIONS if one.draw], ids=lambda one: one.file)
def test_pictures_are_made_from_the_results(section):
    drawn = benchmark_page.GUIDE / section.file
    if not section.figures(records.FOLDER):
        assert not drawn.exists()
        return
    text = drawn.read_text()
    assert f">{digest(section.figures(records.FOLDER))}<" in text, "cd tests && python -m benchmarks --write"
    assert len(text) < 150_000
    assert f"]({section.file})" in benchmark_page.PAGE.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_results_are_complete(path):
    """Each figure has its machine, load, versions, commit and date beside it."""
    for found in records.load(path.stem).values():
        assert found["method"] in methods_of(SETS[path.stem])
        assert {"processor", "cores", "memory_gb"} <= found["machine"].keys()
        assert {"python", "numpy", "scipy"} <= found["versions"].keys()
        assert re.fullmatch(r"[0-9a-f]{7,}\+?", found["commit"])
        for one in found["runs"]:
            if one["outcome"].startswith("not tried"):
                continue
            assert {"date", "load", "others", "busy", "wall", "cores", "megabytes"} <= one.keys()
            assert one["busy"] == (max(one["others"], one["others_before"]) > 0.5)
            assert bool(one["figures"]) == (one["outcome"] == "done")


def test_each_table_has_the_command_that_makes_it():
    sections = benchmark_page.PAGE.read_text().split("\n## ")[1:]
    tables = [section for section in sections if section.partition("\n")[0] in SETS]
    assert len(tables) == len([path for path in FILES if path.stem not in SUBSETS]) > 0
    for section in tables:
        name = section.partition("\n")[0]
        commands = re.findall(r"^python -m benchmarks (--sets .*\n.*)$", section, re.MULTILINE)
        each = [benchmark_options.parser().parse_args(one.replace("\\", "").split()) for one in commands]
        stored, repeated = records.load(name), set()
        for asked in each:
            assert asked.sets == (name,)
            assert (benchmark_page.README.parent / "tests" / asked.results).resolve() != records.FOLDER
            assert {stored[method]["seconds_allowed"] for method in asked.methods} == {asked.seconds}
            repeated |= set(asked.methods)
        titles = re.findall(r"^\| (?!method|---)(.*?) \|", section, re.MULTILINE)
        assert sorted(titles) == sorted(benchmark_page.title(stored[method]) for method in repeated)
        assert f"Source: {SETS[name].source}" in section
        assert SETS[name].source


# --- How it is made ---


@pytest.fixture
def folder(tmp_path):
    records.keep(record("bcmdist", run_of(0, rmse=2.0, mnlp=1.0), run_of(1, rmse=4.0, mnlp=1.0)), tmp_path)
    records.keep(record("linear", run_of(0, busy=True, rmse=3.0, mnlp=0.5)), tmp_path)
    records.keep(record("ngboost", run_of(outcome="stopped after 60 s")), tmp_path)
    return tmp_path


def test_tables_show_medians_loads_and_what_was_stopped(folder):
    text = benchmark_page.page(folder)
    assert "277 training and 31 test rows" in text
    assert "| bcmdist | 2 | 1.000 |" not in text
    (ours,) = re.findall(r"^\| bcmdist \|.*$", text, re.MULTILINE)
    assert ours == "| bcmdist | 2 | 1 | 9.0 | 4.0 | 300 | a/b |", "of the split that both have"
    (linear,) = re.findall(r"^\| linear model \|.*$", text, re.MULTILINE)
    assert linear == r"| linear model | 3 | 0.5 | 9.0\* | 4.0\* | 300 | a/b |"
    assert re.search(r"^\| NGBoost [| ]+stopped after 60 s \|$", text, re.MULTILINE)
    assert "In 1 of the 3 runs shown other processes" in text


def test_commands_are_by_limit_and_repeat_as_often(folder):
    found = records.in_order(records.load("uci_yacht", folder))
    (place,) = (k for k, one in enumerate(found) if one["method"] == "linear")
    found[place] = found[place] | {"seconds_allowed": 90.0, "runs": [run_of(0), run_of(1)]}
    first, second = benchmark_page.commands("uci_yacht", found).split("\npython")
    assert first.endswith("--seconds 90 --repeat 2 --results again \\\n    --methods linear")
    assert second.endswith("--seconds 60 --results again \\\n    --methods bcmdist,ngboost")


def test_ranges_of_several_runs():
    found = record("linear", run_of(0, rmse=1.0), run_of(1, rmse=2.0), run_of(2, rmse=6.0))
    assert benchmark_page.shown(found, "rmse") == "2 (1 to 6)"
    assert benchmark_page.shown(found, "nmse") == ""


def test_what_others_do_better_comes_first(folder):
    text = benchmark_page.page(folder)
    assert "- **uci_yacht** (31 test rows): MNLP 1, 0.5 by linear model." in text
    assert text.index("## Where others are better") < text.index("## uci_yacht")
    records.keep(record("linear", run_of(rmse=2.01, mnlp=1.005)), folder)
    assert "Nowhere by more than" in benchmark_page.page(folder)


def test_growth_is_drawn_by_rows_and_has_no_tables(tmp_path):
    for name, rows in (*SUBSETS.items(), ("heaton_simulated", 105_569)):
        one = run_of(nmse=1e3 / rows)
        records.keep(record("bcmdist", one, name=name) | {"train_rows": rows}, tmp_path)
    growth = next(one for one in SECTIONS if "Growth" in one.title)
    found = growth.figures(tmp_path)["bcmdist"]
    assert found["rows"] == [1000, 3000, 10_000, 30_000, 105_569]
    assert found["nmse"][0] == 1.0
    assert "## heaton_simulated" in benchmark_page.page(tmp_path)
    assert "## heaton_1000" not in benchmark_page.page(tmp_path)


LAND = {"absorbed": 900, "expected": 900, "weights": 20, "wall_s": 600.0, "kills": 3, "log_loss": 0.2, "others": 0.1}
LAND |= {"log_loss_of_share": 0.6, "options": "--kills 3", "map": ["0 50", "100 20"]}
LAND |= {"calibration": [[0.1, 0.2, 10], [0.9, 0.8, 10]]}
HEIGHTS = {"rmse": 255.0, "coverage95": 0.918}
RELIEF = {"rows": 800, "sd": 820.0, "others": 0.1, "options": "--spatial"}
RELIEF |= {"fourier": {"seconds": 23.0, "tiles": HEIGHTS, "near": HEIGHTS}}


def test_trials_of_other_scripts_have_their_sections(folder):
    records.keep_trial("billion_rows", LAND, folder)
    records.keep_trial("relief", RELIEF, folder)
    text = benchmark_page.page(folder)
    assert "Land or sea in 900 cells" in text
    assert "10 minutes, killed 3 times on the way. The model then holds 900 cells." in text
    assert "tests/benchmarks/billion_rows.py --kills 3 --write`" in text
    assert "| `--expert fourier` | 23 | 255 | 0.918 | 255 | 0.918 |" in text
    assert "`--partition spatial` |" not in text, "it was not measured"
    map_of_land = next(one for one in SECTIONS if one.file == "benchmarks_land.svg")
    assert map_of_land.figures(folder) == LAND
    assert len(map_of_land.draw(LAND).axes) == 5  # with the scales of two maps


def test_thinned_rows_are_some_of_all(tmp_path, rng):
    X, y = rng.standard_normal((50, 2)), rng.standard_normal(50)
    np.savez(tmp_path / "all.npz", X_train=X, y_train=y, X_test=X[:5], y_test=y[:5])
    with np.load(some_rows_of_field(20)(tmp_path / "all.npz", tmp_path)) as kept:
        assert len(kept["y_train"]) == 20
        assert {(*x, t) for x, t in zip(kept["X_train"], kept["y_train"], strict=True)} <= {
            (*x, t) for x, t in zip(X, y, strict=True)
        }
        np.testing.assert_array_equal(kept["X_test"], X[:5])


def test_references_are_no_rivals(tmp_path):
    records.keep(record("bcmdist", run_of(rmse=2.0), name="kaust_smooth"), tmp_path)
    records.keep(record(REFERENCE, run_of(rmse=1.0), name="kaust_smooth"), tmp_path)
    text = benchmark_page.page(tmp_path)
    assert "| kriging, true parameters | 1 |" in text
    assert "Nowhere by more than" in text


def test_a_record_takes_the_place_of_an_earlier_one(folder):
    records.keep(record("linear", run_of(rmse=7.0)), folder)
    found = records.load("uci_yacht", folder)
    assert list(found) == ["bcmdist", "linear", "ngboost"]
    assert found["linear"]["runs"][0]["figures"] == {"rmse": 7.0}
    assert [path.name for path in folder.iterdir()] == ["uci_yacht.json"]


# --- Methods ---


def test_a_peer_that_is_not_installed_is_named(monkeypatch, make_data, tmp_path):
    for part in ("train", "test"):
        make_data(f"{part}.zarr", X=np.zeros((4, 1)), y=np.arange(4.0))
    monkeypatch.setitem(sys.modules, "MuyGPyS", None)
    assert figures_of("muygps", tmp_path, "regression", np.inf) == {"none": "not installed: MuyGPyS"}


def test_methods_are_for_tasks():
    assert "gstools" in methods_of(SETS["kaust_smooth"])
    assert "gstools" not in methods_of(SETS["kin40k"])
    assert methods_of(SETS["flchain"]) == ["bcmdist", "bcmdist_chunks", "weibull_aft"]
    assert [name for name in SETS if REFERENCE in methods_of(SETS[name])] == [
        "lucas_house",
        "lucas_house_beyond",
        "kaust_smooth",
        "kaust_nugget",
    ]
    assert too_many("gpytorch_exact", {"train_rows": 30_000}).startswith("not tried: memory")
    assert not too_many("bcmdist", {"train_rows": 10**9})


def test_kriging_with_true_parameters_is_calibrated(rng):
    matern = Matern(1.5, 0.2, 0.5)
    X = rng.uniform(size=(1500, 2))
    distance = np.linalg.norm(X[:, None] - X[None], axis=-1)
    np.testing.assert_allclose(matern(distance), 1.5 * np.exp(-distance / 0.2), rtol=1e-6, atol=1e-8)
    y = np.linalg.cholesky(matern(distance) + 0.1 * np.eye(1500)) @ rng.standard_normal(1500)
    parts = {"X_train": X[:1200], "y_train": y[:1200], "X_test": X[1200:], "y_test": y[1200:]}
    mean, variance = kriging(matern, nugget=True)(parts)
    scaled = (parts["y_test"] - mean) / np.sqrt(variance)
    assert (scaled**2).mean() == pytest.approx(1.0, abs=0.25)  # 300 rows: a standard error of .08
    assert ((parts["y_test"] - mean) ** 2).mean() < 0.5 * parts["y_test"].var()


def test_intervals_without_a_density_are_counted(rng):
    y = rng.standard_normal(200)
    predictions = baselines.Predictions(np.zeros(200), intervals={0.5: (np.full(200, -1.0), np.full(200, 1.0))})
    found = baselines.regression_figures(predictions, np.zeros(3), 2.0 * y)
    assert found["coverage50"] == pytest.approx((np.abs(2.0 * y) <= 1.0).mean())
    assert found["nmse"] == pytest.approx(1.0)
    assert "mnlp" not in found


@pytest.mark.skipif(importlib.util.find_spec("lightgbm") is None, reason="pip install '.[benchmark]'")
@pytest.mark.filterwarnings("ignore:The argument 'eval_set':Warning")  # of LightGBM 4.7; 4.6 has no other
def test_quantiles_of_trees_are_conformal(rng):
    from peer_models import MODELS

    X = rng.uniform(-1, 1, (1500, 2))
    y = np.sin(3.0 * X[:, 0]) + (0.1 + 0.5 * (X[:, 1] > 0)) * rng.standard_normal(1500)
    parts = ({"X": X[own], "y": y[own]} for own in (slice(1000), slice(1000, None)))
    found = baselines.figures_by(MODELS["lightgbm_quantiles"], *parts, "regression", np.inf)
    for level in (50, 80, 95):
        assert found[f"coverage{level}"] == pytest.approx(level / 100, abs=0.12)  # 100 rows decide on the shift


# --- Runs ---


@pytest.mark.slow
@pytest.mark.alone
def test_what_a_process_takes_is_seen_from_outside():
    program = "import time\ndata = bytearray(200_000_000)\nwhile time.process_time() < 1: pass\nprint('{}')"
    with Watched() as watched:
        run([sys.executable, "-c", program])
    found = watched.figures()
    assert 0.5 < found["cores"] < 10
    assert found["wall"] > 1.0
    assert 200 <= found["megabytes"] < 400


@pytest.fixture
def benchmarks(monkeypatch, tmp_path):
    """The command, with results in a folder of its own."""
    spec = importlib.util.spec_from_file_location("benchmarks_main", MAIN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["benchmarks", "--results", str(tmp_path / "results"), *arguments])
        try:
            module.main()
        except SystemExit as ended:
            return ended.code
        return 0

    return command


def test_sets_and_methods_are_listed(benchmarks, capsys):
    benchmarks("--list")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SETS)
    assert "*" not in "".join(lines), "none has a result"
    assert all(name in " ".join(lines) for name in METHODS)
    assert benchmarks("--sets", "poll") == 2


def test_without_data_it_says_what_to_set(benchmarks, monkeypatch, capsys):
    monkeypatch.delenv("BCMDIST_DATA", raising=False)
    assert benchmarks("--sets", "pol") == 1
    assert "set BCMDIST_DATA" in capsys.readouterr().out
    assert "leave out --results" in benchmarks("--write")


@pytest.mark.slow  # some processes
def test_results_are_kept_and_not_measured_again(benchmarks, monkeypatch, capsys, tmp_path, rng):
    mask = np.zeros((20, 80), dtype=np.uint8)
    mask[:, :20] = 1
    X = rng.standard_normal((80, 2))
    np.savez(tmp_path / "uci_yacht.npz", X=X, y=X.sum(axis=1), test_mask=mask)
    monkeypatch.setenv("BCMDIST_DATA", str(tmp_path))
    results = tmp_path / "results"
    assert benchmarks("--sets", "uci_yacht", "--methods", "linear", "--repeat", "2") == 0
    (found,) = records.load("uci_yacht", results).values()
    assert [(one["split"], one["outcome"]) for one in found["runs"]] == [(0, "done"), (1, "done")]
    assert found["runs"][0]["figures"]["nmse"] < 1e-3
    assert (found["train_rows"], found["test_rows"], found["inputs"]) == (60, 20, 2)
    capsys.readouterr()
    assert benchmarks("--sets", "uci_yacht", "--methods", "linear") == 0
    assert f"uci_yacht linear: has a result in {results}; --again runs it again" in capsys.readouterr().out
    assert benchmarks("--sets", "uci_yacht", "--methods", "linear", "--again", "--seconds", "0.5") == 1
    assert "uci_yacht linear: the earlier result is kept" in capsys.readouterr().out
    assert records.load("uci_yacht", results)["linear"] == found
    results = tmp_path / "other"
    command = ("--sets", "uci_yacht", "--methods", "linear", "--results", str(results))
    assert benchmarks(*command, "--seconds", "0.5") == 1
    assert records.load("uci_yacht", results)["linear"]["outcome"] == "stopped after 0.5 s"
