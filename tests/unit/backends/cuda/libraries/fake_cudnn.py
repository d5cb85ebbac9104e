"""The part of cuDNN's frontend that is used, without cuDNN: it notes what it is told.

A graph recommends ``plans``, by name: those with ``compiled`` in it would take time to build, those
with ``python`` are none of cuDNN's own. Those in ``unbuildable`` cannot be built, and blobs in
``unloadable`` not loaded. Executions are noted as (blob, addresses, workspace, handle, uids).
"""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any


class Knob(enum.Enum):
    """What engines are tuned by."""

    TILE_SIZE = 2


class NamedValues:
    """An enumeration of the frontend: each name stands for itself."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


class FakeTensor:
    """A tensor of a graph; setters are chained."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("set_"):
            raise AttributeError(name)

        def set_field(value: Any) -> FakeTensor:
            self.fields[name.removeprefix("set_")] = value
            return self

        return set_field


class FakeGraph:
    """What ``pygraph`` makes."""

    def __init__(self, frontend: FakeFrontend, **settings: Any) -> None:
        self.frontend, self.settings = frontend, settings
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.made: list[FakeTensor] = []
        self.excluded: list[str] = []
        self.limit = 0
        self.blob: bytes | None = None
        self.index = 0

    def tensor(self, **fields: Any) -> FakeTensor:
        return FakeTensor(**fields)

    def tensor_scalar(self, value: float, kind: str, name: str) -> FakeTensor:
        return FakeTensor(value=value, kind=kind, name=name)

    def sdpa(self, **given: Any) -> tuple[FakeTensor, None]:
        return self._called("sdpa", given), None

    def validate(self) -> None:
        if self.frontend.refusal:
            raise ValueError(self.frontend.refusal)

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: list[str]) -> None:
        assert modes == ["A", "FALLBACK"]

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        self.excluded += notes

    def deselect_workspace_greater_than(self, limit: int) -> None:
        self.limit = limit

    def get_execution_plan_count(self) -> int:
        return len(self.frontend.plans)

    def get_engine_and_knobs_at_index(self, index: int) -> tuple[int, dict[Any, int]]:
        engine = 20_000 if "python" in self.frontend.plans[index] else index
        return engine, {Knob.TILE_SIZE: index}

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[str]:
        return ["RUNTIME_COMPILATION"] if "compiled" in self.frontend.plans[index] else []

    def get_plan_name_at_index(self, index: int) -> str:
        return self.frontend.plans[index]

    def build_plan_at_index(self, index: int) -> None:
        name = self.frontend.plans[index]
        self.frontend.built.append(name)
        if name in self.frontend.unbuildable:
            raise RuntimeError(f"{name} fails to compile")
        self.index = index

    def get_workspace_size(self) -> int:
        return 128

    def serialize(self, as_bytes: bool) -> bytes:
        assert as_bytes
        return b"plan " + self.frontend.plans[self.index].encode()

    def deserialize(self, blob: bytes) -> None:
        if blob in self.frontend.unloadable:
            raise RuntimeError("no such plan here")
        self.frontend.loaded.append(blob)
        self.blob = blob

    def execute(
        self, operands: list[int], workspace: int, handle: Any, tensor_uids: tuple[int, ...]
    ) -> None:
        if self.frontend.failure:
            raise RuntimeError(self.frontend.failure)
        noted = (self.blob, tuple(operands), workspace, handle, tensor_uids)
        self.frontend.executed.append(noted)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda **given: self._called(name, given)

    def _called(self, name: str, given: dict[str, Any]) -> FakeTensor:
        self.calls.append((name, given))
        self.made.append(FakeTensor(made_by=name))
        return self.made[-1]


class FakeFrontend:
    """What ``import cudnn`` gives."""

    __version__ = "1.32.0"

    def __init__(self, *plans: str) -> None:
        self.plans = list(plans or ("eng0",))
        self.unbuildable: set[str] = set()
        self.unloadable: set[bytes] = set()
        self.refusal = self.failure = ""
        self.built: list[str] = []
        self.loaded: list[bytes] = []
        self.executed: list[tuple[Any, ...]] = []
        self.handles: list[SimpleNamespace] = []
        self.graphs: list[FakeGraph] = []
        self.data_type = self.scalar_type = self.heur_mode = NamedValues()
        self.numerical_note = self.behavior_note = NamedValues()

    def backend_version_string(self) -> str:
        return "9.19.0"

    def create_device_properties(self, device: str) -> str:
        return f"properties of {device}"

    def create_handle(self) -> SimpleNamespace:
        self.handles.append(SimpleNamespace(stream=None))
        return self.handles[-1]

    def set_stream(self, handle: SimpleNamespace, stream: int) -> None:
        handle.stream = stream

    def pygraph(self, **settings: Any) -> FakeGraph:
        self.graphs.append(FakeGraph(self, **settings))
        return self.graphs[-1]
