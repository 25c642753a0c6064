"""Kinds of shared variables by the names under which models are stored."""

from bcmdist.data.registry import Registry
from bcmdist.model.shared.interface import Shared
from bcmdist.model.shared.query import Query
from bcmdist.model.shared.weights import Weights

KINDS: Registry[type[Shared]] = Registry("kind of shared variables")
KINDS.add(Query.kind, Query)
KINDS.add(Weights.kind, Weights)
# Models of before these were named have query values, of which experts keep the rest as a block.
FIRST_KIND, FIRST_RESIDUAL = Query.kind, "block"
