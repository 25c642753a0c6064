"""What reading the data once more can tell about a fitted committee."""

from typing import TYPE_CHECKING

import numpy as np

from bcmdist import passes
from bcmdist.errors import InvalidOption
from bcmdist.kernels import split_parameters
from bcmdist.likelihoods import Softmax
from bcmdist.model import named_parameters
from bcmdist.objectives import CommitteeObjective
from bcmdist.scaling import scaling_to_array
from bcmdist.tasks.second_look import Degrees

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
