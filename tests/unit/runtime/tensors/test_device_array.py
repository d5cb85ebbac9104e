from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import TensorError
from aioinfer.runtime.graph import DType, TensorType
from aioinfer.runtime.tensors.device_array import memory_place
from aioinfer.runtime.tensors.tensor import Port, check_can_be_written, check_inputs
from unit.runtime.models import tiny_model

CUDA, CUDA_HOST, OPENCL, UNHEARD_OF = 2, 3, 4, 99


class Foreign:
    """An array of some library, in a device's memory; to read it on the host raises."""

    def __init__(self, shape: tuple[int, ...] = (1, 3), kind: int = CUDA) -> None:
        self.shape, self.dtype, self._kind = shape, np.dtype(np.float32), kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._kind, 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("not on the host")


@dataclass
class Adopted:
    given: Any
    is_writable: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.given.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.given.dtype


@dataclass
class Adopting:
    """What takes arrays for a device; ``told`` is for what each was given."""

    told: list[str] = field(default_factory=list)

    def __call__(self, given: Any, what: str) -> Adopted:
        self.told.append(what)
        return Adopted(given)


def port(name: str, *shape: int | str, dtype: DType = DType.FLOAT32) -> Port:
    return Port(name, TensorType(dtype, shape))


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (CUDA, "CUDA.1"),
        (OPENCL, "OPENCL.1"),
        (UNHEARD_OF, "DLPack device 99.1"),
        (CUDA_HOST, None),
    ],
)
def test_where_an_array_lies_is_asked_by_dlpack(kind: int, place: str | None) -> None:
    assert memory_place(Foreign(kind=kind)) == place


def test_numpy_and_lists_lie_on_the_host() -> None:
    assert [memory_place(given) for given in (np.zeros(2), np.float32(1), [1, 2], None)] == [
        None
    ] * 4


def test_an_array_that_cannot_tell_where_it_lies_is_refused_by_name() -> None:
    class Broken:
        def __dlpack_device__(self) -> tuple[int, int]:
            raise RuntimeError("the driver is gone")

    with pytest.raises(TensorError, match=r"'x' cannot be made an array of .*the driver is gone"):
        check_inputs(Broken(), [port("x", 1, 3)], "net")


def test_a_network_of_the_host_refuses_memory_of_a_device_and_says_what_to_give() -> None:
    with aioinfer.Core() as core, core.load_network(tiny_model(), "REFERENCE") as network:
        (x,) = network.inputs
        shape = tuple(2 if isinstance(dim, str) else dim for dim in x.shape)
        request = network.create_infer_request()
        expected = rf"{x.name!r} lies in the memory of CUDA\.1, and the host's is wanted; .*\.cpu"
        with pytest.raises(TensorError, match=expected):
            request.infer_sync({x.name: Foreign(shape)})
        for name in (x.name, network.outputs[0].name):
            with pytest.raises(TensorError, match=r"lies in the memory of CUDA\.1"):
                request.set_tensor(name, Foreign(shape))
        assert request.infer_sync({x.name: np.ones(shape, np.float32)})


def test_what_a_device_takes_is_checked_like_any_array_and_not_read() -> None:
    adopt = Adopting()
    ports = [port("a", "n", 3), port("b", "n", 3)]
    given = {"a": Foreign((2, 3)), "b": np.zeros((2, 3), np.float32)}
    taken = check_inputs(given, ports, "net", adopt)
    assert taken["a"].given is given["a"]
    assert taken["b"] is given["b"]
    assert adopt.told == ["input of network 'net': 'a'"]
    with pytest.raises(TensorError, match=r"'a' has shape \[2,4\]"):
        check_inputs({**given, "a": Foreign((2, 4))}, ports, "net", adopt)
    with pytest.raises(TensorError, match="dimension 'n' is 5 in input 'a' and 2 in input 'b'"):
        check_inputs({**given, "a": Foreign((5, 3))}, ports, "net", adopt)
    half = [port("a", "n", 3, dtype=DType.FLOAT16), ports[1]]
    with pytest.raises(TensorError, match="'a' is float32, and float16 is wanted"):
        check_inputs(given, half, "net", adopt)


def test_an_output_is_not_bound_to_what_a_device_cannot_write_whole() -> None:
    check_can_be_written(Adopted(Foreign()), Foreign(), "y")
    with pytest.raises(TensorError, match="output 'y' cannot be bound to a Foreign that is read-"):
        check_can_be_written(Adopted(Foreign(), is_writable=False), Foreign(), "y")
