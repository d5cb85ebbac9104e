"""``aioinfer quantize``: quantise a model by samples, and say what it costs in accuracy."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ...errors import ModelError
from ...runtime.devices.core import Core
from ...runtime.graph import Graph
from ...runtime.tensors.tensor import ports_of
from ..arguments import OptionError
from ..console import make_console, print_table
from ..device_config import device_config
from .differences import Differences, add_sample
from .quantizer import Quantization, quantize
from .samples import read_samples

__all__ = ["run_quantize"]

_QUANTISED = (
    "DequantizeLinear",
    "DynamicQuantize",
    "QAttention",
    "QGemm",
    "QLinear",
    "QuantizeLinear",
)
"""How operators on stored numbers begin."""


def run_quantize(parsed: argparse.Namespace) -> int:
    """Quantise, run both models on all samples, and print a line for each output."""
    source = Path(parsed.model)
    target = Path(parsed.output or f"{source.stem}.int8.onnx")
    config = device_config(parsed.config, ())
    if not parsed.data and not parsed.dynamic:
        raise OptionError(
            "--data is wanted: samples of the inputs, which the ranges of all values are measured "
            "with; without any there is --dynamic, which measures them in each run"
        )
    if target.exists() and source.exists() and target.samefile(source):
        raise OptionError(f"-o {str(target)!r} is the model itself; give another file")
    if not target.absolute().parent.is_dir():
        raise OptionError(f"-o {str(target)!r}: there is no folder {str(target.parent)!r}")
    chosen = Quantization(
        is_dynamic=parsed.dynamic,
        format=parsed.format,
        activations=parsed.activations,
        weights=parsed.weights,
        per_channel=not parsed.per_tensor,
        method=parsed.method,
        exclude=tuple(parsed.exclude or ()),
    )
    console = make_console()
    with Core() as core:
        model = core.read_model(source)
        _refuse_unknown(chosen.exclude, [node.name for node in model.graph.nodes])
        _refuse_quantised(source, model.graph)
        samples: list[dict[str, Any]] = []
        if parsed.data:
            measures = not chosen.is_dynamic
            samples = read_samples(parsed.data, ports_of(model.inputs), must_be_finite=measures)
        samples = samples[: parsed.samples]
        began_s = perf_counter()
        constants = (value.constant for value in model.graph.initializers.values())
        weight_bytes = sum(array.nbytes for array in constants if array is not None)
        quantize(source, target, samples, chosen, weight_bytes, core.read_model)
        console.print(
            f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB, of "
            f"{source.stat().st_size / 1e6:.1f}) in {perf_counter() - began_s:.1f} s, "
            f"{'with ranges of each run' if chosen.is_dynamic else f'by {_counted(samples)}'}",
            soft_wrap=True,
        )
        if not samples:
            return 0
        wanted = _outputs(core, source, parsed.d, config, samples)
        found = _outputs(core, target, parsed.d, config, samples)
    differences: dict[str, Differences] = {}
    for made, expected in zip(found, wanted, strict=True):
        add_sample(differences, made, expected)
    print_table(
        console,
        f"{_counted(samples)} on {parsed.d}",
        ("output", ">largest", ">largest error", ">mean error", ">signal to noise", ">same choice"),
        [_row(item) for item in differences.values()],
        fold=("output",),
    )
    return 0


def _counted(samples: Sequence[Any]) -> str:
    return f"{len(samples)} sample" + ("" if len(samples) == 1 else "s")


def _refuse_quantised(model: Path, graph: Graph) -> None:
    """Raise ModelError for a model that has been quantised: the quantizer would break it."""
    for node in graph.nodes:
        if node.op_type.startswith(_QUANTISED) or node.op_type.endswith("Integer"):
            raise ModelError(
                f"model {str(model)!r} is quantised already: node {node.name!r} is "
                f"{node.op_type}; give the float model that it was made of"
            )


def _refuse_unknown(names: Sequence[str], known: Sequence[str]) -> None:
    from ...errors import nearest

    for name in names:
        if name not in known:
            raise OptionError(f"--exclude: there is no node {name!r}{nearest(name, known)}")


def _outputs(
    core: Core,
    model: Path,
    device: str,
    config: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    with core.load_network(model, device, config) as network:
        request = network.create_infer_request()
        return [dict(request.infer_sync(dict(sample))) for sample in samples]


def _row(item: Differences) -> tuple[str, ...]:
    noise, choice = item.noise_ratio_db, item.same_choice
    return (
        item.output,
        f"{item.largest:.4g}",
        f"{item.largest_error:.4g}",
        f"{item.mean_error:.4g}",
        "none" if noise == math.inf else f"{noise:.1f} dB",
        "" if choice is None else f"{choice:.2%}",
    )
