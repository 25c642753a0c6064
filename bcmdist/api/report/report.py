"""The report: an HTML page on how far the predictions of a data set can be trusted, and why.

rows of the data set -> predictions -> scores against baselines, calibration, relevance, worst rows -> page
"""

import contextlib
import os
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bcmdist import __version__
from bcmdist.api.comparison import remarks
from bcmdist.api.comparison.baselines import baselines, same_rows, training_data, training_rows
from bcmdist.api.facade import Facade
from bcmdist.api.pictures import effects, paper, residuals, scores
from bcmdist.api.pictures import inputs as pictured
from bcmdist.api.pictures.pictures import subject_of
from bcmdist.api.pictures.subject import Subject
from bcmdist.api.relevance import Feature, Losses, features
from bcmdist.api.report import page
from bcmdist.api.report.tables import by_deviation, worst_rows
from bcmdist.data.groups import Location
from bcmdist.errors import InvalidOption
from bcmdist.model.kernel_columns import kernel_columns
from bcmdist.model.likelihoods import Likelihood
from bcmdist.prediction.datasets import open_scored_rows
from bcmdist.prediction.terms import has_terms, shares
from bcmdist.prediction.unseen import unseen_rows
from bcmdist.runtime.interface import Runtime
from bcmdist.runtime.threads import one_thread

ENDINGS = (".html", ".htm")
TERM_ROWS = 2000  # rows over which the variance of terms is measured: takes a second or two with local experts
# Scores in the table of a report, and their labels.
SHOWN = {
    "weighted_rmse": "weighted RMSE",
    "rmse": "RMSE",
    "nmse": "NMSE",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier score",
    "auc": "AUC",
    "deviance": "deviance",
    "concordance": "concordance",
    "mae": "MAE",
    "mnlp": "MNLP (nats)",
}


@dataclass(frozen=True)
class Found:
    """Contents of a report."""

    subject: Subject
    scores: dict[str, Any]
    baselines: dict[str, dict[str, float]]
    learned_from: str
    """training rows of the baselines, or the reason why there are no baselines"""
    losses: Losses
    remarks: list[str]


@one_thread()
def report(
    of: Facade,
    source: Location,
    out: Location,
    runtime: Runtime,
    *,
    train: Location | None = None,
    x: str | None = None,
    y: str | None = None,
    method: str | None = None,
    inputs: str | None = None,
) -> dict[str, Any]:
    """Write an HTML report on predictions of a data set with targets. Return its figures, JSON-ready.

    Parameters
    ----------
    source : path or URL of a data set that the model has not absorbed; of a large one about `MOST_ROWS` rows are used
    out : file whose name ends in .html; an existing file is replaced
    train : path or URL of the data set that baselines learn from; default: the training data of the model
    x, y : names of the arrays; default: as in training
    method, inputs : how to predict, as of `GBCM.predict_zarr`

    Returns
    -------
    `report`, `rows`, `method`, `scores`, `baselines`, `learned_from`, `trust` and `remarks`

    Raises
    ------
    InvalidOption, MissingExtra
        Before any work: `out` cannot be written, or matplotlib is missing.
    DataNotFound, InvalidData, UnsupportedTarget, MemoryLimit, WorkerCannotRead
    """
    how: dict[str, Any] = {"train": train, "x": x, "y": y, "method": method, "inputs": inputs}
    refuse(of, source, out, **how)
    found = found_of(of, source, runtime, **how)
    with paper.styled():
        _write(out, _page(found))
    return {
        "report": str(out),
        "rows": len(found.subject.judged),
        "method": found.subject.method,
        "scores": found.scores,
        "baselines": found.baselines,
        "learned_from": found.learned_from,
        "trust": found.remarks[0],
        "remarks": found.remarks,
    }


def refuse(
    of: Facade,
    source: Location,
    out: Location,
    *,
    train: Location | None = None,
    x: str | None = None,
    y: str | None = None,
    method: str | None = None,
    inputs: str | None = None,
) -> None:
    """Validate the arguments of `report` before any work."""
    paper.available()
    if Path(out).suffix.lower() not in ENDINGS or "://" in str(out):
        raise InvalidOption(f"report: expected a file whose name ends in .html, got {out}; choose another --out")
    if not Path(out).absolute().parent.is_dir():
        raise InvalidOption(f"report: expected a directory at {Path(out).absolute().parent}, found none; make it")
    open_scored_rows(of.predictive, source, x=x, y=y, method=method, inputs=inputs)
    training_data(of.predictive.snapshot, train)


def found_of(
    of: Facade,
    source: Location,
    runtime: Runtime,
    *,
    train: Location | None = None,
    x: str | None = None,
    y: str | None = None,
    method: str | None = None,
    inputs: str | None = None,
) -> Found:
    """Compute the contents of a report; arguments as of `report`."""
    subject = subject_of(of, runtime, data=source, x=x, y=y, method=method, inputs=inputs)
    rows, snapshot = subject.judged, subject.snapshot
    totals = rows.scores()
    scores = totals.summary()
    data = training_data(snapshot, train)
    compared: dict[str, dict[str, float]] = {}
    learned_from = None
    if isinstance(data, str):
        note = data
    else:
        training = training_rows(snapshot, data, named=_name(data.url))
        note = f"learned from {training.description}"
        compared, learned_from = baselines(snapshot, training, rows), len(training.y)
    remarks_found = [
        remarks.trust(totals, compared, learned_from),
        remarks.of_same_rows(same_rows(snapshot.facts.survey.data, source)),
        remarks.of_few_rows(rows),
        remarks.of_baselines(scores, compared),
        remarks.of_capped_targets(rows.y) if "crps" in rows.columns else None,
        *of.advised(),
    ]
    return Found(subject, scores, compared, note, subject.losses(), [one for one in remarks_found if one])


def _name(url: Location) -> str:
    return str(url).rstrip("/").rpartition("/")[2]


# --- The page ---


def _page(found: Found) -> str:
    model = found.subject.snapshot.model
    title = f"How far {_name(found.subject.of.url)} can be trusted on {found.subject.data}"
    return page.page(
        title,
        [
            page.paragraph(_head(found), note=True),
            page.heading("In words"),
            page.sentences(found.remarks),
            page.heading("Scores beside simple baselines and boosted trees, on the same rows"),
            _scores(found),
            page.heading("Can its uncertainty be trusted?"),
            page.figure(paper.svg(scores.calibration(found.subject.judged.scores()))),
            page.paragraph("The same rows, in ten groups by how uncertain their predictions were:"),
            page.table(*by_deviation(found.subject.judged)),
            page.paragraph(f"± is the standard error of a share of so many rows. {_note(model.likelihood)}", note=True),
            page.heading("Observed and predicted"),
            page.figure(paper.svg(residuals.residuals(found.subject))),
            page.heading("Which inputs matter"),
            _relevance(found),
            *_terms(found.subject),
            page.heading("The rows that were predicted worst"),
            _worst(found, features(model)),
            page.paragraph(f"Written by bcmdist {__version__}.", note=True),
        ],
    )


def _terms(subject: Subject) -> list[str]:
    """Elements about the terms of the kernel; none where there are not several."""
    model, rows = subject.snapshot.model, subject.judged.X[:TERM_ROWS]
    rows = rows[~unseen_rows(model, model.scaling.inputs(rows))]
    if not has_terms(model) or subject.several > 1 or model.likelihood.processes > 1:
        return []
    found = subject.of.predictive.predictor(subject.method).terms(rows)
    table = [[name, f"{share:.1%}"] for name, share in zip(found["term"], shares(found["term_mean"]), strict=True)]
    note = (
        f"The variance of each term over {len(rows):,} of these rows, as a share of that of their sum, the prediction; "
        "shares of terms that vary together do not add up to 100 %."
    )
    drawn = [page.figure(paper.svg(effects.effects(subject)))] if effects.one_column_terms(model) else []
    head = page.heading("The terms of the kernel")
    return [head, page.table(["term", "share of the variance"], table), page.paragraph(note, note=True), *drawn]


def _note(likelihood: Likelihood) -> str:
    """Return a note on the coverage of intervals, for censored rows and for counts."""
    if "event" in likelihood.companions:
        return "Of a censored row the probability counts that is left to the interval."
    return DISCRETE if likelihood.events else ""


DISCRETE = (
    "Intervals of counts hold their limits, so they hold more than was asked for where counts are small; the picture "
    "above, which divides counts among bins, is free of that."
)


def _head(found: Found) -> str:
    snapshot, subject = found.subject.snapshot, found.subject
    model, many = snapshot.model, subject.several
    kernel = kernel_columns(model).shown(model.kernel_name)
    alike = "which count alike," if subject.of.predictive.weights is None else "weighted by their evidence,"
    predictor = f"commit {snapshot.commit}" if many == 1 else f"the mixture of {many} committees, {alike}"
    return (
        f"{subject.description}, judged by {predictor} of {subject.of.url}: {snapshot.committee.total.rows:,} rows "
        f"absorbed in {len(snapshot.ledger):,} partitions; expert {snapshot.facts.expert}, kernel {kernel}, "
        f"likelihood {model.likelihood.name}, method {subject.method}."
    )


def _scores(found: Found) -> str:
    ours = {name: found.scores[name] for name in SHOWN if name in found.scores}
    names = [name for name in ours if not found.baselines or any(name in one for one in found.baselines.values())]
    rows = [[f"this model ({found.subject.method})", *(ours[name] for name in names)]]
    rows += [[name, *(one.get(figure) for figure in names)] for name, one in found.baselines.items()]
    note = f"Baselines: {found.learned_from}. {MEANING[_kind(ours)]}"
    return page.table(["", *(SHOWN[name] for name in names)], rows, first_best=True) + page.paragraph(note, note=True)


def _kind(figures: Collection[str]) -> str:
    return next(name for name in MEANING if name in figures)


MEANING = {
    "rmse": "Less is better. NMSE: of the mean squared deviation from the training mean. MNLP: mean negative log "
    "density of an observation; of baselines with normal errors of the deviation that rows left out of them show. "
    "Nearest neighbours: the mean of ten. Boosted trees: up to 100, as many as predict left-out rows best.",
    "accuracy": "More accuracy and AUC are better, less log loss and Brier score. Baselines give shares: of all "
    "training rows, of least squares on each class (cut to be shares), of ten nearest neighbours, of boosted trees.",
    "deviance": "Less deviance and MAE are better, more concordance. Baselines predict means: of all training rows, "
    "of least squares, of ten nearest neighbours, of boosted trees (by the Poisson likelihood); of counts as rates, of "
    "lifetimes by time at risk over events.",
}


def _relevance(found: Found) -> str:
    snapshot = found.subject.snapshot
    names = [feature.name for feature in features(snapshot.model)]
    order = np.argsort(-found.losses.mean, kind="stable")
    parts = found.subject.of.lengthscales()
    rows = [
        [
            names[k],
            f"{found.losses.mean[k]:.3g} ± {found.losses.error[k]:.2g}",
            *(float(part.original[k]) for part in parts),
            *(float(part.scaled[k]) for part in parts),
        ]
        for k in order
    ]
    head = ["input", "lost when shuffled (nats a row)"]
    head += [f"{part.name}, units of the input" for part in parts] + [f"{part.name}, scaled" for part in parts]
    shared = " All inputs share one scaled lengthscale." if parts and all(part.shared for part in parts) else ""
    linear = f" {pictured.LINEAR}" if parts and snapshot.model.shared.mean.kind == "linear" else ""
    note = (
        f"Lost when shuffled: how much less likely observations become, mean of {found.losses.rows:,} rows, when the "
        "column is shuffled among them; of inputs that say the same each loses little. A lengthscale is the distance "
        f"along an input over which the function changes; any two levels of a category are {np.sqrt(2.0):.2f} apart."
        f" {found.subject.averaged}{shared}{linear}"
    )
    drawn = page.figure(paper.svg(pictured.relevance(found.subject, found.losses)))
    return drawn + page.table(head, rows) + page.paragraph(note, note=True)


def _worst(found: Found, of: list[Feature]) -> str:
    order = np.argsort(-found.losses.mean, kind="stable")
    labels = found.subject.snapshot.model.class_labels
    note = "Those that the model found least likely: look for errors of measurement, or for what no column tells."
    return page.paragraph(note, note=True) + page.table(*worst_rows(found.subject.judged, of, order, labels))


def _write(out: Location, text: str) -> None:
    """Write a file atomically."""
    partial = f"{out}.{uuid.uuid4().hex[:8]}.partial"
    try:
        Path(partial).write_text(text, encoding="utf-8")
        os.replace(partial, out)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)
