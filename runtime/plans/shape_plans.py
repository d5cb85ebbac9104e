"""Plans of one network by the shapes of its inputs: which to build ahead, which a run needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ...errors import AioInferError, PropertyError, TensorError
from ...executors import TaskExecutor, full_collections_paused
from ...executors.late_imports import late_imports
from ..graph import Model, TensorType, is_static, shape_text
from ..graph.node_failure import failure_at
from ..passes import bound_input_shapes
from ..properties.properties import INPUT_SHAPES
from ..tensors.tensor import Port, Signature, signature_reader
from ..type_inference import ContradictionError
from .plan_cache import PendingPlan, PlanCache, PlanLimits, refuse_to_build

if TYPE_CHECKING:
    from ..tracing.statistics import PlanStatistics

__all__ = ["ShapePlans", "Signature"]

P = TypeVar("P")

_Key = tuple[Signature, tuple[bytes, ...]]


class ShapePlans(Generic[P]):
    """The plans of a network that is compiled per shape. Thread-safe, but for ``compile_ahead``.

    ``build`` makes the plan for input shapes by name, and for the content of ``shape_tensors``:
    short integer inputs that shapes depend on, such as a Reshape's. It runs on ``executor``, once
    for each signature. ``signature_of_plan`` says for which signature the plan of another one is
    made, if not for itself. ``limits`` bound what is kept, ``size_of`` tells the bytes of a plan,
    and ``dropped`` is as in PlanCache.
    """

    def __init__(
        self,
        model: Model,
        ports: Sequence[Port],
        device: str,
        build: Callable[[dict[str, tuple[int, ...]], dict[str, np.ndarray]], P],
        executor: TaskExecutor,
        shape_tensors: Sequence[str] = (),
        signature_of_plan: Callable[[Signature], Signature] | None = None,
        *,
        limits: PlanLimits | None = None,
        size_of: Callable[[P], int] = lambda _plan: 0,
        dropped: Callable[[P], None] | None = None,
    ) -> None:
        self._model, self._ports, self._device = model, tuple(ports), device
        self._read_signature = signature_reader(self._ports)
        self._build = build
        self._signature_of_plan = signature_of_plan
        self._build_count, self._build_s = 0, 0.0
        self._is_static = all(is_static(port.shape) for port in self._ports)
        self._shape_tensor_ports = [port for port in self._ports if port.name in shape_tensors]
        self._cache: PlanCache[_Key, P] = PlanCache(self._plan, executor, limits, size_of, dropped)

    def __len__(self) -> int:
        return len(self._cache)

    def statistics(self) -> PlanStatistics:
        """Return how many plans there are, what building them took, and how often they were hit."""
        with late_imports:
            from ..tracing.statistics import PlanStatistics

        cache = self._cache
        return PlanStatistics(
            len(cache),
            self._build_count,
            self._build_s,
            cache.hit_count + cache.repeat_count,
            cache.miss_count,
            cache.eviction_count,
            cache.size_bytes,
        )

    def plans(self) -> list[P]:
        """List the plans that are kept."""
        return self._cache.plans()

    def kept(self) -> list[tuple[dict[str, tuple[int, ...]], dict[str, np.ndarray[Any, Any]]]]:
        """List what kept plans are for: shapes of inputs, and the content of shape tensors."""
        return [self._inputs_of(key) for key in self._cache.kept_keys()]

    def find(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        contents: Mapping[str, np.ndarray[Any, Any]],
    ) -> P | None:
        """Return the plan for what ``kept`` lists, if it is built."""
        return self._cache.find(self._key_of(shapes, contents))

    def compile_ahead(self, shapes: Sequence[Mapping[str, Sequence[int]]]) -> list[P]:
        """Build the plans of INPUT_SHAPES, and the only one of a network of static inputs.

        Where plans depend on the content of inputs there is nothing to build before it is known.
        Raises PropertyError for shapes that do not fit the model or leave an input open, and
        ModelError for a network of static inputs that contradicts itself.
        """
        wanted = [self._signature_of(item) for item in shapes]
        if self._shape_tensor_ports:
            return []
        if self._is_static:
            wanted.append(self._only_signature())
        try:
            return [self._cache.build_now((signature, ())) for signature in dict.fromkeys(wanted)]
        except TensorError as error:
            raise PropertyError(
                f"{self._device}: bad value for {INPUT_SHAPES.key}: {error}",
                INPUT_SHAPES.key,
                self._device,
                value=tuple(shapes),
            ) from error

    def offer(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        contents: Mapping[str, np.ndarray[Any, Any]],
        size_bytes: int,
    ) -> None:
        """Keep a plan for these inputs that ``build`` has at hand; the next one was used later."""
        if contents.keys() != {port.name for port in self._shape_tensor_ports}:
            return
        self._cache.offer(self._key_of(shapes, contents), size_bytes)

    def begin_ahead(self, count: int) -> None:
        """Make room for the plans of a warm-up of that number of signatures; as in PlanCache."""
        self._cache.begin_ahead(count)

    def end_ahead(self) -> str:
        """End what ``begin_ahead`` began, and say what is lost, if any."""
        return self._cache.end_ahead()

    def clear(self) -> None:
        """Drop all plans, and what builds them; called when no run is left and none may come."""
        self._cache.clear()
        self._build = refuse_to_build

    def request(self, inputs: Mapping[str, Any]) -> PendingPlan[P]:
        """Return the token of the plan for these arrays; never blocks."""
        content = (
            tuple([inputs[port.name].tobytes() for port in self._shape_tensor_ports])
            if self._shape_tensor_ports
            else ()
        )
        signature = self._read_signature(inputs)
        if self._signature_of_plan is not None:
            signature = self._signature_of_plan(signature)
        return self._cache.request((signature, content))

    def repeat_terms(
        self, pending: PendingPlan[P]
    ) -> tuple[tuple[object, str, object], tuple[object, str]] | None:
        """Return that a plan is still the newest, and what counts its use: terms of atomic runs.

        None: shapes alone decide no plan.
        """
        if self._shape_tensor_ports:
            return None
        return (self._cache, "newest", pending), (self._cache, "repeat_count")

    def _plan(self, key: _Key) -> P:
        shapes, arrays = self._inputs_of(key)
        started_s = perf_counter()
        try:
            with full_collections_paused():
                plan = self._build(shapes, arrays)
        except ContradictionError as error:
            if self._is_static and not arrays:
                raise  # whatever a run gives: it is the model's fault
            raise TensorError(f"{_given_text(shapes, arrays)} do not fit the model: {error}") from (
                error
            )
        except AioInferError:
            raise
        except Exception as error:
            given = _given_text(shapes, arrays)
            what = f"model {self._model.name!r} for {self._device} and {given}"
            raise failure_at(error, what) from error
        self._build_count += 1
        self._build_s += perf_counter() - started_s
        return plan

    def _key_of(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        contents: Mapping[str, np.ndarray[Any, Any]],
    ) -> _Key:
        content = tuple([contents[port.name].tobytes() for port in self._shape_tensor_ports])
        return tuple([shapes.get(port.name) for port in self._ports]), content

    def _inputs_of(
        self, key: _Key
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, np.ndarray[Any, Any]]]:
        signature, content = key
        pairs = zip(self._ports, signature, strict=True)
        shapes = {port.name: shape for port, shape in pairs if shape is not None}
        arrays = {
            port.name: np.frombuffer(data, port.dtype).reshape(shapes[port.name])
            for port, data in zip(self._shape_tensor_ports, content, strict=True)
        }
        return shapes, arrays

    def _signature_of(self, shapes: Mapping[str, Sequence[int]]) -> Signature:
        """Complete an item of INPUT_SHAPES, which may leave out what the others determine."""
        try:
            bound = bound_input_shapes(self._model.inputs, shapes)
        except TensorError as error:
            raise self._bad_shapes(shapes, str(error)) from error
        signature: list[tuple[int, ...] | None] = []
        for port in self._ports:
            dims = bound.get(port.name)
            lengths = tuple(dim for dim in dims or () if isinstance(dim, int))
            is_known = dims is not None and len(lengths) == len(dims)
            if not is_known and isinstance(port.type, TensorType):
                raise self._bad_shapes(shapes, f"it leaves input {port} open; give its shape, too")
            signature.append(lengths if is_known else None)
        complete = tuple(signature)
        return self._signature_of_plan(complete) if self._signature_of_plan else complete

    def _only_signature(self) -> Signature:
        """Return that of static inputs."""
        dims = [port.shape or () for port in self._ports]
        only = tuple([tuple([dim for dim in shape if isinstance(dim, int)]) for shape in dims])
        return self._signature_of_plan(only) if self._signature_of_plan else only

    def _bad_shapes(self, shapes: Mapping[str, Sequence[int]], why: str) -> PropertyError:
        text = f"{self._device}: bad value {dict(shapes)} for {INPUT_SHAPES.key}: {why}"
        return PropertyError(text, INPUT_SHAPES.key, self._device, value=dict(shapes))


def _given_text(
    shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> str:
    """Write what a plan is for: the shapes of inputs, and the content of some."""
    texts = [
        f"{name!r} = {arrays[name].tolist()}" if name in arrays else f"{name!r} {shape_text(shape)}"
        for name, shape in shapes.items()
    ]
    return f"inputs {', '.join(texts)}"
