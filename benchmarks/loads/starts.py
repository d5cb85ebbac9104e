"""The ways to come by a compiled network: each engine's own, from the file, an export and a cache.

Imports stand in the functions, and there are few beside them: a new process has only the engine
that it measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

Arrays = Mapping[str, Any]


class Files(NamedTuple):
    """Where a model is, and what the engines have made of it."""

    model: str
    folder: str

    def of(self, name: str) -> str:
        """Return the place of something that an engine keeps."""
        return str(Path(self.folder, name))


class Started(NamedTuple):
    """A network that is ready: how it is run, and how it is closed."""

    infer: Callable[[Arrays], Any]
    close: Callable[[], object]


@cache
def our_core() -> Any:
    import aioinfer

    return aioinfer.Core()


def _ours(network: Any) -> Started:
    return Started(network.create_infer_request().infer_sync, network.close)


def ours_load(files: Files) -> Started:
    return _ours(our_core().load_network(files.model, "CPU"))


def ours_import(files: Files) -> Started:
    return _ours(our_core().import_network(files.of("ours.blob")))


def ours_cache(files: Files) -> Started:
    config = {"CACHE_DIR": files.of("ours")}
    return _ours(our_core().load_network(files.model, "CPU", config))


@cache
def openvino_core(folder: str = "") -> Any:
    import openvino

    core = openvino.Core()
    if folder:
        core.set_property({"CACHE_DIR": folder})
    return core


OPENVINO = {"INFERENCE_PRECISION_HINT": "f32"}
"""What it would choose where a CPU has bfloat16 is another computation."""


def _openvino(compiled: Any) -> Started:
    request = compiled.create_infer_request()
    return Started(lambda inputs: request.infer(inputs, share_inputs=True), lambda: None)


def openvino_load(files: Files) -> Started:
    return _openvino(openvino_core().compile_model(files.model, "CPU", OPENVINO))


def openvino_import(files: Files) -> Started:
    import openvino

    blob = openvino.tensor_from_file(files.of("openvino.blob"))  # which maps it
    return _openvino(openvino_core().import_model(blob, "CPU", OPENVINO))


def openvino_cache(files: Files) -> Started:
    core = openvino_core(files.of("openvino"))
    return _openvino(core.compile_model(files.model, "CPU", OPENVINO))


def _onnxruntime(file: str, *, is_optimised: bool) -> Started:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
    return Started(lambda inputs: session.run(None, inputs), lambda: None)


def onnxruntime_load(files: Files) -> Started:
    return _onnxruntime(files.model, is_optimised=False)


def onnxruntime_optimised(files: Files) -> Started:
    return _onnxruntime(files.of("optimised.onnx"), is_optimised=True)


STARTS: dict[str, Callable[[Files], Started]] = {
    "aioinfer load": ours_load,
    "aioinfer import": ours_import,
    "aioinfer cache": ours_cache,
    "openvino load": openvino_load,
    "openvino import": openvino_import,
    "openvino cache": openvino_cache,
    "onnxruntime load": onnxruntime_load,
    "onnxruntime optimised": onnxruntime_optimised,
}


def prepare(way: str, files: Files) -> None:
    """Make what a way starts from, if it is not there; an engine that is missing raises."""
    if way == "aioinfer import" and not Path(files.of("ours.blob")).exists():
        with our_core().load_network(files.model, "CPU") as network:
            network.export(files.of("ours.blob"))
    if way == "openvino import" and not Path(files.of("openvino.blob")).exists():
        compiled = openvino_core().compile_model(files.model, "CPU", OPENVINO)
        Path(files.of("openvino.blob")).write_bytes(compiled.export_model().getvalue())
    if way == "onnxruntime optimised" and not Path(files.of("optimised.onnx")).exists():
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = files.of("optimised.onnx")
        onnxruntime.InferenceSession(files.model, options, ["CPUExecutionProvider"])
    if way.endswith("cache"):
        STARTS[way](files).close()
