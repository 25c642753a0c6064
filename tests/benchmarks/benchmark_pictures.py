"""Sections of the page of benchmarks that have a picture: accuracy, calibration, growth with rows, a map, kills."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import records
from data_sets import GROWTH, SETS, SUBSETS
from peers import METHODS, REFERENCE

OURS = "bcmdist"
LEVELS = (50, 80, 95)
COLOURS = ("#d62728", "#ff9896", "#1f77b4", "#17becf", "#2ca02c", "#8c564b", "#e377c2")
COLOURS += ("#7f7f7f", "#bcbd22", "#9467bd", "#000000", "#98df8a", "#ff7f0e", "#aec7e8", "#c49c94", "#dbdb8d")
MARKERS = "sDo^vPX*<>hpd8H+"
KINDS = {"worker": "#d62728", "service": "#000000", "ingester": "#1f77b4", "renewal": "#98df8a"}


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    file: str
    """name of the picture; empty where there is none"""
    caption: str | Callable[[dict], str]
    """text, or the text for these figures"""
    figures: Callable[[Path], dict]
    """what is drawn, from a folder of results; empty: nothing"""
    draw: Callable[[dict], object] | None = None
    """of these figures, on a figure of Matplotlib"""


def digest(figures: dict) -> str:
    """Which figures a picture was made of: it is in the picture's description."""
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()[:16]


def panels(count, columns, height):
    """A figure with a row of `columns` panels after the other, and its axes."""
    from matplotlib.figure import Figure

    rows = -(-count // columns)
    figure = Figure(figsize=(9.0, height * rows + 0.9), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, k + 1) for k in range(count)]


def legend(figure, handles):
    """Below all panels."""
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, fontsize=8, frameon=False)


def styles(methods) -> dict[str, tuple[str, str]]:
    """A colour and a marker of each method."""
    names = [name for name in METHODS if name != REFERENCE and name in methods]
    pairs = list(zip(COLOURS, MARKERS, strict=True))
    return {name: pairs[k % len(pairs)] for k, name in enumerate(names)}


# --- All sets of numbers: accuracy and calibration ---


def by_set(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by method, of sets of numbers with a finished run of ours."""
    names = ("nmse", "cores", *(f"coverage{level}" for level in LEVELS))
    found = {name: figures_of(name, names, folder) for name in SETS if name not in SUBSETS}
    return {name: methods for name, methods in found.items() if OURS in methods and len(methods) > 1}


def figures_of(name, columns, folder):
    """Medians of columns by method, of a data set."""
    return {
        record["method"]: {column: m for column in columns if (m := records.median(record, column)) is not None}
        for record in records.in_order(records.load(name, folder))
        if records.values(record, "nmse")
    }


def accuracy(figures):
    """NMSE over core seconds, a panel a set."""
    figure, axes = panels(len(figures), 4, 2.2)
    style, handles = styles({method for methods in figures.values() for method in methods}), {}
    for panel, (name, methods) in zip(axes, figures.items(), strict=True):
        panel.set(title=name, xscale="log", yscale="log", xlabel="core seconds", ylabel="NMSE")
        panel.minorticks_off()
        for method, found in methods.items():
            if method == REFERENCE:
                handles["known truth, or stored"] = panel.axhline(found["nmse"], color="black", lw=0.8, ls="--")
                continue
            colour, marker = style[method]
            (point,) = panel.plot(found["cores"], found["nmse"], marker, color=colour, ms=7, ls="")
            handles[METHODS[method].title] = point
    legend(figure, handles)
    return figure


def calibration(figures):
    """Coverage by method, a panel a level."""
    from matplotlib.figure import Figure

    style = styles({method for methods in figures.values() for method in methods})
    names = list(style)[::-1]
    figure = Figure(figsize=(9.0, 0.3 * len(names) + 1.1), layout="constrained")
    for k, level in enumerate(LEVELS):
        panel = figure.add_subplot(1, len(LEVELS), k + 1, title=f"{level} % intervals", xlabel="share of test rows")
        panel.axvline(level / 100, color="black", lw=0.8)
        panel.set_yticks(range(len(names)), [METHODS[name].title for name in names] if k == 0 else [""] * len(names))
        for place, name in enumerate(names):
            held = [m for of_set in figures.values() if (m := of_set.get(name, {}).get(f"coverage{level}")) is not None]
            panel.plot(held, [place] * len(held), style[name][1], color=style[name][0], ms=6, ls="", alpha=0.8)
    return figure


# --- The same field with more and more rows ---

GROWING = {"cores": "core seconds", "nmse": "NMSE", "megabytes": "peak MB"}


def by_rows(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Rows, core seconds, NMSE and peak memory by method, each a list from the fewest to the most rows."""
    found: dict[str, dict[str, list[float]]] = {}
    for name in GROWTH:
        loaded = records.load(name, folder)
        for method, figures in figures_of(name, tuple(GROWING), folder).items():
            columns = found.setdefault(method, {column: [] for column in ("rows", *GROWING)})
            for column, value in ({"rows": loaded[method]["train_rows"]} | figures).items():
                columns[column].append(value)
    return found


def growth(figures):
    """Core seconds, NMSE and memory over rows."""
    figure, axes = panels(len(GROWING), len(GROWING), 3.0)
    style, handles = styles(figures), {}
    for panel, (column, label) in zip(axes, GROWING.items(), strict=True):
        panel.set(xscale="log", yscale="log", xlabel="training rows", ylabel=label)
        panel.minorticks_off()
        for method, found in figures.items():
            colour, marker = style[method]
            (handles[METHODS[method].title],) = panel.plot(
                found["rows"], found[column], marker=marker, color=colour, ms=5
            )
    legend(figure, handles)
    return figure


# --- Trials of other scripts ---


def trial(name) -> Callable[[Path], dict]:
    """The result of a script, from a folder of results; empty: none."""
    return lambda folder: records.load_trial(name, folder)


def kills(figures):
    """Rows that were acknowledged and rows in the model, with the moments at which processes were killed."""
    figure, (panel,) = panels(1, 1, 2.6)
    seconds, sent, absorbed, _ = zip(*figures["timeline"], strict=True)
    panel.set(xlabel="seconds", ylabel="rows")
    (line,) = panel.plot(seconds, absorbed, color="#555555", lw=1.5)
    handles = {"rows in the model": line}
    (handles["rows sent"],) = panel.plot(seconds, sent, color="#555555", lw=0.8, ls=":")
    for kind, colour in KINDS.items():
        times = [second for second, what in figures["kills"] if what == kind]
        label = "workers renewed" if kind == "renewal" else f"{kind} killed"
        for second in times:
            handles[f"{label} ({len(times)})"] = panel.axvline(second, color=colour, lw=0.8, alpha=0.6)
    legend(figure, handles)
    return figure


def kills_text(found) -> str:
    """What was killed, what clients did, and what they got."""
    return (
        f"Two services with two worker processes each, and two ingesters of one Redis stream, share a model for"
        f" {found['seconds']:.0f} seconds.\nEvery {found['every']:g} seconds a process is killed, or all workers of"
        f" a service are renewed: {len(found['kills'])} times. Clients ask for {found['requests']:,} predictions\nand"
        f" send {found['keys']:,} requests with rows, each to both services at once; {found['entries']:,} entries"
        f" arrive in the stream. At the end {found['odd_rows']} rows\nare missing or counted twice, and"
        f" {found['failed']} requests have failed. The median answer takes {found['p50_ms']:.0f} ms; the 99th"
        f" percentile, repeats\nafter a kill included, is {found['p99_ms'] / 1000:.1f} s."
        f"\n`python tests/benchmarks/replicas.py --rate {found['rate']:g} --write`, with a Redis server."
    )


def land(figures):
    """Maps of the probability of land and of its deviation, and the shares of land by predicted probability."""
    import numpy as np
    from matplotlib.figure import Figure

    p = np.array([line.split() for line in figures["map"]], dtype=float) / 100.0
    figure = Figure(figsize=(9.0, 2.6), layout="constrained")
    axes = figure.subplots(1, 3, width_ratios=(2, 2, 1.2))
    maps = {"probability of land": p, "standard deviation": np.sqrt(p * (1.0 - p))}
    for panel, (title, values) in zip(axes[:2], maps.items(), strict=True):
        shown = panel.imshow(values, extent=(-180, 180, -90, 90), vmin=0.0, interpolation="none")
        panel.set(title=title, xticks=(-180, 0, 180), yticks=(-90, 0, 90))
        figure.colorbar(shown, ax=panel, shrink=0.6)
    predicted, observed, _ = zip(*figures["calibration"], strict=True)
    axes[2].plot((0, 1), (0, 1), color="black", lw=0.8)
    axes[2].plot(predicted, observed, "o", ms=4)
    axes[2].set(title="cells left out", xlabel="predicted", ylabel="share of land", aspect="equal")
    return figure


def land_text(found) -> str:
    """What was absorbed, for how long, and how well it predicts."""
    times = {0: "without a kill", 1: "killed once"}.get(found["kills"], f"killed {found['kills']} times on the way")
    expected, observed, _ = found["calibration"][0]  # of the lowest tenth
    return (
        f"Land or sea in {found['expected']:,} cells of a map, learned in one pass by `--expert fourier` with"
        f" {found['weights']:,} weights:\n{found['wall_s'] / 60:.0f} minutes, {times}. The model then holds"
        f" {found['absorbed']:,} cells.\nOn cells of tiles of 5 degrees that are left out, the mean of -log p is"
        f" {found['log_loss']:.3f} ({found['log_loss_of_share']:.3f} with the share\nof land for each cell)."
        f" Of those with a probability below .1, {100 * observed:.1f} % are land, and {100 * expected:.1f} %\nare"
        f" expected to be. Other processes used {found['others']:g} cores on average."
        f"\n`pip install global-land-mask && python tests/benchmarks/billion_rows.py {found['options']} --write`"
    )


def relief_text(found) -> str:
    """Fits by Fourier features and by spatial cells."""
    lines = [
        f"Heights of {found['rows']:,} cells (deviation {found['sd']:.0f} m); seconds are those of learning and"
        " absorbing. Left out are tiles of 5 degrees,\nand single cells among the others. Other processes used"
        f" {found['others']:g} cores on average.",
        "",
        "| expert | s | RMSE, tiles (m) | in 95 % interval | RMSE, single cells (m) | in 95 % interval |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for name, title in {"fourier": "`--expert fourier`", "spatial": "`--partition spatial`"}.items():
        if of := found.get(name):
            shown = (f"{of[kind]['rmse']:.0f} | {of[kind]['coverage95']:.3f}" for kind in ("tiles", "near"))
            lines.append(f"| {title} | {of['seconds']:.0f} | {' | '.join(shown)} |")
    return "\n".join(
        [*lines, "", f"`pip install itur && python tests/benchmarks/relief.py {found['options']} --write`"]
    )


SECTIONS = (
    Section(
        "Accuracy over time",
        "benchmarks_accuracy.svg",
        "NMSE of the test rows against core seconds, one point per method: lower left is best. This page and its\n"
        "pictures are generated by `cd tests && python -m benchmarks --write`.",
        by_set,
        accuracy,
    ),
    Section(
        "Calibration",
        "benchmarks_calibration.svg",
        "Shares of test rows inside central intervals, one point per data set; calibrated methods lie on the lines.",
        by_set,
        calibration,
    ),
    Section(
        "Growth with rows",
        "benchmarks_growth.svg",
        "Random subsets of the training rows of heaton_simulated, scored on its 44,431 test rows.\n"
        f"`python -m benchmarks --sets {','.join(GROWTH)} --results again`",
        by_rows,
        growth,
    ),
    Section("Kills", "benchmarks_kills.svg", kills_text, trial("replicas"), kills),
    Section("886 million cells", "benchmarks_land.svg", land_text, trial("billion_rows"), land),
    Section("9 million heights", "", relief_text, trial("relief")),
)
