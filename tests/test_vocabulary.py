"""Names are the field's terms: no class, function, field or module is named by a word of the project's own.

`REPLACE` says what to write in place of each word.
"""

import ast
import re
from pathlib import Path

import bcmdist

REPLACE = {
    "hear": "absorb",
    "heard": "absorbed",
    "hearing": "absorbing",
    "said": "predictive, report",
    "told": "summary",
    "tell": "report, describe",
    "tells": "reports",
    "telling": "event channel, summaries",
    "noted": "records",
    "noting": "records",
    "known": "basis inputs, ledger state",
    "ground": "training context",
    "given": "in memory, fixed",
    "examined": "predictive model",
    "alone": "single, serial",
    "judge": "score, cross-validation",
    "judges": "cross-validation",
    "bench": "validation data",
    "seats": "folds",
    "contest": "model selection",
    "settled": "noise-adjusted",
    "wanted": "prediction inputs, requested",
    "affordable": "basis budget",
    "repeats": "replicates",
    "polishing": "evidence refinement",
    "uncovered": "gap points",
    "spread": "error distribution",
    "reshaped": "quantile recalibration",
    "outlook": "committee at rows",
    "halving": "query sufficiency",
    "waves": "Fourier features",
    "waved": "Fourier features",
    "apart": "independent, separate",
    "rest": "residual",
    "tame": "quadratic tail",
    "behind": "lag",
    "together": "micro-batch, coupled",
    "gate": "middleware",
    "around": "input uncertainty",
    "surprise": "excess loss",
    "beside": "aligned, mixture",
}
"""What stands for each word."""


def definitions(path):
    """Names of the classes and functions of a file, of their fields, and its own."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            fields = (part for part in node.body if isinstance(part, ast.AnnAssign))
            yield from (part.target.id for part in fields if isinstance(part.target, ast.Name))


def words(name):
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def test_names_are_the_terms_of_the_field():
    root = Path(bcmdist.__file__).parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        if own := sorted({name for name in definitions(path) if words(name) & REPLACE.keys()}):
            found[path.relative_to(root).as_posix()] = own
    assert found == {}, "take a word of `REPLACE`"
