"""``aioinfer compile``: compile a model for a device, and write the network to a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

from ..runtime.devices.core import Core
from ..runtime.tensors.tensor import ports_of
from .console import make_console
from .device_config import device_config
from .shapes import asked_shapes, parse_shapes

__all__ = ["run_compile"]


def run_compile(parsed: argparse.Namespace) -> int:
    """Load the model, export the network, and print what was written."""
    config = device_config(parsed.config, parsed.affinity)
    console = make_console()
    with Core() as core:
        model = core.read_model(parsed.model)
        asked = parse_shapes(parsed.shape) if parsed.shape is not None else {}
        pinned = asked_shapes(ports_of(model.inputs), asked, parsed.b)
        if pinned:
            model.reshape(pinned)
        began_s = perf_counter()
        with core.load_network(model, parsed.d, config) as network:
            loaded_s = perf_counter()
            path = Path(parsed.output or f"{network.name}.blob")
            network.export(path)
            written_s = perf_counter()
            console.print(
                f"{network.name} on {network.device}: compiled in "
                f"{(loaded_s - began_s) * 1e3:.1f} ms, wrote {path} "
                f"({path.stat().st_size / 1e6:.1f} MB) in {(written_s - loaded_s) * 1e3:.1f} ms",
                soft_wrap=True,
                markup=False,
                highlight=False,
            )
    return 0
