"""What goes into a request and comes out: memory, layouts, handles, shapes that change."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ...errors import TensorError
from ..tensors.tensor import Tensor
from .conformance_case import behaviour, expect, expect_equal, expect_error, load
from .conformance_models import sample_named

if TYPE_CHECKING:
    from ..devices.core import Core

DOUBLED = sample_named("doubled")
X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)


def _doubled(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(x, 0) + x)


def _layouts() -> dict[str, np.ndarray]:
    wide = np.arange(-12, 12, dtype=np.float32).reshape(4, 6)
    frozen = X.copy()
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)
    return {
        "contiguous": X,
        "every second column": wide[:, ::2],
        "every second row": wide[::2, :3],
        "Fortran order": np.asfortranarray(X),
        "transposed": np.ascontiguousarray(X.T).T,
        "negative strides": X[::-1, ::-1],
        "one row repeated": np.broadcast_to(X[:1], (5, 3)),
        "read-only": frozen,
        "unaligned": unaligned,
        "no rows": X[:0],
        "no rows of a wide array": wide[4:, ::2],
    }


@behaviour
def _any_memory_layout_gives_the_right_answer(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        for layout, x in _layouts().items():
            before = x.copy()
            for _ in range(2):
                outputs = request.infer_sync({"x": x})
                expect_equal(outputs["y"], _doubled(before), f"'y' for an input that is {layout}")
            expect_equal(x, before, f"the input that is {layout}, afterwards,")


@behaviour
def _whatever_numpy_takes_as_an_array_is_taken(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        for given in (X, [X], (X,), {"x": X}, X.tolist(), {"x": Tensor(X)}):
            outputs = request.infer_sync(given)
            expect_equal(outputs["y"], _doubled(X), f"'y' for a {type(given).__name__}")


@behaviour
def _a_foreign_byte_order_is_refused(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        swapped = X.astype(X.dtype.newbyteorder())
        request = network.create_infer_request()
        expect_error(TensorError, lambda: request.infer_sync({"x": swapped}), "swapped bytes")


@behaviour
def _zero_dimensional_tensors_keep_their_rank(core: Core, device: str) -> None:
    with load(core, device, sample_named("scalar")) as network:
        request = network.create_infer_request()
        for given in (np.float32(3), np.array(3, np.float32), 3.0):
            expect_equal(request.infer_sync({"x": given})["y"], np.array(9, np.float32), "'y'")
        expect_error(TensorError, lambda: request.infer_sync({"x": X}), "a matrix for a scalar")


@behaviour
def _an_empty_batch_gives_an_empty_answer(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        outputs = network.create_infer_request().infer_sync({"x": X[:0]})
        expect_equal(outputs["y"], np.empty((0, 3), np.float32), "'y' of an empty batch")


@behaviour
def _a_tensor_is_one_handle_and_one_memory(core: Core, device: str) -> None:
    with load(core, device, sample_named("static_sum")) as network:
        request = network.create_infer_request()
        a, b = request.get_tensor("a"), request.get_tensor("b")
        expect(a is request.get_tensor("a"), "get_tensor gives the same handle each time")
        expect(np.shares_memory(np.asarray(a), request.get_tensor("a").data), "and memory")
        a.data[:], b.data[:] = X, 10
        expect_equal(request.infer_sync()["sum"], X + 10, "'sum' of what was written")
        output = request.get_tensor("sum")
        b.data[:] = 20
        expect_equal(request.infer_sync()["sum"], X + 20, "'sum' of what was written later")
        expect(output is request.get_tensor("sum"), "an output keeps its handle over runs")
        expect_equal(np.asarray(output), X + 20, "the output's handle, after the run,")
        expect(a is request.get_tensor("a"), "an input keeps its handle over runs")


@behaviour
def _a_bound_tensor_is_the_memory_that_is_used(core: Core, device: str) -> None:
    with load(core, device, sample_named("static_sum")) as network:
        request = network.create_infer_request()
        a, b, total = X.copy(), X.copy(), np.full_like(X, np.nan)
        request.set_tensor("a", a)
        request.set_tensor("b", Tensor(b))
        request.set_tensor("sum", total)
        for name, memory in (("a", a), ("b", b), ("sum", total)):
            expect(np.shares_memory(request.get_tensor(name).data, memory), f"{name!r} is bound")
        expect(request.infer_sync()["sum"] is total, "results hold the bound output itself")
        expect_equal(total, X + X, "the bound output")
        a[:] = 1
        request.infer_sync()
        expect_equal(total, X + 1, "the bound output of the next run")
        expect_equal(request.infer_sync({"a": X})["sum"], X + X, "what is given goes first: 'sum'")
        request.set_tensor("sum", None)
        expect(request.infer_sync()["sum"] is not total, "None takes the binding back")


@behaviour
def _a_bound_output_may_have_any_layout(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        for memory in (
            np.full((2, 6), np.nan, np.float32)[:, ::2],
            np.asfortranarray(np.full((2, 3), np.nan, np.float32)),
            np.full((2, 3), np.nan, np.float32)[::-1, ::-1],
        ):
            request.set_tensor("y", memory)
            request.infer_sync({"x": X})
            expect_equal(memory, _doubled(X), "the bound output")


@behaviour
def _tensors_that_do_not_fit_cannot_be_bound(core: Core, device: str) -> None:
    frozen = np.empty((2, 3), np.float32)
    frozen.flags.writeable = False
    with load(core, device, sample_named("static_sum")) as network:
        request = network.create_infer_request()
        for name, given in (
            ("a", X.astype(np.float64)),
            ("a", X[:1]),
            ("a", X[0]),
            ("a", Tensor()),
            ("sum", X.astype(np.int32)),
            ("sum", X[:, :2]),
            ("sum", frozen),
            ("add_0", X),
            ("", X),
        ):
            expect_error(
                TensorError,
                partial(request.set_tensor, name, given),
                f"binding a {given!r:.40} to {name!r}",
            )
        expect_error(TensorError, lambda: request.get_tensor("add_0"), "a node's name")
        expect_equal(request.infer_sync({"a": X, "b": X})["sum"], X + X, "'sum' after refusals")


@behaviour
def _results_belong_to_the_caller(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        first = request.infer_sync({"x": X})["y"]
        kept = first.copy()
        for number in range(1, 5):
            request.infer_sync({"x": X + number})
        expect_equal(first, kept, "the first result, after later runs,")
        first[:] = 99
        expect_equal(request.infer_sync({"x": X})["y"], kept, "'y' after the caller wrote into one")


@behaviour
def _results_share_no_memory_with_inputs_or_weights(core: Core, device: str) -> None:
    sample = sample_named("passed_through")
    with load(core, device, sample) as network:
        request = network.create_infer_request()
        (feed,) = sample.feeds()
        before = {name: array.copy() for name, array in feed.items()}
        expected = {name: array.copy() for name, array in request.infer_sync(feed).items()}
        for _ in range(2):
            outputs = request.infer_sync(feed)
            for name, array in outputs.items():
                expect_equal(array, expected[name], name)
                array[:] = 99
            for name, array in feed.items():
                expect_equal(array, before[name], f"input {name!r} after outputs were written to")


@behaviour
def _a_dynamic_output_grows_and_shrinks_under_one_handle(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        handle = request.get_tensor("y")
        expect(handle.size == 0, "a dynamic output has size 0 before the first run")
        expect(handle.dtype == np.float32, "a dynamic output has its type before the first run")
        for rows in (2, 5, 0, 1):
            x = np.ones((rows, 3), np.float32)
            request.infer_sync({"x": x})
            expect(request.get_tensor("y") is handle, "it is the same handle after a run")
            expect(handle.shape == (rows, 3), f"it shows {rows} rows, not {handle.shape}")
            expect_equal(np.asarray(handle), _doubled(x), "the handle's content")


@behaviour
def _an_output_whose_shape_depends_on_data_follows_it(core: Core, device: str) -> None:
    with load(core, device, sample_named("found")) as network:
        request = network.create_infer_request()
        handle = request.get_tensor("where")
        for x, where in (
            ([1, -1, 2], [[0, 2]]),
            ([-1, -1], np.empty((1, 0))),
            ([3, 4, 5, 6], [[0, 1, 2, 3]]),
        ):
            request.infer_sync({"x": np.array(x, np.float32)})
            expect_equal(np.asarray(handle), np.array(where, np.int64), "'where'")


@behaviour
def _an_output_may_be_fed_back(core: Core, device: str) -> None:
    with load(core, device, DOUBLED) as network:
        request = network.create_infer_request()
        handle = request.get_tensor("y")
        expect_equal(request.infer_sync({"x": handle})["y"], np.empty((0, 3), np.float32), "'y'")
        request.infer_sync({"x": np.ones((2, 3), np.float32)})
        for value in (4, 8, 16):
            outputs = request.infer_sync({"x": handle})
            expect_equal(outputs["y"], np.full((2, 3), value, np.float32), "'y' fed back")
        request.set_tensor("x", handle)
        expect_equal(request.infer_sync()["y"], np.full((2, 3), 32, np.float32), "'y' fed back")
