"""Plans operations of cuDNN as a device's compile threads do, for a GPU that is not there.

Reads a JSON object from standard input: the device's properties, a folder for plans, operations by
name, and operations whose plans are to be counted. Writes what came of them, as JSON.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.backends.cuda.libraries.cudnn_attention import describe_attention
from aioinfer.backends.cuda.libraries.cudnn_builder import find_frontend, versions
from aioinfer.backends.cuda.libraries.cudnn_conv import describe_conv
from aioinfer.backends.cuda.libraries.cudnn_graph import GraphDescription
from aioinfer.backends.cuda.libraries.cudnn_plans import CudnnPlans
from aioinfer.backends.cuda.plan_files import PlanFiles
from aioinfer.backends.cuda.plan_workers import PlanWorkers


def description_of(parameters: dict[str, Any]) -> GraphDescription:
    given = {key: tuple(v) if isinstance(v, list) else v for key, v in parameters.items()}
    if "filters" in given:
        return describe_conv(LibraryOperation.of("cudnn", "conv", **given))
    return describe_attention(LibraryOperation.of("cudnn", "attention", **given))


def main() -> int:
    asked = json.load(sys.stdin)
    frontend, workers = find_frontend(), PlanWorkers(2)
    files = PlanFiles(Path(asked["folder"]), "cudnn", versions(frontend))
    plans = CudnnPlans(frontend, asked["device"], workers, files)

    def planned(parameters: dict[str, Any]) -> dict[str, Any]:
        description = description_of(parameters)
        try:
            made = plans.plan(description)
        except Exception as error:
            return {"error": str(error)}
        again = plans.plan(description)
        stored = files.read(description.name)
        assert stored is not None
        return {
            "engine": stored.name,
            "blob_bytes": len(stored.blob),
            "workspace_bytes": made.workspace_bytes,
            "again": again.workspace_bytes,
        }

    def count(parameters: dict[str, Any]) -> int:
        description = description_of(parameters)
        return len(workers.build(description, asked["device"], 100, 20.0))

    with ThreadPoolExecutor(2) as pool:
        made = dict(
            zip(asked["operations"], pool.map(planned, asked["operations"].values()), strict=True)
        )
        counts = dict(
            zip(asked["counted"], pool.map(count, asked["counted"].values()), strict=True)
        )
    text = repr(workers)
    workers.close()
    json.dump({"planned": made, "counts": counts, "workers": text}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
