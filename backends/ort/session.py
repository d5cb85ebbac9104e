"""An onnxruntime session around a model; the one file here that imports onnxruntime.

The model is written as a proto without its larger weights. onnxruntime gets their memory twice
over: as external initializers, so that its optimiser can read them, and, on the CPU, those that the
optimiser leaves as they are as shared initializers, which stay where they are. What a kernel
repacks is a second copy all the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ...errors import DeviceError
from ...executors import find_shortage
from ...executors.late_imports import late_imports
from ...runtime.graph import DType, Model, TensorType, Value
from .element_types import is_numpy_type, output_cast_of, raw_memory_of, text_array
from .kept_value import OrtKept
from .properties import SessionSettings
from .shared_weights import stays_as_it_is

__all__ = ["CPU_PROVIDER", "Session", "Terminator", "available_providers", "library_version"]

CPU_PROVIDER = "CPUExecutionProvider"
"""The provider that every onnxruntime has, and that takes what another one leaves."""

_INSTALL = "pip install aioinfer[onnxruntime]"
_EXTERNAL = 1  # TensorProto.EXTERNAL
_HOST = ("cpu", 0)
_MEMORIES = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
}
"""The memory that a provider computes in, in onnxruntime's words; of others the host's is used."""


def _library() -> Any:
    try:
        with late_imports:
            return importlib.import_module("onnxruntime")
    except ImportError as error:
        lacking = find_shortage(error, "loading onnxruntime")
        if lacking is not None:
            raise lacking from error
        raise DeviceError(
            f"onnxruntime cannot be imported ({error}); install it with "
            f"'{_INSTALL}', or install another build of it yourself",
            install=_INSTALL,
        ) from error


def library_version() -> str:
    """Return the version of the installed onnxruntime; raises DeviceError if there is none."""
    return str(_library().__version__)


def available_providers() -> list[str]:
    """List the execution providers that this onnxruntime was built with, its favourite first."""
    return [str(name) for name in _library().get_available_providers()]


class Terminator:
    """Ends a run that is under way: onnxruntime looks at it before each node. For many runs."""

    __slots__ = ("options",)

    def __init__(self) -> None:
        self.options = _library().RunOptions()

    def terminate(self) -> None:
        """End the run now under way, and every later one with these options; any thread."""
        self.options.terminate = True


class Session:
    """One InferenceSession; keeps the weights alive that it shares with the model.

    ``raw`` is onnxruntime's object; ``is_single_threaded`` says that a run keeps to the thread that
    calls it. The constructor raises what onnxruntime raises. Any number of
    threads may run it at once.
    """

    def __init__(self, model: Model, settings: SessionSettings) -> None:
        with late_imports:
            from ...runtime.onnx_writer import write_model

        proto = write_model(model, weights="external")
        _forget_inner_types(proto.graph, keeps_scans=True)
        self._output_names = [_end_with_cast(proto, value) for value in model.outputs]
        options = _session_options(settings)
        self._weights = _give_weights(proto, model, options, settings.provider)
        self._has_profile = bool(settings.profile_prefix)
        self.is_single_threaded = settings.is_single_threaded and settings.provider == CPU_PROVIDER
        self.raw: Any = _open(proto, options, settings)
        # The checks of InferenceSession.run cost a third of a small run, and all were made before.
        inner = getattr(self.raw, "_sess", self.raw)
        self._run: Any = inner.run
        self._run_bound: Any = inner.run_with_iobinding
        self._feeds = _feed_makers(model.inputs)
        self._finishers = _finishers(model.outputs)
        self.place = _place(settings)
        """The memory, and its number, that outputs stay in."""
        self._outputs = [(value.name, _kept_dtype(value)) for value in model.outputs]
        self.can_bind = all(map(_is_bindable, (*model.inputs, *model.outputs)))
        """True if outputs can stay, and be read where they are: all are tensors of numbers."""
        self._memories = tuple(
            _library().OrtDevice.make(*place)._get_c_device() for place in (self.place, _HOST)
        )

    def run(self, inputs: Mapping[str, Any], terminator: Terminator) -> Sequence[Any]:
        """Compute all outputs, in the model's order; they are the caller's. Blocks.

        Raises what onnxruntime raises, also when the terminator ended it.
        """
        if self._feeds:
            inputs = {**inputs, **{name: make(inputs[name]) for name, make in self._feeds.items()}}
        results: list[Any] = self._run(self._output_names, inputs, terminator.options)
        for index, dtype in self._finishers:
            results[index] = results[index].astype(dtype)
        return results

    def run_bound(
        self,
        inputs: Mapping[str, Any],
        kept: Collection[str],
        keep: Callable[[Any, Any], OrtKept],
        terminator: Terminator,
    ) -> Sequence[Any]:
        """Compute all outputs, through an IO binding; as ``run``, where ``can_bind``.

        Inputs may be values that were ``kept``, which are read where they are. Outputs of these
        names come as what ``keep`` makes of onnxruntime's value and its type, and nothing of them
        is copied.
        """
        binding = self.raw.io_binding()._iobinding
        for name, given in inputs.items():
            if isinstance(given, OrtKept):
                binding.bind_ortvalue_input(name, given.value)
            elif name in self._feeds:
                binding.bind_ortvalue_input(name, self._feeds[name](given)._ortvalue)
            else:
                binding.bind_input(name, given)
        own, host = self._memories
        stays = [dtype is not None and name in kept for name, dtype in self._outputs]
        for name, is_kept in zip(self._output_names, stays, strict=True):
            binding.bind_output(name, own if is_kept else host)
        self._run_bound(binding, terminator.options)
        results: list[Any] = [
            keep(made, dtype) if is_kept else made.numpy()
            for made, (_, dtype), is_kept in zip(
                binding.get_outputs(), self._outputs, stays, strict=True
            )
        ]
        for index, dtype in self._finishers:
            results[index] = results[index].astype(dtype)
        return results

    def providers_used(self) -> set[str]:
        """Return the providers that were given a node; needs ``RECORD_ASSIGNMENT``."""
        return {part.ep_name for part in self.raw.get_provider_graph_assignment_info()}

    def output_types(self) -> list[tuple[str, list[Any]]]:
        """Return each output's type and lengths, in onnxruntime's words."""
        return [(found.type, found.shape) for found in self.raw.get_outputs()]

    def close(self) -> None:
        """Write the profile, if there is one, and free session, threads and weights; once.

        No run may be under way, and none may follow.
        """
        if self._has_profile:
            self.raw.end_profiling()
        self.raw = self._run = self._run_bound = None
        self._weights.clear()


def _open(proto: Any, options: Any, settings: SessionSettings) -> Any:
    """Make onnxruntime's session; without the shapes of loops' results if it refuses those."""
    providers = [(settings.provider, dict(settings.provider_options))]
    if settings.provider != CPU_PROVIDER:
        providers.append((CPU_PROVIDER, {}))
    while True:
        try:
            return _library().InferenceSession(
                proto.SerializeToString(deterministic=True),
                options,
                providers=providers,
                enable_fallback=0,
            )
        except Exception:
            if not _forget_inner_types(proto.graph, keeps_scans=False):
                raise


def _forget_inner_types(graph: Any, *, keeps_scans: bool) -> bool:
    """Leave inference to onnxruntime, which refuses a lenient model that states its shapes.

    What a Loop joins of its iterations has a shape without any by what its body says alone, and
    is kept where ``keeps_scans``. Returns whether a body had anything to forget.
    """
    is_changed = False
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                is_changed |= _forget_inner_types(body, keeps_scans=keeps_scans)
                is_loop = node.op_type == "Loop" and not node.domain
                kept = len(node.input) - 1 if is_loop and keeps_scans else len(body.output)
                for output in body.output[:kept]:
                    if output.type.tensor_type.HasField("shape"):
                        output.type.tensor_type.ClearField("shape")
                        is_changed = True
                for scalar in body.input[:2] if is_loop else ():
                    scalar.type.tensor_type.shape.SetInParent()  # the count and the condition
    return is_changed


RECORD_ASSIGNMENT = ("session.record_ep_graph_assignment_info", "1")
"""A configuration entry: remember which provider got which node."""


def _session_options(settings: SessionSettings) -> Any:
    library = _library()
    options = library.SessionOptions()
    levels, modes = library.GraphOptimizationLevel, library.ExecutionMode
    options.graph_optimization_level = getattr(levels, f"ORT_{settings.optimization_level}")
    options.execution_mode = modes.ORT_PARALLEL if settings.is_parallel else modes.ORT_SEQUENTIAL
    options.intra_op_num_threads = settings.intra_op_threads
    options.inter_op_num_threads = settings.inter_op_threads
    options.log_severity_level = settings.log_severity
    for key, text in settings.config_entries:
        options.add_session_config_entry(key, text)
    if settings.profile_prefix:
        options.enable_profiling = True
        options.profile_file_prefix = settings.profile_prefix
    return options


def _give_weights(proto: Any, model: Model, options: Any, provider: str) -> list[Any]:
    names = [tensor.name for tensor in proto.graph.initializer if tensor.data_location == _EXTERNAL]
    weights = [_raw_value(model.graph.initializers[name]) for name in names]
    if not names:
        return weights
    options.add_external_initializers(names, weights)
    if provider == CPU_PROVIDER:
        for name, weight in zip(names, weights, strict=True):
            if stays_as_it_is(model.graph.initializers[name]):
                options.add_initializer(name, weight)
    return weights


def _raw_value(value: Value) -> Any:
    assert value.constant is not None  # an initializer
    return _ort_value(value.constant, DType.of(value.constant.dtype))


def _ort_value(array: Any, dtype: DType) -> Any:
    memory = raw_memory_of(array, dtype)
    made = _library().OrtValue.ortvalue_from_numpy_with_onnx_type(memory, dtype.value)
    made._numpy_obj = memory
    return made


def _feed_makers(inputs: Sequence[Value]) -> dict[str, Callable[[Any], Any]]:
    makers: dict[str, Callable[[Any], Any]] = {}
    for value in inputs:
        dtype = _innermost_dtype(value)
        if dtype is DType.STRING:
            makers[value.name] = text_array
        elif isinstance(value.type, TensorType) and not is_numpy_type(value.type.dtype):
            makers[value.name] = _maker(value.type.dtype)
    return makers


def _maker(dtype: DType) -> Callable[[Any], Any]:
    return lambda array: _ort_value(array, dtype)


def _place(settings: SessionSettings) -> tuple[str, int]:
    memory = _MEMORIES.get(settings.provider)
    if memory is None:
        return _HOST
    return memory, int(dict(settings.provider_options).get("device_id", 0))


def _kept_dtype(value: Value) -> Any:
    """Return the type that an output is kept in; None for one that comes through a Cast."""
    kind = value.type
    if isinstance(kind, TensorType) and is_numpy_type(kind.dtype):
        return kind.dtype.numpy
    return None


def _is_bindable(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and kind.dtype is not DType.STRING


def _innermost_dtype(value: Value) -> DType | None:
    inner = value.type
    while inner is not None and not isinstance(inner, TensorType):
        inner = inner.element
    return None if inner is None else inner.dtype


def _finishers(outputs: Sequence[Value]) -> list[tuple[int, Any]]:
    return [
        (index, value.type.dtype.numpy)
        for index, value in enumerate(outputs)
        if isinstance(value.type, TensorType) and not is_numpy_type(value.type.dtype)
    ]


def _end_with_cast(proto: Any, value: Value) -> str:
    """Return the output's name; behind a Cast if onnxruntime cannot give its type to numpy."""
    dtype = output_cast_of(value.type)
    if dtype is None:
        return value.name
    name = f"{value.name} as {dtype.label}"
    if all(output.name != name for output in proto.graph.output):
        node = proto.graph.node.add(op_type="Cast", name=name, input=[value.name], output=[name])
        attribute = node.attribute.add(name="to", i=dtype.value)
        attribute.type = 2  # AttributeProto.INT
        output = next(item for item in proto.graph.output if item.name == value.name)
        output.name = name
        output.type.tensor_type.elem_type = dtype.value
    return name
