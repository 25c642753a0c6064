"""Further passes over the data: from the GBCM as published to the global approximation.

In the first pass every expert linearises its rows on its own. In a later one it does so given what the
committee believes, which makes the passes Newton's iteration for the joint mode of the PITC model
p(v) prod_i p(f_i | v) p(y_i | f_i)     (SYSTEMS I.5). Their limit is the Laplace approximation of that
model; from then on evidence, mean and covariance do not depend on who linearised where.

Gaussian likelihoods are exact after one pass.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bcmdist.committee import Committee
from bcmdist.drift import weights
from bcmdist.partition import Partition, from_keys
from bcmdist.settings import Settings
from bcmdist.slices import SLICED
from bcmdist.stages import Stages
from bcmdist.store import RUNNING, BlobReference, Entry
from bcmdist.tasks.calibrating import HELD_OUT_EVERY, ExpertOfRest, held_out_count
from bcmdist.tasks.hearing import EPExpert, RunningExpert

if TYPE_CHECKING:
    from bcmdist.bcm import GBCM

# A pass is the last when no prediction moves by more than this share of its standard deviation. Newton
# doubles the digits with each pass, so that the error left is about its square.
TOLERANCE = 1e-3
MOST_PASSES = 20
HALVINGS = 10  # of one step, before the passes are given up as they are
# Passes of expectation propagation that move more than this share of the one before may be oscillating: the
# sites of the next one go part of the way only.
SLOW_SHARE, DAMPED_STEP = 0.7, 0.7
# Relative fall of the objective that rounding alone can produce.
ROUNDING = 1e-12

# Rows held out to calibrate with, at most; Platt's map has one parameter per class.
CALIBRATION_ROWS = 5000
RECALIBRATE_SHARE = 0.1  # change of the rows heard after which a calibration is out of date


def first_pass(facts):
    """Changed facts once messages of a first pass have been added: further passes begin anew."""
    done = facts["passes"]
    fresh = not done or "change" in done[-1]
    return {"passes": [*done, {"pass": 1}] if fresh else done, "objective": None}


def passes_made(facts) -> int:
    """Number of passes since messages of a first pass were last added, that one included."""
    return facts["passes"][-1]["pass"] if facts["passes"] else 0


def makes_several(settings: Settings, facts) -> bool:
    """Whether a fit goes on after its first pass: as it was asked to, else where that pass has heard slices."""
    if settings.passes is not None:
        return settings.passes == "auto"
    sliced = settings.partition == "chunks" and facts.get("between_partitions", 0.0) >= SLICED
    return sliced and settings.linearise == "own"


def refine(gbcm: "GBCM", runtime, *, most=MOST_PASSES, tolerance=TOLERANCE) -> "GBCM":
    """Passes until the belief moves by less than `tolerance` posterior standard deviations, each committed.

    `change` of a pass is the length of its move in the metric of the posterior, which bounds the change
    of every prediction in units of its standard deviation. A step after which the joint log density
    would be lower is halved, which costs another pass.

    Returns
    -------
    The refined committee; `facts["passes"]` lists change and log evidence of each pass. A likelihood that
    is exact after one pass, or has no probabilities of its own (svm), is left as it is.
    """
    likelihood = gbcm.model.likelihood
    if likelihood.exact or likelihood.needs_calibration or gbcm.facts["linearise"] == RUNNING or not gbcm.ledger:
        return gbcm
    parts = heard_partitions(gbcm)
    values, halvings = _balanced(gbcm.committee.posterior.mean), 0
    previous = gbcm.facts.get("linearised_at")
    previous = gbcm.store.get_array(previous) if previous else None
    done = gbcm.facts["passes"]
    while (number := done[-1]["pass"] + 1) <= most and done[-1].get("change", np.inf) > tolerance:
        stages = Stages()
        with stages("passes"):
            heard, facts = _next_pass(gbcm, parts, values, runtime, label=f"pass {number}")
        objective, last = facts["objective"], gbcm.facts.get("objective")
        if last is not None and objective < last - ROUNDING * abs(last) and halvings < HALVINGS:
            values, halvings = 0.5 * (values + previous), halvings + 1
            continue
        committee = Committee(heard.message)
        change = length(committee.posterior, committee.posterior.mean - values)
        entry = {"pass": number, "change": change, "log_evidence": committee.log_evidence, "halvings": halvings}
        entries = [_as_before(heard.entries[old.key], old) for old in gbcm.ledger]
        done = [*done, entry]
        gbcm = gbcm.successor(committee, entries, rewrite=True, stages=stages, passes=done, **facts)
        parts = heard_partitions(gbcm)
        values, previous, halvings = _balanced(committee.posterior.mean), values, 0
    return gbcm


def _next_pass(gbcm, parts, values, runtime, *, label):
    """Messages of one more pass, and what to remember of it."""
    if gbcm.facts["approximation"] == "ep":
        total, changes = gbcm.committee.total, [entry["change"] for entry in gbcm.facts["passes"] if "change" in entry]
        slow = len(changes) > 1 and changes[-1] > SLOW_SHARE * changes[-2]
        with gbcm.store.transient({"eta": total.eta, "precision": total.precision}) as references:
            task = EPExpert(gbcm.reference, **references, step=DAMPED_STEP if slow else 1.0)
            return gbcm.hear_with(task, parts, runtime, label=label), NO_OBJECTIVE
    at = BlobReference(gbcm.url, gbcm.store.put_arrays({"at": values})["at"])
    heard = gbcm.hear(parts, runtime, at=at, label=label)
    objective = heard.objective - 0.5 * float(np.vdot(values, values))
    return heard, {"objective": objective, "linearised_at": at.digest}


# Expectation propagation climbs no function whose value could be compared between passes.
NO_OBJECTIVE = {"objective": None, "linearised_at": None}


def _balanced(values):
    """Shared values of C processes, (C, S), made to sum to zero over processes, as they do at the joint mode.

    There every row's scores sum to zero over classes, and with one kernel for all so do the values. Messages
    that keep classes apart find this direction only slowly, and nothing else depends on it.
    """
    return values if values.ndim == 1 else values - values.mean(axis=0)


def absorb_in_turn(gbcm: "GBCM", parts, runtime) -> "GBCM":
    """Hear partitions one after the other, each linearised under the belief of the moment (SYSTEMS I.5, last
    paragraph): closer to the limit of the passes than `absorb`, but the order matters from now on."""
    stages = Stages()
    committee = gbcm.committee
    entries: list[Entry] = []
    with stages("experts"):
        for done, part in enumerate(parts):
            belief = committee.posterior
            with gbcm.store.transient({"mean": belief.mean, "factor": belief.factor}) as references:
                task = RunningExpert(gbcm.store.reference(gbcm.commit), **references)
                heard = gbcm.hear_with(task, [part], runtime, label=f"expert {done + 1} of {len(parts)}")
            committee = committee.absorb(heard.message)
            entries += heard.entries.values()
    return gbcm.successor(committee, entries, stages=stages, **first_pass(gbcm.facts))


def length(belief, move) -> float:
    """Length of a move of the shared variables in the metric of a belief's precision L L'."""
    if belief.factor.ndim == 2:
        return float(np.linalg.norm(move @ belief.factor))
    return float(np.linalg.norm([m @ L for m, L in zip(move, belief.factor, strict=True)]))


def heard_partitions(gbcm: "GBCM") -> list[Partition]:
    """The partitions of the ledger, with the weights at which they count."""
    counts, keys = weights(gbcm.facts, gbcm.ledger), [entry.key for entry in gbcm.ledger]
    parts = from_keys(keys, y=gbcm.model.y_name, schema=gbcm.model.schema)
    pairs = zip(parts, gbcm.ledger, strict=True)
    return [replace(part, weight=counts[entry.key], sites=entry.sites) for part, entry in pairs]


def _as_before(entry: Entry, old: Entry) -> Entry:
    """What a pass says of a partition, with what was known of it."""
    return replace(entry, weight=old.weight, position=old.position, arrival=old.arrival, surprise=old.surprise)


def without_some(gbcm: "GBCM", runtime) -> tuple[list[Partition], Committee]:
    """Partitions that rows are held out of (`tasks.calibrating`), and the committee as if it had not heard these.

    What the whole of such a partition has said is withdrawn, which is exact, and the rest is heard again. No
    partitions where there are too few rows to hold one out.
    """
    parts = heard_partitions(gbcm)
    count = max(1, min(len(parts), round(CALIBRATION_ROWS * HELD_OUT_EVERY / max(part.rows for part in parts))))
    spread = [parts[k] for k in np.linspace(0, len(parts) - 1, count).round().astype(int)]
    chosen = [part for part in spread if held_out_count(part)]
    if not chosen:
        return [], gbcm.committee
    whole = gbcm.hear(chosen, runtime, label="calibrate").message
    rest = gbcm.hear_with(ExpertOfRest(gbcm.reference), chosen, runtime, label="calibrate").message
    return chosen, gbcm.committee.withdraw(whole).absorb(rest)
