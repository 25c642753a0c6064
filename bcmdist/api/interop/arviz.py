"""Export chains of sampled hyper-parameters as ArviZ inference data (`pip install 'bcmdist[arviz]'`).

from bcmdist.arviz import to_inference_data
arviz.summary(to_inference_data(Mixture.load("model")))
"""

import warnings
from typing import Any

import numpy as np

from bcmdist.api.mixture import Mixture
from bcmdist.api.sampling import Coordinates
from bcmdist.errors import InvalidOption, MissingExtra
from bcmdist.learning.sampling.chains import load_chains
from bcmdist.model.model import named_parameters

INPUT = "input"


def to_inference_data(mixture: Mixture) -> Any:
    """Return the draws of a sampled mixture as `arviz.InferenceData`, with `posterior` and `sample_stats`.

    All draws after the burn-in are included; the members of the mixture are a subset. `posterior` holds the
    hyper-parameters (not their logarithms) under the names of `info`, for scaled inputs and targets: (chain, draw), or
    (chain, draw, input) where there is one per input. `sample_stats.lp` is the log posterior density of the sampled
    logarithms, up to a constant.

    Raises
    ------
    InvalidOption
        The mixture was made directly from members and has no chains.
    MissingExtra, ModelNotFound
    """
    arviz = _arviz()
    if mixture.contents is None:
        raise InvalidOption("arviz: expected a mixture that was sampled, got one made by hand; use `sample_posterior`")
    _, chains = load_chains(mixture.contents.url)
    model = mixture.members[0].model
    coordinates = Coordinates(model.query.kernel, model.likelihood)
    every = [[named_parameters(*coordinates.at(phi)) for phi in chain.samples] for chain in chains]
    posterior = {name: np.array([[draw[name] for draw in chain] for chain in every]) for name in every[0][0]}
    several = [name for name, values in posterior.items() if values.shape[-1] > 1]
    return arviz.from_dict(
        posterior={name: values if name in several else values[..., 0] for name, values in posterior.items()},
        sample_stats={"lp": np.array([chain.log_density for chain in chains])},
        dims={name: [INPUT] for name in several},
        coords={INPUT: list(model.schema.columns or range(model.inputs))} if several else None,
        attrs={"inference_library": "bcmdist", "acceptance": [chain.acceptance for chain in chains]},
    )


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # raised by arviz at import, about its next version
            import arviz  # optional
    except ImportError as error:
        raise MissingExtra(
            "arviz: expected the package arviz, which is not installed; pip install 'bcmdist[arviz]'"
        ) from error
    return arviz
