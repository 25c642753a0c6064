"""Tables of published figures beside ours, made from the results that a script has kept (`published.results`).

    TABLES = (Table("Deep processes", ("GP 50", "DGP-2 50"), ("boston",), (Column("rmse", "RMSE", PAPER),)),)
    args = options(__doc__, "one split").parse_args()
    show(args, "paper002_deep", experiments, computed, TABLES)

A row is a method on a set: for each column our mean over splits with its standard error, the published figure, and the
mean difference to the first method over the splits that both have.
"""

import argparse
import math
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.stats import rankdata, studentized_range, ttest_rel

from published.results import (
    FOLDER,
    Experiment,
    Figures,
    Results,
    add_options,
    completed,
    completed_in_turn,
    mean_and_error,
    paired,
)

LEAST_SETS = 3  # for ranks
LEVEL = 0.05  # of tests
LEAST_SPLITS = 3  # for tests of differences
WIDTH = 120  # of lines of words


@dataclass(frozen=True)
class Column:
    """A figure of the results."""

    figure: str
    title: str
    paper: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """published figures by set and method"""
    better: Literal["lower", "higher", "neither"] = "lower"
    form: str = ".3f"
    """format of a figure"""


@dataclass(frozen=True)
class Table:
    """Figures of some methods on some sets."""

    title: str
    methods: tuple[str, ...]
    """the first is what the others are compared with"""
    sets: Iterable[str]
    columns: tuple[Column, ...]
    together: str | None = None
    """name in the results of the experiment that computes all methods: its figures are called "METHOD FIGURE\""""
    ranked: bool = True
    """whether methods compete on independent sets, so that their ranks say something"""
    words: str = ""
    """what there is to say: what the paper draws or claims, what differs"""

    def found(self, results: Results, name: str, method: str) -> dict[int, Figures]:
        """Figures of a method on a set, by split."""
        if self.together is None:
            return results.figures(name, method)
        found = {}
        for split, figures in results.figures(name, self.together).items():
            of_method = {one.figure: figures.get(f"{method} {one.figure}") for one in self.columns}
            if None not in of_method.values():
                found[split] = of_method
        return found


def options(description: str, quick: str) -> argparse.ArgumentParser:
    """Options of a script that shows tables; `quick` says what its small version is."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"a small version, whose results are not kept: {quick}")
    add_options(parser)
    return parser


def show(
    args: argparse.Namespace,
    name: str,
    experiments: Iterable[Experiment],
    compute: Callable[[Experiment], Figures],
    tables: Iterable["Table"],
) -> Results:
    """Compute experiments, one process a core or with --quick in this one, and print the tables.

    With --full the results are kept as NAME.json in the folder of results, and what is there is not computed again.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = Results(name, FOLDER if args.full and not args.quick else Path(folder))
        in_order = completed_in_turn if args.quick else completed
        try:
            in_order(results, experiments, compute, minutes=args.minutes if args.full else math.inf)
        finally:
            print(text(tables, results))
    return results


def by_method(methods, figures) -> dict[str, dict[str, float]]:
    """Published figures by set and method, from tuples by set; those that are not finite are left out."""
    return {
        name: {method: value for method, value in zip(methods, of_set, strict=False) if np.isfinite(value)}
        for name, of_set in figures.items()
    }


def text(tables: Iterable[Table], results: Results) -> str:
    """All tables that have results."""
    return "\n".join("\n".join(lines) + "\n" for table in tables if (lines := lines_of(table, results)))


def lines_of(table: Table, results: Results) -> list[str]:
    """Lines of a table, none if its first method has no results."""
    first, *others = table.methods
    if not any(table.found(results, name, first) for name in table.sets):
        return []
    rows = [line for name in table.sets for line in _rows(table, results, name)]
    heads = ["", "method", "splits"]
    for one in table.columns:
        heads += [one.title] + ["paper"] * bool(one.paper) + [f"less {first}"] * bool(others)
    head = [f"## {table.title}", "", *([*textwrap.wrap(table.words, WIDTH), ""] if table.words else [])]
    ruler = "|---|---|" + "--:|" * (len(heads) - 2)
    return [*head, f"| {' | '.join(heads)} |", ruler, *rows, *ranks(table, results)]


def _rows(table, results, name):
    found = {method: table.found(results, name, method) for method in table.methods}
    first = found[table.methods[0]]
    for method, of_split in found.items():
        if not of_split:
            continue
        cells = [name, method, str(len(of_split))]
        for one in table.columns:
            cells.append(ours(of_split, one))
            if one.paper:
                published = one.paper.get(name, {}).get(method, np.nan)
                cells.append(format(published, one.form) if np.isfinite(published) else "")
            if len(found) > 1:
                cells.append("" if of_split is first else difference(of_split, first, one))
        yield f"| {' | '.join(cells)} |"


def ours(of_split, column: Column) -> str:
    """Mean and standard error."""
    mean, error = mean_and_error(figures[column.figure] for figures in of_split.values())
    return format(mean, column.form) + (f" ± {format(error, column.form)}" if np.isfinite(error) else "")


def difference(one, other, column: Column) -> str:
    """Paired mean difference and its standard error, and * where Student's paired test says that there is one."""
    common = sorted(one.keys() & other.keys())
    if len(common) < 2:
        return ""
    mean, error, _ = paired(one, other, column.figure)
    pairs = [[figures[split][column.figure] for split in common] for figures in (one, other)]
    tested = len(common) >= LEAST_SPLITS and error > 0.0
    mark = "*" if tested and ttest_rel(*pairs).pvalue < LEVEL else ""
    return f"{format(mean, '+' + column.form)} ± {format(error, column.form)}{mark}"


def ranks(table: Table, results: Results) -> list[str]:
    """Lines with the mean rank of each method over the sets that all have, and the critical difference."""
    lines = []
    for column in table.columns:
        if len(table.methods) < 2 or not table.ranked or column.better == "neither":
            continue
        methods = [one for one in table.methods if any(table.found(results, name, one) for name in table.sets)]
        means = []
        for name in table.sets:
            found = [table.found(results, name, method) for method in methods]
            if found and (common := set.intersection(*(set(one) for one in found))):
                means.append([np.mean([one[split][column.figure] for split in common]) for one in found])
        if len(means) < LEAST_SETS or len(methods) < 2:
            continue
        by_set = rankdata(means if column.better == "lower" else -np.array(means), axis=1)
        mean = ", ".join(f"{name} {rank:.2f}" for name, rank in zip(methods, by_set.mean(axis=0), strict=True))
        limit = f"critical difference {critical(*by_set.shape):.2f}"
        lines += ["", *textwrap.wrap(f"Mean ranks of {column.title} over {len(means)} sets: {mean}; {limit}.", WIDTH)]
    return lines


def critical(sets: int, methods: int) -> float:
    """Least difference of mean ranks that is significant at 5 % (Demsar 2006, equation of section 3.2.2)."""
    q = studentized_range.ppf(1.0 - LEVEL, methods, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(methods * (methods + 1) / (6.0 * sets)))
