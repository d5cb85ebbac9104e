"""What each native kernel touches of its operands, computed from its parameters alone. Pure.

A step is emitted only if every byte that it will touch lies in its operand's buffer. Lowering may
be misled by shapes that contradict each other; the parameters are what is run. The rules
follow native_*.c word by word (those for int8 stand in int8_bounds.py): a kernel that gets another
parameter gets another rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ....runtime.graph import DType
from ....runtime.graph.sym_int import has_sym_ints
from .elementwise_parameters import FLOAT_STEPS, INTEGER_STEPS
from .int8_bounds import int8_depthwise, int8_product, int8_squares
from .reach import FLOAT32, INT8, INT32, MOST_BYTES, MOST_PARTS, UINT8, Reach, product, take

__all__ = ["reaches_of"]

_MAX_RANK, _MAX_OPERANDS = 24, 32
_NO_TYPES: frozenset[DType] = frozenset()
_FLOAT64 = frozenset({DType.FLOAT64})
_ROW_TYPES = (FLOAT32, frozenset({DType.BFLOAT16}))
_INDEX_TYPES = {4: INT32, 8: frozenset({DType.INT64})}
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
    take(axes, 3 * rank)
    lengths = axes[0::3]
    product(item, *lengths)
    source, target = axes[1::3], axes[2::3]
    return [
        (*_strided(lengths, source, item), _NO_TYPES),
        (*_strided(lengths, target, item), _NO_TYPES),
    ]


def _fill(parameters: Sequence[int]) -> list[Reach]:
    item, count, _ = take(parameters, 3)
    return [(0, product(_item(item), count), _NO_TYPES)]


def _gather(parameters: Sequence[int]) -> list[Reach]:
    outer, length, count, part, index = take(parameters, 5)
    if index not in _INDEX_TYPES:
        raise ValueError(f"indices have 4 or 8 bytes, not {index}")
    return [
        (0, product(outer, length, part), _NO_TYPES),
        (0, product(count, index), _INDEX_TYPES[index]),
        (0, product(outer, count, part), _NO_TYPES),
    ]


def _sample_grid(parameters: Sequence[int]) -> list[Reach]:
    outer, in_rows, in_columns, rows, columns, part = take(parameters, 6)
    return [
        (0, product(outer, in_rows, in_columns, part), _NO_TYPES),
        (0, product(rows, 4), INT32),
        (0, product(columns, 4), INT32),
        (0, product(outer, rows, columns, part), _NO_TYPES),
    ]


def _resample(parameters: Sequence[int]) -> list[Reach]:
    outer, length, count, inner, taps = take(parameters, 5)
    return [
        (0, product(outer, length, inner, 4), FLOAT32),
        (0, product(count, taps, 4), INT32),
        (0, product(count, taps, 4), FLOAT32),
        (0, product(count, 4), FLOAT32),
        (0, product(outer, count, inner, 4), FLOAT32),
    ]


def _elementwise(kernel: str, parameters: Sequence[int]) -> list[Reach]:
    count, rank, steps, *words = parameters
    if not 2 <= count <= _MAX_OPERANDS:
        raise ValueError(f"a fused group of {count} operands")
    _rank(rank, 2)
    take(words, rank + count * (1 + rank) + 4 * product(steps))
    lengths = words[:rank]
    product(8, *lengths)
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
    take(words, 5 * _rank(rank, 1))
    lengths, strides = words[:rank], words[rank:]
    product(item, *lengths)
    return [
        (*_strided(lengths, strides[index::4], item if index else 1), _NO_TYPES)
        for index in range(4)
    ]


def _reduce(parameters: Sequence[int]) -> list[Reach]:
    kind, source, result, kept_count, reduced_count, length, from_step, to_step, *words = parameters
    if not 0 <= kind < _REDUCTION_COUNT:
        raise ValueError(f"there is no reduction {kind}")
    behind = 3 * _rank(kept_count, 0)
    take(words, behind + 2 * _rank(reduced_count, 0))
    kept, reduced = words[:behind], words[behind:]
    kept_lengths, reduced_lengths = kept[0::3], reduced[0::2]
    product(8, length, *kept_lengths, *reduced_lengths)
    read_item, read_types = _element(source)
    made_item, made_types = _element(result)
    lengths = (length, *kept_lengths, *reduced_lengths)
    read = _strided(lengths, (from_step, *kept[1::3], *reduced[1::2]), read_item)
    # Where the inner axis is reduced there is one result, even of no elements.
    is_kept = length if to_step else 1
    made = _strided((is_kept, *kept_lengths), (to_step, *kept[2::3]), made_item)
    return [(*read, read_types), (*made, made_types)]


def _find_extremes(parameters: Sequence[int]) -> list[Reach]:
    outer, length, inner, *_ = take(parameters, 5)
    if length < 1:
        raise ValueError(f"an extreme of {length} elements")
    made = product(outer, inner, 8)
    return [(0, product(outer, length, inner, 4), FLOAT32), (0, made, _INDEX_TYPES[8])]


def _select_top(parameters: Sequence[int]) -> list[Reach]:
    outer, length, inner, count, _ = take(parameters, 5)
    if not 1 <= count <= length:
        raise ValueError(f"{count} of {length} elements are kept")
    return [
        (0, product(outer, length, inner, 4), FLOAT32),
        (0, product(outer, count, inner, 4), FLOAT32),
        (0, product(outer, count, inner, 8), _INDEX_TYPES[8]),
    ]


def _align_regions(parameters: Sequence[int]) -> list[Reach]:
    images, channels, height, width, regions, rows, columns, *_ = take(parameters, 11)
    if rows < 1 or columns < 1:
        raise ValueError(f"regions of {rows} by {columns} bins")
    return [
        (0, product(images, channels, height, width, 4), FLOAT32),
        (0, product(regions, 4, 4), FLOAT32),
        (0, product(regions, 8), _INDEX_TYPES[8]),
        (0, product(regions, channels, rows, columns, 4), FLOAT32),
    ]


def _fold_columns(parameters: Sequence[int]) -> list[Reach]:
    images, channels, height, width, *axes = take(parameters, 14)
    windows = []
    for length, places, stride, dilation, pad in (axes[:5], axes[5:]):
        if stride < 1 or abs(pad) >= MOST_BYTES:
            raise ValueError(f"windows every {stride} places, {pad} of them cut off")
        product(places, dilation)
        windows += [length, places]
    return [
        (0, product(images, channels, *windows, 4), FLOAT32),
        (0, product(images, channels, height, width, 4), FLOAT32),
    ]


def _softmax(parameters: Sequence[int]) -> list[Reach]:
    element, outer, length, inner, _ = take(parameters, 5)
    item, dtypes = _row_type(element)
    size = product(outer, length, inner, item)
    return [(0, size, dtypes), (0, size, dtypes)]


def _attention_probabilities(parameters: Sequence[int]) -> list[Reach]:
    element, batch, heads, rows, length, _, has_mask, *strides, _ = take(parameters, 11)
    item, dtypes = _row_type(element)
    count = product(batch, heads, rows, length)
    found: list[Reach] = [(0, product(count, 4), FLOAT32), (0, product(count, item), dtypes)]
    if has_mask:
        taken = [4 * stride for stride in (*strides, 1)]
        found.append((*_strided((batch, heads, rows, length), taken, 4), FLOAT32))
    return found


def _rms_norm(parameters: Sequence[int]) -> list[Reach]:
    element, rows, length, _ = take(parameters, 4)
    item, dtypes = _row_type(element)
    size = product(rows, length, item)
    return [(0, size, dtypes), (0, product(length, 4), FLOAT32), (0, size, dtypes)]


def _layer_norm(parameters: Sequence[int]) -> list[Reach]:
    element, rows, length, _, has_shifts, kept = take(parameters, 6)
    if has_shifts not in (0, 1) or kept not in (0, 1, 2):
        raise ValueError(f"rows with {has_shifts} shifts and {kept} statistics")
    item, dtypes = _row_type(element)
    size = product(rows, length, item)
    factors: list[Reach] = [(0, product(length, 4), FLOAT32)] * (1 + has_shifts)
    statistics: list[Reach] = [(0, product(rows, 4), FLOAT32)] * kept
    return [(0, size, dtypes), *factors, (0, size, dtypes), *statistics]


def _dynamic_quantize(parameters: Sequence[int]) -> list[Reach]:
    (count,) = take(parameters, 1)
    return [
        (0, product(count, 4), FLOAT32),
        (0, product(count), UINT8),
        (0, 4, FLOAT32),
        (0, 1, UINT8),
    ]


def _small_matmul(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, has_bias, _ = take(parameters, 5)
    sizes = [product(rows, inner, 4), product(inner, columns, 4)]
    if has_bias:
        sizes.append(product(columns, 4))
    return [(0, size, FLOAT32) for size in (*sizes, product(rows, columns, 4))]


def _pair_distances(parameters: Sequence[int]) -> list[Reach]:
    kind, rows, others, length = take(parameters, 4)
    if kind not in (0, 1, 2):
        raise ValueError(f"there is no distance {kind}")
    product(rows, others, length, 4)
    sizes = (rows * length, others * length, rows * others)
    return [(0, product(size, 4), FLOAT32) for size in sizes]


def _packed_chunks(inner: int, length: int, bits: int) -> tuple[int, int, int, int]:
    """Return blocks, bytes, chunks and the numbers of a chunk of a row of packed weights."""
    if bits not in (4, 8) or inner < 1 or not 1 <= length < MOST_BYTES or length * bits % 8:
        raise ValueError(f"rows of {inner} numbers of {bits} bits in blocks of {length}")
    chunk = 256 // bits
    if length < inner and length not in (16, 32) and length % chunk:
        raise ValueError(f"blocks of {length} numbers of {bits} bits in rows of {inner}")
    blocks = -(-inner // length)
    return blocks, product(blocks, length, bits) // 8, -(-inner // chunk), chunk


def _packed_weights(columns: int, blocks: int, row: int, has_zeros: int) -> list[Reach]:
    if has_zeros not in (0, 1):
        raise ValueError(f"weights with {has_zeros} zero points")
    zeros: list[Reach] = [(0, product(columns, blocks), INT8)] * has_zeros
    scales = (0, product(columns, blocks, 4), FLOAT32)
    return [(0, product(columns, row), UINT8), scales, *zeros]


def _order_rows(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, bits, parts = take(parameters, 4)
    _, _, chunks, chunk = _packed_chunks(inner, inner + inner % 2, bits)
    if not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"{parts} parts")
    made = product(rows, chunks, chunk, 4)
    return [(0, product(rows, inner, 4), FLOAT32), (0, made, FLOAT32)]


def _packed_matmul(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, length, bits, has_zeros, has_bias, parts = take(parameters, 8)
    blocks, row, chunks, chunk = _packed_chunks(inner, length, bits)
    if has_bias not in (0, 1) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"{has_bias} biases in {parts} parts")
    weights = _packed_weights(columns, blocks, row, has_zeros)
    bias: list[Reach] = [(0, product(columns, 4), FLOAT32)] * has_bias
    data = product(rows, chunks, chunk, 4)
    made = product(rows, columns, 4)
    return [(0, data, FLOAT32), *weights, *bias, (0, made, FLOAT32)]


def _stored_rows(rows: int, inner: int) -> list[Reach]:
    if inner < 1 or inner % 64:
        raise ValueError(f"rows of {inner} numbers are no whole chunks")
    blocks = (0, product(rows, inner // 32, 4), FLOAT32)
    return [(0, product(rows, inner), INT8), blocks, blocks]


def _quantize_rows(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, parts = take(parameters, 3)
    if not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"{parts} parts")
    return [(0, product(rows, inner, 4), FLOAT32), *_stored_rows(rows, inner)]


def _packed_matmul_int8(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, length, has_zeros, has_bias, parts = take(parameters, 7)
    if has_bias not in (0, 1) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"{has_bias} biases in {parts} parts")
    if length < 32 or length % 32 or inner % length:
        raise ValueError(f"blocks of {length} numbers in rows of {inner}")
    stored = _stored_rows(rows, inner)
    weights = _packed_weights(columns, inner // length, inner // 2, has_zeros)
    bias: list[Reach] = [(0, product(columns, 4), FLOAT32)] * has_bias
    return [*stored, *weights, *bias, (0, product(rows, columns, 4), FLOAT32)]


def _unpack_weights(parameters: Sequence[int]) -> list[Reach]:
    inner, columns, length, bits, has_zeros, first, count, parts = take(parameters, 8)
    blocks, row, chunks, chunk = _packed_chunks(inner, length, bits)
    if first < 0 or count < 0 or first + count > columns or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"rows {first} to {first + count} of {columns} in {parts} parts")
    made = product(count, chunks, chunk, 4)
    return [*_packed_weights(columns, blocks, row, has_zeros), (0, made, FLOAT32)]


def _thin_matmul(parameters: Sequence[int]) -> list[Reach]:
    is_standing, parts, *lengths = take(parameters, 17)[:7]
    outer, pairs, rows, inner, columns = lengths
    strides = [4 * stride for stride in parameters[7:16]]
    if is_standing not in (0, 1) or not 1 <= parts <= MOST_PARTS or inner < 1:
        raise ValueError(f"a matmul in {parts} parts of rows of {inner}")
    product(*lengths, 4)
    product(parts, outer, pairs)
    product(parts, columns)
    left = _strided((outer, pairs, rows, inner), (*strides[:3], 4), 4)
    pieces = (4, strides[5]) if is_standing else (strides[5], 4)
    right = _strided((outer, pairs, inner, columns), (*strides[3:5], *pieces), 4)
    target = _strided((outer, pairs, rows, columns), (*strides[6:], 4), 4)
    return [(*reach, FLOAT32) for reach in (left, right, target)]


def _pool(parameters: Sequence[int]) -> list[Reach]:
    kind, element, item, outer, inner, *words = take(parameters, 23)
    known, dtypes = _element(element)
    if kind not in (0, 1) or known != item or inner < 1:
        raise ValueError(f"a pool of kind {kind} over {inner} elements of {item} bytes")
    axes = list(_pool_axes(words))
    source = product(outer, inner, item, *(length for length, _ in axes))
    result = product(outer, inner, item, *(count for _, count in axes))
    reads: list[Reach] = [(0, source, dtypes)]
    if kind:
        reads.append((0, 4 * sum(count for _, count in axes), FLOAT32))
    return [*reads, (0, result, dtypes)]


def _pool_axes(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    for start in range(0, len(words), 6):
        length, count, size, stride, dilation, pad = words[start : start + 6]
        if min(size, stride, dilation) < 1 or pad < 0:
            raise ValueError(
                f"a window of {size} elements, stride {stride}, dilation {dilation}, pad {pad}"
            )
        product(count, stride)
        product(8, size, dilation)
        product(pad)
        yield length, count


def _tree_ensemble(parameters: Sequence[int]) -> list[Reach]:
    rows, features, nodes, trees, leaves, entries, targets, *words, labels = take(parameters, 14)
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
    made: list[Reach] = [(0, product(rows, 8), _INDEX_TYPES[8])] if verdict else []
    return [
        (0, product(rows, features, 4), FLOAT32),
        (0, product(nodes, 16), INT32),
        (0, product(trees, 8), INT32),
        (0, product(leaves + 1, 4), INT32),
        (0, product(entries, 4), INT32),
        (0, product(entries, 4), FLOAT32),
        (0, product(targets, 8), _FLOAT64),
        (0, product(labels, 8), _INDEX_TYPES[8]),
        (0, product(rows, targets, 8), _FLOAT64),
        (0, product(rows, targets), UINT8),
        *made,
        (0, product(rows, targets, 4), FLOAT32),
    ]


def _recurrent(parameters: Sequence[int]) -> list[Reach]:
    kind, time, batch, hidden, directions, backwards, *words = take(parameters, 19)
    flags, (is_coupled, _, parts, rows) = words[5:9], words[9:]
    _, has_result, has_peepholes, has_lengths = flags
    known = range(len(_RECURRENT_GATES)), (1, 2), range(4)
    if not all(
        word in each for word, each in zip((kind, directions, backwards), known, strict=True)
    ):
        raise ValueError(
            f"a layer of kind {kind} in {directions} directions, {backwards} of them back"
        )
    if any(flag not in (0, 1) for flag in (*flags, is_coupled)) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"a layer with the flags {flags}, {is_coupled} in {parts} parts")
    if min(time, batch, hidden) < 1 or (has_peepholes and kind):
        raise ValueError(f"a layer of kind {kind} of {[time, batch, hidden]}")
    if not 1 <= rows <= batch:
        raise ValueError(f"walks with {rows} of {batch} sequences")
    gates, slots = _RECURRENT_GATES[kind], _RECURRENT_SLOTS[kind]
    padded = -(-hidden // _RECURRENT_BLOCK) * _RECURRENT_BLOCK
    units = product(directions, padded, 4)
    given = [4 * stride for stride in words[:5]]
    row = product(units, gates) // 4
    product(time, batch, units, gates, slots)
    found: list[Reach] = [
        (*_strided((time, batch, row), (*given[:2], 4), 4), FLOAT32),
        (0, product(units, hidden, gates), FLOAT32),
    ]
    if kind == _LATE_GRU:
        found.append((0, units, FLOAT32))
    if has_peepholes:
        found.append((0, 3 * units, FLOAT32))
    if has_lengths:
        found.append((0, product(batch, 4), INT32))
    found.append((0, product(units, batch, slots), FLOAT32))
    if has_result:
        lengths = (time, directions, batch, hidden)
        found.append((*_strided(lengths, (*given[2:], 4), 4), FLOAT32))
    return found


def _vote_by_pairs(parameters: Sequence[int]) -> list[Reach]:
    rows, vectors, classes, has_odds = take(parameters, 4)
    if not 2 <= classes < _MOST_CLASSES or has_odds not in (0, 1):
        raise ValueError(f"votes of {classes} classes")
    pairs = classes * (classes - 1) // 2
    width = classes if has_odds or classes == 2 else pairs
    odds: list[Reach] = [(0, 8 * pairs, FLOAT32)] * has_odds
    return [
        (0, product(rows, vectors, 4), FLOAT32),
        (0, product(classes - 1, vectors, 4), FLOAT32),
        (0, 4 * classes, INT32),
        (0, 4 * pairs, FLOAT32),
        *odds,
        (0, 8 * classes, _INDEX_TYPES[8]),
        (0, 8 * (pairs + classes * (classes + 2)), _FLOAT64),
        (0, product(rows, 8), _INDEX_TYPES[8]),
        (0, product(rows, width, 4), FLOAT32),
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
    "int8_depthwise": int8_depthwise,
    "int8_product": int8_product,
    "int8_squares": int8_squares,
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
