"""Weights packed once, shared while somebody uses them, and not held twice."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.cpu.onednn.bindings import Engine, open_engine
from aioinfer.backends.cpu.plans.packed_weights import PackedWeight, WeightStore
from aioinfer.errors import ClosedError
from aioinfer.runtime.graph import DType
from aioinfer.runtime.graph.mapped_file import Reading
from unit.backends.cpu.arrays import numbers


@pytest.fixture
def engine() -> Engine:
    return open_engine()


def transposed(engine: Engine) -> tuple[Any, Any]:
    """Describe a 2x3 matrix as it is, and in column order."""
    return engine.desc((2, 3), DType.FLOAT32), engine.desc((2, 3), DType.FLOAT32, (1, 2))


def content(weight: PackedWeight) -> np.ndarray:
    assert weight.buffer.array is not None
    return weight.buffer.array.view(np.float32).reshape(3, 2)


def test_packing_reorders_and_lets_the_source_go(engine: Engine) -> None:
    source = numbers(2, 3)
    weight = PackedWeight(source, *transposed(engine))
    gone = weakref.ref(source)
    wanted = source.T.copy()
    del source
    assert gone() is not None
    weight.pack(engine)
    np.testing.assert_array_equal(content(weight), wanted)
    assert weight.source is None
    gc.collect()
    assert gone() is None


def test_packing_twice_packs_once(engine: Engine) -> None:
    weight = PackedWeight(numbers(2, 3), *transposed(engine))
    weight.pack(engine)
    first = weight.buffer.array
    weight.pack(engine)
    assert weight.buffer.array is first


@pytest.mark.parametrize("kind", ["columns", "every other", "unaligned", "read-only"])
def test_sources_may_lie_in_any_way(engine: Engine, kind: str) -> None:
    wanted = numbers(2, 3)
    if kind == "columns":
        source = np.asfortranarray(wanted)
    elif kind == "every other":
        source = np.repeat(wanted, 2, axis=1)[:, ::2]
    elif kind == "unaligned":
        raw = np.zeros(wanted.nbytes + 1, np.uint8)
        raw[1:] = np.frombuffer(wanted.tobytes(), np.uint8)
        source = raw[1:].view(np.float32).reshape(2, 3)
        assert not source.flags.aligned
    else:
        source = wanted.copy()
        source.flags.writeable = False
    weight = PackedWeight(source, *transposed(engine))
    weight.pack(engine)
    np.testing.assert_array_equal(content(weight), wanted.T)


def test_many_threads_pack_once(engine: Engine) -> None:
    weight = PackedWeight(numbers(2, 3), *transposed(engine))
    barrier, found = threading.Barrier(4), []

    def pack() -> None:
        barrier.wait(30)
        weight.pack(engine)
        found.append(weight.buffer.array)

    threads = [threading.Thread(target=pack) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4
    assert all(array is found[0] for array in found)


def test_the_same_array_in_the_same_layout_is_one_weight(engine: Engine) -> None:
    store, source = WeightStore(), numbers(2, 3)
    plain, columns = transposed(engine)
    one = store.packed(source, plain, columns)
    assert store.packed(source, *transposed(engine)) is one
    other_layout = store.packed(source, plain, engine.desc((2, 3), DType.FLOAT32, (1, 4)))
    other_view = store.packed(source, columns, columns)
    other_array = store.packed(source.copy(), plain, columns)
    assert len({one, other_layout, other_view, other_array}) == 4


def test_weights_go_with_the_last_plan_that_uses_them(engine: Engine) -> None:
    store, source = WeightStore(), numbers(2, 3)
    weight = store.packed(source, *transposed(engine))
    assert store.packed_bytes == 24
    del weight
    gc.collect()
    assert store.packed_bytes == 0


def test_what_was_derived_goes_once_it_is_packed_and_is_known_when_it_comes_back(
    engine: Engine,
) -> None:
    store, halves = WeightStore(), [numbers(2, 1), numbers(2, 2)]

    def join() -> np.ndarray:
        def compute() -> np.ndarray:
            return np.concatenate(halves, axis=1)

        return store.derived.get("join", halves, compute, may_go=True)

    source = join()
    gone, wanted = weakref.ref(source), source.T.copy()
    weight = store.packed(source, *transposed(engine))
    del source
    assert gone() is not None
    weight.pack(engine)
    assert gone() is None
    assert store.packed(join(), *transposed(engine)) is weight
    np.testing.assert_array_equal(content(weight), wanted)
    assert repr(store.derived) == "<ConstantCache 0 arrays, 0 bytes>"
    ((found, _),) = store.sources_of(weight)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, wanted.T)
    store.forget_sources()
    assert store.sources_of(weight) == []


def test_a_closed_store_has_no_bytes_whatever_still_holds_a_weight(engine: Engine) -> None:
    store, source = WeightStore(), numbers(2, 3)
    weight = store.packed(source, *transposed(engine))
    weight.pack(engine)
    assert store.packed_bytes == 24
    store.close()
    assert store.packed_bytes == 0
    assert weight.buffer.array is None


def test_an_array_that_took_the_number_of_another_is_not_mistaken_for_it(engine: Engine) -> None:
    store = WeightStore()
    kept = []
    for index in range(50):  # the same address again and again
        source = np.full((2, 3), index, np.float32)
        weight = store.packed(source, *transposed(engine))
        weight.pack(engine)
        kept.append(weight)
        del source
    assert [content(weight)[0, 0] for weight in kept] == list(range(50))


def test_the_store_keeps_no_source_alive(engine: Engine) -> None:
    store, source = WeightStore(), numbers(2, 3)
    weight = store.packed(source, *transposed(engine))
    gone = weakref.ref(source)
    del source
    weight.pack(engine)
    gc.collect()
    assert gone() is None
    assert store.packed_bytes == 24


def test_what_was_derived_is_forgotten_on_demand() -> None:
    store, source = WeightStore(), numbers(2, 3)
    made = store.derived.get("double", [source], lambda: source * 2)
    assert store.derived.get("double", [source], lambda: source * 3) is made
    gone = weakref.ref(made)
    del made
    store.forget_sources()
    gc.collect()
    assert gone() is None


def test_a_closed_store_packs_nothing_more(engine: Engine) -> None:
    store, source = WeightStore(), numbers(2, 3)
    known = store.packed(source, *transposed(engine))
    store.close()
    with pytest.raises(ClosedError, match="closed"):
        known.pack(engine)
    with pytest.raises(ClosedError, match="closed"):
        store.packed(numbers(2, 3), *transposed(engine))


def test_closing_waits_for_the_thread_that_packs(engine: Engine) -> None:
    store, source = WeightStore(), numbers(2, 3)
    weight = store.packed(source, *transposed(engine))
    is_packing, may_go_on, is_closed = (threading.Event() for _ in range(3))

    class Slow(Reading):
        def array(self, constant: np.ndarray) -> np.ndarray:
            is_packing.set()
            assert may_go_on.wait(20)
            return super().array(constant)

    def close() -> None:
        store.close()
        is_closed.set()

    packing = threading.Thread(target=weight.pack, args=(engine, Slow()))
    packing.start()
    assert is_packing.wait(20)
    closing = threading.Thread(target=close)
    closing.start()
    assert not is_closed.wait(0.1)
    may_go_on.set()
    for thread in (packing, closing):
        thread.join(20)
    assert is_closed.is_set()
    assert weight.source is None
    assert weight.buffer.array is None
