"""Hyper-parameters that somebody gives by name, instead of learning them."""

import numpy as np

from bcmdist.errors import InvalidOption
from bcmdist.model.kernels import Kernel
from bcmdist.model.likelihoods import Likelihood
from bcmdist.model.model import named_parameters, with_named

# Of what may be given: products of a few of them neither overflow nor underflow.
LEAST, MOST = 1e-100, 1e100


def with_hyperparameters(
    kernel: Kernel, likelihood: Likelihood, given: dict[str, float | list[float]], *, groups: tuple[int, ...] = ()
) -> tuple[Kernel, Likelihood]:
    """Kernel and likelihood with some parameters set by name, as `--set` gives them.

    Parameters
    ----------
    groups : (D,) the first of the inputs that each shares its lengthscale with; one for each of these is enough

    Raises
    ------
    InvalidOption
        A name is unknown, or a value is not positive or has the wrong length.
    """
    known = named_parameters(kernel, likelihood)
    lengthscales, columns = {f"kernel.{name}" for name in kernel.lengthscales}, sorted(set(groups))
    for name, value in given.items():
        if name not in known:
            raise InvalidOption(f"--set: expected one of {', '.join(known)}, got {name!r}; use one of these names")
        values, shape = np.atleast_1d(np.asarray(value, dtype=float)), known[name].shape
        by_column = name in lengthscales and shape == (len(groups),) and len(columns) < len(groups)
        if by_column and values.shape == (len(columns),):
            values = values[np.searchsorted(columns, groups)]
        if not np.all((values >= LEAST) & (values <= MOST)) or len(values) not in (1, *shape):
            wanted = f"{shape[0]}{f' or {len(columns)}, one a column,' if by_column else ''}"
            raise InvalidOption(
                f"--set {name}: expected one positive number or {wanted} of them, got {value}; correct it, from "
                f"{LEAST:g} to {MOST:g}"
            )
        known[name] = np.broadcast_to(values, shape).copy()
    return with_named(kernel, likelihood, known)
