"""onnxruntime's quantizer; the one file of the command line that loads onnxruntime."""

from __future__ import annotations

import importlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import AioInferError, ModelError, NotSupportedError

__all__ = ["Quantization", "quantize"]

Array = np.ndarray[Any, Any]

_LARGEST_PROTO = 2**31 - 2**27
"""Bytes of a file beyond which weights have to go into one beside it."""

_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
_TYPES = {"int8": "QInt8", "uint8": "QUInt8"}
_FORMATS = {"qdq": "QDQ", "qoperator": "QOperator"}


@dataclass(frozen=True)
class Quantization:
    """How to quantise; see the options of the command."""

    is_dynamic: bool = False
    format: str = "qdq"
    activations: str = "uint8"
    weights: str = "int8"
    per_channel: bool = True
    method: str = "minmax"
    exclude: tuple[str, ...] = ()


def quantize(
    model: Path,
    target: Path,
    samples: Sequence[Mapping[str, Array]],
    chosen: Quantization,
    weight_bytes: int,
    check: Callable[[Path], object],
) -> None:
    """Write a quantised model; ``samples`` calibrate it, unless it is dynamic. Blocks.

    ``weight_bytes`` are those of the model's constants: what one file cannot hold gets another.
    ``check`` reads what was made, before it takes the target's place: then it is whole, or not
    there.

    Raises NotSupportedError without onnxruntime, and ModelError for what its quantizer refuses, or
    makes and ``check`` raises AioInferError for.
    """
    library = _library()
    place = Path(os.path.realpath(target))
    with (
        tempfile.TemporaryDirectory(prefix=".aioinfer-quantize-", dir=place.parent) as beside,
        tempfile.TemporaryDirectory(prefix="aioinfer-quantize-") as folder,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of NaN: the error says more
        prepared, made = Path(folder) / "prepared.onnx", Path(beside) / place.name
        is_large = weight_bytes > _LARGEST_PROTO
        try:
            library.quant_pre_process(
                str(model), str(prepared), skip_symbolic_shape=True, save_as_external_data=is_large
            )
            common = {
                "per_channel": chosen.per_channel,
                "weight_type": library.QuantType[_TYPES[chosen.weights]],
                "nodes_to_exclude": list(chosen.exclude),
                "use_external_data_format": is_large,
            }
            if chosen.is_dynamic:
                library.quantize_dynamic(str(prepared), str(made), **common)
            else:
                library.quantize_static(
                    str(prepared),
                    str(made),
                    _reader(library, samples),
                    quant_format=library.QuantFormat[_FORMATS[chosen.format]],
                    activation_type=library.QuantType[_TYPES[chosen.activations]],
                    calibrate_method=library.CalibrationMethod[_METHODS[chosen.method]],
                    **common,
                )
        except (KeyboardInterrupt, MemoryError, OSError):
            raise
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            if text == "scale issue":
                text = "a value inside the model is NaN or infinite with one of the samples"
            raise ModelError(
                f"onnxruntime's quantizer cannot quantise {str(model)!r}: {text}; nodes can be "
                f"left out with --exclude"
            ) from error
        try:
            check(made)
        except AioInferError as error:
            raise ModelError(
                f"what onnxruntime's quantizer has made of {str(model)!r} is no model: {error}"
            ) from error
        for path in sorted(Path(beside).iterdir(), key=lambda path: path.name == place.name):
            path.replace(place.parent / path.name)  # weights come before the model that names them


def _library() -> Any:
    try:
        return importlib.import_module("onnxruntime.quantization")
    except ImportError as error:
        raise NotSupportedError(
            f"aioinfer quantize needs onnxruntime's quantizer ({error}); "
            f"pip install aioinfer[quantize]"
        ) from error


def _reader(library: Any, samples: Sequence[Mapping[str, Array]]) -> Any:
    class Reader(library.CalibrationDataReader):  # type: ignore[misc]
        """Hands the samples out, one after another."""

        def __init__(self) -> None:
            self._left: Iterator[Mapping[str, Array]] = iter(samples)

        def get_next(self) -> Mapping[str, Array] | None:
            return next(self._left, None)

    return Reader()
