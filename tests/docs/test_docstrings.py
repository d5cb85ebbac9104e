"""The classes that users begin with show how they are used in docstrings, and those examples run.

All run in one process, in a folder with `model.onnx`, each in a namespace of its own that has
`aioinfer`, `asyncio` and `np`.
"""

import inspect
import shutil
from pathlib import Path

import pytest

import aioinfer
from aioinfer.prometheus import NetworkCollector
from docs.test_examples import MODEL, blocks_of, run_pages_alone

CLASSES = [
    aioinfer.Core,
    aioinfer.ExecutableNetwork,
    aioinfer.Extension,
    aioinfer.InferRequest,
    aioinfer.Model,
    aioinfer.Plugin,
    aioinfer.Tensor,
    aioinfer.testing.ManualExecutor,
    aioinfer.testing.MockDevices,
    aioinfer.testing.VirtualTimer,
    NetworkCollector,
]
IMPORTS = "```python\nimport asyncio\nimport numpy as np\nimport aioinfer\n```\n"


def docstring_of(item: type) -> str:
    return inspect.cleandoc(item.__doc__ or "")


@pytest.mark.parametrize("item", CLASSES, ids=lambda item: item.__name__)
def test_a_public_class_has_an_example(item: type) -> None:
    assert [block.language for block in blocks_of(docstring_of(item))] == ["python"]


def test_the_examples_of_public_classes_run(tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "model.onnx")
    pages = [tmp_path / f"{item.__name__}.md" for item in CLASSES]
    for page, item in zip(pages, CLASSES, strict=True):
        page.write_text(IMPORTS + docstring_of(item) + "\n", encoding="utf-8")
    done = run_pages_alone(pages, tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Exception ignored" not in done.stderr, done.stderr  # a warning in a destructor
