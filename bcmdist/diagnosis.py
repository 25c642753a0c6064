"""What reading the data once more can tell about a fitted committee."""

from typing import TYPE_CHECKING

import numpy as np

from bcmdist import passes
from bcmdist.committee_evidence import committee_gradient, mode_shift
from bcmdist.errors import InvalidOption
from bcmdist.kernels import split_parameters
from bcmdist.likelihoods import Softmax
from bcmdist.model import named_parameters
from bcmdist.tasks.second_look import Degrees, Gradient, Modes

if TYPE_CHECKING:
    from bcmdist.bcm import GBCM


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
        The likelihood has several processes, or is not Gaussian and the passes have not converged; or
        partitions are weighted.
    """
    likelihood, reference = gbcm.model.likelihood, gbcm.reference
    how, done = gbcm.facts["approximation"], gbcm.facts["passes"]
    converged = likelihood.exact or (how == "laplace" and done and done[-1].get("change", np.inf) <= passes.TOLERANCE)
    if likelihood.processes > 1 or not converged:
        raise InvalidOption(
            f"gradient: expected one latent process and converged Laplace passes, got {likelihood.name} after "
            f"{len(done)} passes by {how}; fit with --passes auto"
        )
    weighted = [entry.key for entry in gbcm.ledger if entry.weight != 1.0]
    if weighted:
        raise InvalidOption(
            f"gradient: expected partitions of weight 1, {weighted[0]} has another ({len(weighted)} have); give them "
            "weight 1 first"
        )
    parts, belief, query = passes.heard_partitions(gbcm), gbcm.committee.posterior, gbcm.model.query
    if likelihood.exact:
        total, shift = runtime.sum(Gradient(reference, None), parts, label="gradient"), None
    else:
        shift = mode_shift(belief, runtime.sum(Modes(reference), parts, label="modes"))
        with gbcm.store.transient({"shift": shift}) as references:
            total = runtime.sum(Gradient(reference, references["shift"]), parts, label="gradient")
    flat = committee_gradient(query, belief, total, shift)
    return split_parameters(named_parameters(query.kernel, likelihood), flat)
