"""Values that are kept as long as there is room."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bcmdist.storage.cache import get_or_make, least_recently_used


@pytest.fixture
def cache():
    return least_recently_used(100, len)


def made(cache, key, size):
    """Whether the value of a key had to be made."""
    calls = []
    value = get_or_make(cache, key, lambda: calls.append(key) or bytes(size))
    assert value == bytes(size)
    return bool(calls)


def test_what_was_used_last_stays(cache):
    assert made(cache, "a", 50)
    assert made(cache, "b", 50)
    assert not made(cache, "a", 50)
    assert made(cache, "c", 50)  # in the place of b
    assert [key in cache for key in "abc"] == [True, False, True]
    assert cache.total_weight == 100


def test_a_value_larger_than_all_of_it_stays_until_the_next_one_comes(cache):
    made(cache, "small", 10)
    assert made(cache, "large", 1000)
    assert not made(cache, "large", 1000)
    assert "small" not in cache
    made(cache, "small", 10)
    assert list(cache) == ["small"]


def test_nothing_is_a_value(cache):
    nothing = least_recently_used(100, lambda value: 0)
    calls = []
    for _ in range(2):
        assert get_or_make(nothing, 3, lambda: calls.append(3)) is None
    assert calls == [3]


def test_an_error_is_not_kept(cache):
    with pytest.raises(KeyError, match="missing"):
        get_or_make(cache, "a", lambda: {}["missing"])
    assert made(cache, "a", 1)


def test_two_threads_that_make_one_value(cache):
    both = threading.Barrier(2, timeout=30)

    def make():
        both.wait()
        return bytes(60)

    with ThreadPoolExecutor(2) as pool:
        values = list(pool.map(lambda _: get_or_make(cache, "a", make), range(2)))
    assert values == [bytes(60)] * 2
    assert (cache.total_weight, list(cache)) == (60, ["a"])


def test_many_threads_that_evict_each_other_s_values():
    cache = least_recently_used(300, lambda value: value.nbytes)

    def work(seed):
        keys = np.random.default_rng(seed).integers(0, 12, 400)
        return all(get_or_make(cache, k, lambda k=k: np.full(10, float(k)))[0] == k for k in keys.tolist())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    assert cache.total_weight == sum(value.nbytes for value in cache.values()) <= 300
