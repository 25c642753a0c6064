"""Special functions of scipy with types, which scipy does not declare; all are elementwise."""

from typing import Protocol, overload

from scipy import special

from bcmdist.linalg.arrays import FloatArray


class OneArgument(Protocol):
    """Function of numbers or arrays."""

    @overload
    def __call__(self, x: float, /) -> float: ...
    @overload
    def __call__(self, x: FloatArray, /) -> FloatArray: ...


class TwoArguments(Protocol):
    """Function of an array and of another one, or a number."""

    def __call__(self, a: FloatArray | float, x: FloatArray | float, /) -> FloatArray: ...


class Quadrature(Protocol):
    """Nodes and weights of a rule of n nodes, (n,) each."""

    def __call__(self, n: int, /) -> tuple[FloatArray, FloatArray]: ...


erf: OneArgument = special.erf
erfcx: OneArgument = special.erfcx
expit: OneArgument = special.expit
gammaln: OneArgument = special.gammaln
log_expit: OneArgument = special.log_expit
log_ndtr: OneArgument = special.log_ndtr
logit: OneArgument = special.logit
ndtr: OneArgument = special.ndtr
ndtri: OneArgument = special.ndtri

betaln: TwoArguments = special.betaln
gammaincinv: TwoArguments = special.gammaincinv

roots_hermitenorm: Quadrature = special.roots_hermitenorm
roots_legendre: Quadrature = special.roots_legendre


def logsumexp(f: FloatArray) -> FloatArray:
    """Log of the sum of exponentials of each row: (n, C) -> (n,)."""
    total: FloatArray = special.logsumexp(f, axis=1)
    return total


def softmax(f: FloatArray) -> FloatArray:
    """Exponentials as shares of their sum in each row: (n, C)."""
    shares: FloatArray = special.softmax(f, axis=1)
    return shares
