import numpy as np
import pytest

from aioinfer.backends.reference.kernels.elementwise import clip


def test_a_bound_that_is_a_list_of_one_keeps_the_shape_of_a_scalar() -> None:
    x = np.array(2, np.float32)
    made = np.asarray(clip(x, np.array([0.5], np.float32), np.array([1.5], np.float32)))
    assert (made.shape, made.dtype, made) == ((), np.float32, 1.5)


def test_a_bound_of_two_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="reshape"):
        clip(np.ones(2, np.float32), np.zeros(2, np.float32))
