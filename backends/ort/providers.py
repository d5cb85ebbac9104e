"""Execution providers as devices: their ids, and which of them are really there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ...runtime.graph import DType, Graph, Model, Node, TensorType, Value

__all__ = ["Providers", "device_id_of", "sample_model"]

_SUFFIX = "ExecutionProvider"


def device_id_of(provider: str) -> str:
    """Return the device of a provider: ``CUDAExecutionProvider`` is ``CUDA``. Pure."""
    return provider.removesuffix(_SUFFIX).upper()


class Providers:
    """The providers that work, found out at the first question. Thread-safe.

    ``listed`` are those that this onnxruntime was built with. ``takes_nodes(provider)`` loads the
    sample model and returns whether the provider took any of it: one whose library is missing takes
    none, and neither does one that only forwards to a service.
    """

    def __init__(
        self, fallback: str, listed: Sequence[str], takes_nodes: Callable[[str], bool]
    ) -> None:
        self._fallback, self._listed, self._takes_nodes = fallback, listed, takes_nodes
        self._lock = threading.Lock()
        self._by_id: dict[str, str] | None = None

    @property
    def by_id(self) -> dict[str, str]:
        """Device id -> provider; the one that every onnxruntime has is first. Blocks once."""
        with self._lock:
            if self._by_id is None:
                working = [self._fallback] if self._fallback in self._listed else []
                working += [
                    provider
                    for provider in self._listed
                    if provider != self._fallback and self._takes_nodes(provider)
                ]
                self._by_id = {device_id_of(provider): provider for provider in working}
            return self._by_id


def sample_model(dtype: DType = DType.FLOAT32) -> Model:
    """Make a model of operators that every accelerator has: MatMul, Add, Relu.

    Of int8, the matmul is quantised arithmetic: MatMulInteger, with int32 behind it.
    """
    is_quantised = dtype is DType.INT8
    given = TensorType(dtype, (1, 4))
    made = TensorType(DType.INT32 if is_quantised else dtype, (1, 4))
    x, weight, bias = Value("x", given), Value("w", TensorType(dtype, (4, 4))), Value("b", made)
    matmul, total, y = (Value(name, made) for name in ("matmul", "total", "y"))
    multiply = "MatMulInteger" if is_quantised else "MatMul"
    graph = Graph("sample", [x, weight, bias])
    graph.append(Node(multiply, [x, weight], [matmul], name="matmul"))
    graph.append(Node("Add", [matmul, bias], [total], name="add"))
    graph.append(Node("Relu", [total], [y], name="relu"))
    graph.outputs = [y]
    return Model(graph, {"": 21})
