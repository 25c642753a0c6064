"""JSON of the service says what Python's own module does, of whatever comes, and numbers come back to the last bit."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the service: pip install 'bcmdist[serve]'")

from bcmdist.app.service.answers import read, written

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(VALUES)
def test_what_is_written_is_read_by_both(value):
    text = written(value)
    assert json.loads(text) == value
    assert read(text) == value
    assert read(json.dumps(value).encode()) == value


def test_what_is_not_finite_is_null():
    assert json.loads(written({"a": [math.nan, math.inf, -math.inf, 1.5]})) == {"a": [None, None, None, 1.5]}


def test_half_a_surrogate_pair_comes_back():
    value = {"\ud83d": [1.0, math.nan]}
    assert read(written(value)) == {"\ud83d": [1.0, None]}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_other_encodings_are_read(encoding):
    assert read('{"é": [1.0]}'.encode(encoding)) == {"é": [1.0]}


@pytest.mark.parametrize("text", [b"", b"{", b'{"a": 01}', b"[1] 2", b"\xff", b"1" * 5000, b"[" * 100_000, b"{'a': 1}"])
def test_what_is_wrong_is_as_with_pythons_module(text):
    with pytest.raises((ValueError, RecursionError)) as expected:
        json.loads(text)
    with pytest.raises(expected.type) as found:
        read(text)
    assert str(found.value) == str(expected.value)
