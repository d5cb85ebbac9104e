import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinfer.cli.arguments import OptionError
from aioinfer.cli.shapes import asked_shapes, choose_shapes, parse_shapes
from aioinfer.runtime.graph import Dim, DType, SequenceType, TensorType
from aioinfer.runtime.tensors.tensor import Port


def port(name: str, *shape: Dim) -> Port:
    return Port(name, TensorType(DType.FLOAT32, shape))


IMAGE = port("image", "batch", 3, "height", "width")
MASK = port("mask", "batch", "length")
FIXED = port("fixed", 2, 3)
UNRANKED = Port("any", TensorType(DType.FLOAT32, None))
SEQUENCE = Port("words", SequenceType(TensorType(DType.STRING, (None,))))


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("image[1,3,224,224]", {"image": (1, 3, 224, 224)}),
        ("image[1,3,224,224],x[2,3]", {"image": (1, 3, 224, 224), "x": (2, 3)}),
        (" image [ 1 , 3 ] , x [2] ", {"image": (1, 3), "x": (2,)}),
        ("scalar[]", {"scalar": ()}),
        ("empty[0,4]", {"empty": (0, 4)}),
        ("[1,3]", {"": (1, 3)}),
        ("input:0[1],scope/input.1[2]", {"input:0": (1,), "scope/input.1": (2,)}),
    ],
)
def test_shapes_are_parsed(text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert parse_shapes(text) == shapes


names = st.text("azAZ09_:/.-()#é", min_size=1)


@given(st.dictionaries(names, st.lists(st.integers(0, 10**6)).map(tuple), min_size=1))
def test_written_shapes_are_parsed_back(shapes: dict[str, tuple[int, ...]]) -> None:
    text = ",".join(f"{name}[{','.join(map(str, shape))}]" for name, shape in shapes.items())
    assert parse_shapes(text) == shapes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read ''"),
        ("image", "cannot read 'image'"),
        ("image[1", r"cannot read 'image\[1'"),
        ("image1]", "cannot read 'image1]'"),
        ("image[1]x[2]", r"cannot read 'image\[1\]x\[2\]'"),
        ("image[1],", "missing after the last comma"),
        ("image[1],,x[2]", "cannot read ',x"),
        ("image[1,]", "'' is not a length"),
        ("image[-1,3]", "'-1' is not a length"),
        ("image[?]", r"'\?' is not a length"),
        ("image[1.5]", "'1.5' is not a length"),
        ("image[batch]", "'batch' is not a length"),
        ("image[²]", "'²' is not a length"),
        ("image[1],image[2]", "'image' comes twice"),
        ("[1],image[2]", "without a name is for all inputs"),
    ],
)
def test_a_bad_shape_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(OptionError, match="^-shape.*" + message):
        parse_shapes(text)


def test_a_static_model_needs_no_shapes() -> None:
    chosen = choose_shapes([FIXED], {})
    assert (dict(chosen.shapes), chosen.batch, chosen.notes) == ({"fixed": (2, 3)}, 1, ())


def test_a_symbol_has_one_length_in_all_inputs() -> None:
    chosen = choose_shapes([IMAGE, MASK], {"mask": (4, 7), "image": (4, 3, 8, 9)})
    assert dict(chosen.shapes) == {"image": (4, 3, 8, 9), "mask": (4, 7)}
    assert chosen.batch == 4
    only_mask = choose_shapes([IMAGE, MASK], {"mask": (4, 7)})
    assert only_mask.shapes["image"] == (4, 3, 1, 1)


def test_lengths_that_nobody_gave_are_1_with_a_note() -> None:
    chosen = choose_shapes([IMAGE, FIXED], {})
    assert chosen.shapes["image"] == (1, 3, 1, 1)
    (note,) = chosen.notes
    assert "image[1,3,1,1]" in note
    assert "-shape or -b" in note


def test_unknown_lengths_of_one_input_are_independent() -> None:
    chosen = choose_shapes([port("x", None, None), port("y", None)], {"x": (2, 3)})
    assert dict(chosen.shapes) == {"x": (2, 3), "y": (1,)}


def test_a_batch_is_the_first_dimension_where_the_model_leaves_it_open() -> None:
    chosen = choose_shapes([IMAGE, MASK, FIXED], {}, batch=8)
    assert dict(chosen.shapes) == {"image": (8, 3, 1, 1), "mask": (8, 1), "fixed": (2, 3)}
    assert chosen.batch == 8
    swapped = choose_shapes([MASK, port("state", "layers", "batch")], {}, batch=5)
    assert swapped.shapes["state"] == (5, 5)


def test_a_batch_needs_an_open_first_dimension() -> None:
    with pytest.raises(OptionError, match=r"-b 4: no input has a first dimension .*fixed"):
        choose_shapes([FIXED], {}, batch=4)
    with pytest.raises(OptionError, match="inputs are none"):
        choose_shapes([], {}, batch=4)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"imag": (1, 3, 1, 1)}, "no input 'imag'; did you mean 'image'"),
        ({"zzz": (1,)}, r"no input 'zzz'; it has image: float32\[batch,3,height,width\]"),
        ({"image": (1, 3)}, "the model wants 4 dimensions"),
        ({"image": (1, 4, 8, 8)}, "dimension 1 of 'image' would be 4, and it is 3 in the model"),
        ({"image": (2, 3, 8, 8), "mask": (1, 5)}, r"\('batch'\) would be 1, and it is 2"),
        ({"words": (1,)}, "'words' is no tensor"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(
    asked: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        choose_shapes([IMAGE, MASK, SEQUENCE], asked)


def test_shape_and_batch_must_agree() -> None:
    with pytest.raises(OptionError, match=r"-b 4: dimension 0 .* it is 1 in -shape image"):
        choose_shapes([IMAGE], {"image": (1, 3, 8, 8)}, batch=4)
    assert choose_shapes([IMAGE], {"image": (4, 3, 8, 8)}, batch=4).batch == 4


def test_shape_and_given_arrays_must_agree() -> None:
    with pytest.raises(OptionError, match="the given input image"):
        choose_shapes([IMAGE], {"image": (1, 3, 8, 8)}, known={"image": (1, 3, 8, 9)})
    chosen = choose_shapes([IMAGE, MASK], {}, known={"image": (2, 3, 8, 9)})
    assert chosen.shapes["image"] == (2, 3, 8, 9)
    assert chosen.shapes["mask"] == (2, 1)


def test_a_shape_without_a_name_is_for_every_tensor() -> None:
    chosen = choose_shapes([port("a", "n"), port("b", None), SEQUENCE], {"": (3,)})
    assert dict(chosen.shapes) == {"a": (3,), "b": (3,)}


def test_an_input_of_unknown_rank_needs_a_shape() -> None:
    with pytest.raises(OptionError, match="'any' has no known shape; give one with -shape"):
        choose_shapes([UNRANKED], {})
    assert choose_shapes([UNRANKED], {"any": (2, 2)}).shapes["any"] == (2, 2)


def test_what_is_no_tensor_gets_no_shape() -> None:
    assert dict(choose_shapes([SEQUENCE, FIXED], {}).shapes) == {"fixed": (2, 3)}


def test_only_what_was_asked_for_is_pinned() -> None:
    ports = [port("a", "n", "seq"), port("b", "n", 3), port("c", 2)]
    assert asked_shapes(ports, {}, None) == {}
    assert asked_shapes(ports, {}, 4) == {"a": (4, None), "b": (4, 3)}
    assert asked_shapes(ports, {"a": (2, 5)}, 2) == {"a": (2, 5), "b": (2, 3)}
