"""Kernels are built one by one on PoCL, each once; what cannot be taken apart, as it is."""

from __future__ import annotations

import pytest

from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind, Kernel, Program
from quick_builds import KernelByKernel

HEAD = "typedef ushort bfloat16;\n"
ONE, TWO = "__kernel void one(int n) {\n}\n", "__kernel void two(int n) {\n    one();\n}\n"


class Built:
    def __init__(self, source: str) -> None:
        self.source = source

    def kernel(self, name: str) -> Kernel:
        raise KeyError(name, self.source)


def source_of(program: Program, name: str) -> object:
    with pytest.raises(KeyError) as found:
        program.kernel(name)
    return found.value.args[1]


def test_each_kernel_is_built_once_whatever_it_stands_with() -> None:
    built: list[str] = []

    def build(source: str) -> Program:
        built.append(source)
        return Built(source)

    build_all = KernelByKernel(build)
    for source in (HEAD + ONE, HEAD + ONE + TWO, HEAD + TWO + ONE):
        assert source_of(build_all(source), "one") == (HEAD + ONE).rstrip()
    assert built == [(HEAD + ONE).rstrip(), (HEAD + TWO).rstrip()]
    build_all("typedef ulong long_word;\n" + ONE)
    assert len(built) == 3


def test_a_kernel_that_needs_what_stands_with_another_is_built_with_it() -> None:
    def build(source: str) -> Program:
        if "one()" in source and ONE.rstrip() not in source:
            raise DriverError(ErrorKind.OTHER, "one is not declared")
        return Built(source)

    whole = HEAD + ONE + TWO
    assert source_of(KernelByKernel(build)(whole), "two") == whole
    with pytest.raises(DriverError, match="not declared"):
        KernelByKernel(build)(HEAD + TWO)
