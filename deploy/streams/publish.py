"""Publish rows of a wave to a stream, up to so many in all; one that was killed goes on where the stream ends.

python publish.py redis://HOST:PORT/0/STREAM ROWS
"""

import sys
import time

import numpy as np

import bcmdist
from bcmdist.data.redis import patiently, redis_stream

ENTRY = 1000  # rows
SECONDS = 30.0  # that it takes at least, so that there is somebody to be killed

stream, rows = sys.argv[1], int(sys.argv[2])
place = redis_stream(stream)
while (published := int(patiently(place, lambda client: client.get(f"{place.stream}:rows")) or 0)) < rows:
    rng = np.random.default_rng(published)  # an entry is the same, whoever publishes it
    X = rng.uniform(-2, 2, (min(ENTRY, rows - published), 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(len(X))
    bcmdist.publish(stream, X, y, rows_per_entry=ENTRY)
    print(published + len(X), flush=True)
    time.sleep(SECONDS * len(X) / rows)
