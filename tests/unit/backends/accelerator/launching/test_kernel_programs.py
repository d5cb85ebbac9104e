"""Kernels built together, each once; and whose fault it is where they do not build."""

from __future__ import annotations

from typing import Any

import pytest

from aioinfer.backends.accelerator.launching.kernel_source import KernelSource
from aioinfer.backends.accelerator.plan import Launch, NodeOrigin
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation
from aioinfer.errors import DeviceError
from unit.backends.accelerator.fake_driver import FakeProgram
from unit.backends.accelerator.opened import Opened


def launch(label: str) -> Launch:
    source = KernelSource.of(label, f"__kernel void $name() {{ {label}(); }}")
    return Launch(NodeOrigin(f"{label} 1", label.title(), ()), source, (), (64,), (64,))


def call(label: str, **parameters: Any) -> Launch:
    operation = LibraryOperation.of("cudnn", label, **parameters)
    return Launch(NodeOrigin(f"{label} 1", label.title(), ()), operation, (), (), ())


def planned(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, *, refused: str = ""
) -> list[LibraryOperation]:
    """Collect the operations that are planned; one with the label ``refused`` fails."""
    operations = []

    def library_program(operation: LibraryOperation) -> FakeProgram:
        operations.append(operation)
        if operation.label == refused:
            raise DriverError(ErrorKind.OTHER, "no engine for these strides")
        return FakeProgram({})

    monkeypatch.setattr(opened.context, "library_program", library_program)
    return operations


def built_texts(opened: Opened, monkeypatch: pytest.MonkeyPatch, *, refused: str = "") -> list[str]:
    """Collect what is built; a program with ``refused`` in it fails, or one of several."""
    texts = []

    def program(source: str) -> FakeProgram:
        texts.append(source)
        if refused and refused in source:
            raise DriverError(
                ErrorKind.OTHER, f"failed\nx.cl:1:2: error: no {refused}\n1 error generated."
            )
        return FakeProgram({})

    monkeypatch.setattr(opened.context, "program", program)
    return texts


def test_what_is_missing_is_built_as_one_program(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = built_texts(opened, monkeypatch)
    programs = opened.device.programs
    held = programs.build([launch("one"), launch("two"), launch("one")])
    held += programs.build([launch("two"), launch("three")])
    held += programs.build([launch("three")])
    assert [[label in text for label in ("one()", "two()", "three()")] for text in texts] == [
        [True, True, False],
        [False, False, True],
    ]
    assert len(programs) == 3
    assert held[0] is held[1]
    assert held[2] is held[3]


def test_a_program_goes_with_the_last_who_holds_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, programs = built_texts(opened, monkeypatch), opened.device.programs
    first = programs.build([launch("one"), launch("two")])
    second = programs.build([launch("two"), launch("three")])
    del first
    assert len(programs) == 3  # "one" is in the program of "two"
    second.pop(0)
    assert len(programs) == 1
    del second
    assert len(programs) == 0
    programs.build([launch("two")])
    assert len(texts) == 3


def test_the_node_whose_kernel_does_not_build_is_named(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_texts(opened, monkeypatch, refused="two()")
    with pytest.raises(DeviceError) as caught:
        opened.device.programs.build([launch("one"), launch("two"), launch("three")])
    name = launch("two").source.name
    assert str(caught.value) == (
        f"FAKE.0 cannot build the kernel {name!r} of Two (node 'two 1'): x.cl:1:2: error: no "
        "two(); run the node on another device (HETERO's AFFINITY), and report this, with the "
        "driver's version"
    )
    assert len(opened.device.programs) == 0


def test_kernels_that_build_only_alone_are_counted(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(source: str) -> FakeProgram:
        if source.count("__kernel") > 1:
            raise DriverError(ErrorKind.OUT_OF_MEMORY, "out of host memory")
        return FakeProgram({})

    monkeypatch.setattr(opened.context, "program", program)
    with pytest.raises(DeviceError, match="2 kernels at once, though each alone: out of host mem"):
        opened.device.programs.build([launch("one"), launch("two")])


def test_a_build_that_failed_can_be_tried_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        built_texts(opened, patch, refused="one()")
        with pytest.raises(DeviceError, match="no one"):
            opened.device.programs.build([launch("one")])
    assert len(opened.device.programs.build([launch("one")])) == 1
    assert len(opened.device.programs) == 0


def test_operations_are_equal_by_what_they_say() -> None:
    conv = LibraryOperation.of("cudnn", "conv", strides=(1, 2), dtype="float16")
    assert conv == LibraryOperation.of("cudnn", "conv", dtype="float16", strides=(1, 2))
    assert conv.name == "conv_b8775955ec978a32"  # the same in every process
    others = [
        LibraryOperation.of("cudnn", "conv", strides=(2, 1), dtype="float16"),
        LibraryOperation.of("cudnn", "pool", strides=(1, 2), dtype="float16"),
        LibraryOperation.of("cublas", "conv", strides=(1, 2), dtype="float16"),
    ]
    assert len({item.name for item in (conv, *others)}) == len({conv, *others}) == 4
    assert (conv["strides"], conv["dtype"]) == ((1, 2), "float16")


def test_equal_operations_are_planned_once(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    operations, programs = planned(opened, monkeypatch), opened.device.programs
    first = programs.build([call("conv", n=1), call("conv", n=2), call("conv", n=1)])
    second = programs.build([call("conv", n=2)])
    assert [item["n"] for item in operations] == [1, 2]
    assert len(programs) == len(first) == 2
    assert second == [first[1]]


def test_kernels_and_operations_are_built_side_by_side(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, operations = built_texts(opened, monkeypatch), planned(opened, monkeypatch)
    launches = [launch("one"), call("conv"), launch("two")]
    held = opened.device.programs.build(launches)
    assert (len(texts), len(operations), len(held)) == (1, 1, 2)
    assert "conv" not in texts[0]
    assert opened.device.programs.build(launches) == held


def test_a_planned_operation_goes_with_the_last_who_holds_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations, programs = planned(opened, monkeypatch), opened.device.programs
    first, second = (programs.build([call("conv")]) for _ in range(2))
    del first
    assert len(programs) == 1
    del second
    assert len(programs) == 0
    programs.build([call("conv")])
    assert len(operations) == 2


def test_the_node_whose_operation_is_refused_is_named_and_can_be_planned_later(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = [launch("one"), call("matmul"), call("conv")]
    with monkeypatch.context() as patch:
        planned(opened, patch, refused="conv")
        built_texts(opened, patch)
        with pytest.raises(DeviceError) as caught:
            opened.device.programs.build(launches)
    assert str(caught.value) == (
        "FAKE.0 cannot plan 'conv' of cudnn for Conv (node 'conv 1'): no engine for these "
        "strides; run the node on another device (HETERO's AFFINITY), and report this, with the "
        "driver's version"
    )
    del caught
    planned(opened, monkeypatch)
    assert len(opened.device.programs.build(launches)) == 3
