"""Names are the field's terms: no class, function, field or module is named by a word of the project's own.

`REPLACE` says what to write in place of each word. `REMAINING` are names that still have one; it only gets shorter.
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
REMAINING: dict[str, set[str]] = {
    "api/forecasts.py": {"known"},
    "committee/facts.py": {"around", "halving_loss", "judge", "repeats", "settled", "spread", "surprise"},
    "committee/ingest/watch.py": {"beside", "noted"},
    "learning/decisions.py": {"judge"},
    "learning/option_fields.py": {"said"},
    "methods/relevance/method.py": {"OneAgainstRest"},
    "model/likelihoods/interface.py": {"apart", "beside"},
    "prediction/errors/arrival_watch.py": {"noted"},
    "prediction/errors/arrivals.py": {"_noted", "_sample_noted"},
    "prediction/errors/drift.py": {"noted", "told"},
    "prediction/errors/error_distribution.py": {"together"},
    "prediction/errors/quantile_recalibration.py": {"Reshaped", "reshaped"},
    "prediction/interface.py": {"spread"},
    "prediction/local/neighbours.py": {"spread"},
    "prediction/scored_rows.py": {"around"},
    "prediction/scoring/excess_loss.py": {"alone", "noted", "surprise"},
    "storage/ledger.py": {"surprise"},
}
"""By file, names that are still to be replaced, or are keys of JSON and of stored models."""


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
        if own := {name for name in definitions(path) if words(name) & REPLACE.keys()}:
            found[path.relative_to(root).as_posix()] = own
    more = {file: sorted(own - REMAINING.get(file, set())) for file, own in found.items()}
    assert {file: own for file, own in more.items() if own} == {}, "take a word of `REPLACE`"
    gone = {file: sorted(own - found.get(file, set())) for file, own in REMAINING.items()}
    assert {file: own for file, own in gone.items() if own} == {}, "replaced: take them out of `REMAINING`"
