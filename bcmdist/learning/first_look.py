"""A look at the target and the inputs of a data set before anything is learned, in a few lines.

From the survey: moments and repeated rows are of all rows, the rest is of its sample.
"""

import logging

import numpy as np
from scipy.stats import rankdata

from bcmdist.data.schema import few
from bcmdist.data.tables.coding import Category
from bcmdist.learning.input_warping import skewness

log = logging.getLogger(__name__)
# Distance from the median in robust standard deviations (of the middle half) beyond which a target is told.
GROSS = 8.0
FAR_TARGETS = "sampled targets lie more than"  # words by which the line about them is found again
NORMAL_QUARTILES = 1.349  # distance between the quartiles of a standard normal distribution
# Shares of equal targets and of repeated rows, rank correlation with the target, and rows of a level, that are told.
MASS, REPEATED, TELLING, RARE = 0.05, 0.01, 0.999, 5
SKEWED = 1.0  # skewness above which positive targets are looked at as logarithms
LEAST_ROWS = 20  # of a sample that correlations are computed from


def first_look(case) -> list[str]:
    """Return what a `FitContext` shows of target and inputs, up to six lines, and log them."""
    lines = [_rows(case), _target(case), _gross(case), _identifiers(case), _near_target(case), _rare(case)]
    found = [line for line in lines if line]
    for line in found:
        log.info("%s", line)
    return found


def _rows(case):
    surveyed = case.surveyed
    text = f"{surveyed.y.count:,} rows, {case.data.inputs} inputs"
    if surveyed.copies.share >= REPEATED:
        return (
            f"{text}; {surveyed.copies.share:.0%} of rows are copies of others (inputs and target): leave copies out "
            "before rows are split, since scores at rows that were seen say nothing about new ones"
        )
    if surveyed.replicates.share >= REPEATED:
        return f"{text}; {surveyed.replicates.share:.0%} of rows repeat the inputs of others, with other targets"
    return text


def _target(case):
    """Range, median, skewness and the most frequent value of a target, or the classes."""
    y, moments = case.surveyed.sample.obs.y, case.surveyed.y
    name = dict(case.schema.coding.roles).get("y", case.data.y) if case.schema.coding else case.data.y
    if case.likelihood.categorical:
        numbers, counts = np.unique(y, return_counts=True)
        rarest, share = numbers[counts.argmin()], counts.min() / len(y)
        label = case.schema.classes[int(rarest)] if case.schema.classes else f"{rarest:g}"
        return f"target {name}: {len(numbers)} classes, the rarest {label:.40} with {share:.1%} of rows"
    text = f"target {name}: {moments.low[0]:.4g} to {moments.high[0]:.4g}, median {np.median(y):.4g}"
    text += f", skewness {skewness(y):.2g}"
    values, counts = np.unique(y, return_counts=True)
    if counts.max() >= MASS * len(y) and len(values) > 2:
        text += f"; {counts.max() / len(y):.0%} of rows are {values[counts.argmax()]:g}"
    return text


def _gross(case):
    """Targets farther from the median than known errors explain; None for classes, or if half the targets are equal."""
    y, row, known = case.surveyed.sample.obs.y, case.surveyed.sample.row, case.surveyed.sample.obs.target_variance
    if case.likelihood.categorical or not len(y):
        return None
    if case.surveyed.y.low[0] > 0.0 and skewness(y) > SKEWED and not known.any():
        y = np.log(y)  # the tail of a skewed target is no error
    low, middle, high = np.quantile(y, [0.25, 0.5, 0.75])
    spread = (high - low) / NORMAL_QUARTILES
    far = np.flatnonzero(np.abs(y - middle) > GROSS * np.sqrt(spread**2 + known)) if spread > 0.0 else np.zeros(0, int)
    if not len(far):
        return None
    first = far[row[far].argmin()]
    value = case.surveyed.sample.obs.y[first]
    return (
        f"{len(far)} of {len(y):,} {FAR_TARGETS} {GROSS:g} times the usual spread from the median, as "
        f"{value:.4g} in row {row[first]}: correct them if they are errors"
    )


def _identifiers(case):
    """Inputs that are whole numbers, each once: numbers of rows, customers or the like."""
    X, codes = case.surveyed.sample.X, _coded(case)
    plain = [k for k in range(X.shape[1]) if k not in codes]
    found = [
        _name(case, k)
        for k in plain
        if len(X) >= LEAST_ROWS and np.all(X[:, k] == np.floor(X[:, k])) and len(np.unique(X[:, k])) == len(X)
    ]
    if not found:
        return None
    return f"whole numbers that never repeat: {few(found)}; leave them out (--drop) if they name rows"


def _near_target(case):
    """Inputs whose order is nearly that of the target."""
    X, y = case.surveyed.sample.X, case.surveyed.sample.obs.y
    if len(X) < LEAST_ROWS or len(np.unique(y)) < 3:
        return None
    ranks = rankdata(y)
    found = []
    for k in range(X.shape[1]):
        column = rankdata(X[:, k])
        if column.std() > 0.0 and abs(np.corrcoef(column, ranks)[0, 1]) > TELLING:
            found.append(_name(case, k))
    if not found:
        return None
    return f"inputs that nearly tell the target: {few(found)}; leave them out (--drop) if new rows lack them"


def _rare(case):
    """Levels of categories with few rows."""
    coding, rows = case.schema.coding, len(case.surveyed.sample.X)
    found, first = [], 0
    for code in coding.codes if coding else ():
        if isinstance(code, Category):
            counts = case.surveyed.x.mean[first : first + len(code.levels)] * case.surveyed.y.count
            if rare := int(np.sum(counts < RARE - 0.5)):
                found.append(f"{code.name} ({rare} of {len(code.levels)})")
        first += len(code.inputs)
    return f"levels with fewer than {RARE} rows: {few(found)}" if found and rows else None


def _name(case, k):
    return case.schema.columns[k] if case.schema.columns else f"{case.data.x}[{k}]"


def _coded(case):
    """Numbers of the inputs that columns other than plain numbers were coded as."""
    coding, first, found = case.schema.coding, 0, set[int]()
    for code in coding.codes if coding else ():
        if len(code.inputs) > 1 or code.kind != "number":
            found.update(range(first, first + len(code.inputs)))
        first += len(code.inputs)
    return found
