import numpy as np
import pytest

from aioinfer.errors import TensorError
from aioinfer.runtime.graph import DType, SequenceType, TensorType, Value
from aioinfer.runtime.passes import symbol_bindings
from aioinfer.runtime.passes.input_binding import bound_input_shapes


def _inputs() -> list[Value]:
    return [
        Value("image", TensorType(DType.FLOAT32, ("batch", 3, "side", "side"))),
        Value("mask", TensorType(DType.BOOL, ("batch", None))),
        Value("scale", TensorType(DType.FLOAT32, (2,))),
        Value("open", TensorType(DType.FLOAT32)),
        Value("untyped"),
        Value("boxes", SequenceType(TensorType(DType.FLOAT32, ("n", 4)))),
    ]


def test_symbols_get_the_lengths_of_the_given_shapes() -> None:
    assert symbol_bindings(_inputs(), {"image": (2, 3, 8, 8)}) == {"batch": 2, "side": 8}
    assert symbol_bindings(_inputs(), {"mask": [0, 5], "scale": [2]}) == {"batch": 0}
    assert symbol_bindings(_inputs(), {}) == {}


def test_lengths_may_be_numpy_integers() -> None:
    assert symbol_bindings(_inputs(), {"mask": np.array([4, 5])}) == {"batch": 4}


def test_other_inputs_get_the_symbols_that_the_given_ones_determine() -> None:
    assert bound_input_shapes(_inputs(), {"mask": (2, 7), "open": (1, 1)}) == {
        "image": (2, 3, "side", "side"),
        "mask": (2, 7),
        "scale": (2,),
        "open": (1, 1),
    }


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"imag": (1,)}, r"no input 'imag'; did you mean 'image'\?"),
        ({"image": (1, 4, 8, 8)}, r"'image' cannot have the shape \[1,4,8,8\]: axis 1 .* is 3"),
        ({"image": (1, 3, 8)}, r"'image' cannot have the shape \[1,3,8\]: .* wants 4 axes"),
        ({"image": (1, 3, 8, 9)}, r"'side' would be 8 .*'image'\) and 9 \(axis 3 of input 'image'"),
        (
            {"image": (1, 3, 8, 8), "mask": (2, 1)},
            r"'batch' would be 1 \(from input 'image'\) and 2 \(axis 0 of input 'mask'\)",
        ),
        ({"boxes": (1, 4)}, r"'boxes' is seq\(.*\) and has no shape"),
        ({"mask": (-1, 4)}, r"'mask' cannot have the shape \[-1,4\]: below zero"),
        ({"mask": ("batch", 4)}, r"the shape of input 'mask' is no list of lengths"),
        ({"mask": 3}, r"the shape of input 'mask' is no list of lengths"),
    ],
)
def test_shapes_that_contradict_the_model_are_refused(shapes, message: str) -> None:
    with pytest.raises(TensorError, match=message):
        symbol_bindings(_inputs(), shapes)
