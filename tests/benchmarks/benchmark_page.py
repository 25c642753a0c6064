"""The guide's page of benchmarks and README's table, made from the records of `python -m benchmarks`."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmark_pictures import LEVELS, OURS, PICTURES, digest, kills_text, trial

import records
from data_sets import SETS, THINNED
from peers import METHODS, REFERENCE

README = Path(__file__).parent.parent.parent / "README.md"
GUIDE = README.parent / "examples" / "guide"
PAGE = GUIDE / "benchmarks.md"
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


# --- A record in words ---


def shown(record, name) -> str:
    """The median, and the range of several runs."""
    found = records.values(record, name)
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
    everything = {name: records.in_order(records.load(name, folder)) for name in SETS}
    by_set = {name: found for name, found in everything.items() if found and name not in THINNED}
    parts = [BEGIN, conditions([record for found in everything.values() for record in found]), losses(by_set)]
    parts += [section(picture, folder) for picture in PICTURES if picture.figures(folder)]
    parts += [table(name, found) for name, found in by_set.items()]
    return "\n".join(parts)


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


def section(picture, folder) -> str:
    """A picture with its caption."""
    caption = picture.caption or kills_text(trial(folder))
    return f"## {picture.title}\n\n![{picture.title}]({picture.file})\n\n{caption}\n"


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
        rivals = [r for r in found if r["method"] not in (OURS, REFERENCE) and records.median(r, name) is not None]
        if not rivals:
            continue
        best = min(rivals, key=lambda record: sign * records.median(record, name))
        gap = sign * (records.median(ours, name) - records.median(best, name))
        if gap > (NOTABLE_NATS if name in ("mnlp", "log_loss") else NOTABLE * abs(records.median(best, name))):
            head = COLUMNS[task][name]
            yield Loss(
                head, number(records.median(ours, name), name), number(records.median(best, name), name), title(best)
            )


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
            rivals = [r for r in found if r["method"] not in (*NO_COST, OURS) and records.median(r, name) is not None]
            if done(found[0]) and rivals:
                ratios[key] = records.median(found[0], name) / min(records.median(r, name) for r in rivals)
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
        if any(records.values(record, column) for record in found)
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
    found = [r for r in records.in_order(records.load(README_SET, folder)) if r["method"] in README_METHODS]
    found.sort(key=lambda record: records.median(record, "rmse") or float("inf"))
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


# --- Files ---


def write(folder: Path = records.FOLDER, guide: Path = GUIDE) -> None:
    """Write the page, and its pictures as SVG: the same bytes for the same records and version of Matplotlib."""
    import matplotlib

    (guide / PAGE.name).write_text(page(folder))
    README.write_text(with_table(README.read_text(), readme_table(folder)))
    with matplotlib.rc_context({"svg.hashsalt": "bcmdist", "svg.fonttype": "none", "font.size": 9}):
        for picture in PICTURES:
            if figures := picture.figures(folder):
                about = {"Date": None, "Creator": None, "Description": digest(figures)}
                picture.draw(figures).savefig(guide / picture.file, metadata=about)
