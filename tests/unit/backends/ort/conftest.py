"""A Core for each test of ONNXRUNTIME: some hide the library from theirs."""

from collections.abc import Iterator

import pytest

import aioinfer


@pytest.fixture
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made
