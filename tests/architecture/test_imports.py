"""The order of the parts holds in the tree, and the check that says so can fail."""

import pytest

from architecture.import_rules import (
    PART_NAMES,
    Source,
    broken_order,
    circles,
    eager_heavy,
    imports_of,
    refusal,
    room_of,
    scattered_heavy,
    starts_with_errors,
    unguarded,
)
from architecture.tree import ROOT, module_files, part_folders


def tree_sources() -> dict[str, Source]:
    return {
        file.relative_to(ROOT).as_posix(): Source(
            module, file.read_text(encoding="utf-8"), file.name == "__init__.py"
        )
        for module, file in module_files().items()
    }


def invented(**texts: str) -> dict[str, Source]:
    """Sources by dotted name, written with __ for the dot; `init` at the end marks a package."""
    sources = {}
    for key, text in texts.items():
        module = key.replace("__", ".")
        is_package = module.endswith(".init")
        sources[module] = Source(module.removesuffix(".init"), text, is_package)
    return sources


def assert_none(breaches: list[str]) -> None:
    assert not breaches, "\n" + "\n".join(breaches)


def test_the_parts_import_only_what_stands_before_them() -> None:
    assert_none(broken_order(tree_sources()))


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert_none(circles(tree_sources()))


def test_a_circle_is_found_even_if_one_of_its_imports_is_for_types_only() -> None:
    sources = invented(
        aioinfer__executors__init="from .base import NOW",
        aioinfer__executors__base="if TYPE_CHECKING:\n    from .timer import Timer",
        aioinfer__executors__timer="from .threads import start\nfrom ..errors import Closed",
        aioinfer__executors__threads="def late():\n    from . import base",
        aioinfer__errors="",
    )
    names = ("base", "threads", "timer")
    assert circles(sources) == [" <-> ".join(f"aioinfer.executors.{name}" for name in names)]
    del sources["aioinfer.executors.threads"]
    assert circles(sources) == []


def test_loading_the_front_door_loads_no_heavy_third_party() -> None:
    assert_none(eager_heavy(tree_sources(), "aioinfer"))


def test_loading_a_plugin_loads_no_heavy_third_party() -> None:
    sources = tree_sources()
    plugins = [
        source.module
        for source in sources.values()
        if source.module.startswith("aioinfer.backends.") and source.module.endswith(".plugin")
    ]
    assert plugins
    assert_none([line for plugin in plugins for line in eager_heavy(sources, plugin)])


def test_a_backend_keeps_its_third_parties_in_one_file() -> None:
    assert_none(scattered_heavy(tree_sources()))


def test_ray_is_imported_only_when_something_is_deployed() -> None:
    """So that the tests, and servers of one machine, do without it."""
    sources = tree_sources()
    known = frozenset(source.module for source in sources.values())
    found = [
        (file, item.is_eager)
        for file, source in sources.items()
        for item in imports_of(source, known)
        if item.module.split(".")[0] == "ray"
    ]
    assert {file for file, _ in found} == {"serving/ray/deployment.py"}
    assert not any(is_eager for _, is_eager in found)


def test_a_fork_waits_for_what_functions_import() -> None:
    assert_none(unguarded(tree_sources()))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("import json", 0),
        ("def late():\n    import json", 1),
        ("def late():\n    from . import core", 1),
        ("async def late():\n    if True:\n        from numpy import array", 1),
        ("def late(name):\n    return importlib.import_module(name)", 1),
        ("load = lambda: import_module('.core', __package__).Core", 1),
        ("def late():\n    with late_imports:\n        import json\n        import heapq", 0),
        ("def late():\n    with named(), late_imports:\n        return import_module('.core')", 0),
        ("def late():\n    with named():\n        return import_module('.core')", 1),
        ("def late():\n    import asyncio\n    from trio import lowlevel", 0),
    ],
)
def test_an_import_that_no_fork_waits_for_is_found(text: str, count: int) -> None:
    assert len(unguarded(invented(aioinfer__runtime__devices__loading=text))) == count
    assert unguarded(invented(aioinfer__cli__run=text)) == []


def test_there_is_no_package_at_the_root_of_the_repository() -> None:
    assert not (ROOT / "__init__.py").exists(), "pytest would load a second copy of the package"


def test_every_part_starts_with_an_import_from_errors() -> None:
    parts = {name: folder for name, folder in part_folders().items() if name != "aioinfer"}
    assert {name.removeprefix("aioinfer.") for name in parts} <= set(PART_NAMES)
    for name, folder in parts.items():
        text = (folder / "__init__.py").read_text(encoding="utf-8")
        assert starts_with_errors(Source(name, text, True)), (
            f"{folder.name}/__init__.py must start with `from ..errors import ...`, so that "
            f"`import {folder.name}` from the root fails"
        )


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("aioinfer.executors.streams", "aioinfer.errors"),
        ("aioinfer.runtime.graph.check", "aioinfer.executors.base"),
        ("aioinfer.runtime.operators.operator", "aioinfer.runtime.onnx_writer"),
        ("aioinfer.runtime.passes.fold", "aioinfer.runtime.operators"),
        ("aioinfer.runtime.onnx_reader.data.tensors", "aioinfer.runtime.onnx_writer.types"),
        ("aioinfer.runtime.devices.core", "aioinfer.runtime.onnx_reader.reader"),
        ("aioinfer.runtime.devices.core", "aioinfer.runtime.network.infer_request"),
        ("aioinfer.runtime.runs.slot", "aioinfer.runtime.tracing.recorder"),
        ("aioinfer.backends.cuda.plugin", "aioinfer.backends.accelerator.plugin"),
        ("aioinfer.backends.accelerator.plugin", "aioinfer.runtime.devices.plugin"),
        ("aioinfer.runtime.testing.mock", "aioinfer.runtime.devices.plugin"),
        ("aioinfer.backends.hetero.partition", "aioinfer.runtime.graph"),
        ("aioinfer.backends.hetero.plugin", "aioinfer.backends.hetero.partition"),
        ("aioinfer.cli.run", "aioinfer.runtime.devices.core"),
        ("aioinfer.cli.run", "aioinfer"),
        ("aioinfer.serving.web", "aioinfer"),
        ("aioinfer.serving.repository.loader", "aioinfer.runtime.devices.core"),
        ("aioinfer", "aioinfer.runtime.devices.core"),
        ("aioinfer.testing", "aioinfer.runtime.testing"),
        ("aioinfer.__main__", "aioinfer.cli"),
    ],
)
def test_an_import_down_the_order_is_allowed(importer: str, imported: str) -> None:
    assert refusal(importer, imported) is None


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("aioinfer.errors", "aioinfer.executors.base"),
        ("aioinfer.executors.base", "aioinfer.runtime.graph"),
        ("aioinfer.executors.base", "aioinfer.runtime.network.infer_request"),
        ("aioinfer.runtime.network.infer_request", "aioinfer.runtime.devices.core"),
        ("aioinfer.runtime.tracing.recorder", "aioinfer.runtime.runs.slot"),
        ("aioinfer.runtime.devices.core", "aioinfer.backends.accelerator.plugin"),
        ("aioinfer.backends.accelerator.plugin", "aioinfer.backends.cuda.plugin"),
        ("aioinfer.cli.run", "aioinfer.backends.accelerator.plugin"),
        ("aioinfer.runtime.graph.model", "aioinfer.runtime.passes"),
        ("aioinfer.runtime.graph.model", "aioinfer.runtime"),
        ("aioinfer.runtime.graph.model", "aioinfer.runtime.operators"),
        ("aioinfer.runtime.onnx_writer.types", "aioinfer.runtime.operators"),
        ("aioinfer.runtime.passes.fold", "aioinfer.runtime.onnx_reader"),
        ("aioinfer.runtime.onnx_reader.reader", "aioinfer.runtime.passes"),
        ("aioinfer.runtime.devices.core", "aioinfer.backends.reference.plugin"),
        ("aioinfer.runtime.devices.core", "aioinfer"),
        ("aioinfer.backends.auto.plugin", "aioinfer.backends.hetero.plugin"),
        ("aioinfer.backends.auto.plugin", "aioinfer.cli"),
        ("aioinfer.backends.auto.plugin", "aioinfer"),
        ("aioinfer.cli.run", "aioinfer.backends.hetero.partition"),
        ("aioinfer.cli.run", "aioinfer.serving"),
        ("aioinfer", "aioinfer.serving"),
        ("aioinfer.__main__", "aioinfer.serving.command"),
        ("aioinfer.backends.cpu.plugin", "aioinfer.serving"),
        ("aioinfer.runtime.devices.core", "aioinfer.serving.protocol"),
        ("aioinfer.serving.server", "aioinfer.backends.cpu.plugin"),
        ("aioinfer", "aioinfer.backends.reference.plugin"),
        ("aioinfer", "aioinfer.cli"),
        ("aioinfer.testing", "aioinfer.cli"),
    ],
)
def test_an_import_up_or_across_the_order_is_refused(importer: str, imported: str) -> None:
    assert refusal(importer, imported) is not None


def test_a_module_belongs_to_the_innermost_room() -> None:
    assert room_of("aioinfer.runtime.graph.shape") == "aioinfer.runtime.graph"
    assert room_of("aioinfer.runtime.graphics") == "aioinfer.runtime"
    assert room_of("aioinfer.backends.cuda.kernels.conv") == "aioinfer.backends.cuda"
    assert room_of("aioinfer.testing") == "aioinfer"


def test_dots_are_counted_from_the_package_a_module_is_in() -> None:
    known = frozenset({"aioinfer.executors", "aioinfer.runtime.graph"})
    module = Source("aioinfer.runtime.core", "from . import graph\nfrom ..executors import NOW")
    package = Source(
        "aioinfer.runtime", "from . import graph, name\nfrom ..executors import NOW", True
    )
    assert [item.module for item in imports_of(module, known)] == [
        "aioinfer.runtime.graph",
        "aioinfer.executors",
    ]
    assert [item.module for item in imports_of(package, known)] == [
        "aioinfer.runtime.graph",
        "aioinfer.runtime",
        "aioinfer.executors",
    ]


def test_a_breach_is_found_wherever_it_hides() -> None:
    texts = {
        "at the top": "from ..runtime import core",
        "in a function": "def late():\n    from ..runtime import core",
        "for types only": "if TYPE_CHECKING:\n    from ..runtime import core",
        "in a try": "try:\n    from ..runtime import core\nexcept ImportError:\n    pass",
        "by a call": "importlib.import_module('..runtime.core', __package__)",
    }
    for where, text in texts.items():
        found = broken_order(invented(aioinfer__executors__base=text, aioinfer__runtime__core=""))
        assert len(found) == 1, where
        assert "aioinfer.executors.base imports aioinfer.runtime.core" in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "import aioinfer.errors",
        "from aioinfer.errors import AioInferError",
        "import executors",
        "from runtime.core import Core",
        "from ....errors import AioInferError",
    ],
)
def test_an_import_that_is_not_relative_to_the_package_is_found(text: str) -> None:
    assert len(broken_order(invented(aioinfer__backends__cpu__plugin=text))) == 1


def test_a_heavy_import_is_followed_through_what_is_loaded_on_the_way() -> None:
    sources = invented(
        aioinfer__init="from .runtime.core import Core",
        aioinfer__runtime__init="from ..errors import AioInferError\nfrom . import tensor",
        aioinfer__runtime__core="import numpy\ndef read():\n    from .onnx_reader import read",
        aioinfer__runtime__tensor="import torch.utils",
        aioinfer__runtime__onnx_reader="import onnx",
        aioinfer__errors="if TYPE_CHECKING:\n    import rich",
    )
    found = eager_heavy(sources, "aioinfer")
    assert found == ["aioinfer.runtime.tensor:1: loading aioinfer loads torch.utils"]


def test_a_second_file_with_a_third_party_is_found() -> None:
    sources = invented(
        aioinfer__backends__cuda__driver="def load():\n    import cupy",
        aioinfer__backends__cuda__plugin="def load():\n    from cupy import cuda",
        aioinfer__backends__cuda__libraries__products="import cublas",
        aioinfer__backends__cuda__libraries__rows="import cudnn",
        aioinfer__backends__cpu__driver="import onednn",
        aioinfer__backends__cpu__plugin="import numpy",
    )
    (found,) = scattered_heavy(sources)
    assert found.startswith("aioinfer.backends.cuda: ")
    assert "libraries/" in found.partition(";")[2]
    del sources["aioinfer.backends.cuda.plugin"]
    assert scattered_heavy(sources) == []


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ('"""Docs."""\n\nfrom ..errors import AioInferError', True),
        ("from __future__ import annotations\nfrom ..errors import AioInferError", True),
        ("from .base import TaskExecutor\nfrom ..errors import AioInferError", False),
        ("import os\nfrom ..errors import AioInferError", False),
        ("", False),
    ],
)
def test_the_first_import_of_a_part_is_told(text: str, good: bool) -> None:
    assert starts_with_errors(Source("aioinfer.executors", text, True)) is good
