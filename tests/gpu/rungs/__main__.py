"""One rung in this process, with the log at INFO and where it is when it crashes."""

from __future__ import annotations

import faulthandler
import logging
import sys

from gpu.rungs.table import climb


def main() -> int:
    faulthandler.enable()
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format="%(relativeCreated)7d ms %(levelname)s %(name)s: %(message)s",
    )
    return climb(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
