"""Lets these tests import the benchmarks' networks as the benchmarks do: by their plain names."""

import sys
from pathlib import Path

_BENCHMARKS = str(Path(__file__).resolve().parents[4] / "benchmarks")
if _BENCHMARKS not in sys.path:
    sys.path.append(_BENCHMARKS)
