"""Where programs keep their rows for ``run.py``: one JSON file, with the facts they depend on."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["write_rows"]


def write_rows(
    file: Path | None, benchmark: str, rows: Sequence[Mapping[str, Any]], **facts: object
) -> None:
    """Write what was measured, if a file was asked for."""
    if file is not None:
        known = {"python": platform.python_version(), "cpus": os.cpu_count()}
        result = {"benchmark": benchmark, **known, **facts, "rows": rows}
        file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
