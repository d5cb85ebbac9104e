"""``aioinfer serve``: found by its entry point, as nothing imports the package's serving part."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import entry_points

from ..errors import NotSupportedError
from .device_config import device_config

__all__ = ["run_serve"]

GROUP = "aioinfer.commands"


def run_serve(parsed: argparse.Namespace) -> int:
    """Serve until a signal comes. Raises NotSupportedError where the extra is not installed."""
    config = device_config(parsed.config)
    (entry,) = entry_points(group=GROUP, name="serve")
    try:
        serve = entry.load()
    except ModuleNotFoundError as error:
        raise NotSupportedError(
            f"aioinfer serve wants {error.name}; pip install 'aioinfer[serve]'"
        ) from error
    code: int = serve(
        parsed,
        config,
        lambda line: print(line, flush=True),
        lambda line: print(f"warning: {line}", file=sys.stderr, flush=True),
    )
    return code
