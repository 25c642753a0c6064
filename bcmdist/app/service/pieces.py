"""Large predictions in pieces: other requests are served between two pieces, and memory is bounded by one piece.

The prediction at a row does not depend on the other rows of its request (`bcmdist.prediction.interface`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import numpy as np

from bcmdist.app.service.answers import Refused, written
from bcmdist.app.service.asking import MOST_ROWS, Predicted, Question, answered_by
from bcmdist.app.service.commits_by_name import ServedState
from bcmdist.app.service.large import Visit

PIECE_VALUES = 2**14  # numbers written as JSON at once, in some milliseconds
FEW_PIECES = 8  # of PIECE_VALUES numbers: the largest response whose slot is released before the client reads it


async def answered_in_pieces(
    visit: Visit,
    served: ServedState,
    ask: Callable[[], Question],
    *,
    most_values: int,
    gone: Callable[[], Awaitable[bool]],
) -> Predicted:
    """Compute one large question in pieces, all with one state of the model.

    Raises
    ------
    InvalidData, InvalidOption
    Refused
        The client is `gone`, or the response would have more than `most_values` numbers.
    """
    question = await visit.run(ask)
    found: list[Predicted] = []
    with served.using() as loaded:
        for piece in question.pieces(MOST_ROWS):
            if await gone():
                raise Refused(408, "Timeout", "expected the client to wait for the answer; ask again")
            found += await visit.run(answered_by, loaded, served.name, [piece])
            width = sum(values[0].size for values in found[0].values.values())
            if len(question.X) * width > most_values:
                raise Refused(
                    413,
                    "TooLarge",
                    f"predictions: expected at most {most_values} numbers in an answer, got {len(question.X)} rows of "
                    f"{width}; ask for fewer rows, quantiles or intervals",
                )
    values = {name: np.concatenate([one.values[name] for one in found]) for name in found[0].values}
    summary = found[0].summary | {"rows": len(question.X)}
    return Predicted(summary, values, sum(one.seconds for one in found), 1.0)


async def written_in_pieces(found: Predicted) -> AsyncIterator[bytes]:
    """Yield a response as JSON in pieces; other requests are served between two pieces."""
    yield written(found.summary)[:-1] + b',"predictions":{'
    for number, (name, values) in enumerate(found.values.items()):
        yield (b"," if number else b"") + written(name) + b":["
        rows = max(1, PIECE_VALUES // values[0].size)
        for start in range(0, len(values), rows):
            yield (b"," if start else b"") + written(values[start : start + rows].tolist())[1:-1]
            await anyio.sleep(0)
        yield b"]"
    yield b"}}"
