"""Conformance checks for kernels, likelihoods, bases, residuals, methods, sources, predictors and runtimes.

Each `check_...` evaluates an implementation at a few seeded points, in milliseconds, and raises `InvalidOption` for
the first violation of its interface; the message names the implementation, the property, both values and the remedy.
`register_kernel`, `register_likelihood` and `register_residual` run these checks, so that a wrong derivative is
refused before a model is fitted with it. Use them in the tests of your own package as well:

    from bcmdist.testing import check_kernel
    check_kernel(Periodic(variance=1.4, lengthscale=[0.7, 1.3], period=2.0))

`check_runtime` takes seconds: it fits a model.
"""

import importlib
from typing import Any

from bcmdist.testing.checked import LENIENT_ROUNDING, LENIENT_TOLERANCE
from bcmdist.testing.model import check_kernel, check_likelihood
from bcmdist.testing.shared import check_basis, check_method, check_residual
from bcmdist.testing.sources import check_predictor, check_source

__all__ = [
    "LENIENT_ROUNDING",
    "LENIENT_TOLERANCE",
    "check_basis",
    "check_kernel",
    "check_likelihood",
    "check_method",
    "check_predictor",
    "check_residual",
    "check_runtime",
    "check_source",
]


def __getattr__(name: str) -> Any:
    """Load `check_runtime`: it fits models, so that it stands above all that the other checks are used by."""
    if name == "check_runtime":
        return importlib.import_module("bcmdist.api.conformance").check_runtime
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
