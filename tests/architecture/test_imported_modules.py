"""`import aioinfer` loads only what it needs, and little.

Time is for benchmarks/loads/load.py: what an import reads is the same on every machine.
"""

import json
import os
import subprocess
import sys

import pytest

OWN_MODULES = 170
OWN_CODE_BYTES = 1_550_000  # marshalled, as Python 3.11 compiles; reading it takes 60 to 80 ms
OTHER_MODULES = 80  # beyond numpy and what it loads; half of them are asyncio
HEAVY = {
    *("anyio", "google.protobuf", "grpc", "httptools", "onnx", "rich"),
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
    writers = {
        f"aioinfer.runtime.tracing.timeline.{name}" for name in ("chrome", "page", "stage_table")
    }
    assert sorted(writers & modules) == []
