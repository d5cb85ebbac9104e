import pytest

from aioinfer.errors import TensorError
from aioinfer.runtime.preprocessing.layout import Layout, axis_order


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("NCHW", "[N,C,H,W]"),
        ("nhwc", "[N,H,W,C]"),
        ("N...C", "[N,...,C]"),
        ("...CHW", "[...,C,H,W]"),
        ("N??C", "[N,?,?,C]"),
        ("[N, height ,w]", "[N,H,W]"),
        ("[batch,...]", "[N,...]"),
        ("1CHW", "[1,C,H,W]"),
        ("[n_1,t]", "[N_1,T]"),
        ("", "[...]"),
        ("...", "[...]"),
    ],
)
def test_a_layout_is_written_with_its_axes_apart(text: str, written: str) -> None:
    assert str(Layout(text)) == written
    assert Layout(written) == Layout(text)
    assert Layout(Layout(text)) == Layout(text)


@pytest.mark.parametrize("text", ["NN", "[N,C", "N C", "N..", "N...C...", "N-C", "[N,,C]", "é", 5])
def test_what_is_no_layout_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(TensorError, match=r"is no layout: .*'NCHW'"):
        Layout(text)


def test_only_a_layout_that_says_something_is_true() -> None:
    assert Layout("N")
    assert not Layout("...")
    assert not Layout()


@pytest.mark.parametrize(
    ("source", "target", "rank", "order"),
    [
        ("NHWC", "NCHW", 4, [0, 3, 1, 2]),
        ("N...C", "NC...", 5, [0, 4, 1, 2, 3]),
        ("N??C", "NCHW", 4, [0, 3, 1, 2]),
        ("NHWC", "N??C", 4, [0, 1, 2, 3]),
        ("HWC", "NCHW", 3, [None, 2, 0, 1]),
        ("HWC", "NCTHW", 3, [None, 2, None, 0, 1]),
        ("...", "NC", 2, [0, 1]),
        ("N", "N", 1, [0]),
    ],
)
def test_axes_are_found_by_their_names(
    source: str, target: str, rank: int, order: list[int | None]
) -> None:
    assert axis_order(Layout(source), Layout(target), rank) == order


@pytest.mark.parametrize(
    ("source", "target", "rank", "why"),
    [
        ("NHWC", "NDHW", 4, "nothing tells which axis becomes 'D'"),
        ("NCHW", "CHW", 4, "4 axes cannot become 3"),
        ("NHWC", "NCDH", 4, "nothing tells which axis becomes 'D'"),
        ("HWX", "NCHW", 3, "nothing tells which axis becomes 'C'"),
        ("HX", "NHW", 2, "nothing tells which axis becomes 'W'"),
        ("NHWC", "NCHW", 3, "is for 4 axes, and the tensor has 3"),
        ("N...HWC", "NCHW", 3, "is for more axes than the 3"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(source: str, target: str, rank: int, why: str) -> None:
    with pytest.raises(TensorError, match=why):
        axis_order(Layout(source), Layout(target), rank)
