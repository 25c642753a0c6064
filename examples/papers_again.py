"""The page guide/papers.md: published figures beside ours, made from the results that `--full` has kept.

    python papers_again.py [--write]

Prints the page, or writes it.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paper000_networks
import paper001_figure1
import paper001_table1
import paper002_classes
import paper002_deep
import paper003_robot_arm
import paper004_tables
from scipy.stats import rankdata, studentized_range

from published.results import FOLDER, Results, mean_and_error, paired

PAGE = Path(__file__).parent / "guide" / "papers.md"
BEGIN = """# The papers, again

Published figures beside ours, made by `examples/papers_again.py` from the results in `examples/results/`. Ours are
means over splits with their standard errors; "-" was not computed. Differences are over the splits that both methods
have. Methods are named as in the papers; `dgp` stands for the defaults of `--expert dgp`. Ranks (1 is the best) compare
the means of each set over the splits that all methods have; mean ranks that differ by less than the critical difference
may differ by chance (Nemenyi's test at 5 %, Demsar 2006, section 3.2.2).
"""
LOWER_IS_BETTER = ("error", "exponent", "rmse", "nmse", "mnlp", "squared", "absolute")
LEAST_SETS = 3  # for ranks


@dataclass(frozen=True)
class Table:
    """One figure of the results that a script has kept, by set and method."""

    script: str
    title: str
    figure: str
    paper: Mapping[str, Mapping[str, float]]
    """published figures by set and method"""
    methods: tuple[str, ...]
    """the first is what the others are compared with"""


def by_method(methods, figures) -> dict[str, dict[str, float]]:
    """Published figures by set and method, from tuples by set; methods without one are left out."""
    return {name: dict(zip(methods, of_set, strict=False)) for name, of_set in figures.items()}


def networks(m) -> list[Table]:
    """The figures of paper 000, which it draws, with m basis functions."""
    methods = tuple(paper000_networks.named(method, m) for method in paper000_networks.methods(m, quick=False))
    sets: dict[str, dict[str, float]] = {name: {} for name in paper000_networks.SETS}
    return [
        Table("paper000_networks", f"Networks, {figure.upper()}, m = {m}", figure, sets, (*methods, "cells"))
        for figure in ("nmse", "mnlp")
    ]


def relevance(number, loss, title) -> Table:
    """A loss of tables 2.3 and 2.4 of the thesis."""
    paper = {
        name: {
            method: paper004_tables.in_our_unit(losses, paper004_tables.UNITS[name])[number]
            for method, losses in methods.items()
        }
        for name, methods in paper004_tables.RELEVANCE.items()
    }
    return Table("paper004_tables", f"Relevance vectors, {title}", loss, paper, ("process", "rvm", "rvm_star"))


COMMITTEES = (*paper001_table1.METHODS, paper001_table1.DEFAULT)
RIGHT = {column.name: [figure for figure, _ in column.paper] for column in paper001_table1.COLUMNS}
EXPONENTS = {"exponent": {name: paper001_figure1.CURVES[name][1] for name in paper001_figure1.FULL}}
ARM = {f"{inputs} inputs": {"process": paper} for inputs, paper in paper003_robot_arm.PAPER.items()}
DEEP = tuple(paper002_deep.methods("normal"))
CLASSES = tuple(paper002_classes.method(units, 2)[0] for units in paper002_classes.UNITS)
DENSITY, RMSE = ({name: [pair[k] for pair in pairs] for name, pairs in paper002_deep.PAPER.items()} for k in range(2))
TABLES = (
    Table("paper002_deep", "Deep processes, mean log density", "density", by_method(DEEP, DENSITY), DEEP),
    Table("paper002_deep", "Deep processes, RMSE", "rmse", by_method(DEEP, RMSE), DEEP),
    Table(
        "paper002_classes",
        "Deep processes of classes, mean log probability",
        "density",
        by_method(CLASSES, paper002_classes.PAPER),
        CLASSES,
    ),
    Table("paper001_table1", "Committees, percent right", "right", by_method(COMMITTEES, RIGHT), COMMITTEES),
    Table("paper001_figure1", "Time of committees ~ K^b, b", "exponent", EXPONENTS, tuple(paper001_figure1.FULL)),
    Table(
        "paper003_robot_arm", "Robot arm, squared error in units of the noise", "error", ARM, paper003_robot_arm.METHODS
    ),
    *(table for m in paper000_networks.SIZES for table in networks(m)),
    relevance(0, "squared", "squared error (2.3: Boston, 2.4: KIN40K)"),
    relevance(1, "absolute", "absolute error"),
    relevance(2, "mnlp", "- log density"),
)


def lines_of(table: Table, results: Results) -> list[str]:
    """A table of the page: sets by row, then each method's figure, the published one, and the paired difference."""
    first, *others = table.methods
    heads = [f"{method} | paper" for method in table.methods] + [f"{method} less {first}" for method in others]
    columns = 2 * len(table.methods) + len(others)
    lines = [f"## {table.title}", "", f"| | {' | '.join(heads)} |", f"|---|{'--:|' * columns}"]
    for name, published in table.paper.items():
        found = {method: results.figures(name, method) for method in table.methods}
        if any(found.values()):
            cells = []
            for method, of_split in found.items():
                cells += [ours(of_split, table.figure), shown(published.get(method))]
            cells += [difference(found[method], found[first], table.figure) for method in others]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, *ranks(table, results)]


def ranks(table: Table, results: Results) -> list[str]:
    """A line with the mean rank of each method over the sets of a table, and the critical difference."""
    means = []
    for name in table.paper:
        found = [results.figures(name, method) for method in table.methods]
        if common := set.intersection(*(set(one) for one in found)):
            means.append([np.mean([one[split][table.figure] for split in common]) for one in found])
    if len(means) < LEAST_SETS:
        return []
    by_set = rankdata(means if table.figure in LOWER_IS_BETTER else -np.array(means), axis=1)
    mean = ", ".join(f"{name} {rank:.2f}" for name, rank in zip(table.methods, by_set.mean(axis=0), strict=True))
    return ["", f"Mean ranks over {len(means)} sets: {mean}; critical difference {critical(*by_set.shape):.2f}."]


def critical(sets: int, methods: int) -> float:
    """Least difference of mean ranks that is significant at 5 % (Demsar 2006, equation of section 3.2.2)."""
    q = studentized_range.ppf(0.95, methods, np.inf) / np.sqrt(2.0)
    return float(q * np.sqrt(methods * (methods + 1) / (6.0 * sets)))


def ours(of_split, figure) -> str:
    """Mean, standard error and number of splits."""
    if not of_split:
        return "-"
    mean, error = mean_and_error(figures[figure] for figures in of_split.values())
    return f"{mean:.3f} ± {error:.3f} ({len(of_split)})" if len(of_split) > 1 else f"{mean:.3f} (1)"


def difference(one, other, figure) -> str:
    """Paired mean difference and its standard error."""
    if len(one.keys() & other.keys()) < 2:
        return "-"
    mean, error, _ = paired(one, other, figure)
    return f"{mean:+.3f} ± {error:.3f}"


def shown(published) -> str:
    return "" if published is None else f"{published:.2f}"


def page(folder=FOLDER) -> str:
    """The page, of all tables with results in a folder."""
    tables = [lines_of(table, Results(table.script, folder)) for table in TABLES]
    there = ["\n".join(lines) + "\n" for lines in tables if len(lines) > 4]
    return "\n".join([BEGIN, *there])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="as without")
    if parser.parse_args().write:
        PAGE.write_text(page())
    else:
        print(page())


if __name__ == "__main__":
    main()
