"""The gradient of a fitted committee's evidence, as a sum over its partitions."""

import numpy as np

from bcmdist.committee import passes
from bcmdist.committee.snapshot import Snapshot
from bcmdist.errors import InvalidOption
from bcmdist.learning.evidence.objectives import CommitteeObjective
from bcmdist.model.kernels import split_parameters
from bcmdist.model.model import named_parameters
from bcmdist.model.scaling import scaling_to_array


def evidence_gradient(snapshot: Snapshot, runtime) -> dict[str, np.ndarray]:
    """Gradient of `committee.log_evidence` in the log hyper-parameters, by name (SYSTEMS I.3, I.4).

    Raises
    ------
    InvalidOption
        The likelihood has several processes, or is not Gaussian and the passes have not converged.
    """
    model, how, done = snapshot.model, snapshot.facts.approximation, snapshot.facts.passes
    query, likelihood = model.query, model.likelihood
    model.refuse_moved_inputs("gradient")
    converged = likelihood.exact or (how == "laplace" and done and passes.within(done[-1]))
    if likelihood.processes > 1 or not converged:
        raise InvalidOption(
            f"gradient: expected one latent process and converged Laplace passes, got {likelihood.name} after "
            f"{len(done)} passes by {how}; fit with --passes auto"
        )
    with snapshot.store.transient({"scaling": scaling_to_array(model.scaling)}) as references:
        objective = CommitteeObjective(
            runtime,
            passes.absorbed_partitions(snapshot),
            scaling=references["scaling"],
            mean=query.mean.name,
            points=query.points,
            jitter=query.jitter_share,
            store=snapshot.store,
            classes=model.classes,
        )
        flat = objective.gradient(query.kernel, likelihood, snapshot.committee.posterior)
    return split_parameters(named_parameters(query.kernel, likelihood), flat)
