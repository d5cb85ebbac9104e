"""Throw wrong requests at the server: ``PYTHONPATH=tests python -P -m serving_fuzz --cases 50000``.

Each case is told by its seed and number. Exits with 1 if there was a finding.
"""

from __future__ import annotations

import argparse
import sys

from .protocol import ask_application, read_purely
from .sockets import attack, send_to_sockets, soak


def main() -> int:
    """Run what was asked for, and say what was found."""
    parser = argparse.ArgumentParser(prog="serving_fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=50_000, help="at the pure layer")
    parser.add_argument("--requests", type=int, default=5_000, help="at the application")
    parser.add_argument("--sockets", type=int, default=2_000, help="at sockets, by HTTP and gRPC")
    parser.add_argument("--attack", type=float, default=5.0, help="seconds beside slow clients")
    parser.add_argument("--soak", type=float, default=60.0, help="seconds of load and reloads")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seed = options.seed
    findings: list[str] = []

    def report(text: str) -> None:
        findings.append(text)
        print(f"FINDING: {text}", flush=True)

    for name, amount, run in (
        ("pure", options.cases, lambda: read_purely(options.cases, seed, report)),
        ("app", options.requests, lambda: ask_application(options.requests, seed, report)),
        (
            "sockets",
            options.sockets,
            lambda: send_to_sockets(options.sockets, seed, report),
        ),
        ("attack", options.attack, lambda: attack(options.attack, report)),
        ("soak", options.soak, lambda: soak(options.soak, seed, report)),
    ):
        if amount:
            print(f"{name}: {dict(sorted(run().items()))}", flush=True)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
