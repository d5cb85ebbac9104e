"""Modules that register something for operators are imported when one of those comes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aioinfer.runtime.graph.operator_families import OperatorFamilies

TABLES = {
    "runtime.type_inference.rules": "module._rules",
    "runtime.operators.plain_operators": "module._entries",
    "runtime.decompositions.registry": "module._decompositions",
    "backends.cpu.kernels.registry": "module.KERNELS._registered",
    "backends.cuda.kernels.registry": "module.KERNELS._registered",
    "backends.accelerator.kernels.registry": "module.KERNELS._registered",
}
"""Where each table stands, and what its modules register in."""

PROBE = """
import importlib, sys
module = importlib.import_module("aioinfer." + sys.argv[1])
families = module.KERNELS._families if hasattr(module, "KERNELS") else module._families
listed = dict(families._not_imported)
foreign = set({registered})
for (domain, op_type), family in listed.items():
    families.load(domain, op_type)
    found = [key for key in {registered} if key[0] == domain and op_type in (key[1], "*")]
    assert found, f"{{family}} is listed with {{domain}}::{{op_type}}, and registers none"
families.load_all()
own = {{key for key in {registered} if key not in listed and (key[0], "*") not in listed}} - foreign
assert not own, f"no family is listed with {{sorted(own)}}, so nobody finds them"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty package that can be imported as ``toy_families``."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_families"]:
        monkeypatch.delitem(sys.modules, name)
    folder = tmp_path / "toy_families"
    folder.mkdir()
    (folder / "__init__.py").write_text("seen = []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def seen() -> list[str]:
    from toy_families import seen

    found: list[str] = seen
    return found


@pytest.mark.parametrize("table", TABLES)
def test_each_table_says_what_its_modules_register(table: str) -> None:
    probe = PROBE.format(registered=TABLES[table])
    command = [sys.executable, "-P", "-c", probe, table]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_the_module_of_an_operator_is_imported_and_once(package: Path) -> None:
    for name in ("sums", "windows", "foreign"):
        text = f"from . import seen\nseen.append({name!r})\n"
        (package / f"{name}.py").write_text(text)
    operators = {"sums": "Add Sub", "windows": "Conv com.x::Conv", "foreign": "com.y::*"}
    families = OperatorFamilies("toy_families", operators)
    for domain, op_type in (("", "Add"), ("", "Sub"), ("", "Mul"), ("com.z", "Conv")):
        families.load(domain, op_type)
    assert seen() == ["sums"]
    families.load("com.y", "Whatever")
    assert seen() == ["sums", "foreign"]
    families.load_all()
    assert seen() == ["sums", "foreign", "windows"]


def test_a_module_that_cannot_be_imported_is_tried_again(package: Path) -> None:
    text = "from . import seen\nseen.append('tried')\n"
    (package / "sums.py").write_text(text + "if len(seen) == 1:\n    raise OSError('not now')\n")
    families = OperatorFamilies("toy_families", {"sums": "Add"})
    with pytest.raises(OSError, match="not now"):
        families.load("", "Add")
    families.load("", "Add")
    families.load("", "Add")
    assert seen() == ["tried", "tried"]


def test_who_comes_during_an_import_waits_for_its_end(package: Path) -> None:
    text = "from . import seen\nfrom toy_gate import begun, go_on\nbegun.set()\n"
    (package / "sums.py").write_text(text + "assert go_on.wait(30)\nseen.append('done')\n")
    gate = package.parent / "toy_gate.py"
    gate.write_text("import threading\nbegun, go_on = threading.Event(), threading.Event()\n")
    from toy_gate import begun, go_on

    families = OperatorFamilies("toy_families", {"sums": "Add"})
    found: list[list[str]] = []
    first = threading.Thread(target=families.load, args=("", "Add"))

    def come_second() -> None:
        families.load("", "Add")
        found.append(list(seen()))

    second = threading.Thread(target=come_second)
    first.start()
    assert begun.wait(30)
    second.start()
    go_on.set()
    for thread in (first, second):
        thread.join(30)
    assert found == [["done"]]


def test_an_operator_is_in_one_module_alone() -> None:
    with pytest.raises(ValueError, match="Add is in sums and windows"):
        OperatorFamilies("toy_families", {"sums": "Add", "windows": "Add"})
