"""Warped inputs as operators of an ONNX graph.

Functions take and return a `bcmdist.api.interop.onnx.Value`.
"""

from functools import singledispatch

import numpy as np

from bcmdist.api.interop.onnx_graph import Value
from bcmdist.errors import InvalidOption
from bcmdist.model.warping import Log, Log1p, Rank, SignedLog, Warp, Warping


def warped(X: Value, warping: Warping) -> Value:
    """Return warped inputs, (n, D)."""
    if not warping:
        return X
    columns = [X.column([d]) for d in range(X.graph.inputs)]
    images = [warp_column(warping.warps[d], x) if d in warping.warps else x for d, x in enumerate(columns)]
    return images[0].concat_columns(*images[1:])


@singledispatch
def warp_column(warp: Warp, x: Value) -> Value:
    """Return the images of a column (n, 1)."""
    raise InvalidOption(f"to_onnx: expected inputs warped by log or rank, got {warp.kind}; fit with --warp none")


@warp_column.register
def _(warp: Log, x: Value) -> Value:
    return x.clip(warp.floor, np.inf).log() + (x.clip(-np.inf, warp.floor) - warp.floor) / warp.floor


@warp_column.register
def _(warp: Log1p, x: Value) -> Value:
    return (x.clip(0.0, np.inf) + 1.0).log() + x.clip(-np.inf, 0.0)


@warp_column.register
def _(warp: SignedLog, x: Value) -> Value:
    return (x.clip(0.0, np.inf) + 1.0).log() - (x.clip(-np.inf, 0.0) * -1.0 + 1.0).log()


@warp_column.register
def _(warp: Rank, x: Value) -> Value:
    values, scores = warp.knots.T
    low, high = np.concatenate([[-np.inf], values]), np.concatenate([values, [np.inf]])
    start = np.concatenate([values[:1], values])
    slopes = warp.slope(np.concatenate([[-np.inf], values]))
    image: Value = (x.clip(low[None], high[None]) - start[None]) @ slopes[:, None] + scores[0]
    return image
