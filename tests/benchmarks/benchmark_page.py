"""The guide's page of benchmarks, its pictures and README's table, made from the records of `python -m benchmarks`."""

import hashlib
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import records
from data_sets import SETS
from peers import METHODS, REFERENCE

README = Path(__file__).parent.parent.parent / "README.md"
GUIDE = README.parent / "examples" / "guide"
PAGE = GUIDE / "benchmarks.md"
OURS = "bcmdist"
# README's table: a set, methods, and figures; it stands between two comments.
README_SET = "kin40k"
README_METHODS = (OURS, "gpboost", "gpytorch_svgp", "sklearn_gp", "lightgbm")
README_COLUMNS = {
    "rmse": "RMSE",
    "mnlp": "-log p",
    "coverage95": "in 95 % interval",
    "wall": "seconds",
    "cores": "core seconds",
}
README_TEXT = """
{name}: {train_rows:,} training and {test_rows:,} test rows of {inputs} inputs on {cores} cores. Seconds cover learning
and predicting. RMSE and the mean of -log p, p the predictive density of a test row: lower is better. In 95 % intervals:
.95 is best. Each package uses its default settings, except as noted. To reproduce:
`cd tests && python -m benchmarks --sets {name}`. [More data sets and packages](examples/guide/benchmarks.md), with the
cases where others do better first."""
README_PART = ("<!-- benchmarks -->", "<!-- /benchmarks -->")
PICTURES = {"accuracy": "benchmarks_accuracy.svg", "calibration": "benchmarks_calibration.svg"}
LEVELS = (50, 80, 95)
NOTABLE, NOTABLE_NATS = 0.01, 0.01  # a share, and a difference of log densities: smaller ones are no loss
SHARES = ("accuracy", "ece", "concordance", *(f"coverage{level}" for level in LEVELS))
COVERAGE = {f"coverage{level}": f"{level} %" for level in LEVELS}
COSTS = {"wall": "s", "cores": "core s", "megabytes": "peak MB"}
COLUMNS = {
    "regression": {"rmse": "RMSE", "nmse": "NMSE", "mnlp": "MNLP", "crps": "CRPS", **COVERAGE},
    "classification": {"accuracy": "accuracy", "log_loss": "log loss", "ece": "ECE"},
    "counts": {"mnlp": "MNLP", **COVERAGE, "concordance": "concordance"},
    "lifetimes": {"mnlp": "MNLP", **COVERAGE, "concordance": "concordance"},
}
COMPARED = {
    "regression": ("rmse", "mnlp", "crps"),
    "classification": ("accuracy", "log_loss"),
    "counts": ("mnlp",),
    "lifetimes": ("mnlp", "concordance"),
}
NO_COST = ("reference", "linear", "poisson_glm", "weibull_aft", "bcmdist_chunks")
HIGHER_IS_BETTER = ("accuracy", "concordance")

BEGIN = """# Benchmarks

Made by `python -m benchmarks` from the results in `tests/benchmarks/results/`: each method runs alone, in processes
of its own, on the same rows. `bcmdist` is `bcmdist fit` and `bcmdist score` with nothing but the task; "one pass" adds
`--partition chunks`, which reads rows once in stored order. The others have the settings that their documentation
recommends (`tests/benchmarks/baselines.py`, `peer_models.py`). No setting was chosen by test rows. RMSE, CRPS and MNLP,
the mean of -log p, are in the unit of the targets; 50, 80 and 95 % are the shares of test rows in central intervals of
these levels. Seconds, core seconds and peak memory are of all processes that a method starts, imports and reading
included. Above each table stands the command that makes it:

```text
pip install 'bcmdist[benchmark]'          # in a checkout, with BCMDIST_DATA naming the folder of the data sets
cd tests && python -m benchmarks --list
```
"""


# --- Figures of a record ---


def values(record, name) -> list[float]:
    """A figure, or what it took, of each run that was finished."""
    done = [run for run in record["runs"] if run["outcome"] == "done"]
    return [one for run in done if (one := run.get(name, run["figures"].get(name))) is not None]


def median(record, name) -> float | None:
    """Over the runs; None where there is no such figure."""
    found = values(record, name)
    return statistics.median(found) if found else None


def shown(record, name) -> str:
    """The median, and the range of several runs."""
    found = values(record, name)
    if not found:
        return ""
    low, middle, high = min(found), statistics.median(found), max(found)
    between = f" ({number(low, name)} to {number(high, name)})" if len(found) > 1 and low < high else ""
    return number(middle, name) + between


def number(value, name) -> str:
    if name in COSTS:
        return f"{value:.0f}" if value >= 10 or name == "megabytes" else f"{value:.1f}"
    return f"{value:.3f}" if name in SHARES else f"{value:.4g}"


def done(record) -> bool:
    """Whether it is ours by default, and finished."""
    return record["method"] == OURS and record["outcome"] == "done"


def busy(record) -> bool:
    """Whether other processes used more than half a core before or during some run."""
    return any(run.get("busy") for run in record["runs"])


def title(record) -> str:
    """Of the method."""
    reference = SETS[record["set"]].reference
    return reference.title if record["method"] == REFERENCE and reference else METHODS[record["method"]].title


def line(record) -> str:
    """What a record says, in a line for the terminal."""
    if record["outcome"] != "done":
        return record["outcome"]
    columns = COLUMNS[record["task"]] | COSTS
    found = (f"{head} {text}" for name, head in columns.items() if (text := shown(record, name)))
    return ", ".join(found) + " (busy machine)" * busy(record)


# --- The page ---


def page(folder: Path = records.FOLDER) -> str:
    """The page of all records in a folder."""
    by_set = {name: in_order(records.load(name, folder)) for name in SETS}
    by_set = {name: found for name, found in by_set.items() if found}
    everything = [record for found in by_set.values() for record in found]
    parts = [BEGIN, conditions(everything), losses(by_set), pictures_shown(by_set)]
    parts += [table(name, found) for name, found in by_set.items()]
    return "\n".join(parts)


def in_order(found) -> list:
    """Records in the order of the methods, with the runs on splits that all finished methods have."""
    done = [{run["split"] for run in record["runs"]} for record in found.values() if record["outcome"] == "done"]
    common = set.intersection(*done) if done else set()
    return [
        found[name] | {"runs": [r for r in found[name]["runs"] if r["split"] in common or r["outcome"] != "done"]}
        for name in METHODS
        if name in found
    ]


def conditions(everything) -> str:
    """Machine, load and versions."""
    machines = dict.fromkeys(
        f"{of['cores']} cores ({of['processor']}), {of['memory_gb']} GB, {of['system']}"
        for of in (record["machine"] for record in everything)
    )
    runs = [run for record in everything for run in record["runs"] if "load" in run]
    dates = sorted(run["date"][:10] for run in runs)
    loads = [run["load"] for run in runs]
    packages: dict[str, set[str]] = {}
    for record in everything:
        for package, version in record["versions"].items():
            packages.setdefault(package, set()).add(version)
    listed = ", ".join(
        f"{package} {' or '.join(sorted(packages[package]))}" for package in sorted(packages, key=str.lower)
    )
    of_busy, load = sum(run["busy"] for run in runs), f"{min(loads):g} to {max(loads):g}"
    quiet = (
        f"In {of_busy} of {len(runs)} runs other processes used more than half a core: a * stands\n"
        "  at their seconds, which are no verdict on speed, and where they were stopped."
        if of_busy
        else f"No other process used more than half a core beside any of the {len(runs)} runs."
    )
    commits = ", ".join(sorted({record["commit"] for record in everything}))
    return "\n".join(
        [
            *(f"- Machine: {one}." for one in machines),
            f"- {dates[0]} to {dates[-1]}; load average at the start of a run {load}.\n  {quiet}",
            f"- Commit {commits}.",
            f"- {wrapped(listed)}.",
            "",
        ]
    )


def wrapped(text, width=150) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += " " * bool(lines[-1]) + word
    return "\n  ".join(lines)


# --- Where we lose ---


@dataclass(frozen=True)
class Loss:
    """A figure of ours that some other method's is better than."""

    head: str
    ours: str
    best: str
    method: str


def losses_of(found) -> Iterator[Loss]:
    """Figures of a set in which another method, references left out, is notably better than the defaults of ours."""
    ours = found[0]
    if not done(ours):
        return
    task = ours["task"]
    for name in COMPARED[task]:
        sign = -1.0 if name in HIGHER_IS_BETTER else 1.0
        rivals = [r for r in found if r["method"] not in (OURS, REFERENCE) and median(r, name) is not None]
        if not rivals:
            continue
        best = min(rivals, key=lambda record: sign * median(record, name))
        gap = sign * (median(ours, name) - median(best, name))
        if gap > (NOTABLE_NATS if name in ("mnlp", "log_loss") else NOTABLE * abs(median(best, name))):
            head = COLUMNS[task][name]
            yield Loss(head, number(median(ours, name), name), number(median(best, name), name), title(best))


def losses(by_set) -> str:
    """The section on what others do better, by set, and what our figures cost."""
    lines = ["## Where others are better", ""]
    for name, found in by_set.items():
        if unfinished := [r for r in found if r["method"] == OURS and r["outcome"] != "done"]:
            lines.append(f"- **{name}**: {OURS} {note(unfinished[0])}.")
        if texts := [f"{loss.head} {loss.ours}, {loss.best} by {loss.method}" for loss in losses_of(found)]:
            lines.append(f"- **{name}** ({found[0]['test_rows']:,} test rows): {'; '.join(texts)}.")
    finished = [name for name, found in by_set.items() if len(found) > 1 and done(found[0])]
    better = [name for name in finished if not any(losses_of(by_set[name]))]
    if len(lines) == 2:
        lines.append("- Nowhere by more than 1 % or .01 nats a row.")
    lines += [f"- {text}" for text in costs(by_set)]
    if better:
        lines += [
            "",
            wrapped(f"Of the methods in the tables none is notably better (1 %, or .01 nats) on {', '.join(better)}."),
        ]
    return "\n".join([*lines, ""])


def costs(by_set) -> Iterator[str]:
    """How many times the core seconds and memory of the cheapest method with intervals or probabilities ours takes."""
    for name, head in (("cores", "Core seconds"), ("megabytes", "Peak memory")):
        ratios = {}
        for key, found in by_set.items():
            rivals = [r for r in found if r["method"] not in (*NO_COST, OURS) and median(r, name) is not None]
            if done(found[0]) and rivals:
                ratios[key] = median(found[0], name) / min(median(r, name) for r in rivals)
        if ratios:
            low, high = min(ratios.values()), max(ratios.values())
            beside = " (\\*)" * (name == "cores" and any(busy(by_set[key][0]) for key in ratios))
            yield (
                f"{head}{beside}: {low:.2g} to {high:.2g} times those of the cheapest other method, the linear ones"
                f" left out,\n  on {len(ratios)} sets; {statistics.median(ratios.values()):.2g} times in the median."
            )


# --- Tables ---


def table(name, found) -> str:
    """A section: the set, the command, a line for each method."""
    first, data_set = found[0], SETS[name]
    columns = {
        column: head
        for column, head in (COLUMNS[first["task"]] | COSTS).items()
        if any(values(record, column) for record in found)
    }
    seconds, repeat = max(r["seconds_allowed"] for r in found), max(len(r["runs"]) for r in found)
    command = f"cd tests && python -m benchmarks --sets {name} --seconds {seconds:g}"
    lines = [
        f"## {name}",
        "",
        f"{first['train_rows']:,} training and {first['test_rows']:,} test rows, {first['inputs']} inputs;"
        f" {data_set.split_text}. `{command}{f' --repeat {repeat}' * (repeat > 1)}`",
        "",
        row(["method", *columns.values(), "note"]),
        row(["---", *["--:"] * len(columns), "---"]),
    ]
    for record in found:
        cells = [shown(record, column) + "\\*" * (busy(record) and column in ("wall", "cores")) for column in columns]
        cells = cells if record["outcome"] == "done" else [""] * len(columns)
        lines.append(row([title(record), *cells, note(record)]))
    return "\n".join([*lines, ""])


def row(cells) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def note(record) -> str:
    """The outcome where it is none, else what the method says of itself, and the number of runs."""
    if record["outcome"] != "done":
        return record["outcome"] + "\\*" * busy(record)
    runs = f"{len(record['runs'])} runs" if len(record["runs"]) > 1 else ""
    return ", ".join(text for text in (record["runs"][-1]["note"], runs) if text)


def readme_table(folder: Path = records.FOLDER) -> str:
    """The part of README between the comments: methods by the order of their RMSE, the unfinished ones last."""
    found = [r for r in in_order(records.load(README_SET, folder)) if r["method"] in README_METHODS]
    found.sort(key=lambda record: median(record, "rmse") or float("inf"))
    lines = [row(["method", *README_COLUMNS.values(), "note"]), row(["---", *["--:"] * len(README_COLUMNS), "---"])]
    for record in found:
        cells = [shown(record, name) + "\\*" * (busy(record) and name == "cores") for name in README_COLUMNS]
        cells = cells if record["outcome"] == "done" else [""] * len(cells)
        lines.append(row([title(record), *cells, note(record)]))
    first = found[0]
    counts = {name: first[name] for name in ("train_rows", "test_rows", "inputs")}
    lines.append(README_TEXT.format(name=README_SET, cores=first["machine"]["cores"], **counts))
    if any(map(busy, found)):
        lines.append("A * marks seconds on a busy machine.")
    return "\n".join([README_PART[0], *lines, README_PART[1]])


def with_table(text: str, table: str) -> str:
    """README with another table."""
    before, _, rest = text.partition(README_PART[0])
    return before + table + rest.partition(README_PART[1])[2]


# --- Pictures ---


def pictures_shown(by_set) -> str:
    """Links, and what the pictures show."""
    if not points(by_set):
        return ""
    return f"""## Accuracy over time, and calibration

![NMSE over core seconds]({PICTURES["accuracy"]})

NMSE of the test rows over seconds on a core, a point for each method: the best ones are at the lower left.
Drawn, as this page is made, by `cd tests && python -m benchmarks --write`.

![Coverage of central intervals]({PICTURES["calibration"]})

Shares of test rows in central intervals, a point for each set; calibrated methods lie on the lines.
"""


def points(by_set) -> dict[str, dict[str, dict[str, float]]]:
    """What the pictures show: figures by method, of sets of numbers with a finished run of ours."""
    names = ("nmse", "cores", *(f"coverage{level}" for level in LEVELS))
    found = {
        name: {
            r["method"]: {n: m for n in names if (m := median(r, n)) is not None} for r in of_set if values(r, "nmse")
        }
        for name, of_set in by_set.items()
    }
    return {name: methods for name, methods in found.items() if OURS in methods and len(methods) > 1}


def digest(what) -> str:
    """Which figures a picture was made of: it is in the picture's description."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


COLOURS = ("#d62728", "#ff9896", "#1f77b4", "#17becf", "#2ca02c", "#8c564b", "#e377c2")
COLOURS += ("#7f7f7f", "#bcbd22", "#9467bd", "#000000", "#98df8a", "#ff7f0e", "#aec7e8")
MARKERS = "sDo^vPX*<>hpd8"


def styles(drawn):
    """A colour and a marker of each method, the same in all panels."""
    names = [name for name in METHODS if name != REFERENCE and any(name in of_set for of_set in drawn.values())]
    pairs = list(zip(COLOURS, MARKERS, strict=True))
    return {name: pairs[k % len(pairs)] for k, name in enumerate(names)}


def accuracy_picture(drawn, columns=3):
    """NMSE over core seconds, a panel a set."""
    from matplotlib.figure import Figure

    rows = -(-len(drawn) // columns)
    figure = Figure(figsize=(9.0, 2.6 * rows + 0.9), layout="constrained")
    style = styles(drawn)
    handles = {}
    for k, (name, methods) in enumerate(drawn.items()):
        axes = figure.add_subplot(rows, columns, k + 1, title=name, xscale="log", yscale="log")
        axes.set(xlabel="core seconds", ylabel="NMSE")
        for method, found in methods.items():
            if method == REFERENCE:
                handles["known truth, or stored"] = axes.axhline(found["nmse"], color="black", lw=0.8, ls="--")
                continue
            colour, marker = style[method]
            (point,) = axes.plot(found["cores"], found["nmse"], marker, color=colour, ms=7, ls="")
            handles[METHODS[method].title] = point
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    return figure


def calibration_picture(drawn):
    """Coverage by method, a panel a level."""
    from matplotlib.figure import Figure

    style = styles(drawn)
    names = list(style)[::-1]
    figure = Figure(figsize=(9.0, 0.3 * len(names) + 1.1), layout="constrained")
    for k, level in enumerate(LEVELS):
        axes = figure.add_subplot(
            1, len(LEVELS), k + 1, title=f"{level} % intervals", xlabel="share of test rows in them"
        )
        axes.axvline(level / 100, color="black", lw=0.8)
        axes.set_yticks(range(len(names)), [METHODS[name].title for name in names] if k == 0 else [""] * len(names))
        for place, name in enumerate(names):
            held = [m for of_set in drawn.values() if (m := of_set.get(name, {}).get(f"coverage{level}")) is not None]
            axes.plot(held, [place] * len(held), style[name][1], color=style[name][0], ms=6, ls="", alpha=0.8)
    return figure


DRAWN = {"accuracy": accuracy_picture, "calibration": calibration_picture}


def write(folder: Path = records.FOLDER, guide: Path = GUIDE) -> None:
    """Write the page, and its pictures as SVG: the same bytes for the same records and version of Matplotlib."""
    import matplotlib

    drawn = points({name: in_order(records.load(name, folder)) for name in SETS})
    (guide / PAGE.name).write_text(page(folder))
    README.write_text(with_table(README.read_text(), readme_table(folder)))
    with matplotlib.rc_context({"svg.hashsalt": "bcmdist", "svg.fonttype": "none", "font.size": 9}):
        for name, file in PICTURES.items():
            about = {"Date": None, "Creator": None, "Description": digest(drawn)}
            DRAWN[name](drawn).savefig(guide / file, metadata=about)
