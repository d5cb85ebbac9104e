"""Run one measuring program with its own options, or list them.

    python benchmarks                                   # what there is
    python benchmarks overlap --series timer --rounds 3

``run.py`` runs several one after the other and compares with the last results.
"""

from __future__ import annotations

import ast
import signal
import sys
from pathlib import Path

from programs import find_programs, load_program


def _first_line(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def _print_list(programs: dict[str, Path]) -> None:
    folders = dict.fromkeys(file.parent for file in programs.values())
    for folder in folders:
        print(f"{folder.name}/: {_first_line(folder / '__init__.py')}")
        for name, file in programs.items():
            if file.parent == folder:
                print(f"    {name:15} {_first_line(file)}")


def ended_by_signal(*_: object) -> None:
    """Leave all blocks, so that groups and processes are cleaned up."""
    sys.exit(128 + signal.SIGTERM)


def main() -> int:
    programs = find_programs()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        _print_list(programs)
        return 0
    name = sys.argv[1]
    if name not in programs:
        print(f"there is no program {name!r}; there are {', '.join(programs)}", file=sys.stderr)
        return 2
    sys.argv[:2] = [f"python benchmarks {name}"]
    signal.signal(signal.SIGTERM, ended_by_signal)
    return load_program(name).main() or 0


if __name__ == "__main__":
    sys.exit(main())
