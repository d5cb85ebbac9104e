"""Run one command, and turn every way in which it can end into an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from .error_line import error_line

__all__ = ["run"]

INTERRUPTED = 130  # what shells make of a program that SIGINT ended: 128 + 2


def run(argv: Sequence[str]) -> int:
    """Parse and run a command; errors become one line on stderr, never an exception."""
    from .parser import build_parser

    parser = build_parser()
    is_debug = "--debug" in argv
    try:
        parsed = parser.parse_args(list(argv))
        if parsed.command is None:
            parser.print_help()
            return 1
        code = _run_command(parsed, list(argv))
        sys.stdout.flush()
        return code
    except SystemExit as ended:  # --help and --version
        return int(ended.code or 0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`| head`); Python's last flush would complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if is_debug:
            import traceback

            traceback.print_exc()
        print(f"error: {error_line(error)}", file=sys.stderr)
        return 1


def _run_command(parsed: Any, argv: list[str]) -> int:
    if parsed.command == "devices":
        from .devices import run_devices

        return run_devices(is_json=parsed.json)
    if parsed.command == "properties":
        from .properties import run_properties

        return run_properties(parsed.device, is_json=parsed.json)
    if parsed.command == "query":
        from .query import run_query

        return run_query(parsed)
    if parsed.command == "compile":
        from .compile import run_compile

        return run_compile(parsed)
    if parsed.command == "quantize":
        from .quantization.quantize import run_quantize

        return run_quantize(parsed)
    if parsed.command == "tune":
        from .tuning.tune import run_tune

        return run_tune(parsed)
    if parsed.command == "serve":
        from .serve import run_serve

        return run_serve(parsed)
    from .benchmarking.benchmark import run_benchmark

    return run_benchmark(parsed, argv)
