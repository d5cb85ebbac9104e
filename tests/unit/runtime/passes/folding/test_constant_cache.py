import functools
import threading

import numpy as np
import pytest

from aioinfer.runtime.passes.folding.constant_cache import ConstantCache


def test_the_same_operation_on_the_same_arrays_gives_the_same_array() -> None:
    cache, a, b = ConstantCache(), np.arange(2), np.arange(3)
    first = cache.get("join", [a, b], lambda: np.concatenate([a, b]))
    assert first.tolist() == [0, 1, 0, 1, 2]
    assert cache.get("join", [a, b], lambda: np.zeros(0)) is first
    assert repr(cache) == "<ConstantCache 1 arrays, 40 bytes>"


def test_another_operation_order_or_array_gives_another_one() -> None:
    cache, a, b = ConstantCache(), np.arange(2), np.arange(2)
    cases = [("join", [a, b]), ("join", [b, a]), ("sum", [a, b]), ("join", [a, a.copy()])]
    results = [cache.get(name, arrays, lambda: np.zeros(1)) for name, arrays in cases]
    assert len({id(result) for result in results}) == 4


def test_a_result_cannot_be_written_and_its_source_can() -> None:
    cache, source = ConstantCache(), np.arange(2)
    result = cache.get("same", [source], lambda: source)
    with pytest.raises(ValueError, match="read-only"):
        result[0] = 1
    source[0] = 5
    assert source.tolist() == [5, 1]


def test_sources_are_kept_so_that_no_other_array_takes_their_identity() -> None:
    cache = ConstantCache()
    for number in range(50):
        array = np.full(1000, number)
        doubled = cache.get("double", [array], functools.partial(np.multiply, array, 2))
        assert doubled[0] == 2 * number
        del array
    assert repr(cache) == "<ConstantCache 50 arrays, 400000 bytes>"


def test_a_computation_that_fails_leaves_nothing() -> None:
    cache, source = ConstantCache(), np.arange(2)
    with pytest.raises(ZeroDivisionError):
        cache.get("bad", [source], lambda: np.full(1 // 0, 0))
    assert repr(cache) == "<ConstantCache 0 arrays, 0 bytes>"
    assert cache.get("bad", [source], lambda: source + 1).tolist() == [1, 2]


def test_threads_that_want_the_same_array_compute_it_once() -> None:
    cache, source, count = ConstantCache(), np.arange(2), 4
    barrier, calls, found = threading.Barrier(count), [], []

    def compute() -> np.ndarray:
        calls.append(1)
        return source + 1

    def work() -> None:
        barrier.wait(10)
        found.append(cache.get("next", [source], compute))

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(calls) == 1
    assert len(found) == count
    assert len({id(array) for array in found}) == 1


def test_what_may_go_goes_with_its_last_user_and_comes_back_under_its_key() -> None:
    cache, source, calls = ConstantCache(), np.arange(2), []

    def compute() -> np.ndarray:
        calls.append(1)
        return source + 1

    first = cache.get("next", [source], compute, may_go=True)
    key = cache.key_of(first)
    assert cache.get("next", [source], compute, may_go=True) is first
    assert repr(cache) == "<ConstantCache 1 arrays, 16 bytes>"
    del first
    assert repr(cache) == "<ConstantCache 0 arrays, 0 bytes>"
    second = cache.get("next", [source], compute, may_go=True)
    assert second.tolist() == [1, 2]
    assert cache.key_of(second) == key
    del second
    assert len(calls) == 2
    again = cache.again(key)
    assert again is not None
    assert again.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 0
    del again
    assert repr(cache) == "<ConstantCache 0 arrays, 0 bytes>"


def test_what_may_not_go_stays_without_users() -> None:
    cache, source = ConstantCache(), np.arange(2)
    key = cache.key_of(cache.get("next", [source], lambda: source + 1))
    known = cache.again(key)
    assert known is not None
    assert known.tolist() == [1, 2]


def test_other_arrays_have_no_key() -> None:
    cache, source = ConstantCache(), np.arange(2)
    made = cache.get("next", [source], lambda: source + 1)
    assert cache.key_of(source) is None
    assert cache.key_of(made.view()) is None
    assert cache.again(None) is None
    assert cache.again(("next", (1,))) is None
