"""Summary of a committee, JSON-ready: model, data, hyper-parameters, errors, ingestion."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from bcmdist.api.advice import advice, at_bounds, errors
from bcmdist.api.relevance import column_names, features, lengthscales
from bcmdist.committee import passes
from bcmdist.committee.cells import rows_outside
from bcmdist.committee.facts import Decision
from bcmdist.committee.growth import capacity
from bcmdist.committee.ingest.lag_meter import lags
from bcmdist.committee.snapshot import Snapshot
from bcmdist.model.kernel_columns import kernel_columns
from bcmdist.model.kernels import Kernel
from bcmdist.model.model import Model, named_parameters
from bcmdist.model.target_transform import TargetTransform
from bcmdist.prediction.errors.drift import drift_in
from bcmdist.prediction.outputs import correlations
from bcmdist.prediction.scoring.excess_loss import from_facts
from bcmdist.prediction.terms import term_shares
from bcmdist.runtime.threads import one_thread
from bcmdist.storage.heartbeats import Heartbeat, heartbeats


@one_thread()
def info(snapshot: Snapshot) -> dict[str, Any]:
    """Return the figures that `bcmdist info` prints, JSON-ready."""
    model, facts, degrees = snapshot.model, snapshot.facts, snapshot.degrees_of_freedom
    shared, members = model.shared, len(model.shared.members)
    ingesters, reports = heartbeats(snapshot.store), msgspec.to_builtins(facts.reports)
    shown = kernel_columns(model).shown
    return {
        "rows": snapshot.committee.total.rows,
        "partitions": len(snapshot.ledger),
        "commit": snapshot.commit,
        "query": shared.functions // max(1, members),
        "expert": facts.expert,
        "networks": {"count": members, **reports["networks"]} if "networks" in reports else None,
        "deep": reports.get("deep"),
        "input_errors": _input_errors(snapshot),
        "precision": model.precision,
        "inputs": model.inputs,
        "columns": list(model.schema.columns),
        "look": facts.survey.look or [],
        "coded": model.schema.coding.descriptions() if model.schema.coding else None,
        "capacity": capacity(snapshot),
        "p_eff": degrees,
        "advice": advice(snapshot),
        "log_evidence": passes.log_evidence(model, facts, snapshot.ledger, snapshot.committee),
        "kernel": shown(model.kernel_name),
        "terms": term_shares(model, snapshot.committee.posterior),
        **_of_outputs(model, shown),
        "likelihood": model.likelihood.name,
        "companions": facts.survey.companions or [],
        "hyperparameters": {
            shown(name): value.tolist() for name, value in named_parameters(shared.kernel, model.likelihood).items()
        },
        "classes": list(model.schema.classes) or model.classes,
        "approximation": facts.linearisation.approximation,
        "passes": [entry.to_json() for entry in facts.linearisation.passes],
        "converged": passes.converged(facts),
        "jitter": shared.jitter,
        "waves": None,
        "shared_lengthscales": _shared_lengthscales(shared.kernel, shown),
        "lengthscales": _by_column(snapshot),
        "target_transform": _transform(model.scaling.transform),
        "warp": {column_names(model)[k]: kind for k, kind in model.scaling.warping.kinds().items()},
        "kernels_tried": {shown(name): value for name, value in facts.learning.kernels_tried.items()},
        "decisions": [_decision(one, shown) for one in facts.learning.decisions or []],
        "at_bounds": list(at_bounds(snapshot)),
        "left_out": msgspec.to_builtins(facts.errors.accuracy),
        "method": facts.method,
        "recalibration": msgspec.to_builtins(facts.errors.recalibration),
        "errors": errors(snapshot),
        "drift": drift_in(snapshot.ledger, from_facts(facts.errors.expected)),
        "fading": asdict(facts.fading) if facts.fading.fades else None,
        "skipped": list(facts.ingestion.skipped),
        "lag": _lag(snapshot, ingesters),
        "ingesters": [asdict(one) for one in ingesters] or None,
        "cells": _cells(snapshot),
        "seconds_by_stage": facts.seconds,
        "model": snapshot.url,
        "identity": snapshot.identity,
        **shared.summary(snapshot.committee.posterior, model.scaling.original_inputs),
    }


def _of_outputs(model: Model, shown: Callable[[str], str]) -> dict[str, Any]:
    """Return the prior mean, and the outputs that rows observe: names, means and scales of targets, and correlations of
    the latent functions at one place; None where there is only one."""
    found, mean = model.scaling.outputs, {"mean": shown(model.shared.mean.name)}
    if found is None:
        return mean | {"outputs": None}
    of_each = {"names": list(model.outputs), "mean": list(found.mean), "scale": list(found.scale)}
    of_each["correlation"] = correlations(model.shared.kernel, found.columns, model.inputs).tolist()
    return mean | {"outputs": of_each}


def _transform(transform: TargetTransform | None) -> dict[str, Any] | None:
    """Return how targets are transformed as JSON values; None if they are not."""
    return None if transform is None else {"kind": transform.kind, "power": transform.power}


def _decision(decision: Decision, shown: Callable[[str], str]) -> dict[str, Any]:
    """Return a decision as JSON values, with names of columns in kernels."""
    found: dict[str, Any] = msgspec.to_builtins(decision)
    return found | {"taken": shown(found["taken"]), "over": {shown(name): one for name, one in found["over"].items()}}


def _shared_lengthscales(kernel: Kernel, shown: Callable[[str], str]) -> dict[str, int]:
    """Return the number of inputs with one common lengthscale, by parameter name, where all lengthscales are equal."""
    values = {shown(f"kernel.{name}"): kernel.parameters[name] for name in kernel.lengthscales}
    return {name: len(value) for name, value in values.items() if len(value) > 1 and np.ptp(value) == 0.0}


def _input_errors(snapshot: Snapshot) -> dict[str, Any] | None:
    """Return how experts treat errors of inputs, and the learned standard deviations of these errors, by column in the
    column's unit; None for exact inputs."""
    errors = snapshot.model.input_errors
    if errors is None:
        return None
    scale = snapshot.model.scaling.input_units
    learned = None if errors.variance is None else (np.sqrt(errors.variance) * scale).tolist()
    return {
        "way": errors.way,
        "deviations": learned,
        **msgspec.to_builtins(snapshot.facts.reports.get("input_errors", {})),
    }


def _lag(snapshot: Snapshot, ingesters: Sequence[Heartbeat]) -> dict[str, Any] | None:
    """Return the lag of ingestion behind its sources, in total and for each source; None where nothing was ingested.

    The lag of a source whose ingester is dead is unknown (None), and then the total is unknown too.
    """
    sources = lags(snapshot) | {one.source: None for one in ingesters if not one.alive}
    if not sources:
        return None
    reported = [one for one in sources.values() if one is not None]
    rows, seconds = sum(one["rows"] for one in reported), max((one["seconds"] for one in reported), default=0.0)
    unknown = len(reported) < len(sources)
    return {"rows": None if unknown else rows, "seconds": None if unknown else seconds, "sources": sources}


def _by_column(snapshot: Snapshot) -> dict[str, dict[str, float]] | None:
    """Return lengthscales by parameter and column name, without parameters common to all columns; None for models
    without categories, whose hyper-parameters show the same."""
    of = features(snapshot.model)
    if all(feature.levels is None for feature in of):
        return None
    return {
        part.name: {
            feature.name: value for feature, value in zip(of, part.scaled.tolist(), strict=True) if np.isfinite(value)
        }
        for part in lengthscales(snapshot)
        if not part.shared
    }


def _cells(snapshot: Snapshot) -> dict[str, Any] | None:
    cells, names = snapshot.facts.cells.to_json(), ("core", "around", "border_jump", "border_jump_error")
    shown: dict[str, Any] = {name: cells[name] for name in names if name in cells}
    shown |= {"rows_outside": rows} if (rows := rows_outside(snapshot)) else {}
    return shown | {"count": snapshot.model.cells.cells} if snapshot.model.cells else None
