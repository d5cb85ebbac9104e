"""Attention as a graph of cuDNN."""

from __future__ import annotations

from ...accelerator.queues.driver import DriverError, ErrorKind
from ...accelerator.queues.library_operation import LibraryOperation
from .cudnn_device import find_missing, plan_on
from .cudnn_graph import GraphDescription, StepDescription, TensorDescription
from .planned import Planned

__all__ = ["describe_attention", "find_missing", "plan"]

_Q, _K, _V, _MASK, _O = range(1, 6)
_DTYPES = ("float16", "bfloat16")
_DEPTH_STEP = 8


def plan(operation: LibraryOperation, device_id: int) -> Planned:
    """Plan an attention for a device; see ``plan_on``."""
    return plan_on(device_id, describe_attention(operation))


def describe_attention(operation: LibraryOperation) -> GraphDescription:
    """Return what cuDNN is to compute; the order of tensors is that of the launch's arguments.

    Pure. Raises DriverError for what cuDNN has on no device.
    """
    depth = operation["head"]
    if operation["dtype"] not in _DTYPES or depth % _DEPTH_STEP:
        raise DriverError(
            ErrorKind.OTHER,
            f"{_summary(operation)}: cuDNN has attention of {' and '.join(_DTYPES)}, for heads "
            f"whose length is a multiple of {_DEPTH_STEP}; its lowering should not have asked "
            "for it: report this as a bug",
        )
    lead = operation["batch"], operation["heads"]
    queries = *lead, operation["queries"], depth
    keys = *lead, operation["keys"], depth
    tensors = [
        TensorDescription(_Q, "q", queries, operation["q_strides"]),
        TensorDescription(_K, "k", keys, operation["k_strides"]),
        TensorDescription(_V, "v", keys, operation["v_strides"]),
    ]
    inputs = [("q", "q"), ("k", "k"), ("v", "v")]
    if operation["has_mask"]:
        shape = operation["mask_shape"]
        tensors.append(TensorDescription(_MASK, "mask", shape, _row_major(shape)))
        inputs.append(("bias", "mask"))
    tensors.append(TensorDescription(_O, "o", queries, operation["o_strides"]))
    settings = ("generate_stats", False), ("attn_scale", operation["scale"])
    return GraphDescription(
        operation.name,
        _summary(operation),
        operation["dtype"],
        tuple(tensors),
        (),
        (StepDescription("sdpa", "o", tuple(inputs), settings),),
        "o",
        ("NONDETERMINISTIC",),
        operation["workspace_bytes"],
    )


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    _, heads, rows, columns = shape
    return heads * rows * columns, rows * columns, columns, 1


def _summary(operation: LibraryOperation) -> str:
    """Describe it for messages."""
    masked = f", a mask of {operation['mask_shape']}" if operation["has_mask"] else ""
    return (
        f"attention of {operation['dtype']}, batch {operation['batch']}, {operation['heads']} "
        f"heads of {operation['head']}, {operation['queries']} queries, {operation['keys']} "
        f"keys{masked}, at most {operation['workspace_bytes']} bytes of workspace"
    )
