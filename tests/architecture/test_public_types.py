"""Every type in the signatures of public classes has a public path to import it from."""

import ast
import builtins
import collections.abc
import inspect
import typing
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import aioinfer
import aioinfer.executors

MODULES = (
    aioinfer,
    aioinfer.errors,
    aioinfer.executors,
    aioinfer.images,
    aioinfer.plugins,
    aioinfer.preprocess,
    aioinfer.testing,
)
PUBLIC = {name for module in MODULES for name in module.__all__}
FOREIGN = {"Context", "ModelProto", "Path", "PathLike", "Random"}
STANDARD = {*vars(builtins), *vars(typing), *vars(collections.abc), *FOREIGN}
HANDED_ON = {"Bindings", "Run", "RunningNetwork", "Slot"}
"""What the runtime makes, and plugins get and give back: what they are made of is its own."""


def classes_of(module: ModuleType) -> list[type]:
    found = [getattr(module, name) for name in module.__all__ if name not in HANDED_ON]
    return [item for item in found if isinstance(item, type)]


def annotations_of(item: type) -> Iterator[tuple[str, Any]]:
    """Yield what fields are, and what methods and properties take and return, of the bases too."""
    for base in item.__mro__:
        if not base.__module__.startswith("aioinfer"):
            continue
        said = list(vars(base).get("__annotations__", {}).items())
        for name, member in vars(base).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(function):
                said += [(name, annotation) for annotation in function.__annotations__.values()]
        yield from ((name, one) for name, one in said if name[0] != "_" or name == "__init__")


def names_in(annotation: Any) -> set[str]:
    """List the classes: of ``Mapping[str, np.ndarray]`` Mapping only; ours begin with a capital."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return {name for name in names if name[0].isupper() and len(name) > 1}  # T is a variable


def lacking_of(item: type) -> list[str]:
    return sorted(
        f"{item.__name__}.{member}: {name}"
        for member, annotation in annotations_of(item)
        for name in names_in(annotation) - PUBLIC - STANDARD
    )


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_type_in_a_public_signature_can_be_imported(module: ModuleType) -> None:
    assert classes_of(module)
    assert [lack for item in classes_of(module) for lack in lacking_of(item)] == []


class Lonely:
    __module__ = "aioinfer.lonely"
    field: "int | tuple[Unheard, ...]"  # type: ignore[name-defined]  # noqa: F821

    @property
    def other(self) -> "np.Unseen": ...  # type: ignore[name-defined]  # noqa: F821

    def _own(self, hidden: "Hidden") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def test_a_type_without_a_public_path_is_found() -> None:
    assert lacking_of(Lonely) == ["Lonely.field: Unheard", "Lonely.other: Unseen"]


def test_a_lazy_name_is_the_class_itself() -> None:
    from aioinfer.runtime.tracing.timeline.runs import TracedRun

    assert aioinfer.TracedRun is TracedRun
