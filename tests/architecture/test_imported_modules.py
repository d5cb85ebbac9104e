"""`import aioinfer`, and a load, import only what they need, and little.

Time is for benchmarks/loads/load.py: what an import reads is the same on every machine.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

OWN_MODULES = 155
OWN_CODE_BYTES = 1_400_000  # marshalled, as Python 3.11 compiles; reading it takes 60 to 80 ms
OTHER_MODULES = 25  # beyond numpy and what it loads
HEAVY = {
    *("anyio", "asyncio", "google.protobuf", "grpc", "httptools", "onnx", "rich"),
    *("starlette", "trio", "uvicorn", "uvloop"),
}

PROBE = """
import json, marshal, sys
import numpy
before = set(sys.modules)
import aioinfer
loaded = sorted(set(sys.modules) - before)
own = [name for name in loaded if name.partition(".")[0] == "aioinfer"]
specs = [sys.modules[name].__spec__ for name in own]
code = [spec.loader.get_code(spec.name) for spec in specs if spec.origin.endswith(".py")]
print(json.dumps([loaded, sum(len(marshal.dumps(each)) for each in code)]))
"""


@pytest.fixture(scope="module")
def imported() -> tuple[set[str], int]:
    """What `import aioinfer` loads beyond numpy, and the bytes of byte code that are ours."""
    command = [sys.executable, "-P", "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    modules, code_bytes = json.loads(done.stdout)
    return set(modules), code_bytes


def test_importing_the_package_reads_little(imported: tuple[set[str], int]) -> None:
    modules, code_bytes = imported
    own = {name for name in modules if name.partition(".")[0] == "aioinfer"}
    assert 100 < len(own) < OWN_MODULES
    assert 500_000 < code_bytes < OWN_CODE_BYTES
    assert len(modules - own) < OTHER_MODULES, sorted(modules - own)


def test_importing_the_package_leaves_the_rest_alone(imported: tuple[set[str], int]) -> None:
    modules, _ = imported
    assert sorted(HEAVY & modules) == []
    for part in ("aioinfer.backends.", "aioinfer.serving"):
        assert sorted(name for name in modules if name.startswith(part)) == []
    late = {"executors.manual", "runtime.graph.reshaping", "runtime.network.user_functions"}
    assert sorted(name for name in late if f"aioinfer.{name}" in modules) == []
    writers = {
        f"aioinfer.runtime.tracing.timeline.{name}" for name in ("chrome", "page", "stage_table")
    }
    assert sorted(writers & modules) == []


LOAD = """
import json, sys
import numpy
import aioinfer
before = set(sys.modules)
with aioinfer.Core() as core:
    network = core.load_network(sys.argv[1], "CPU")
    loaded = set(sys.modules) - before
    network.create_infer_request().infer_sync({"x": numpy.ones((2, 8), numpy.float32)})
print(json.dumps([sorted(loaded), sorted(set(sys.modules) - before - loaded)]))
"""
LOADED_MODULES, FIRST_RUN_MODULES = 142, 8
NOT_FOR_A_PERCEPTRON = (
    *(
        "backends.cpu.blobs",
        "backends.cpu.kernels.matrices.attention",
        "backends.cpu.kernels.trees",
    ),
    *("backends.cpu.kernels.matrices.native", "backends.cpu.kernels.normalization"),
    *("backends.cpu.kernels.windows.convolution.", "backends.cpu.passes.int8"),
    *(
        "backends.cpu.onednn.open_matmul",
        "backends.cpu.onednn.traced",
        "backends.cpu.plans.alike_plan",
    ),
    *("backends.cpu.passes.packed_fusion", "backends.cpu.pieces.pieced_network"),
    *("backends.cpu.plans.plan_template", "backends.cpu.programs.resized_plan"),
    *(
        f"backends.cpu.plans.native_bounds.{name}_bounds"
        for name in ("int8", "ml", "packed", "recurrent", "row", "window")
    ),
    *("backends.hetero", "backends.ort", "backends.reference", "executors.manual", "runtime.blobs"),
    *("runtime.decompositions.", "runtime.interpretation", "runtime.network.staged_network"),
    *("runtime.onnx_native", "runtime.onnx_reader.conversion", "runtime.onnx_writer"),
    *("runtime.graph.reshaping", "runtime.network.user_functions", "runtime.operators.indices"),
    *("runtime.operators.images", "runtime.operators.ml", "runtime.operators.recurrent"),
    *("runtime.passes.attention", "runtime.passes.fusion.einsum", "runtime.passes.layout"),
    *("runtime.preprocessing", "runtime.testing", "runtime.tracing.timeline"),
    *(
        "runtime.type_inference.families.recurrent_types",
        "runtime.type_inference.families.ml_types",
    ),
)


def perceptron() -> bytes:
    weights = [np.ones(shape, np.float32) for shape in ((8, 16), (16, 4))]
    nodes = [
        helper.make_node("Gemm", ["x", "first"], ["summed"]),
        helper.make_node("Relu", ["summed"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "second"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    constants = [
        numpy_helper.from_array(array, name)
        for array, name in zip(weights, ("first", "second"), strict=True)
    ]
    graph = helper.make_graph(nodes, "perceptron", [x], [y], constants)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def test_a_load_imports_what_its_model_needs(tmp_path: Path) -> None:
    file = tmp_path / "perceptron.onnx"
    file.write_bytes(perceptron())
    command = [sys.executable, "-P", "-c", LOAD, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded, by_first_run = (
        [name.removeprefix("aioinfer.") for name in names if name.startswith("aioinfer.")]
        for names in json.loads(done.stdout)
    )
    assert 50 < len(loaded) < LOADED_MODULES
    assert len(by_first_run) < FIRST_RUN_MODULES, by_first_run
    found = [*loaded, *by_first_run]
    assert [name for name in found if f"{name}.".startswith(NOT_FOR_A_PERCEPTRON)] == []
    late = HEAVY | {"hashlib", "ml_dtypes"}
    assert sorted(name for name in late if f'"{name}"' in done.stdout) == []
