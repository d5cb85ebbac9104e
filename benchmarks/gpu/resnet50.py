"""ResNet-50 on the device: images a second at batch 1, 8, 64, 256, beside the prediction.

    python benchmarks/gpu/resnet50.py
    python benchmarks/gpu/resnet50.py --json rows.json --seconds 120

In float16 and in float32, which is strict; from memory of the device, where inputs and outputs are
arrays of CuPy, and with transfers, of float32 images; with as many requests in flight as keep the
device busy, and one by one; up to batch 8 also without CUDA graphs. Ways of one batch take turns.
"""

from __future__ import annotations

from measuring import Settings, run_benchmark
from network_runs import cases_by_worth, measure_cases
from predictions import BATCHES, RESNET50
from reporting import Report


def measure(report: Report, settings: Settings) -> None:
    cases = cases_by_worth(BATCHES, ("f16", "f32"))
    measure_cases(report, settings, "resnet50", cases, RESNET50, "images/s")


if __name__ == "__main__":
    run_benchmark("resnet50", measure, __doc__)
