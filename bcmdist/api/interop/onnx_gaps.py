"""The scale of errors at rows with gaps as operators of an ONNX graph."""

import numpy as np

from bcmdist.api.interop.onnx_graph import Value
from bcmdist.prediction.errors.gap_scale import GapScale


def gap_factors(scale: GapScale, X: Value) -> Value:
    """Return the factors (n,) on observation variances at scaled inputs X (n, D); see `GapScale.factor`."""
    graph = X.graph
    marked = graph.apply("Greater", X.column(scale.inputs), scale.thresholds[None])
    gaps = graph.apply("Cast", marked, to=graph.onnx.TensorProto.DOUBLE)
    single, several = scale.log_factors[1:-1], scale.log_factors[-1]
    is_several = graph.apply("Greater", gaps.sum_of_rows(), np.array(1.5))
    return graph.apply("Where", is_several, several, (gaps * single[None]).sum_of_rows()).exp()
