"""What other libraries call devices: understood where it is clear, else answered with our name."""

from __future__ import annotations

import re
from collections.abc import Collection

from ...errors import nearest

__all__ = ["understood", "what_is_meant"]

_OTHER_NAMES = {
    "cpuexecutionprovider": "CPU",
    "cudaexecutionprovider": "CUDA",
    "dnnlexecutionprovider": "CPU",
    "ort": "ONNXRUNTIME",
}
"""Names of onnxruntime's providers, and short ones, that mean one device of ours."""

_INDEX = re.compile(r"[0-9]+( *\([^()]*\))?")
"""What follows the colon of ``cuda:0``, or of ``cuda:0(2)`` in a list."""

_NVIDIA = "NVIDIA's GPUs are CUDA"
_OTHERS = "OPENCL drives GPUs of other makers than NVIDIA"
_ANSWERS = {
    "gpu": "a GPU is CUDA (NVIDIA's) or OPENCL (of other makers); AUTO takes what is there",
    "nvidia": _NVIDIA,
    "tensorrt": _NVIDIA,
    "tensorrtexecutionprovider": _NVIDIA,
    **dict.fromkeys(("dml", "dmlexecutionprovider", "directml"), _OTHERS),
    **dict.fromkeys(("hip", "migraphxexecutionprovider", "rocm", "rocmexecutionprovider"), _OTHERS),
    **dict.fromkeys(("metal", "mps", "vulkan", "xpu"), _OTHERS),
    **dict.fromkeys(("coremlexecutionprovider", "npu", "tpu"), "nothing of aioinfer drives that"),
    "openvinoexecutionprovider": "CPU computes with oneDNN, as OpenVINO does",
}
"""What is said of names that may mean more than one device, or none."""


def understood(text: str, known: Collection[str]) -> str:
    """Write a device string with registered names, where it is clear which ones are meant. Pure.

    Names in any case, the providers' names of onnxruntime, and ``cuda:0`` for ``CUDA.0``. What is
    not clear stays as it is, for the errors to name.
    """
    name, colon, rest = text.strip().partition(":")
    if not colon:
        return _one(name, known)
    if _INDEX.fullmatch(rest.strip()):
        return f"{_one(name, known)}.{rest.strip()}"
    entries = [understood(entry, known) for entry in rest.split(",")]
    return f"{_one(name, known)}:{','.join(entries)}"


def _one(text: str, known: Collection[str]) -> str:
    """Put the registered name for the part before a dot or a count, and after a minus."""
    stripped = text.strip()
    if stripped.startswith("-"):
        return f"-{_one(stripped[1:], known)}"
    end = next((index for index, letter in enumerate(stripped) if letter in ".( "), len(stripped))
    name, rest = stripped[:end], stripped[end:]
    if name in known:
        return stripped
    folded = name.casefold()
    same = [other for other in known if other.casefold() == folded]
    meant = same[0] if len(same) == 1 else _OTHER_NAMES.get(folded)
    return f"{meant}{rest}" if meant in known else stripped


def what_is_meant(name: str, known: Collection[str]) -> str:
    """Say, for the end of a message, which device an unknown name may mean."""
    answer = _ANSWERS.get(name.casefold())
    if answer is not None:
        return f": {answer}; registered are {sorted(known)}"
    return nearest(name, known) or f"; registered are {sorted(known)}"
