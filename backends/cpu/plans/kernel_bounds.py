"""What each native kernel touches of its operands, computed from its parameters alone. Pure.

A step is emitted only if every byte that it will touch lies in its operand's buffer. Lowering may
be misled by shapes that contradict each other; the parameters are what is run. The rules
follow native_*.c word by word: a kernel that gets another parameter gets another rule.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ....runtime.graph import DType
from ....runtime.graph.sym_int import has_sym_ints
from .elementwise_parameters import FLOAT_STEPS, INTEGER_STEPS

__all__ = ["Reach", "reaches_of"]

Reach = tuple[int, int, Collection[DType]]
"""The first byte that is touched and the one after the last, counted from where the operand begins,
and the element types that the kernel takes it for; none if it only moves bytes."""

_MOST = 1 << 48
"""No buffer has as many bytes; products of lengths below it do not overflow in C."""
_MOST_PARTS = 1 << 12
"""Far more than threads; a kernel begins each of them, also those of no columns."""

_MAX_RANK, _MAX_OPERANDS = 24, 32
_NO_TYPES: frozenset[DType] = frozenset()
_FLOAT32 = frozenset({DType.FLOAT32})
_FLOAT64 = frozenset({DType.FLOAT64})
_UINT8 = frozenset({DType.UINT8})
_INT8 = frozenset({DType.INT8})
_ROW_TYPES = (_FLOAT32, frozenset({DType.BFLOAT16}))
_INDEX_TYPES = {4: frozenset({DType.INT32}), 8: frozenset({DType.INT64})}
_INT32 = _INDEX_TYPES[4]
_INTEGER_TYPES = frozenset(
    {
        DType.BOOL,
        DType.UINT8,
        DType.INT8,
        DType.UINT16,
        DType.INT16,
        DType.UINT32,
        DType.INT32,
        DType.INT64,
    }
)
_TYPES = _INTEGER_TYPES | {DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64}
_NUMBERS = frozenset(dtype.value for dtype in _TYPES)
_INTEGER_NUMBERS = frozenset(dtype.value for dtype in _INTEGER_TYPES)
_FIRST_BINARY = {
    "float_elementwise": FLOAT_STEPS.index("add"),
    "integer_elementwise": INTEGER_STEPS.index("add"),
}
_STEP_COUNTS = {"float_elementwise": len(FLOAT_STEPS), "integer_elementwise": len(INTEGER_STEPS)}
_REDUCTION_COUNT = 10
_MOST_TREE_NUMBERS, _SECOND = 1 << 30, 2
_RECURRENT_GATES, _RECURRENT_SLOTS = (4, 3, 3, 1, 1, 1), (3, 4, 2, 2, 2, 2)
_RECURRENT_BLOCK, _LATE_GRU = 16, 2
_MOST_CLASSES = 1 << 16
_INT8_TYPES: Mapping[int, tuple[int, Collection[DType]]] = {
    DType.FLOAT32.value: (4, _FLOAT32),
    DType.UINT8.value: (1, _UINT8),
    DType.INT8.value: (1, _INT8),
}
_INT8_PANEL, _INT8_SLACK, _MOST_INT8_TAPS = 16, 32, 64
_MOST_INT8_OTHERS, _MOST_INT8_STEPS, _MOST_INT8_LENGTH = 8, 32, 1 << 31


def reaches_of(kernel: str, parameters: tuple[int, ...]) -> list[Reach]:
    """Return the reach of each operand, in order.

    Raises ValueError for parameters that the kernel does not take, whatever its operands are.
    """
    if has_sym_ints(parameters):
        return _reaches_of(kernel, parameters)
    return _known_reaches_of(kernel, parameters)


def _reaches_of(kernel: str, parameters: tuple[int, ...]) -> list[Reach]:
    if kernel not in _REACHES:
        raise ValueError(f"there is no native kernel {kernel!r}")
    if not all(-(1 << 63) <= number < 1 << 63 for number in parameters):
        raise ValueError(f"{kernel!r} takes numbers of 64 bits")
    return _REACHES[kernel](parameters)


_known_reaches_of = functools.lru_cache(maxsize=1024)(_reaches_of)
"""A network's layers ask the same again and again."""


def _take(parameters: Sequence[int], count: int) -> Sequence[int]:
    if len(parameters) != count:
        raise ValueError(f"there are {len(parameters)} parameters, and {count} are needed")
    return parameters


def _product(*lengths: int) -> int:
    """Multiply lengths, of which none is negative; a product that no memory has is refused."""
    if any(length < 0 for length in lengths):
        raise ValueError(f"a length is negative in {list(lengths)}")
    product = math.prod(lengths)
    if product >= _MOST:
        raise ValueError(f"{list(lengths)} is more than there can be")
    return product


def _strided(lengths: Sequence[int], strides: Sequence[int], item: int) -> tuple[int, int]:
    """Return the reach of elements of ``item`` bytes at these strides, which may be negative."""
    low, high = 0, item
    for length, stride in zip(lengths, strides, strict=True):
        if stride > 0:
            high += (length - 1) * stride
        else:
            low += (length - 1) * stride
    return (low, high) if 0 not in lengths else (0, 0)


def _item(number: int) -> int:
    if number not in (1, 2, 4, 8):
        raise ValueError(f"elements have 1, 2, 4 or 8 bytes, not {number}")
    return number


@functools.cache
def _element(number: int) -> tuple[int, Collection[DType]]:
    if number not in _NUMBERS:
        raise ValueError(f"elements of type {number} are not known")
    dtype = DType(number)
    return dtype.item_bytes, frozenset({dtype})


def _row_type(number: int) -> tuple[int, Collection[DType]]:
    if number not in (0, 1):
        raise ValueError(f"rows are of type 0 or 1, not {number}")
    return (4, 2)[number], _ROW_TYPES[number]


def _rank(number: int, least: int) -> int:
    if not least <= number <= _MAX_RANK:
        raise ValueError(f"there are {number} axes, and may be {least} to {_MAX_RANK}")
    return number


def _copy(parameters: Sequence[int]) -> list[Reach]:
    item, rank, *axes = parameters
    _item(item)
    _take(axes, 3 * rank)
    lengths = axes[0::3]
    _product(item, *lengths)
    source, target = axes[1::3], axes[2::3]
    return [
        (*_strided(lengths, source, item), _NO_TYPES),
        (*_strided(lengths, target, item), _NO_TYPES),
    ]


def _fill(parameters: Sequence[int]) -> list[Reach]:
    item, count, _ = _take(parameters, 3)
    return [(0, _product(_item(item), count), _NO_TYPES)]


def _gather(parameters: Sequence[int]) -> list[Reach]:
    outer, length, count, part, index = _take(parameters, 5)
    if index not in _INDEX_TYPES:
        raise ValueError(f"indices have 4 or 8 bytes, not {index}")
    return [
        (0, _product(outer, length, part), _NO_TYPES),
        (0, _product(count, index), _INDEX_TYPES[index]),
        (0, _product(outer, count, part), _NO_TYPES),
    ]


def _sample_grid(parameters: Sequence[int]) -> list[Reach]:
    outer, in_rows, in_columns, rows, columns, part = _take(parameters, 6)
    return [
        (0, _product(outer, in_rows, in_columns, part), _NO_TYPES),
        (0, _product(rows, 4), _INT32),
        (0, _product(columns, 4), _INT32),
        (0, _product(outer, rows, columns, part), _NO_TYPES),
    ]


def _resample(parameters: Sequence[int]) -> list[Reach]:
    outer, length, count, inner, taps = _take(parameters, 5)
    return [
        (0, _product(outer, length, inner, 4), _FLOAT32),
        (0, _product(count, taps, 4), _INT32),
        (0, _product(count, taps, 4), _FLOAT32),
        (0, _product(count, 4), _FLOAT32),
        (0, _product(outer, count, inner, 4), _FLOAT32),
    ]


def _elementwise(kernel: str, parameters: Sequence[int]) -> list[Reach]:
    count, rank, steps, *words = parameters
    if not 2 <= count <= _MAX_OPERANDS:
        raise ValueError(f"a fused group of {count} operands")
    _rank(rank, 2)
    _take(words, rank + count * (1 + rank) + 4 * _product(steps))
    lengths = words[:rank]
    _product(8, *lengths)
    first, most = _FIRST_BINARY[kernel], _STEP_COUNTS[kernel]
    behind = rank + count * (1 + rank)
    for start in range(behind, len(words), 4):
        number, operand = words[start], words[start + 1]
        if not 0 <= number < most or not 0 <= operand < count - 1 or (number >= first) > operand:
            raise ValueError(f"step {number} on operand {operand}")
    found: list[Reach] = []
    for start in range(rank, behind, 1 + rank):
        is_read_whole = kernel == "integer_elementwise" and start + 1 + rank < behind
        if is_read_whole and words[start] not in _INTEGER_NUMBERS:
            raise ValueError(f"whole numbers of type {words[start]}")
        item, dtypes = _element(words[start])
        strides = words[start + 1 : start + 1 + rank]
        found.append((*_strided(lengths, strides, item), dtypes))
    return found


def _where(parameters: Sequence[int]) -> list[Reach]:
    item, rank, *words = parameters
    _item(item)
    _take(words, 5 * _rank(rank, 1))
    lengths, strides = words[:rank], words[rank:]
    _product(item, *lengths)
    return [
        (*_strided(lengths, strides[index::4], item if index else 1), _NO_TYPES)
        for index in range(4)
    ]


def _reduce(parameters: Sequence[int]) -> list[Reach]:
    kind, source, result, kept_count, reduced_count, length, from_step, to_step, *words = parameters
    if not 0 <= kind < _REDUCTION_COUNT:
        raise ValueError(f"there is no reduction {kind}")
    behind = 3 * _rank(kept_count, 0)
    _take(words, behind + 2 * _rank(reduced_count, 0))
    kept, reduced = words[:behind], words[behind:]
    kept_lengths, reduced_lengths = kept[0::3], reduced[0::2]
    _product(8, length, *kept_lengths, *reduced_lengths)
    read_item, read_types = _element(source)
    made_item, made_types = _element(result)
    lengths = (length, *kept_lengths, *reduced_lengths)
    read = _strided(lengths, (from_step, *kept[1::3], *reduced[1::2]), read_item)
    # Where the inner axis is reduced there is one result, even of no elements.
    is_kept = length if to_step else 1
    made = _strided((is_kept, *kept_lengths), (to_step, *kept[2::3]), made_item)
    return [(*read, read_types), (*made, made_types)]


def _find_extremes(parameters: Sequence[int]) -> list[Reach]:
    outer, length, inner, *_ = _take(parameters, 5)
    if length < 1:
        raise ValueError(f"an extreme of {length} elements")
    made = _product(outer, inner, 8)
    return [(0, _product(outer, length, inner, 4), _FLOAT32), (0, made, _INDEX_TYPES[8])]


def _select_top(parameters: Sequence[int]) -> list[Reach]:
    outer, length, inner, count, _ = _take(parameters, 5)
    if not 1 <= count <= length:
        raise ValueError(f"{count} of {length} elements are kept")
    return [
        (0, _product(outer, length, inner, 4), _FLOAT32),
        (0, _product(outer, count, inner, 4), _FLOAT32),
        (0, _product(outer, count, inner, 8), _INDEX_TYPES[8]),
    ]


def _align_regions(parameters: Sequence[int]) -> list[Reach]:
    images, channels, height, width, regions, rows, columns, *_ = _take(parameters, 11)
    if rows < 1 or columns < 1:
        raise ValueError(f"regions of {rows} by {columns} bins")
    return [
        (0, _product(images, channels, height, width, 4), _FLOAT32),
        (0, _product(regions, 4, 4), _FLOAT32),
        (0, _product(regions, 8), _INDEX_TYPES[8]),
        (0, _product(regions, channels, rows, columns, 4), _FLOAT32),
    ]


def _fold_columns(parameters: Sequence[int]) -> list[Reach]:
    images, channels, height, width, *axes = _take(parameters, 14)
    windows = []
    for length, places, stride, dilation, pad in (axes[:5], axes[5:]):
        if stride < 1 or abs(pad) >= _MOST:
            raise ValueError(f"windows every {stride} places, {pad} of them cut off")
        _product(places, dilation)
        windows += [length, places]
    return [
        (0, _product(images, channels, *windows, 4), _FLOAT32),
        (0, _product(images, channels, height, width, 4), _FLOAT32),
    ]


def _softmax(parameters: Sequence[int]) -> list[Reach]:
    element, outer, length, inner, _ = _take(parameters, 5)
    item, dtypes = _row_type(element)
    size = _product(outer, length, inner, item)
    return [(0, size, dtypes), (0, size, dtypes)]


def _attention_probabilities(parameters: Sequence[int]) -> list[Reach]:
    element, batch, heads, rows, length, _, has_mask, *strides, _ = _take(parameters, 11)
    item, dtypes = _row_type(element)
    count = _product(batch, heads, rows, length)
    found: list[Reach] = [(0, _product(count, 4), _FLOAT32), (0, _product(count, item), dtypes)]
    if has_mask:
        taken = [4 * stride for stride in (*strides, 1)]
        found.append((*_strided((batch, heads, rows, length), taken, 4), _FLOAT32))
    return found


def _rms_norm(parameters: Sequence[int]) -> list[Reach]:
    element, rows, length, _ = _take(parameters, 4)
    item, dtypes = _row_type(element)
    size = _product(rows, length, item)
    return [(0, size, dtypes), (0, _product(length, 4), _FLOAT32), (0, size, dtypes)]


def _layer_norm(parameters: Sequence[int]) -> list[Reach]:
    element, rows, length, _, has_shifts, kept = _take(parameters, 6)
    if has_shifts not in (0, 1) or kept not in (0, 1, 2):
        raise ValueError(f"rows with {has_shifts} shifts and {kept} statistics")
    item, dtypes = _row_type(element)
    size = _product(rows, length, item)
    factors: list[Reach] = [(0, _product(length, 4), _FLOAT32)] * (1 + has_shifts)
    statistics: list[Reach] = [(0, _product(rows, 4), _FLOAT32)] * kept
    return [(0, size, dtypes), *factors, (0, size, dtypes), *statistics]


def _dynamic_quantize(parameters: Sequence[int]) -> list[Reach]:
    (count,) = _take(parameters, 1)
    return [
        (0, _product(count, 4), _FLOAT32),
        (0, _product(count), _UINT8),
        (0, 4, _FLOAT32),
        (0, 1, _UINT8),
    ]


def _small_matmul(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, has_bias, _ = _take(parameters, 5)
    sizes = [_product(rows, inner, 4), _product(inner, columns, 4)]
    if has_bias:
        sizes.append(_product(columns, 4))
    return [(0, size, _FLOAT32) for size in (*sizes, _product(rows, columns, 4))]


def _pair_distances(parameters: Sequence[int]) -> list[Reach]:
    kind, rows, others, length = _take(parameters, 4)
    if kind not in (0, 1, 2):
        raise ValueError(f"there is no distance {kind}")
    _product(rows, others, length, 4)
    sizes = (rows * length, others * length, rows * others)
    return [(0, _product(size, 4), _FLOAT32) for size in sizes]


def _packed_chunks(inner: int, length: int, bits: int) -> tuple[int, int, int, int]:
    """Return blocks, bytes, chunks and the numbers of a chunk of a row of packed weights."""
    if bits not in (4, 8) or inner < 1 or not 1 <= length < _MOST or length * bits % 8:
        raise ValueError(f"rows of {inner} numbers of {bits} bits in blocks of {length}")
    chunk = 256 // bits
    if length < inner and length not in (16, 32) and length % chunk:
        raise ValueError(f"blocks of {length} numbers of {bits} bits in rows of {inner}")
    blocks = -(-inner // length)
    return blocks, _product(blocks, length, bits) // 8, -(-inner // chunk), chunk


def _packed_weights(columns: int, blocks: int, row: int, has_zeros: int) -> list[Reach]:
    if has_zeros not in (0, 1):
        raise ValueError(f"weights with {has_zeros} zero points")
    zeros: list[Reach] = [(0, _product(columns, blocks), _INT8)] * has_zeros
    scales = (0, _product(columns, blocks, 4), _FLOAT32)
    return [(0, _product(columns, row), _UINT8), scales, *zeros]


def _order_rows(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, bits, parts = _take(parameters, 4)
    _, _, chunks, chunk = _packed_chunks(inner, inner + inner % 2, bits)
    if not 1 <= parts <= _MOST_PARTS:
        raise ValueError(f"{parts} parts")
    made = _product(rows, chunks, chunk, 4)
    return [(0, _product(rows, inner, 4), _FLOAT32), (0, made, _FLOAT32)]


def _packed_matmul(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, length, bits, has_zeros, has_bias, parts = _take(parameters, 8)
    blocks, row, chunks, chunk = _packed_chunks(inner, length, bits)
    if has_bias not in (0, 1) or not 1 <= parts <= _MOST_PARTS:
        raise ValueError(f"{has_bias} biases in {parts} parts")
    weights = _packed_weights(columns, blocks, row, has_zeros)
    bias: list[Reach] = [(0, _product(columns, 4), _FLOAT32)] * has_bias
    data = _product(rows, chunks, chunk, 4)
    made = _product(rows, columns, 4)
    return [(0, data, _FLOAT32), *weights, *bias, (0, made, _FLOAT32)]


def _int8_words(parameters: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Check the words that kernels for int8 take, and return them and the types of the others."""
    others, steps = parameters[24:26] if len(parameters) >= 26 else (-1, -1)
    if not (0 <= others <= _MOST_INT8_OTHERS and 0 <= steps <= _MOST_INT8_STEPS):
        raise ValueError(f"{steps} steps with {others} operands")
    words = _take(parameters, 26 + others + 4 * steps)
    types, rest = words[26 : 26 + others], words[26 + others :]
    for number, operand in zip(rest[::4], rest[1::4], strict=True):
        is_binary = number >= _FIRST_BINARY["float_elementwise"]
        if (
            not 0 <= number < _STEP_COUNTS["float_elementwise"]
            or not is_binary <= operand <= others
        ):
            raise ValueError(f"step {number} with operand {operand}")
    kinds = (*types, words[17], words[18])
    if any(kind not in _INT8_TYPES for kind in kinds) or words[17] == DType.FLOAT32.value:
        raise ValueError(f"elements of the types {kinds}")
    if min(words[5:11]) < 1 or min(words[11:13]) < 0 or max(words[11:13]) >= _MOST_INT8_LENGTH:
        raise ValueError(f"a window with the words {list(words[5:13])}")
    if words[19] not in (0, 1) or not 1 <= words[23] <= _MOST_PARTS or min(words[14:17]) < 1:
        raise ValueError(f"a product with the words {list(words[13:24])}")
    if not -128 <= words[13] <= 255 or max(words[:13]) >= _MOST_INT8_LENGTH:
        raise ValueError(f"lengths of {list(words[:14])}")
    _product(*words[3:5], *words[7:9])
    _product(*words[5:7], *words[9:11])
    return words, types


def _int8_operands(
    words: Sequence[int], types: Sequence[int], weights: Sequence[Reach], scratch: int
) -> list[Reach]:
    """Return what kernels for int8 touch, around ``weights`` and that many bytes of scratch."""
    columns = _product(words[14], words[16])
    if words[21] not in (1, columns):
        raise ValueError(f"{words[21]} scales of {columns} columns")
    count = _product(words[0], *words[3:5], columns)
    full = [
        (0, _product(count, _INT8_TYPES[kind][0]), _INT8_TYPES[kind][1])
        for kind in (*types, words[18])
    ]
    return [
        (0, _product(*words[:3], *words[14:16]), _INT8_TYPES[words[17]][1]),
        *weights,
        (0, _product(words[21], 4), _FLOAT32),
        (0, _product(columns, 4), _FLOAT32),
        *full[:-1],
        (0, scratch, _UINT8),
        full[-1],
    ]


def _int8_product(parameters: Sequence[int]) -> list[Reach]:
    words, types = _int8_words(parameters)
    panels = _product(words[14], -(-words[16] // _INT8_PANEL))
    row = _product(-(-_product(*words[5:7], words[15]) // 4), 12 if words[19] else 4)
    if words[22] < 1:
        raise ValueError(f"blocks of {words[22]} rows")
    weights = [
        (0, _product(words[20], 4 * _INT8_PANEL), _UINT8),
        (0, _product(2 * panels + 1 + words[20], 4), _INT32),
        (0, _product(panels, 4 * _INT8_PANEL), _INT32),
    ]
    scratch = _product(words[23], _product(words[22], row) + _INT8_SLACK)
    return _int8_operands(words, types, weights, scratch)


def _int8_depthwise(parameters: Sequence[int]) -> list[Reach]:
    words, types = _int8_words(parameters)
    taps = _product(*words[5:7])
    if tuple(words[15:17]) != (1, 1) or taps > _MOST_INT8_TAPS or any(words[19:21]):
        raise ValueError(f"{taps} taps of channels that are apart, with {list(words[14:20])}")
    chunks = _product(-(-words[14] // _INT8_PANEL), -(-taps // 2))
    weights = [(0, _product(chunks, 4 * _INT8_PANEL), _UINT8)]
    return _int8_operands(words, types, weights, words[14])


def _int8_squares(parameters: Sequence[int]) -> list[Reach]:
    words, types = _int8_words(parameters)
    if tuple(words[5:11]) != (3, 3, 1, 1, 1, 1) or words[14] != 1 or any(words[19:21]):
        raise ValueError(f"squares of a convolution with {list(words[5:20])}")
    if words[15] % _INT8_PANEL or words[22] < 1:
        raise ValueError(f"squares of {words[15]} channels in blocks of {words[22]}")
    weights = _product(-(-words[16] // _INT8_PANEL), _INT8_PANEL, words[15], 16 * 2)
    row = 2 * words[15] + 4 * _INT8_PANEL
    part = 16 * (_product(words[22], row) + 2 * _INT8_SLACK)
    return _int8_operands(
        words, types, [(0, weights, _UINT8)], _product(words[23], part) + words[15]
    )


def _stored_rows(rows: int, inner: int) -> list[Reach]:
    if inner < 1 or inner % 64:
        raise ValueError(f"rows of {inner} numbers are no whole chunks")
    blocks = (0, _product(rows, inner // 32, 4), _FLOAT32)
    return [(0, _product(rows, inner), _INT8), blocks, blocks]


def _quantize_rows(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, parts = _take(parameters, 3)
    if not 1 <= parts <= _MOST_PARTS:
        raise ValueError(f"{parts} parts")
    return [(0, _product(rows, inner, 4), _FLOAT32), *_stored_rows(rows, inner)]


def _packed_matmul_int8(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, length, has_zeros, has_bias, parts = _take(parameters, 7)
    if has_bias not in (0, 1) or not 1 <= parts <= _MOST_PARTS:
        raise ValueError(f"{has_bias} biases in {parts} parts")
    if length < 32 or length % 32 or inner % length:
        raise ValueError(f"blocks of {length} numbers in rows of {inner}")
    stored = _stored_rows(rows, inner)
    weights = _packed_weights(columns, inner // length, inner // 2, has_zeros)
    bias: list[Reach] = [(0, _product(columns, 4), _FLOAT32)] * has_bias
    return [*stored, *weights, *bias, (0, _product(rows, columns, 4), _FLOAT32)]


def _unpack_weights(parameters: Sequence[int]) -> list[Reach]:
    inner, columns, length, bits, has_zeros, first, count, parts = _take(parameters, 8)
    blocks, row, chunks, chunk = _packed_chunks(inner, length, bits)
    if first < 0 or count < 0 or first + count > columns or not 1 <= parts <= _MOST_PARTS:
        raise ValueError(f"rows {first} to {first + count} of {columns} in {parts} parts")
    made = _product(count, chunks, chunk, 4)
    return [*_packed_weights(columns, blocks, row, has_zeros), (0, made, _FLOAT32)]


def _thin_matmul(parameters: Sequence[int]) -> list[Reach]:
    is_standing, parts, *lengths = _take(parameters, 17)[:7]
    outer, pairs, rows, inner, columns = lengths
    strides = [4 * stride for stride in parameters[7:16]]
    if is_standing not in (0, 1) or not 1 <= parts <= _MOST_PARTS or inner < 1:
        raise ValueError(f"a matmul in {parts} parts of rows of {inner}")
    _product(*lengths, 4)
    _product(parts, outer, pairs)
    _product(parts, columns)
    left = _strided((outer, pairs, rows, inner), (*strides[:3], 4), 4)
    pieces = (4, strides[5]) if is_standing else (strides[5], 4)
    right = _strided((outer, pairs, inner, columns), (*strides[3:5], *pieces), 4)
    target = _strided((outer, pairs, rows, columns), (*strides[6:], 4), 4)
    return [(*reach, _FLOAT32) for reach in (left, right, target)]


def _pool(parameters: Sequence[int]) -> list[Reach]:
    kind, element, item, outer, inner, *words = _take(parameters, 23)
    known, dtypes = _element(element)
    if kind not in (0, 1) or known != item or inner < 1:
        raise ValueError(f"a pool of kind {kind} over {inner} elements of {item} bytes")
    axes = list(_pool_axes(words))
    source = _product(outer, inner, item, *(length for length, _ in axes))
    result = _product(outer, inner, item, *(count for _, count in axes))
    reads: list[Reach] = [(0, source, dtypes)]
    if kind:
        reads.append((0, 4 * sum(count for _, count in axes), _FLOAT32))
    return [*reads, (0, result, dtypes)]


def _pool_axes(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    for start in range(0, len(words), 6):
        length, count, size, stride, dilation, pad = words[start : start + 6]
        if min(size, stride, dilation) < 1 or pad < 0:
            raise ValueError(
                f"a window of {size} elements, stride {stride}, dilation {dilation}, pad {pad}"
            )
        _product(count, stride)
        _product(8, size, dilation)
        _product(pad)
        yield length, count


def _tree_ensemble(parameters: Sequence[int]) -> list[Reach]:
    rows, features, nodes, trees, leaves, entries, targets, *words, labels = _take(parameters, 14)
    verdict = words[2]
    known = range(4), range(5), range(5), range(max(0, targets)), range(2), range(2)
    if not all(word in each for word, each in zip(words, known, strict=True)):
        raise ValueError(f"trees with the words {words} for {targets} targets")
    if not 1 <= features < _MOST_TREE_NUMBERS or not 1 <= nodes <= _MOST_TREE_NUMBERS:
        raise ValueError(f"trees of {nodes} nodes that ask for {features} features")
    if nodes & (nodes - 1) or max(entries, leaves) > _MOST_TREE_NUMBERS:
        raise ValueError(f"trees of {nodes} nodes, {leaves} leaves and {entries} entries")
    if labels < (0, targets, 2, 2, 0)[verdict] or (verdict == _SECOND and targets != 2):
        raise ValueError(f"{labels} labels for {targets} targets by verdict {verdict}")
    made: list[Reach] = [(0, _product(rows, 8), _INDEX_TYPES[8])] if verdict else []
    return [
        (0, _product(rows, features, 4), _FLOAT32),
        (0, _product(nodes, 16), _INT32),
        (0, _product(trees, 8), _INT32),
        (0, _product(leaves + 1, 4), _INT32),
        (0, _product(entries, 4), _INT32),
        (0, _product(entries, 4), _FLOAT32),
        (0, _product(targets, 8), _FLOAT64),
        (0, _product(labels, 8), _INDEX_TYPES[8]),
        (0, _product(rows, targets, 8), _FLOAT64),
        (0, _product(rows, targets), _UINT8),
        *made,
        (0, _product(rows, targets, 4), _FLOAT32),
    ]


def _recurrent(parameters: Sequence[int]) -> list[Reach]:
    kind, time, batch, hidden, directions, backwards, *words = _take(parameters, 19)
    flags, (is_coupled, _, parts, rows) = words[5:9], words[9:]
    _, has_result, has_peepholes, has_lengths = flags
    known = range(len(_RECURRENT_GATES)), (1, 2), range(4)
    if not all(
        word in each for word, each in zip((kind, directions, backwards), known, strict=True)
    ):
        raise ValueError(
            f"a layer of kind {kind} in {directions} directions, {backwards} of them back"
        )
    if any(flag not in (0, 1) for flag in (*flags, is_coupled)) or not 1 <= parts <= _MOST_PARTS:
        raise ValueError(f"a layer with the flags {flags}, {is_coupled} in {parts} parts")
    if min(time, batch, hidden) < 1 or (has_peepholes and kind):
        raise ValueError(f"a layer of kind {kind} of {[time, batch, hidden]}")
    if not 1 <= rows <= batch:
        raise ValueError(f"walks with {rows} of {batch} sequences")
    gates, slots = _RECURRENT_GATES[kind], _RECURRENT_SLOTS[kind]
    padded = -(-hidden // _RECURRENT_BLOCK) * _RECURRENT_BLOCK
    units = _product(directions, padded, 4)
    given = [4 * stride for stride in words[:5]]
    row = _product(units, gates) // 4
    _product(time, batch, units, gates, slots)
    found: list[Reach] = [
        (*_strided((time, batch, row), (*given[:2], 4), 4), _FLOAT32),
        (0, _product(units, hidden, gates), _FLOAT32),
    ]
    if kind == _LATE_GRU:
        found.append((0, units, _FLOAT32))
    if has_peepholes:
        found.append((0, 3 * units, _FLOAT32))
    if has_lengths:
        found.append((0, _product(batch, 4), _INT32))
    found.append((0, _product(units, batch, slots), _FLOAT32))
    if has_result:
        lengths = (time, directions, batch, hidden)
        found.append((*_strided(lengths, (*given[2:], 4), 4), _FLOAT32))
    return found


def _vote_by_pairs(parameters: Sequence[int]) -> list[Reach]:
    rows, vectors, classes, has_odds = _take(parameters, 4)
    if not 2 <= classes < _MOST_CLASSES or has_odds not in (0, 1):
        raise ValueError(f"votes of {classes} classes")
    pairs = classes * (classes - 1) // 2
    width = classes if has_odds or classes == 2 else pairs
    odds: list[Reach] = [(0, 8 * pairs, _FLOAT32)] * has_odds
    return [
        (0, _product(rows, vectors, 4), _FLOAT32),
        (0, _product(classes - 1, vectors, 4), _FLOAT32),
        (0, 4 * classes, _INT32),
        (0, 4 * pairs, _FLOAT32),
        *odds,
        (0, 8 * classes, _INDEX_TYPES[8]),
        (0, 8 * (pairs + classes * (classes + 2)), _FLOAT64),
        (0, _product(rows, 8), _INDEX_TYPES[8]),
        (0, _product(rows, width, 4), _FLOAT32),
    ]


_REACHES: Mapping[str, Callable[[Sequence[int]], list[Reach]]] = {
    "align_regions": _align_regions,
    "attention_probabilities": _attention_probabilities,
    "copy": _copy,
    "dynamic_quantize": _dynamic_quantize,
    "fill": _fill,
    "find_extremes": _find_extremes,
    "float_elementwise": lambda parameters: _elementwise("float_elementwise", parameters),
    "fold_columns": _fold_columns,
    "gather": _gather,
    "int8_depthwise": _int8_depthwise,
    "int8_product": _int8_product,
    "int8_squares": _int8_squares,
    "integer_elementwise": lambda parameters: _elementwise("integer_elementwise", parameters),
    "layer_norm": _layer_norm,
    "order_rows": _order_rows,
    "packed_matmul": _packed_matmul,
    "packed_matmul_int8": _packed_matmul_int8,
    "pair_distances": _pair_distances,
    "pool": _pool,
    "quantize_rows": _quantize_rows,
    "recurrent": _recurrent,
    "reduce": _reduce,
    "resample": _resample,
    "rms_norm": _rms_norm,
    "sample_grid": _sample_grid,
    "select_top": _select_top,
    "small_matmul": _small_matmul,
    "softmax": _softmax,
    "thin_matmul": _thin_matmul,
    "tree_ensemble": _tree_ensemble,
    "unpack_weights": _unpack_weights,
    "vote_by_pairs": _vote_by_pairs,
    "where": _where,
}
