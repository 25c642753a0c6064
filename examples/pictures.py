"""The pictures of README and the guide, from generated data.

    python pictures.py [--out guide/images] [overview.png concepts.svg uncertainty.svg]

- overview.png: a field measured along tracks, its prediction and its uncertainty; and a stream whose process is killed
  three times (SIGKILL) and started again, beside one that is left in peace.
- concepts.svg: partitions, an expert, messages and the committee, on one input.
- uncertainty.svg: the standard deviation of predictions near rows and away from them.
"""

import argparse
import io
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image  # which matplotlib needs, too

from bcmdist import GBCM, Settings, append_rows, write_dataset

INK, PAPER, QUIET, KILL = "#22272e", "#fbfbf9", "#8a929c", "#c8321f"
LINE, BAND = "#1f5fa8", "#c4d9f0"
PARTS = ["#1f5fa8", "#d97a1e", "#3a8f5c", "#9a4fa3"]
# An opaque, light ground: readable on dark and on light pages.
STYLE = {
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "font.size": 10.0,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "bcmdist",
    "path.simplify_threshold": 0.2,
}
NOISE = 0.1


def field(X):
    """A smooth function of the plane, with valleys and a front."""
    a, b = X[:, 0], X[:, 1]
    return np.sin(1.3 * a) * np.cos(1.1 * b) + 0.5 * np.sin(0.7 * a + 1.9 * b) + 0.6 * np.tanh(2 * (b - 5 - np.sin(a)))


def tracks(rng):
    """Rows along curved tracks, as of ships, and some at random: (n, 2)."""
    found = [np.column_stack([rng.uniform(0, 10, 150), rng.uniform(0, 10, 150)])]
    for _ in range(14):
        along = np.linspace(0, 10, 110)
        across = rng.uniform(0, 10) + rng.uniform(-0.5, 0.5) * (along - 5) + np.sin(along * rng.uniform(0.2, 0.6))
        found.append(np.column_stack([along, across] if rng.uniform() < 0.6 else [across, along]))
    X = np.concatenate(found) + 0.02 * rng.standard_normal((150 + 14 * 110, 2))
    inside = (X >= 0).all(axis=1) & (X <= 10).all(axis=1)
    clouds = (np.hypot(X[:, 0] - 7.2, X[:, 1] - 2.6) < 1.5) | (np.hypot(X[:, 0] - 2.2, X[:, 1] - 7.4) < 1.2)
    return X[inside & ~clouds]


def maps(left, right):
    """Prediction and standard deviation over the plane."""
    rng = np.random.default_rng(5)
    X = tracks(rng)
    gbcm = GBCM.fit(X, field(X) + NOISE * rng.standard_normal(len(X)), Settings(effort="quick", query=300))
    sides = np.linspace(0, 10, 140)
    grid = np.stack(np.meshgrid(sides, sides), axis=-1).reshape(-1, 2)
    found = gbcm.predict(grid)
    shape = (len(sides), len(sides))
    deviation = np.sqrt(found["variance"])
    inside = np.mean(np.abs(found["mean"] - field(grid)) < 1.96 * deviation)
    print(f"map: {len(X)} rows; 95 % intervals of the field contain {inside:.3f} of {len(grid)} true values")
    extent, ticks = (0, 10, 0, 10), {"xticks": [], "yticks": []}
    shown = left.imshow(found["mean"].reshape(shape), extent=extent, origin="lower", cmap="viridis")
    left.set(title=f"Prediction from {len(X):,} measurements (dots)", **ticks)
    left.plot(*X.T, ".", color="white", markersize=1.6, markeredgewidth=0, alpha=0.9)
    left.figure.colorbar(shown, ax=left, shrink=0.85)
    shown = right.imshow(deviation.reshape(shape), extent=extent, origin="lower", cmap="magma", vmin=0, vmax=0.3)
    right.set(title="Its standard deviation", **ticks)
    right.figure.colorbar(shown, ax=right, shrink=0.85, extend="max")


def rows(count, rng):
    X = rng.uniform(0, 10, (count, 2))
    return X, field(X) + NOISE * rng.standard_normal(count)


def absorbed(model):
    """Rows absorbed up to the newest commit."""
    return sum(entry.rows for entry in GBCM.load(model).ledger)


def stream(axis, *, batches=36, size=250, kills=(9, 18, 27)):
    """Error on new rows against rows absorbed, with kills of the ingesting process, beside a stream without any."""
    rng = np.random.default_rng(3)
    test = rng.uniform(0, 10, (2000, 2))
    truth = field(test)
    with tempfile.TemporaryDirectory() as folder:
        names = ("sample.zarr", "stream.zarr", "killed", "peaceful")
        sample, source, killed, peaceful = (str(Path(folder, name)) for name in names)
        first = rows(size, rng)
        write_dataset(source, dict(zip("Xy", first, strict=True)), rows_per_chunk=size)
        settings = Settings(partition="chunks", kernel="matern52", query=250, rows_per_expert=size, effort="quick")
        write_dataset(sample, dict(zip("Xy", rows(2000, rng), strict=True)))  # from which hyper-parameters are learned
        GBCM.prepare(sample, settings, model=killed)
        for _ in range(batches - 1):
            append_rows(source, *rows(size, rng))
        GBCM.load(killed).save(peaceful)
        at = killed_at(source, killed, [size * batch for batch in kills])
        ingest(source, peaceful).wait()
        curves = [curve(model, test, truth) for model in (peaceful, killed)]
        last = [GBCM.load(model).predict(test)["mean"] for model in (peaceful, killed)]
    print(f"stream: killed after {at} rows; largest difference of predictions {np.abs(last[0] - last[1]).max():.1e}")
    axis.plot(*curves[0], "-", color=BAND, linewidth=6, label="never killed")
    axis.plot(*curves[1], ".-", color=LINE, linewidth=1, label="killed and started again")
    for k, where in enumerate(at):
        axis.axvline(where, color=KILL, linestyle="--", linewidth=1, label=None if k else "kill -9")
    axis.set(
        title="A stream with three kills: error on new points",
        xlabel="rows absorbed",
        xlim=(0, batches * size),
        ylim=(0, None),
    )
    axis.set(ylabel="root mean squared error", xticks=range(0, batches * size + 1, 3 * batches * size // 9))
    axis.legend(loc="upper right", frameon=True, facecolor=PAPER, edgecolor="none", framealpha=1)


def ingest(source, model):
    command = [sys.executable, "-m", "bcmdist", "ingest", model, source, "--serial", "--commit-every", "1"]
    command += ["--keep", "1000"]  # the curve has all commits
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def killed_at(source, model, marks):
    """Ingest, killing the process at the first commit with at least so many rows; then to the end. Rows at kills."""
    found = []
    for mark in marks:
        process = ingest(source, model)
        while absorbed(model) < mark:
            if process.poll() is not None:
                raise SystemExit(
                    f"expected to kill the process before it ended, it had absorbed {absorbed(model)} rows"
                )
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        found.append(absorbed(model))
    ingest(source, model).wait()
    return found


def curve(model, test, truth):
    """Rows and root mean squared error of the commits of a model."""
    newest, points = GBCM.load(model), {}
    for number in range(1, newest.commit + 1):
        gbcm = GBCM.load(model, commit=number)
        count = sum(entry.rows for entry in gbcm.ledger)
        if count:
            points[count] = np.sqrt(np.mean((gbcm.predict(test)["mean"] - truth) ** 2))
    return np.array(list(points)), np.array(list(points.values()))


def overview(path):
    """A field and its uncertainty; a stream with kills."""
    figure = Figure(figsize=(13, 3.7), layout="constrained")
    first, second, third = figure.subplots(1, 3, width_ratios=[1.1, 1.1, 1.25])
    maps(first, second)
    stream(third)
    save(figure, path)


def wave(x):
    return np.sin(1.6 * x) + 0.4 * np.cos(3.1 * x)


def concepts(path):
    """The stages of a fit, on one input with 180 rows in three partitions."""
    rng = np.random.default_rng(11)
    x = np.concatenate([rng.uniform(*ends, 60) for ends in [(-3.0, 0.3), (-0.8, 2.0), (1.2, 3.0)]])
    y = wave(x) + 0.25 * rng.standard_normal(len(x))
    grid = np.linspace(-3.4, 3.4, 160)
    figure = Figure(figsize=(13, 3.3), layout="constrained")
    axes = figure.subplots(1, 4, sharey=True)
    titles = ["1  Rows in three partitions", "2  An expert sees one partition"]
    titles += ["3  Messages about the query points", "4  Their sum: the committee"]
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlim=(-3.4, 3.4), ylim=(-2.6, 2.6), xlabel="input", yticks=[-2, 0, 2])
    axes[0].set(ylabel="target")
    with tempfile.TemporaryDirectory() as folder:
        source = str(Path(folder, "rows.zarr"))
        write_dataset(source, {"X": x[:, None], "y": y}, rows_per_chunk=60)
        settings = Settings(partition="chunks", kernel="se", query=12, rows_per_expert=60, noise="constant")
        empty = GBCM.prepare(source, settings, model=str(Path(folder, "empty")))
        query = np.sort(empty.snapshot.model.scaling.original_inputs(empty.snapshot.model.shared.points)[:, 0])
        whole = empty
        for k, color in enumerate(PARTS[:3]):
            part = slice(60 * k, 60 * (k + 1))
            one = empty.save(str(Path(folder, f"one{k}"))).partial_fit(x[part, None], y[part])
            whole = whole.partial_fit(x[part, None], y[part])
            axes[0].plot(x[part], y[part], ".", color=color, markersize=5)
            if k == 1:
                axes[1].plot(x[part], y[part], ".", color=color, markersize=5)
                band(axes[1], grid, one.predict(grid[:, None]), color)
            found = one.predict(query[:, None])
            near = np.sqrt(found["variance"]) < 0.5  # where the partition says something
            axes[2].errorbar(
                query[near] + 0.05 * (k - 1),
                found["mean"][near],
                1.96 * np.sqrt(found["variance"][near]),
                fmt="o",
                color=color,
                markersize=4,
            )
        found = whole.predict(grid[:, None])
    for axis in axes[1:]:
        axis.plot(query, np.full(len(query), -2.45), "^", color=INK, markersize=4)
    axes[2].text(-3.3, -2.3, "query points", fontsize="small")
    band(axes[3], grid, found, LINE)
    axes[3].plot(grid, wave(grid), "--", color=INK, linewidth=1, label="true function")
    axes[3].legend(loc="upper left", fontsize="small")
    save(figure, path)


def band(axis, grid, found, color):
    """Mean and 95 % interval of the function."""
    width = 1.96 * np.sqrt(found["variance"])
    axis.fill_between(grid, found["mean"] - width, found["mean"] + width, color=color, alpha=0.22, linewidth=0)
    axis.plot(grid, found["mean"], color=color, linewidth=1.5)


def uncertainty(path):
    """Predictions of rows with a gap, and their standard deviation, which grows away from rows up to the prior's."""
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-4, -0.8, 160), rng.uniform(1.4, 3, 80)])
    y = wave(x) + 0.2 * rng.standard_normal(len(x))
    gbcm = GBCM.fit(x[:, None], y, Settings(partition="chunks", kernel="se", query=40, noise="constant"))
    grid = np.linspace(-5.5, 5.5, 220)
    found = gbcm.predict(grid[:, None])
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    above.fill_between(grid, found["lower95"], found["upper95"], color=BAND, linewidth=0, label="95 % of new rows")
    band(above, grid, found, LINE)
    above.plot(x, y, ".", color=INK, markersize=3, label="rows")
    above.plot(grid, wave(grid), "--", color=INK, linewidth=1, label="true function")
    above.set(title="Sure near rows, unsure in a gap and beyond the last row", ylabel="target")
    above.legend(loc="upper right", fontsize="small", ncols=3)
    below.plot(grid, np.sqrt(found["observation_variance"]), color=QUIET, label="of a new row")
    below.plot(grid, np.sqrt(found["variance"]), color=LINE, label="of the function")
    below.set(xlabel="input", ylabel="std. deviation", ylim=(0, None))
    below.legend(loc="upper center", fontsize="small", ncols=2)
    save(figure, path)


def save(figure, path):
    """Write a PNG of few colours, or an SVG without the date."""
    if path.suffix == ".svg":
        figure.savefig(path, metadata={"Date": None})
    else:
        memory = io.BytesIO()
        figure.savefig(memory, format="png", dpi=100)
        Image.open(memory).convert("RGB").quantize(256).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


PICTURES = {"overview.png": overview, "concepts.svg": concepts, "uncertainty.svg": uncertainty}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)} [default: all]")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "guide" / "images", help="folder")
    asked = parser.parse_args()
    with rc_context(STYLE):
        for name in asked.names or PICTURES:
            PICTURES[name](asked.out / name)
