"""The program ``aioinfer``, also as ``python -m aioinfer``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ``argv`` None stands for the process's own.

    0: done. 1: an error, in one line on stderr, or a query that found an unsupported node.
    130: interrupted.
    """
    from .cli.command_line import run

    return run(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
