"""Building cuDNN's plans from descriptions: every call of the frontend that needs no device.

The frontend holds the GIL throughout, for up to seconds, so this mostly runs in processes of its
own, which load it and ``cudnn_graph`` without the rest of aioinfer. A graph is planned for a
device's properties, which need no device. Attention asks for the architecture, too, and the
frontend would ask the device if it were not told.

The frontend is handed around as a module, because only some machines have it. It needs neither
torch nor the packages that it declares.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from .cudnn_graph import GraphDescription, PlanCandidate

__all__ = [
    "RefusedError",
    "build_candidates",
    "find_frontend",
    "make_graph",
    "place_of",
    "versions",
]

_FIRST_OF_OTHERS = 10_000  # engines of cuDNN itself have smaller numbers; others have other blobs
_TYPES = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16"}
_ENOUGH_READY = 8  # fewer may be the slow ones that cuDNN has for everything
_MOST_REASONS = 3  # of plans that could not be built: they mostly say the same


class RefusedError(Exception):
    """cuDNN has no plan for an operation; the text says why."""


def find_frontend() -> ModuleType:
    """Load the frontend, and cuDNN; raises ImportError that says what is missing."""
    frontend = importlib.import_module("cudnn")
    if not hasattr(frontend, "Handle"):
        version = getattr(frontend, "__version__", "of unknown version")
        raise ImportError(f"cudnn frontend {version} is older than 1.27")
    try:
        frontend.backend_version()
    except Exception as error:  # RuntimeError, OSError: whatever looking for the library gives
        raise ImportError(f"the library cuDNN cannot be loaded: {error}") from error
    _load_compiler()
    return frontend


def versions(frontend: Any) -> dict[str, str]:
    """Name what plans depend on besides the device."""
    return {
        "cudnn": str(frontend.backend_version_string()),
        "frontend": str(frontend.__version__),
    }


def place_of(frontend: Any, device: str, device_id: int | None = None) -> dict[str, Any]:
    """Return what a graph's constructor takes of a device, from its properties' JSON.

    With ``device_id`` the properties are asked of the device, which knows more than the JSON has.
    """
    given = device if device_id is None else device_id
    place = {"device_property": frontend.create_device_properties(given)}
    version = json.loads(device).get("deviceVer")  # 900 for compute capability 9.0
    return place if version is None else {**place, "sm_version": int(version) // 10}


def make_graph(frontend: Any, description: GraphDescription, **place: Any) -> Any:
    """Make the frontend's graph of a description, not yet planned; see ``place_of``."""
    held = getattr(frontend.data_type, _TYPES[description.dtype])
    wide = frontend.data_type.FLOAT
    graph = frontend.pygraph(
        io_data_type=held, intermediate_data_type=wide, compute_data_type=wide, **place
    )
    named: dict[str, Any] = {}
    (output,) = (tensor for tensor in description.tensors if tensor.name == description.output)
    for tensor in description.tensors:
        if tensor is not output:
            named[tensor.name] = graph.tensor(
                name=tensor.name,
                uid=tensor.uid,
                dim=list(tensor.dims),
                stride=list(tensor.strides),
                data_type=held,
            )
    for name, value in description.scalars:
        named[name] = graph.tensor_scalar(value, frontend.scalar_type.RUNTIME_PARAM, name=name)
    for step in description.steps:
        inputs = {parameter: named[name] for parameter, name in step.inputs}
        settings = {name: _listed(value) for name, value in step.settings}
        made = getattr(graph, step.operator)(**inputs, **settings)
        named[step.result] = made[0] if isinstance(made, tuple | list) else made
    last = named[description.steps[-1].result]
    last.set_output(True).set_data_type(held).set_uid(output.uid)
    last.set_dim(list(output.dims)).set_stride(list(output.strides))
    return graph


def build_candidates(
    frontend: Any,
    description: GraphDescription,
    most: int,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    **place: Any,
) -> list[PlanCandidate]:
    """Build the plans that cuDNN recommends, best first: one, and more while there is time.

    ``most`` and ``seconds`` end it, but never before there is one; where there are many that cuDNN
    has compiled ahead, no other is compiled. Blocks with the GIL held.
    Raises RefusedError with cuDNN's reasons if no plan can be built.
    """
    reasons: list[str] = []
    found: list[PlanCandidate] = []
    until = clock() + seconds
    for candidate in _candidates(frontend, description, reasons, place):
        found.append(candidate)
        if len(found) >= most or clock() >= until:
            break
    if not found:
        raise _refusal(reasons)
    return found


def _refusal(reasons: list[str]) -> RefusedError:
    distinct = list(dict.fromkeys(reasons))[:_MOST_REASONS]
    said = "; ".join(distinct) or "cuDNN recommends none"
    return RefusedError(f"no plan can be built: {said}")


def _candidates(
    frontend: Any, description: GraphDescription, reasons: list[str], place: dict[str, Any]
) -> Iterator[PlanCandidate]:
    graph = _planned(frontend, description, place)
    compiling = frontend.behavior_note.RUNTIME_COMPILATION
    ready_count = 0
    for index in range(graph.get_execution_plan_count()):
        try:
            is_ready = compiling not in graph.get_behavior_notes_for_plan_at_index(index)
            if not is_ready and ready_count >= _ENOUGH_READY:
                continue
            candidate = _built(graph, index)
        except Exception as error:  # excluded, too large a workspace, or a compiler's failure
            reasons.append(str(error))
        else:
            if candidate is not None:
                ready_count += is_ready
                yield candidate


def _planned(frontend: Any, description: GraphDescription, place: dict[str, Any]) -> Any:
    """Ask for the plans that cuDNN recommends, none of which is built yet."""
    graph = make_graph(frontend, description, **place)
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([frontend.heur_mode.A, frontend.heur_mode.FALLBACK])
    except Exception as error:  # the frontend's own, ValueError, RuntimeError: all mean no
        raise RefusedError(f"the graph is refused: {error}") from error
    notes = [getattr(frontend.numerical_note, name) for name in description.excluded_notes]
    graph.deselect_numeric_notes(notes)
    graph.deselect_workspace_greater_than(description.workspace_bytes)
    return graph


def _built(graph: Any, index: int) -> PlanCandidate | None:
    """Build a recommended plan; None for an engine that is not cuDNN's own."""
    engine, knobs = graph.get_engine_and_knobs_at_index(index)
    if not 0 <= int(engine) < _FIRST_OF_OTHERS:
        return None
    graph.build_plan_at_index(index)
    return PlanCandidate(
        graph.get_plan_name_at_index(index),
        engine,
        tuple(sorted((str(knob.name), int(value)) for knob, value in knobs.items())),
        graph.get_workspace_size(),
        graph.serialize(as_bytes=True),
    )


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _load_compiler() -> None:
    """Make cuDNN find NVRTC and what it includes, where they are installed as wheels."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
        pathfinder.load_nvidia_dynamic_lib("nvrtc")
    except Exception:  # not installed, or nothing found: engines that need it are left out
        return
