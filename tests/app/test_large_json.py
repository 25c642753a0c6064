"""Large bodies that are read in pieces say what Python's own module reads in them, or are refused early."""

import json
import re
import time
import tracemalloc

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the service: pip install 'bcmdist[serve]'")
hypothesis = pytest.importorskip("hypothesis", reason="properties: pip install 'bcmdist[test]'")
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from bcmdist.app.service import json_requests  # noqa: E402
from bcmdist.app.service.answers import Refused  # noqa: E402
from bcmdist.app.service.bodies import NewRows, Points  # noqa: E402
from bcmdist.app.service.json_requests import read_body, read_object  # noqa: E402

NAMES = ("X", "X_variance", "y", "columns", "method", "exposure")
number = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**6), 10**6)
text = st.text(max_size=8)


@st.composite
def bodies(draw):
    """An object of rows, matrices, lists and single values, by the names above."""
    n, width = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    rows = st.lists(st.lists(number, min_size=width, max_size=width), min_size=n, max_size=n)
    square = st.lists(st.lists(number, min_size=width, max_size=width), min_size=width, max_size=width)
    values = {
        "X_variance": rows | st.lists(square, min_size=1, max_size=n),
        "y": st.lists(number | text, max_size=9),
        "columns": st.lists(text, max_size=9),
        "method": text,
        "exposure": number | st.none() | st.booleans(),
    }
    return draw(st.fixed_dictionaries({"X": rows}, optional=values))


@pytest.fixture(scope="module", autouse=True)
def small_pieces():
    """Pieces so small that every body here has several."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_requests, "PIECE_BYTES", 7)
        patched.setattr(json_requests, "ITEMS", re.compile(json_requests.ITEMS.pattern.replace(b"4096", b"2")))
        yield


@given(bodies(), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_it_says_the_same(body, indent, ascii_only):
    written = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = read_object(written, NAMES, most_rows=100)
    assert found.keys() == body.keys()
    for name, value in body.items():
        if isinstance(found[name], np.ndarray):
            np.testing.assert_array_equal(found[name], np.array(value, dtype=float))
        else:
            assert found[name] == value


@given(bodies(), st.data())
def test_what_is_broken_is_refused_or_says_what_python_reads(body, data):
    """One byte left out or put in somewhere."""
    written = bytearray(json.dumps(body).encode())
    place = data.draw(st.integers(0, len(written) - 1))
    written[place : place + data.draw(st.integers(0, 1))] = data.draw(
        st.sampled_from([b"", b",", b"]", b"[", b'"', b"1"])
    )
    try:
        found = read_object(bytes(written), NAMES, most_rows=100)
    except Refused:
        return
    expected = json.loads(written)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(found[name], np.ndarray):
            np.testing.assert_array_equal(found[name], np.array(value, dtype=float))
        else:
            assert found[name] == value


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ('{"X": [[1.0, 2.0], [3.0]]}', 422, "X: expected 2 numbers in each row, got 1 in row 1"),
        ('{"X": [[1.0], [3.0], [4.0], ["secret"]]}', 422, "body.X.3.0: Input should be a valid number"),
        ('{"X": [[1.0], [3.0], [true]]}', 422, "body.X.2.0: Input should be a valid number"),
        ('{"X": [[1.0], [3.0], [NaN]]}', 422, "body.X.2.0: Input should be a finite number"),
        ('{"X": [[1.0], [3.0], [1e999]]}', 422, "body.X.2.0: Input should be a finite number"),
        ('{"X": [[1.0], [3.0], []]}', 422, "body.X.2: List should have at least 1 item"),
        ('{"X": [[1.0]], "secret": 1}', 422, "body.secret: Extra inputs are not permitted"),
        ('{"X": [[1.0]], "X": [[2.0]]}', 422, "body.X: expected once, got twice"),
        (
            '{"X": [[1.0]], "X_variance": [[[1.0]], [[1.0, 2.0]]]}',
            422,
            "expected matrices of (1, 1), got one of (1, 2)",
        ),
        ('{"X": [1.0, 2.0]}', 422, "body.X.0: Input should be a valid list"),
        ('{"X": [[[1.0]]]}', 422, "body.X.0.0: Input should be a valid number"),
        ('{"X": [[1.0]], "method": [[1.0]]}', 422, "body.method: Input should be a valid string"),
        ('{"X": [[1.0]], "quantiles": [,0.1]}', 422, "JSON decode error"),
        ('{"X": [[1.0]]} 1', 422, "body.14: JSON decode error"),
        ('{"method": "a"}', 422, "body: expected one of X and rows"),
        (f'{{"X": [{",".join(["[1]"] * 80_001)}]}}', 413, "body: expected at most 20000 rows in a request, got more"),
        (f'{{"X": [[{",".join(["1"] * 200_000)}]]}}', 422, "X: expected at most 100000 numbers in each row, got more"),
        (f'{{"X": [[1]], "exposure": [{",".join(["1"] * 20_010)}]}}', 413, "exposure: expected at most 20000 rows"),
    ],
)
def test_mistakes_are_named(body, status, words):
    with pytest.raises(Refused) as caught:
        read_body(Points, body.encode(), most_rows=20_000)
    assert caught.value.status == status
    assert words in caught.value.message
    assert "secret" not in caught.value.message.replace("body.secret", "")


def test_rows_to_hear_are_read_as_others():
    body = {"X": [[0.5, 1.0], [1.5, -1.0]], "y": ["wet", "dry"], "weight": [1, 2.5]}
    found = read_body(NewRows, json.dumps(body).encode(), most_rows=10)
    np.testing.assert_array_equal(found.X, body["X"])
    assert (found.y, found.weight, found.columns) == (body["y"], body["weight"], None)


HOSTILE = {
    "unknown": lambda n: b"{%s}" % b",".join(b'"a%d":1' % k for k in range(n)),
    "rows": lambda n: b'{"X":[%s]}' % b",".join([b"[0]"] * n),
    "unclosed": lambda n: b'{"X":[[%s' % (b"1," * n),
    "spaces": lambda n: b'{"X":[[1] %s' % (b"] " * n),
    "text": lambda n: b'{"method":"%s' % (b'\\"' * n),
    "deep": lambda n: b'{"X":%s' % (b"[" * n),
    "texts": lambda n: b'{"columns":[%s]}' % b",".join([b'""'] * n),
    "record": lambda n: b'{"rows":[{%s' % (b'"":"",' * n),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_bodies_are_refused_in_linear_time_and_little_memory(kind):
    """16 times the body takes about 16 times the time, not 256; few objects are made of its bytes."""

    def seconds(body):
        begun = time.thread_time()
        with pytest.raises(Refused):
            read_body(Points, body, most_rows=1000)
        return time.thread_time() - begun

    small, large = HOSTILE[kind](50_000), HOSTILE[kind](800_000)
    seconds(small)
    # Half way between linear and quadratic: other processes on the machine change times by less than 4.
    assert min(seconds(large) for _ in range(3)) < 64.0 * max(1e-4, min(seconds(small) for _ in range(3)))
    tracemalloc.start()
    try:
        seconds(large)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(large) + 2**21
    finally:
        tracemalloc.stop()
