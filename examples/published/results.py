"""Results of a table of a paper, kept as JSON while they are computed: a run that was killed goes on where it was.

    results = Results("paper002_deep")                                     # examples/results/paper002_deep.json
    completed(results, experiments, compute, minutes=60)                         # calls what is not there yet
    results.figures("boston", "dgp")                                       # {split: {"density": ..., "rmse": ...}}

An experiment is one split of one set by one method. Experiments run side by side, one process a core.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

FOLDER = Path(__file__).parent.parent / "results"
Figures = Mapping[str, float]


@dataclass(frozen=True, order=True)
class Experiment:
    """One split of one set by one method."""

    split: int
    set: str
    method: str


class Results:
    """Figures by experiment, in a JSON file that is replaced after each change."""

    def __init__(self, name: str, folder: Path = FOLDER):
        self.path = Path(folder) / f"{name}.json"
        stored = json.loads(self.path.read_text()) if self.path.exists() else []
        self.by_experiment: dict[Experiment, Figures] = {
            Experiment(e["split"], e["set"], e["method"]): e["figures"] for e in stored
        }

    def add(self, experiment: Experiment, figures: Figures) -> None:
        """Keep the figures of an experiment; a process that dies leaves the file with it or without it."""
        self.by_experiment[experiment] = figures
        entries = [
            {"set": one.set, "method": one.method, "split": one.split, "figures": dict(figures)}
            for one, figures in sorted(self.by_experiment.items())
        ]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written = self.path.with_suffix(".partial")
        written.write_text("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n")
        os.replace(written, self.path)

    def figures(self, set: str, method: str) -> dict[int, Figures]:
        """Figures of a set by a method, by split."""
        return {
            experiment.split: found
            for experiment, found in self.by_experiment.items()
            if (experiment.set, experiment.method) == (set, method)
        }

    def means(self, set: str, method: str) -> Figures:
        """Means of the figures over splits; none without results."""
        each = list(self.figures(set, method).values())
        return {name: float(np.mean([one[name] for one in each])) for name in each[0]} if each else {}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of a script that keeps results."""
    parser.add_argument("--full", action="store_true", help="keep results, and go on from those that were kept")
    parser.add_argument("--minutes", type=float, default=60.0, help="with --full: begin nothing after these")


def data(name: str) -> Path | None:
    """The file NAME.npz in the folder of the variable BCMDIST_DATA; None, with a line that says so, if it is absent."""
    path = Path(os.environ.get("BCMDIST_DATA", ".")) / f"{name}.npz"
    if path.exists():
        return path
    print(f"{name}: skipped, there is no {path.name} in the folder BCMDIST_DATA")
    return None


def completed(
    results: Results, experiments: Iterable[Experiment], compute: Callable[[Experiment], Figures], *, minutes: float
) -> None:
    """Compute the experiments that are not there, in their order, beginning none after so many minutes.

    Parameters
    ----------
    compute : called in other processes, so that it must be importable; if it fails, the others go on, and its first
        error is raised at the end
    """
    left = iter(experiment for experiment in experiments if experiment not in results.by_experiment)
    end, cores = time.monotonic() + 60.0 * minutes, os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, mp_context=context) as pool:
        running, errors = {}, list[BaseException]()
        while True:
            while len(running) < cores and time.monotonic() < end and (experiment := next(left, None)):
                running[pool.submit(_single_threaded, compute, experiment)] = experiment
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                experiment = running.pop(done)
                if error := done.exception():
                    errors.append(error)
                    continue
                _keep(results, experiment, done.result())

    if errors:
        raise errors[0]


def completed_in_turn(
    results: Results, experiments: Iterable[Experiment], compute: Callable[[Experiment], Figures], *, minutes: float
) -> None:
    """As `completed`, one after the other in this process, for experiments that run on a cluster."""
    end = time.monotonic() + 60.0 * minutes
    for experiment in experiments:
        if time.monotonic() >= end:
            return
        if experiment not in results.by_experiment:
            _keep(results, experiment, _single_threaded(compute, experiment))


def _keep(results, experiment, figures):
    results.add(experiment, figures)
    shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    print(f"{experiment.set} {experiment.method}, split {experiment.split}: {shown}", flush=True)


def _single_threaded(compute, experiment):
    begun = time.monotonic()
    with threadpool_limits(1):
        return {**compute(experiment), "seconds": round(time.monotonic() - begun, 1)}


def mean_and_error(values) -> tuple[float, float]:
    """Mean of some values, and its standard error; infinite for a single value."""
    values = np.asarray(list(values), dtype=float)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")


def paired(one: Mapping[int, Figures], other: Mapping[int, Figures], name: str) -> tuple[float, float, int]:
    """Mean difference of a figure over the splits that both have, its standard error, and the number of splits."""
    common = sorted(one.keys() & other.keys())
    mean, error = mean_and_error(one[split][name] - other[split][name] for split in common)
    return mean, error, len(common)
