"""BERT-base on the device: sequences of 128 tokens a second, beside the prediction.

    python benchmarks/gpu/bert_base.py

At batch 1, 8, 64 and 256, in float16 and in strict float32; the ways are those of resnet50.py.
"""

from __future__ import annotations

from measuring import Settings, run_benchmark
from network_runs import cases_by_worth, measure_cases
from predictions import BATCHES, BERT_BASE
from reporting import Report


def measure(report: Report, settings: Settings) -> None:
    cases = cases_by_worth(BATCHES, ("f16", "f32"))
    measure_cases(report, settings, "bert_base", cases, BERT_BASE, "sequences/s")


if __name__ == "__main__":
    run_benchmark("bert_base", measure, __doc__)
