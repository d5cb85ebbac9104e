"""Which implementation is looked for, row by row."""

import pytest

from aioinfer.backends.cpu.kernels.windows import convolution_choice
from aioinfer.backends.cpu.kernels.windows.convolution_choice import (
    ConvolutionShape,
    is_slow,
    wanted_implementation,
)

ROWS = [
    # groups, channels in and out of one group, window, float32; on split vectors, and on whole ones
    ((96, 1, 1, (3, 3), True), "jit_dw:avx512_core", "jit_dw:avx512_core"),
    ((96, 1, 1, (3,), False), "jit_dw:avx512_core", "jit_dw:avx512_core"),
    ((1, 96, 24, (1, 1), True), "brgconv_1x1:avx2", ""),
    ((1, 96, 24, (1, 1), False), "", ""),
    ((1, 96, 32, (1, 1), True), "", ""),
    ((1, 96, 28, (1, 1), True), "", ""),
    ((1, 96, 1000, (1, 1), True), "", ""),
    ((1, 16, 3, (3, 3), True), "brgconv:avx2", ""),
    ((1, 16, 24, (3, 3), True), "", ""),
    ((4, 16, 3, (3, 3), True), "", ""),
    ((1, 3, 64, (7, 7), True), "jit:avx2", ""),
    ((1, 3, 64, (7, 7), False), "", ""),
    ((1, 3, 32, (3, 3), True), "", ""),
    ((1, 64, 64, (7, 7), True), "", ""),
]


@pytest.mark.parametrize(("shape", "split", "whole"), ROWS)
@pytest.mark.needs_no_library
def test_every_row(shape, split, whole) -> None:
    described = ConvolutionShape(*shape)
    assert wanted_implementation(described, splits_vectors=True) == split
    assert wanted_implementation(described, splits_vectors=False) == whole


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ref:any", True),
        ("x64:gemm:jit", True),
        ("gemm:any", True),
        ("brgconv:avx512_core", False),
        ("brg_conv:avx512_core+brgconv_strided:avx512_core", False),
        ("jit_dw:avx2", False),
    ],
)
@pytest.mark.needs_no_library
def test_slow_names(name, expected) -> None:
    assert is_slow(name) is expected


ZEN_4 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\n\nprocessor\t: 1\n"
ZEN_5 = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\n\n"
INTEL = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n\n"


@pytest.mark.parametrize(
    ("text", "expected"), [(ZEN_4, True), (ZEN_5, False), (INTEL, False), ("", False)]
)
@pytest.mark.needs_no_library
def test_split_vectors_are_known_by_the_family(tmp_path, monkeypatch, text, expected) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(convolution_choice, "CPU_FACTS", path)
    assert convolution_choice.has_split_vectors.__wrapped__() is expected


@pytest.mark.needs_no_library
def test_a_processor_without_facts_has_whole_vectors(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(convolution_choice, "CPU_FACTS", tmp_path / "nothing")
    assert convolution_choice.has_split_vectors.__wrapped__() is False
