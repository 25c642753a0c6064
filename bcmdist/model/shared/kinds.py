"""Registry of the kinds of shared variables, by the names used in stored models."""

from bcmdist.data.registry import Registry
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query
from bcmdist.model.shared.weights import Weights

KINDS: Registry[type[Shared]] = Registry("kind of shared variables")
KINDS.add(Query.kind, Query)
KINDS.add(Weights.kind, Weights)
# Models stored before these fields existed have query values and block residuals.
FIRST_KIND, FIRST_RESIDUAL = Query.kind, "block"
