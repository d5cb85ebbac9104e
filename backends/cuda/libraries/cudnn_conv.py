"""Convolutions with their epilogues, as graphs of cuDNN.

The order decides which engines there are: convolution, residual, bias, activation has precompiled
ones, any other order is compiled for each shape. Likewise relu6 is the least of relu and 6, because
the frontend's clipped relu is left to the slowest engine.
"""

from __future__ import annotations

from ...accelerator.queues.driver import DriverError, ErrorKind
from ...accelerator.queues.library_operation import LibraryOperation
from .cudnn_device import find_missing, plan_on
from .cudnn_graph import GraphDescription, StepDescription, TensorDescription, channels_last
from .planned import Planned

__all__ = ["ACTIVATIONS", "describe_conv", "find_missing", "find_refusal", "plan"]

_X, _W, _BIAS, _RESIDUAL, _Y = range(1, 6)
_WAY_OUT = "its lowering should not have asked for it: report this as a bug"
_INEXACT_NOTES = (
    "NONDETERMINISTIC",
    "REDUCED_PRECISION_REDUCTION",
    "FFT",
    "WINOGRAD",
    "WINOGRAD_TILE_4x4",
    "WINOGRAD_TILE_6x6",
    "WINOGRAD_TILE_13x13",
)
_ROUNDING_NOTES = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")

ACTIVATIONS: dict[str, tuple[StepDescription, ...]] = {
    "relu": (StepDescription("relu", "activated", (("input", "sum"),)),),
    "relu6": (
        StepDescription("relu", "positive", (("input", "sum"),)),
        StepDescription("min", "activated", (("input0", "positive"), ("input1", "six"))),
    ),
    "silu": (StepDescription("swish", "activated", (("input", "sum"),)),),
    "gelu": (StepDescription("gelu", "activated", (("input", "sum"),)),),
    "leaky_relu": (StepDescription("leaky_relu", "activated", (("input", "sum"),)),),
    "sigmoid": (StepDescription("sigmoid", "activated", (("input", "sum"),)),),
    "tanh": (StepDescription("tanh", "activated", (("input", "sum"),)),),
    "hardswish": (
        StepDescription("add", "shifted", (("a", "sum"), ("b", "three"))),
        StepDescription("relu", "positive", (("input", "shifted"),)),
        StepDescription("min", "clipped", (("input0", "positive"), ("input1", "six"))),
        StepDescription("div", "gate", (("a", "clipped"), ("b", "six"))),
        StepDescription("mul", "activated", (("a", "sum"), ("b", "gate"))),
    ),
}
"""The steps of every activation, from ``sum`` to ``activated``."""

_SCALARS = {"three": 3.0, "six": 6.0}  # cuDNN 9.19 cannot compile a third one into a kernel
_NARROW_ACTIVATIONS = (None, "relu", "sigmoid", "tanh")


def find_refusal(
    dtype: str, channels: int, groups: int, has_bias: bool, activation: str | None
) -> str | None:
    """Return why cuDNN is not asked for a convolution, or None; pure, for lowerings.

    ``channels`` are those of a filter. The rest of a convolution makes no difference.
    """
    if activation is not None and activation not in ACTIVATIONS:
        return f"cuDNN is not used for the activation {activation}"
    is_narrow = dtype == "bfloat16" and channels == 1 and groups > 1
    if is_narrow and (activation not in _NARROW_ACTIVATIONS or (activation and not has_bias)):
        said = activation if has_bias else f"{activation} without a bias"
        return f"cuDNN has no engine for groups of one channel in bfloat16 with {said}"
    return None


def plan(operation: LibraryOperation, device_id: int) -> Planned:
    """Plan a convolution for a device; see ``plan_on``."""
    return plan_on(device_id, describe_conv(operation))


def describe_conv(operation: LibraryOperation) -> GraphDescription:
    """Return what cuDNN is to compute; the order of tensors is that of the launch's arguments.

    Pure. Raises DriverError for parameters that mean no convolution.
    """
    filters, depth, *window = operation["filters"]
    refusal = find_refusal(
        operation["dtype"],
        depth,
        operation["groups"],
        operation["has_bias"],
        operation["activation"],
    )
    if refusal is not None:
        raise DriverError(ErrorKind.OTHER, f"{_summary(operation)}: {refusal}; {_WAY_OUT}")
    images, channels, height, width = operation["image"]
    sizes = [
        _positions(size, extent, *(operation[name][axis] for name in _AXIS_PARAMETERS))
        for axis, (size, extent) in enumerate(zip((height, width), window, strict=True))
    ]
    made = (images, filters, *sizes)
    if depth * operation["groups"] != channels or min(made) < 1:
        raise DriverError(
            ErrorKind.OTHER,
            f"{_summary(operation)} is no convolution: it would give {made}, and its filters read "
            f"{depth} x {operation['groups']} of {channels} channels; {_WAY_OUT}",
        )
    tensors = [
        _tensor(_X, "x", operation["image"]),
        _tensor(_W, "w", operation["filters"]),
        *([_tensor(_BIAS, "bias", (1, filters, 1, 1))] if operation["has_bias"] else ()),
        *([_tensor(_RESIDUAL, "residual", made)] if operation["has_residual"] else ()),
        _tensor(_Y, "y", made),
    ]
    steps = _steps(operation)
    used = {name for step in steps for _, name in step.inputs}
    return GraphDescription(
        operation.name,
        _summary(operation),
        operation["dtype"],
        tuple(tensors),
        tuple((name, value) for name, value in _SCALARS.items() if name in used),
        steps,
        "y",
        _excluded_notes(operation),
        operation["workspace_bytes"],
    )


_AXIS_PARAMETERS = ("pads_begin", "pads_end", "strides", "dilations")


def _positions(size: int, extent: int, begin: int, end: int, stride: int, dilation: int) -> int:
    return (size + begin + end - dilation * (extent - 1) - 1) // stride + 1


def _tensor(uid: int, name: str, dims: tuple[int, ...]) -> TensorDescription:
    return TensorDescription(uid, name, dims, channels_last(dims))


def _steps(operation: LibraryOperation) -> tuple[StepDescription, ...]:
    settings = (
        ("pre_padding", operation["pads_begin"]),
        ("post_padding", operation["pads_end"]),
        ("stride", operation["strides"]),
        ("dilation", operation["dilations"]),
    )
    sources = (("image", "x"), ("weight", "w"))
    steps = [StepDescription("conv_fprop", "sum", sources, settings)]
    if operation["has_residual"]:
        steps.append(StepDescription("add", "sum", (("a", "sum"), ("b", "residual"))))
    if operation["has_bias"]:
        steps.append(StepDescription("bias", "sum", (("input", "sum"), ("bias", "bias"))))
    activation = operation["activation"]
    if activation == "leaky_relu":
        slope = (("negative_slope", operation["number"]),)
        (only,) = ACTIVATIONS[activation]
        steps.append(StepDescription(only.operator, only.result, only.inputs, slope))
    elif activation is not None:
        steps += ACTIVATIONS[activation]
    return tuple(steps)


def _excluded_notes(operation: LibraryOperation) -> tuple[str, ...]:
    """Name engines whose results are not what is promised, by their notes."""
    if operation["dtype"] == "float32" and not operation["has_tf32"]:
        return (*_INEXACT_NOTES, *_ROUNDING_NOTES)
    return _INEXACT_NOTES


def _summary(operation: LibraryOperation) -> str:
    """Describe it for messages."""
    said = [
        f"conv of {operation['dtype']} {_by(operation['image'])} with {_by(operation['filters'])}",
        f"strides {_by(operation['strides'])}",
        f"pads {_by(operation['pads_begin'] + operation['pads_end'])}",
        f"dilations {_by(operation['dilations'])}",
        f"groups {operation['groups']}",
        *(["residual"] if operation["has_residual"] else ()),
        *(["bias"] if operation["has_bias"] else ()),
        *([operation["activation"]] if operation["activation"] else ()),
        *(["tf32"] if operation["has_tf32"] else ()),
        f"at most {operation['workspace_bytes']} bytes of workspace",
    ]
    return ", ".join(said)


def _by(numbers: tuple[int, ...]) -> str:
    return "x".join(map(str, numbers))
