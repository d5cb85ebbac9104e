"""Run tests with the C extension built for AddressSanitizer and UBSan: asan.py [PYTEST ARGUMENTS].

``asan.py fuzz [ARGUMENTS]`` runs the fuzzer so, on the device CPU alone if none is named.

The build is a folder of its own, which Python finds by an entry of ``sys.meta_path`` before the
installed package; the ordinary extension stays as it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "asan"
REPORT = BUILD / "report"
MODULE = "aioinfer.backends.cpu.native._steps"
SANITIZERS = "address,undefined,float-cast-overflow"

TESTS = ["tests/unit/backends/cpu", "tests/conformance", "tests/onnx_backend"]
# Tests of memory in use, of loaded libraries and of short times: a sanitizer changes all three.
LEFT_OUT = ["test_leaks.py", "test_arena.py", "test_library.py", "test_mapped_weights.py"]
LEFT_OUT += ["test_headroom.py"]

FINDER = f"""
import importlib.util, sys

class Sanitized:
    def find_spec(self, name, path=None, target=None):
        if name == {MODULE!r}:
            return importlib.util.spec_from_file_location(name, {str(BUILD / "_steps.so")!r})

sys.meta_path.insert(0, Sanitized())
"""


def build() -> None:
    """Compile the extension, and write the finder."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (module,) = tomllib.loads(text)["tool"]["setuptools"]["ext-modules"]
    flags = [flag for flag in module["extra-compile-args"] if not flag.startswith("-O")]
    BUILD.mkdir(parents=True, exist_ok=True)
    command = ["gcc", *flags, "-O1", "-g", "-fno-omit-frame-pointer", "-shared", "-fPIC"]
    command.append(f"-fsanitize={SANITIZERS}")
    command += ["-fno-sanitize-recover=all", f"-I{sysconfig.get_paths()['include']}"]
    command += [*module["sources"], "-o", str(BUILD / "_steps.so"), *module["extra-link-args"]]
    subprocess.run([*command, "-lm"], cwd=ROOT, check=True)
    (BUILD / "sitecustomize.py").write_text(FINDER, encoding="utf-8")


def library(name: str) -> str:
    """Find a library of the compiler's."""
    command = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _module_and_arguments(given: list[str]) -> list[str]:
    if given[:1] == ["fuzz"]:
        return ["fuzz", "--devices", "CPU", *given[1:]]
    given = given or [*TESTS, *(f"--ignore-glob=*/{name}" for name in LEFT_OUT)]
    return ["pytest", "-q", "-p", "no:cacheprovider", *given]


def main() -> int:
    """Build, and run pytest or the fuzzer; its exit status, or 1 for what a sanitizer reported."""
    build()
    # oneDNN throws: the sanitizer has to find C++'s own throw when it starts.
    preloaded = map(library, ("libasan.so", "libubsan.so", "libstdc++.so"))
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(preloaded),
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:log_path={REPORT}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={REPORT}",
        "PYTHONPATH": f"{BUILD}{os.pathsep}{ROOT / 'tests'}",
        # onnx's helper process has a bound on addresses, of which a sanitizer reserves terabytes.
        "AIOINFER_ONNX_IN_PROCESS": "1",
        "AIOINFER_CONFORMANCE_DEVICE": "CPU",
    }
    command = [sys.executable, "-P", "-m", *_module_and_arguments(sys.argv[1:])]
    for report in BUILD.glob("report.*"):
        report.unlink()
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    reports = sorted(BUILD.glob("report.*"))  # pytest keeps for itself what a test writes
    for report in reports:
        print(report.read_text(encoding="utf-8", errors="replace"), file=sys.stderr)
    return 1 if reports else code


if __name__ == "__main__":
    sys.exit(main())
