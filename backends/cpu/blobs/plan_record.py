"""A plan in a blob: layouts, buffers, operands and steps as numbered rows, constants as tensors.

A plan is what it was built as, but for addresses and oneDNN's objects, which are made again in the
order in which they were made. What is read is held to the same bounds as what is built: each step
to the buffers of its operands, each call of oneDNN to the arguments that it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ....errors import AioInferError, BlobError
from ....executors import StreamsConfig, is_shortage
from ....runtime.blobs.graph_record import (
    read_model_record,
    read_ports_record,
    write_model_record,
)
from ....runtime.blobs.reader import Blob
from ....runtime.blobs.tensors_record import TensorReader, TensorWriter, damaged
from ....runtime.blobs.writer import BlobWriter
from ....runtime.graph import DType, Graph, Model, TensorType, copy_graph, is_static
from ....runtime.graph.stand_ins import release_constants
from ....runtime.network.export import package_version
from ..onednn.bindings import Engine, version_text
from ..plans.operand_layout import Layout
from ..plans.packed_weights import WeightStore
from ..plans.plan import Description, Plan
from .node_record import BindKernels, NodesReader
from .onednn_record import MOST_THREADS
from .plan_reader import Describe, PlanReader, count_of
from .plan_writer import PlanWriter

__all__ = [
    "ONLY_PLAN",
    "checked",
    "plan_facts",
    "read_plan",
    "read_planned_ports",
    "read_record",
    "write_plan",
    "write_record",
]

ONLY_PLAN = "only_plan"
"""What the frames of a network begin with that has released its model."""

PLAN = "plan"
"""The frame of a plan's rows."""

_GRAPH = "graph"

R = TypeVar("R")


def write_plan(blob: BlobWriter, plan: Plan, model: Model) -> None:
    """Add a plan, whose weights are packed; ``model`` is of its operator sets.

    Raises NotSupportedError for a step whose function computes no node.
    """
    tensors = TensorWriter(blob)
    write_record(blob, plan, tensors, model)
    tensors.finish()
    graph = copy_graph(plan.graph)
    release_constants(graph)
    write_model_record(blob.under(_GRAPH), model.with_graph(graph), is_shown=True)


def read_plan(
    blob: Blob,
    ports: Graph,
    engine: Engine,
    weights: WeightStore,
    streams: StreamsConfig,
    bind: BindKernels,
) -> Plan:
    """Read a plan, whose constants stay in the blob; compiles its primitives.

    ``ports`` is the graph of ``read_planned_ports``; ``streams`` are those that runs compute on;
    ``bind`` ties nodes to users' kernels. Raises BlobError for what ``write_plan`` does not write,
    and for what this machine's oneDNN does otherwise. The graph that it executes is read when
    somebody looks at it: what is in that, but for flipped bits, is refused then.
    """

    def describe(layouts: Mapping[str, Layout], float_dtype: DType, id: str) -> Description:
        copied = blob.under(_GRAPH).copied()  # that of a closed network is looked at, too
        return Description(
            lambda: (bind(read_model_record(copied, is_shown=True)).graph, layouts),
            float_dtype,
            id,
        )

    def read() -> Plan:
        for value in (*ports.inputs, *ports.outputs):
            if not isinstance(value.type, TensorType) or not is_static(value.type.shape):
                raise damaged(f"its only plan is for {value.name!r}, {value.type}")
        content = blob.json(PLAN)
        _refuse_larger_team(count_of(content["thread_count"], 1, MOST_THREADS), streams)
        types = [value.type for value in ports.inputs], [value.type for value in ports.outputs]
        return read_record(
            blob, content, engine, weights, TensorReader(blob), bind, types, describe
        )

    return checked(read)


def write_record(blob: BlobWriter, plan: Plan, tensors: TensorWriter, model: Model) -> None:
    """Add a plan's rows and nodes; its constants go to ``tensors``."""
    writer = PlanWriter(tensors)
    blob.add_json(PLAN, writer.plan(plan))
    writer.nodes.finish(blob, model.opsets)


def read_record(
    blob: Blob,
    content: Mapping[str, Any],
    engine: Engine,
    weights: WeightStore,
    tensors: TensorReader,
    bind: BindKernels,
    types: tuple[Sequence[Any], Sequence[Any]],
    describe: Describe,
) -> Plan:
    """Make a plan of its rows; ``types`` are those of inputs and outputs. See ``checked``."""
    with engine.with_threads(count_of(content["thread_count"], 1, MOST_THREADS)):
        nodes = NodesReader(blob, bind)
        return PlanReader(engine, weights, tensors, nodes, content).plan(
            types[0], types[1], describe
        )


def checked(read: Callable[[], R]) -> R:
    """Call what reads a record; whatever a record may raise that is none becomes BlobError."""
    try:
        return read()
    except BlobError:
        raise
    except AioInferError as error:
        if is_shortage(error):
            raise
        raise damaged(f"its plan contradicts itself: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise damaged(f"its plan cannot be read ({type(error).__name__}: {error})") from error


def read_planned_ports(blob: Blob) -> Model:
    """Read the model of a network that has a plan alone: what goes in and comes out."""
    return read_ports_record(blob.under(_GRAPH))


def plan_facts(engine: Engine) -> dict[str, Any]:
    """Return what a plan relies on: our own kernels, oneDNN, and the instructions that it uses."""
    return {
        "aioinfer": package_version(),
        "oneDNN": version_text(engine.version),
        "instruction set": engine.instruction_set,
    }


def _refuse_larger_team(thread_count: int, streams: StreamsConfig) -> None:
    """Raise BlobError for a plan that no stream has the threads for."""
    if thread_count > streams.thread_count:
        raise BlobError(
            f"the plan of the blob computes with {thread_count} threads, and each of "
            f"{streams.stream_count} streams of {streams.name} has {streams.thread_count}; import "
            f"it with INFERENCE_NUM_THREADS={thread_count * streams.stream_count} or more, or load "
            f"the model",
            device=streams.name,
        )
