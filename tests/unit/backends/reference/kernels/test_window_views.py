"""Where windows lie."""

import numpy as np
import pytest

from aioinfer.runtime.operators.windows.window_views import offsets, pad, plan_axes, shifted


def axis_of(length, kernel, stride=1, dilation=1, pads=None, auto_pad="NOTSET", ceil_mode=False):
    (axis,) = plan_axes(
        [length],
        [kernel],
        strides=[stride],
        dilations=[dilation],
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
    )
    return axis


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"length": 5, "kernel": 3}, 3),
        ({"length": 5, "kernel": 3, "stride": 2}, 2),
        ({"length": 6, "kernel": 3, "stride": 2}, 2),
        ({"length": 6, "kernel": 3, "stride": 2, "ceil_mode": True}, 3),
        ({"length": 5, "kernel": 3, "dilation": 2}, 1),
        ({"length": 5, "kernel": 3, "pads": [1, 2]}, 6),
        ({"length": 5, "kernel": 3, "pads": [-1, 0]}, 2),
        # A second window would start in the padding behind the input.
        ({"length": 4, "kernel": 2, "stride": 3, "pads": [0, 2], "ceil_mode": True}, 2),
        ({"length": 2, "kernel": 1, "stride": 2, "pads": [0, 1], "ceil_mode": True}, 1),
        ({"length": 5, "kernel": 3, "pads": [9, 9], "auto_pad": "VALID"}, 3),
        ({"length": 5, "kernel": 2, "stride": 2, "auto_pad": "VALID", "ceil_mode": True}, 3),
    ],
)
def test_windows_are_counted(arguments, count) -> None:
    assert axis_of(**arguments).count == count


@pytest.mark.parametrize(("auto_pad", "begin", "end"), [("SAME_UPPER", 1, 2), ("SAME_LOWER", 2, 1)])
def test_same_padding_puts_the_odd_one_at_its_side(auto_pad, begin, end) -> None:
    axis = axis_of(5, 4, auto_pad=auto_pad)
    assert (axis.count, axis.begin, axis.end) == (5, begin, end)


def test_same_padding_never_crops() -> None:
    axis = axis_of(5, 1, stride=3, auto_pad="SAME_UPPER")
    assert (axis.count, axis.begin, axis.end) == (2, 0, 0)


def test_windows_read_the_padded_input() -> None:
    x = np.arange(1.0, 6.0).reshape(1, 1, 5)
    axes = [axis_of(5, 2, stride=2, dilation=2, pads=[1, 2])]
    padded = pad(x, axes, 0.0)
    read = [shifted(padded, axes, offset)[0, 0].tolist() for offset in offsets(axes)]
    assert read == [[0.0, 2.0, 4.0], [2.0, 4.0, 0.0]]
    assert [axes[0].positions(k).tolist() for k in range(2)] == [[-1, 1, 3], [1, 3, 5]]


def test_negative_padding_crops_the_front() -> None:
    x = np.arange(5.0).reshape(1, 1, 5)
    axes = [axis_of(5, 1, pads=[-2, 0])]
    assert shifted(pad(x, axes, 0.0), axes, (0,))[0, 0].tolist() == [2.0, 3.0, 4.0]


def test_an_input_that_needs_no_padding_is_not_copied() -> None:
    x = np.zeros((1, 1, 5))
    assert pad(x, [axis_of(5, 3)], 0.0) is x


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"length": 2, "kernel": 3}, "does not fit"),
        ({"length": 5, "kernel": 3, "auto_pad": "SOME"}, "SOME"),
        ({"length": 5, "kernel": 3, "pads": [1]}, "pads"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, text) -> None:
    with pytest.raises(ValueError, match=text):
        axis_of(**arguments)
