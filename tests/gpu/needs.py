"""What has to be there where a GPU is tested: AIOINFER_GPU_NEEDS lowers it."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["LIBRARIES", "NEEDS", "UNFIT", "libraries_needed", "modules_needed"]

UNFIT = 3
"""The exit status of the first rung where nothing else makes sense."""
NEEDS = "AIOINFER_GPU_NEEDS"
"""The variable that names modules, with commas between; all of them by default."""
LIBRARIES: Mapping[str, str] = {"cupy": "cublas", "cudnn": "cudnn", "nvmath": "cublaslt"}
"""By the module that is needed, the library that CUDA has by it."""


def modules_needed(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Read what has to be there; raises ValueError for a name that is unknown."""
    given = environment.get(NEEDS)
    names = list(LIBRARIES) if given is None else [name.strip() for name in given.split(",")]
    names = [name for name in names if name]
    unknown = sorted(set(names) - set(LIBRARIES))
    if unknown:
        raise ValueError(f"{NEEDS} has {', '.join(unknown)}; it takes {', '.join(LIBRARIES)}")
    return names


def libraries_needed() -> set[str]:
    """Name the libraries that CUDA has to have."""
    return {LIBRARIES[name] for name in modules_needed()}
