"""The facade of oneDNN: descriptors, views of them, primitives, memory and errors."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, c_float, c_int, c_void_p, cast
from itertools import islice, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aioinfer.backends.cpu.onednn.bindings import (
    ARG,
    FORWARD_INFERENCE,
    MAX_RANK,
    Attributes,
    Desc,
    Engine,
    Memory,
    Numbers,
    OneDnnError,
    PrimitiveDesc,
    aligned_bytes,
    can_describe,
    open_engine,
    version_text,
)
from aioinfer.backends.cpu.onednn.numbers import OUT_OF_MEMORY
from aioinfer.backends.cpu.onednn.post_ops import PostOp
from aioinfer.backends.cpu.onednn.traced import TracedDesc
from aioinfer.errors import DeviceError, NotSupportedError
from aioinfer.runtime.graph import DType
from aioinfer.runtime.graph.sym_int import Trace
from aioinfer.runtime.lowering.strides import row_major

_DIRECT = 1
KNOWN = [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.INT32, DType.INT8, DType.UINT8]


@pytest.fixture
def engine() -> Engine:
    return open_engine()


def weights_desc(engine: Engine) -> Desc:
    """Ask a convolution for the layout of its weights, which is blocked."""
    dims = engine.any_desc((1, 32, 8, 8), DType.FLOAT32)
    weights = engine.any_desc((32, 32, 3, 3), DType.FLOAT32)
    array = np.ctypeslib.as_ctypes
    pd = engine.primitive_desc(
        "convolution_forward",
        engine,
        c_int(FORWARD_INFERENCE),
        c_int(_DIRECT),
        dims,
        weights,
        None,
        dims,
        array(np.array([1, 1], np.int64)),
        array(np.array([0, 0], np.int64)),
        array(np.array([1, 1], np.int64)),
        array(np.array([1, 1], np.int64)),
        Attributes(engine),
    )
    return pd.desc("weights")


def test_there_is_one_engine_and_it_is_onednn_3(engine: Engine) -> None:
    assert open_engine() is engine
    assert engine.version[0] == 3
    assert version_text((3, 2, 0)) == "3.2.0"


@pytest.mark.parametrize("dtype", KNOWN)
@pytest.mark.parametrize("dims", [(1,), (7,), (2, 3), (2, 0, 3), (1, 2, 3, 4, 5, 6)])
def test_plain_descriptors_say_what_they_were_made_of(
    engine: Engine, dtype: DType, dims: tuple[int, ...]
) -> None:
    desc = engine.desc(dims, dtype)
    assert desc.rank == len(dims)
    assert desc.dims == dims
    assert desc.dtype is dtype
    assert desc.offset == 0
    assert desc.strides == row_major(dims)
    assert desc.size_bytes == int(np.prod(dims)) * dtype.item_bytes
    assert not desc.is_absent


def test_strides_are_kept_and_reach_the_last_element(engine: Engine) -> None:
    desc = engine.desc((2, 3), DType.FLOAT32, (10, 2))
    assert desc.strides == (10, 2)
    assert desc.size_bytes >= (10 + 2 * 2 + 1) * 4


def test_descriptors_are_equal_by_what_they_say(engine: Engine) -> None:
    desc = engine.desc((2, 3), DType.FLOAT32)
    same = engine.desc((2, 3), DType.FLOAT32)
    assert desc == same
    assert hash(desc) == hash(same)
    assert desc != engine.desc((2, 3), DType.INT32)
    assert desc != engine.desc((2, 3), DType.FLOAT32, (1, 2))
    assert desc != engine.any_desc((2, 3), DType.FLOAT32)
    assert desc != "desc"


def test_a_permuted_view_names_the_axes_as_numpy_does(engine: Engine) -> None:
    array = np.zeros((2, 3, 5), np.float32)
    for order in [(0, 1, 2), (2, 0, 1), (1, 2, 0)]:
        view = array.transpose(order)
        desc = engine.desc(array.shape, DType.FLOAT32).permuted(order)
        assert desc.dims == view.shape
        assert desc.strides == tuple(stride // 4 for stride in view.strides)


def test_more_axes_than_onednn_has_are_refused(engine: Engine) -> None:
    dims = (1,) * (MAX_RANK + 1)
    desc = engine.desc(dims[1:], DType.FLOAT32)
    calls: list[Callable[[], Desc]] = [
        lambda: engine.desc(dims, DType.FLOAT32),
        lambda: engine.any_desc(dims, DType.FLOAT32),
        lambda: desc.part(dims, dims),
    ]
    for call in calls:
        with pytest.raises(OneDnnError, match="descriptor of 13 axes failed: invalid arguments"):
            call()


def test_a_part_begins_at_its_offset(engine: Engine) -> None:
    part = engine.desc((4, 6), DType.FLOAT32).part((2, 3), (1, 2))
    assert (part.dims, part.strides, part.offset) == ((2, 3), (6, 1), 8)


def test_blocks_are_told_and_cannot_be_cut(engine: Engine) -> None:
    desc = weights_desc(engine)
    assert desc.strides is None
    blocking = desc.blocking
    assert blocking is not None
    strides, blocks = blocking
    assert len(strides) == 4
    assert blocks
    assert all(axis in (0, 1) and length > 1 for axis, length in blocks)
    with pytest.raises(OneDnnError, match="submemory"):
        desc.part((3, 32, 3, 3), (1, 0, 0, 0))


@CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_int))
def _only_rank(_desc: int, what: int, result: Any) -> int:
    """Answer how many axes a descriptor has, and nothing else."""
    result[0] = 2
    return 0 if what == 256 else 3


class _OfOtherVersion:
    library = SimpleNamespace(dnnl_memory_desc_destroy=lambda _: None)
    query_address = cast(_only_rank, c_void_p).value or 0


def test_equal_memory_has_one_descriptor_as_long_as_somebody_holds_it(engine: Engine) -> None:
    plain, open_desc = (
        engine.desc((2, 3, 277), DType.INT8),
        engine.any_desc((2, 3, 277), DType.INT8),
    )
    assert engine.desc([2, 3, 277], DType.INT8) is plain
    assert engine.any_desc([2, 3, 277], DType.INT8) is open_desc
    assert engine.desc((2, 3, 277), DType.INT8, (831, 277, 1)) == plain
    assert engine.desc((2, 3, 277), DType.UINT8) is not plain
    gone = weakref.ref(plain)
    del plain
    assert gone() is None


def test_what_a_descriptor_does_not_answer_is_an_error() -> None:
    with pytest.raises(DeviceError, match="does not answer query 262"):
        _ = Desc(_OfOtherVersion(), 1).dims


def test_what_it_lacks_is_an_error_of_ours(engine: Engine) -> None:
    desc = engine.desc((2, 3), DType.FLOAT32)
    with pytest.raises(OneDnnError) as refused:
        engine.primitive_desc(
            "eltwise_forward",
            engine,
            c_int(FORWARD_INFERENCE),
            c_int(12345),
            desc,
            desc,
            c_float(0.0),
            c_float(0.0),
            Attributes(engine),
        )
    assert isinstance(refused.value, NotSupportedError)
    assert "eltwise_forward_primitive_desc_create failed: " in str(refused.value)
    assert str(OneDnnError("call", 99)) == "oneDNN's call failed: status 99"


@pytest.mark.parametrize("dtype", [DType.INT64, DType.BOOL, DType.STRING])
def test_it_does_not_know_every_type(engine: Engine, dtype: DType) -> None:
    assert not can_describe((2,), dtype, (1,))
    with pytest.raises(OneDnnError, match=f"descriptor of {dtype.label} failed: unimplemented"):
        engine.desc((2,), dtype)


def test_a_reorder_moves_what_it_should(engine: Engine) -> None:
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    target = np.zeros((3, 2), np.float32)
    here = engine.desc((2, 3), DType.FLOAT32)
    there = engine.desc((2, 3), DType.FLOAT32, (1, 2))
    pd = engine.primitive_desc("reorder", here, engine, there, engine, Attributes(engine))
    assert pd.implementation
    assert pd.desc("src") == here
    assert pd.desc("dst") == there
    engine.execute(
        pd.create(),
        (
            (ARG.SRC, Memory(engine, here, source.ctypes.data)),
            (ARG.DST, Memory(engine, there, target.ctypes.data)),
        ),
    )
    np.testing.assert_array_equal(target, source.T)


def test_implementations_are_the_same_once_some_are_compiled(engine: Engine) -> None:
    """The library goes on from where it found a descriptor, which its cache makes the start."""

    def depthwise() -> PrimitiveDesc:
        shape = (3, 72, 5, 6)
        return engine.primitive_desc(
            "convolution_forward",
            engine,
            c_int(FORWARD_INFERENCE),
            c_int(0x1),
            engine.any_desc(shape, DType.FLOAT32),
            engine.any_desc((72, 1, 1, 3, 3), DType.FLOAT32),
            None,
            engine.any_desc(shape, DType.FLOAT32),
            *(Numbers(pair) for pair in ((1, 1), (0, 0), (1, 1), (1, 1))),
            Attributes(engine),
        )

    names = [other.implementation for other in depthwise().others()]
    assert len(names) > 1
    depthwise().create()
    assert [other.implementation for other in depthwise().others()] == names
    for other in islice(depthwise().others(), 1):
        other.create()
    assert [other.implementation for other in depthwise().others()] == names


def test_implementations_come_to_an_end(engine: Engine) -> None:
    desc = engine.desc((2, 3), DType.FLOAT32)
    pd = engine.primitive_desc("reorder", desc, engine, desc, engine, Attributes(engine))
    first, names = pd.implementation, [other.implementation for other in islice(pd.others(), 100)]
    assert len(names) < 100
    assert pd.implementation == first


def test_post_ops_make_attributes(engine: Engine) -> None:
    post_ops = [
        (PostOp.unary("relu"), None),
        (PostOp.binary("sum", 1), None),
        (PostOp.binary("mul", 2), engine.desc((1, 3), DType.FLOAT32)),
    ]
    assert Attributes(engine, post_ops).handle
    assert ARG.post_op(0) != ARG.post_op(1)


def test_threads_are_set_for_this_thread_and_put_back(engine: Engine) -> None:
    before = engine.thread_count
    seen: list[int] = []
    with engine.with_threads(before + 3):
        assert engine.thread_count == before + 3
        other = threading.Thread(target=lambda: seen.append(engine.thread_count))
        other.start()
        other.join(30)
    assert engine.thread_count == before
    assert seen
    assert seen != [before + 3]


def test_threads_are_put_back_after_an_error(engine: Engine) -> None:
    before = engine.thread_count
    with pytest.raises(OneDnnError), engine.with_threads(before + 3):
        engine.desc((2,), DType.STRING)
    assert engine.thread_count == before


def test_handles_are_destroyed_once_with_their_objects(engine: Engine) -> None:
    destroyed: list[int] = []
    desc = engine.desc((2, 3, 276), DType.FLOAT32)  # that nobody shares
    destroy = desc._destroy
    desc._destroy = lambda handle: (destroyed.append(handle.value), destroy(handle))
    handle, trace = desc.handle, Trace([4])
    shown = TracedDesc(trace, desc, lambda replay: replay.engine.desc((1,), DType.FLOAT32))
    assert shown.handle == handle
    del shown
    trace.close()
    assert destroyed == [], "what shows a handle does not own it"
    desc.__del__(lambda: True)
    assert destroyed == [], "the system frees what is left at the end of the interpreter"
    del desc
    assert destroyed == [handle]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 1000])
def test_memory_lies_at_the_width_of_a_cache_line(size: int) -> None:
    memory = aligned_bytes(size)
    assert memory.nbytes == size
    assert size == 0 or memory.ctypes.data % 64 == 0


def test_a_call_without_memory_is_no_refusal() -> None:
    class Full:
        @staticmethod
        def dnnl_engine_create(*_: object) -> int:
            return OUT_OF_MEMORY

    full = object.__new__(Engine)
    full.library = Full()
    with pytest.raises(MemoryError, match="oneDNN's dnnl_engine_create"):
        full.check("dnnl_engine_create")


def test_a_scalar_can_be_described_and_what_is_empty() -> None:
    assert can_describe((), DType.FLOAT32, ())
    assert can_describe((2, 0), DType.FLOAT32, (1, 5))


def test_what_can_be_described_is_known_beforehand(engine: Engine) -> None:
    lengths, steps = range(4), (-2, 0, 1, 2, 3, 4, 6)
    for dims in (*product(lengths, repeat=2), *product(lengths, repeat=3)):
        for strides in product(steps, repeat=len(dims)):
            if can_describe(dims, DType.FLOAT32, strides):
                assert engine.desc(dims, DType.FLOAT32, strides).dims == dims
            else:
                with pytest.raises(OneDnnError):
                    engine.desc(dims, DType.FLOAT32, strides)


def test_steps_without_an_operand_have_no_argument(engine: Engine) -> None:
    dims = engine.desc((4, 8), DType.FLOAT32)
    steps = [(PostOp.unary("relu"), None), (PostOp.binary("add", 3), dims)]
    weights = engine.desc((8, 8), DType.FLOAT32)
    attributes = Attributes(engine, steps)
    pd = engine.primitive_desc("matmul", engine, dims, weights, None, dims, attributes)
    assert pd.argument(ARG.post_op(1)) == (DType.FLOAT32, 4 * 8 * 4)
    pd.engine = None  # type: ignore[assignment]  # the library would tell what nobody has set
    for index in (0, 2, 7):
        assert pd.argument(ARG.post_op(index)) == (None, 0)
