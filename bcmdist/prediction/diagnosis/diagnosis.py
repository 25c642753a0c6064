"""What reading the data once more can tell about a fitted committee."""

from typing import TYPE_CHECKING

import numpy as np

from bcmdist.committee import passes
from bcmdist.data.partition import from_key
from bcmdist.data.rows import read_all
from bcmdist.errors import InvalidOption
from bcmdist.learning import first_commit
from bcmdist.learning.evidence.objectives import CommitteeObjective
from bcmdist.model.kernels import kernel_parts, split_parameters
from bcmdist.model.likelihoods import Gaussian, Softmax
from bcmdist.model.model import named_parameters
from bcmdist.model.scaling import scaling_to_array
from bcmdist.model.targets import model_rows
from bcmdist.prediction.diagnosis.reliability import Heard, Reliability, reliability
from bcmdist.prediction.diagnosis.tasks import Degrees
from bcmdist.prediction.scoring.pit import LEVELS
from bcmdist.runtime import memory
from bcmdist.storage.commits import Entry

if TYPE_CHECKING:
    from bcmdist.api.gbcm import GBCM

# Rows of the committee whose calibration is computed: some seconds, which grow with their square.
CALIBRATION_ROWS = 4000
# Of these rows, as many are points where it is computed.
CALIBRATION_POINTS = 500


def effective_parameters(gbcm: "GBCM", runtime) -> dict[str, float]:
    """Degrees of freedom of the data, `data`, and those seen through the query set, `query` (GBCM paper, 6.1).

    Where `data` is well above `query`, more query points would let the committee learn more.
    """
    likelihood = gbcm.model.likelihood
    if (isinstance(likelihood, Softmax) and likelihood.coupled) or not gbcm.ledger:
        raise InvalidOption(
            f"degrees of freedom of the data: expected a committee that has heard rows of classes apart, got "
            f"{likelihood.name} after {len(gbcm.ledger)} partitions; leave them out"
        )
    data = runtime.sum(Degrees(gbcm.reference), passes.heard_partitions(gbcm), label="degrees of freedom")
    return {"data": data, "query": gbcm.degrees_of_freedom}


def evidence_gradient(gbcm: "GBCM", runtime) -> dict[str, np.ndarray]:
    """Gradient of `committee.log_evidence` in the log hyper-parameters, by name (SYSTEMS I.3, I.4).

    Raises
    ------
    InvalidOption
        The likelihood has several processes, or is not Gaussian and the passes have not converged.
    """
    model, how, done = gbcm.model, gbcm.facts["approximation"], gbcm.facts["passes"]
    query, likelihood = model.query, model.likelihood
    converged = likelihood.exact or (how == "laplace" and done and done[-1].get("change", np.inf) <= passes.TOLERANCE)
    if likelihood.processes > 1 or not converged:
        raise InvalidOption(
            f"gradient: expected one latent process and converged Laplace passes, got {likelihood.name} after "
            f"{len(done)} passes by {how}; fit with --passes auto"
        )
    with gbcm.store.transient({"scaling": scaling_to_array(model.scaling)}) as references:
        objective = CommitteeObjective(
            runtime,
            passes.heard_partitions(gbcm),
            scaling=references["scaling"],
            mean=query.mean.name,
            points=query.points,
            jitter=query.jitter_share,
            store=gbcm.store,
            classes=model.classes,
        )
        flat = objective.gradient(query.kernel, likelihood, gbcm.committee.posterior)
    return split_parameters(named_parameters(query.kernel, likelihood), flat)


def calibration(gbcm: "GBCM", *, allowed_bytes, seed=0) -> dict:
    """How often f lies in the intervals that a committee reports, if f is drawn from the model's Gaussian process.

    No sampling: see `reliability`. Of a large committee a smaller one with the same hyper-parameters and query set
    is judged, which has heard as many whole partitions, chosen by `seed`, as have `CALIBRATION_ROWS` rows.

    Returns
    -------
    `rows` and `partitions` of that committee; `coverage50 coverage80 coverage95` of the intervals of f, and
    `variance_ratio`, actual over reported, all at the query points; and as `at_rows` the same at some of its rows.

    Raises
    ------
    InvalidOption
        The likelihood is not Gaussian, so that the mean is not linear in the targets; nothing was heard; or the
        partitions are too large.
    MemoryLimit, DataChanged
    """
    query, likelihood = gbcm.model.query, gbcm.model.likelihood
    if not isinstance(likelihood, Gaussian):
        raise InvalidOption(
            f"calibration: expected a gaussian likelihood, whose errors are known without sampling, got "
            f"{likelihood.name}; score held-out rows instead"
        )
    rng = np.random.default_rng(seed)
    chosen = _whole_partitions(gbcm.ledger, rng)
    rows, largest = sum(entry.rows for entry in chosen), max(entry.rows for entry in chosen)
    count = min(rows, CALIBRATION_POINTS)
    memory.refuse_above(
        memory.reliability_bytes(
            rows, len(query.points) + count, largest, query.shared, kernels=kernel_parts(query.kernel)
        ),
        allowed_bytes,
        what=f"calibration of {rows} rows",
        remedy="use a machine with more memory, or leave it out",
    )
    heard = [_heard(gbcm, entry) for entry in chosen]
    sample = np.vstack([part.X for part in heard])[rng.choice(rows, count, replace=False)]
    found = reliability(query, likelihood, heard, np.vstack([query.points, sample]))
    Q = len(query.points)
    return {"rows": rows, "partitions": len(chosen), **_figures(found[:Q]), "at_rows": _figures(found[Q:])}


def _whole_partitions(ledger, rng) -> list[Entry]:
    """Entries of at most `CALIBRATION_ROWS` rows together; of several partitions at least two."""
    chosen, rows = [], 0
    for entry in rng.permutation(np.array(ledger, dtype=object)):
        if rows + entry.rows <= CALIBRATION_ROWS:
            chosen.append(entry)
            rows += entry.rows
    if len(chosen) < max(1, min(2, len(ledger))):
        raise InvalidOption(
            f"calibration: expected a committee that has heard two partitions of together at most {CALIBRATION_ROWS} "
            f"rows (or one that is all), got {len(ledger)}, the smallest with "
            f"{min((entry.rows for entry in ledger), default=0)}; fit with lower --rows-per-expert"
        )
    return chosen


def _heard(gbcm, entry):
    (part, rows), *_ = read_all(
        [from_key(entry.key, y=gbcm.model.y_name, schema=gbcm.model.schema, weight=entry.weight)]
    )
    first_commit.refuse_changed([Entry(part.key, rows.digest, part.rows)], gbcm.ledger)
    X, obs = model_rows(gbcm.model, part, rows)
    return Heard(X, obs, part.weight)


def _figures(found: Reliability):
    coverages = {f"coverage{100 * level:.0f}": found.coverage(level) for level in LEVELS}
    return {**coverages, "variance_ratio": found.variance_ratio}
