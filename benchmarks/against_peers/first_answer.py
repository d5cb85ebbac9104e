"""One process, from the import of an engine to its first answer; ``zoo.py`` starts it by its path.

Python and numpy, which all engines need, are there before the clock runs. Prints the milliseconds,
of the processor and elapsed, and by how many bytes the process grew at its peak.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

Inputs = dict[str, np.ndarray]


def peers_session(file: str, threads: int) -> Any:
    """Load a model on onnxruntime, whose threads do not spin."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])


def our_config(device: str, threads: int) -> dict[str, Any]:
    """Return what gives a device of ours as many threads."""
    config: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads}
    if device == "AUTO":
        return {}
    return {"DEVICE_PROPERTIES": {"CPU": config}} if ":" in device else config


def memory_bytes(field: str) -> int:
    """Return what this process has now (VmRSS), or had at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    engine, file, device, threads, inputs_file = sys.argv[1:]
    with np.load(inputs_file) as stored:
        inputs: Inputs = dict(stored)
    had_bytes = memory_bytes("VmRSS")
    began_s, clock_s = time.process_time(), time.perf_counter()
    if engine == "onnxruntime":
        peers_session(file, int(threads)).run(None, inputs)
    else:
        import aioinfer

        core = aioinfer.Core()
        network = core.load_network(file, device, our_config(device, int(threads)))
        network.create_infer_request().infer_sync(inputs)
    spent_s, elapsed_s = time.process_time() - began_s, time.perf_counter() - clock_s
    grown_bytes = memory_bytes("VmHWM") - had_bytes
    if engine != "onnxruntime":
        core.close()
    print(json.dumps([spent_s * 1e3, elapsed_s * 1e3, grown_bytes]))


if __name__ == "__main__":
    main()
