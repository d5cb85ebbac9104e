"""Kernels built together, each once; and whose fault it is where they do not build."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aioinfer.errors import DeviceError
from aioinfer.runtime.accelerator.driver import DriverError, ErrorKind
from aioinfer.runtime.accelerator.kernel_source import KernelSource
from aioinfer.runtime.accelerator.plan import Launch, NodeOrigin
from unit.runtime.accelerator.fake_driver import FakeProgram
from unit.runtime.accelerator.opened import Opened


@pytest.fixture
def opened() -> Iterator[Opened]:
    made = Opened()
    yield made
    made.close()


def launch(label: str) -> Launch:
    source = KernelSource.of(label, f"__kernel void $name() {{ {label}(); }}")
    return Launch(NodeOrigin(f"{label} 1", label.title(), ()), source, (), (64,), (64,))


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
        "two(); run the node on another device by HETERO, and report this, with the driver's "
        "version"
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
