"""Results that nobody else holds."""

import numpy as np
import pytest

from aioinfer.runtime.interpretation.outputs import detach_outputs


def test_a_fresh_array_is_given_as_it_is() -> None:
    fresh = np.zeros((2, 3))
    assert detach_outputs([fresh], [])[0] is fresh


def test_a_view_of_all_of_a_fresh_array_is_given_as_it_is() -> None:
    view = np.zeros((2, 3)).reshape(6)
    assert detach_outputs([view], [np.ones(2)])[0] is view


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x,
        lambda x: x.reshape(-1),
        lambda x: x[:1],
        lambda x: x.T,
        lambda x: x.reshape(-1).reshape(3, 2),
    ],
)
def test_what_shares_memory_with_an_input_is_copied(made) -> None:
    x = np.arange(6.0).reshape(2, 3)
    (out,) = detach_outputs([made(x)], [x])
    assert not np.shares_memory(out, x)
    np.testing.assert_array_equal(out, made(x))


def test_an_input_that_is_itself_a_view_counts_by_its_owner() -> None:
    owner = np.arange(4.0)
    first, second = owner[:2], owner.reshape(2, 2)
    (out,) = detach_outputs([second], [first])
    assert not np.shares_memory(out, owner)


def test_arrays_inside_a_sequence_input_count() -> None:
    item = np.arange(3.0)
    ((out,),) = detach_outputs([[item]], [[item]])
    assert not np.shares_memory(out, item)


def test_a_small_view_does_not_keep_a_large_array_alive() -> None:
    (out,) = detach_outputs([np.zeros(1000)[:3]], [])
    assert out.base is None


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: np.broadcast_to(x[:1], x.shape)])
def test_outputs_are_contiguous_and_writeable(view) -> None:
    (out,) = detach_outputs([view(np.arange(6.0).reshape(2, 3))], [])
    assert out.flags.c_contiguous
    assert out.flags.writeable


def test_an_array_of_rank_zero_stays_an_array() -> None:
    x = np.array(1.5, np.float32)
    (out,) = detach_outputs([x], [x])
    assert type(out) is np.ndarray
    assert (out.shape, out.dtype) == ((), np.float32)


def test_nothing_stays_nothing() -> None:
    assert detach_outputs([None, []], [None]) == [None, []]
