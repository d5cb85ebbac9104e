"""The plans of a network of open shapes in a blob, beside its model.

The model makes plans of any shapes on any machine; what was compiled for some is kept beside it,
for those with the same library, processor, threads and properties, and is left aside by all others.
A plan is read when a run first asks for its shapes, so an import costs as much for a hundred plans
as for one. Packed weights are tensors of all plans together; constants that are used as they are
stay the model's. Of each packed weight is noted which constant it was packed from, so that plans
that are compiled after an import share it.
"""

from __future__ import annotations

import base64
import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....errors import BlobError, NotSupportedError
from ....runtime.blobs.reader import Blob
from ....runtime.blobs.tensors_record import (
    TensorReader,
    TensorWriter,
    as_list,
    as_mapping,
    as_text,
    damaged,
    lengths_of,
)
from ....runtime.blobs.writer import BlobWriter
from ....runtime.graph import DType, Graph, Model, TensorType
from ..onednn.bindings import Engine
from ..plans.operand_layout import Layout
from ..plans.packed_weights import WeightStore, digest_of
from ..plans.plan import Description, Plan
from ..programs.resized_plan import closed_plan
from .node_record import BindKernels
from .onednn_record import OneDnnReader, OneDnnWriter
from .plan_reader import count_of
from .plan_record import PLAN, checked, read_record, write_record

__all__ = ["OPEN_PLANS", "KeptPlan", "StoredPlans", "write_open_plans"]

_log = logging.getLogger("aioinfer")

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, Sequence[int]]
Contents = Mapping[str, Array]

OPEN_PLANS = "plans"
"""What the frames of plans begin with that lie beside their model."""

MOST_STORED = 1024
"""Plans of one network in a blob; the latest ones."""
MOST_CONTENT_BYTES = 1 << 16
"""Of one input that shapes depend on: a list of lengths."""

_INDEX, _WEIGHTS = "index", "weights"


class KeptPlan(NamedTuple):
    """A plan and what it is for: shapes of inputs, and the content of those that shapes need."""

    shapes: Shapes
    contents: Contents
    plan: Plan


def write_open_plans(
    blob: BlobWriter,
    kept: Sequence[KeptPlan],
    model: Model,
    made_with: Mapping[str, Any],
    weights: WeightStore,
    constants: TensorWriter,
) -> None:
    """Add plans whose weights are packed, the most recently used last.

    ``made_with`` is what has to be the same where they are used; ``constants`` are the tensors of
    the model, in the blob around. Plans with a step that no blob can hold are left out.
    """
    tensors = TensorWriter(blob, outer=constants)
    rows: list[list[Any]] = []
    written: list[Plan] = []
    for item in kept[-MOST_STORED:]:
        plan = closed_plan(item.plan, weights)
        if plan is None:
            continue
        try:
            contents = {name: _text_of(array) for name, array in item.contents.items()}
            write_record(blob.under(f"plan{len(rows)}"), plan, tensors, model)
        except NotSupportedError as error:
            _log.info("%r is not exported: %s", plan, error)
            continue
        shapes = {name: list(shape) for name, shape in item.shapes.items()}
        rows.append([shapes, contents, plan.id, plan.size_bytes])
        written.append(plan)
    if not rows:
        return
    packed = {id(weight): weight.desc.size_bytes for plan in written for weight in plan.weights}
    content = {"made_with": dict(made_with), "plans": rows, "packed_bytes": sum(packed.values())}
    blob.add_json(_INDEX, content)
    blob.add_json(_WEIGHTS, _weight_rows(written, tensors, model.graph, weights))
    tensors.finish()


def _weight_rows(
    plans: Sequence[Plan], tensors: TensorWriter, graph: Graph, weights: WeightStore
) -> dict[str, Any]:
    """Tell of each packed weight which constant it is, seen how, in which layout."""
    names = {
        id(value.constant): name
        for name, value in graph.initializers.items()
        if value.constant is not None
    }
    onednn, rows = OneDnnWriter(), []
    for weight in {id(weight): weight for plan in plans for weight in plan.weights}.values():
        for source, source_desc in weights.sources_of(weight):
            name = digest = None
            if isinstance(source, str):
                digest = source
            elif (name := names.get(id(source))) is None:
                digest = digest_of(source)
            assert weight.buffer.array is not None
            tensor = tensors.add(weight.buffer.array)
            descs = onednn.desc(source_desc), onednn.desc(weight.desc)
            rows.append([tensor, *descs, name, digest])
    return {"onednn": onednn.rows, "weights": rows}


class StoredPlans:
    """The plans of a blob, read one by one. Thread-safe.

    ``around`` is the blob that has the model, too; ``bind`` ties nodes to users' kernels. Raises
    BlobError for an index that no export writes.
    """

    def __init__(self, around: Blob, model: Model, engine: Engine, bind: BindKernels) -> None:
        self._around, self._blob = around, around.under(OPEN_PLANS)
        self._model, self._engine, self._bind = model, engine, bind
        self._lock = threading.Lock()
        self._tensors: TensorReader | None = None
        self._inputs = {value.name: value.type for value in model.inputs}
        self.graph_of: Callable[[Shapes, Contents], Graph] = _no_graph
        """Makes the graph that a plan executes, to be looked at."""
        self._is_offered = False
        index = as_mapping(self._blob.json(_INDEX))
        self.made_with = as_mapping(index.get("made_with"))
        self.packed_bytes = count_of(index.get("packed_bytes"), 0, 1 << 48)
        """Bytes of the packed weights of all these plans."""
        rows = as_list(index.get("plans"))
        if len(rows) > MOST_STORED:
            raise damaged(f"it has {len(rows)} plans")
        self.sizes_bytes: list[tuple[dict[str, tuple[int, ...]], dict[str, Array], int]] = []
        """What the plans are for, and their bytes in memory; the most recently used last."""
        self._places: dict[Any, tuple[int, str]] = {}
        for number, row in enumerate(rows):
            if len(as_list(row)) != 4:
                raise damaged(f"plan {number} is no row of a table")
            shapes, contents = self._shapes(row[0]), self._contents(row[0], row[1])
            self._places[_key(shapes, contents)] = number, as_text(row[2])
            size_bytes = count_of(row[3], 0, 1 << 48)
            self.sizes_bytes.append((shapes, contents, size_bytes))
        if len(self._places) != len(rows):
            raise damaged("two of its plans are for the same inputs")

    def check(self) -> None:
        """Compare what plans use with its checksums; raises BlobError. Blocks."""
        self._blob.check_frames()
        with self._lock:
            used = self._own().outer_frames()
        self._around.check_frames(only=used)

    def has(self, shapes: Shapes, contents: Contents) -> bool:
        """True if there is a plan for these inputs."""
        return _key(shapes, contents) in self._places

    def read(self, shapes: Shapes, contents: Contents, weights: WeightStore) -> Plan | None:
        """Read the plan for these inputs, or None; compiles its primitives on this thread."""
        place = self._places.get(_key(shapes, contents))
        if place is None:
            return None
        number, plan_id = place
        blob = self._blob.under(f"plan{number}")
        inputs = [
            TensorType(_tensor(value.type).dtype, tuple(shapes[value.name]))
            for value in self._model.inputs
        ]
        outputs = [_tensor(value.type) for value in self._model.outputs]

        def describe(layouts: Mapping[str, Layout], float_dtype: DType, id: str) -> Description:
            return Description(
                lambda: (self.graph_of(shapes, contents), layouts), float_dtype, plan_id
            )

        def read() -> Plan:
            content = as_mapping(blob.json(PLAN))
            # A run waits for a stream with as many threads, and there is none with more.
            count_of(content["thread_count"], 1, self.made_with["threads"])
            types, tensors = (inputs, outputs), self._own()
            return read_record(
                blob, content, self._engine, weights, tensors, self._bind, types, describe
            )

        with self._lock:
            return checked(read)

    def offer_weights(self, weights: WeightStore) -> None:
        """Have plans that are compiled from now on take what was packed; any number of calls."""
        with self._lock:
            if not self._is_offered:
                self._is_offered = True
                checked(lambda: self._offer(weights))

    def _offer(self, weights: WeightStore) -> None:
        content = as_mapping(self._blob.json(_WEIGHTS))
        tensors, constants = self._own(), self._model.graph.initializers
        onednn = OneDnnReader(self._engine, content["onednn"])
        for tensor, source_number, desc_number, name, digest in as_list(content["weights"]):
            packed, desc = tensors.get(tensor), onednn.desc(desc_number)
            if packed.nbytes != desc.size_bytes or not packed.flags.c_contiguous:
                raise damaged(f"a packed weight has {packed.nbytes} of {desc.size_bytes} bytes")
            source: Array | str | None = as_text(digest) if name is None else None
            if name is not None:
                value = constants.get(as_text(name))
                source = None if value is None else value.constant
            if source is None:
                raise damaged(f"a packed weight is of {name!r:.40}, which is no constant")
            weights.offer(source, onednn.desc(source_number), desc, packed)

    def _own(self) -> TensorReader:
        if self._tensors is None:
            self._tensors = TensorReader(self._blob, outer=self._around)
        return self._tensors

    def _shapes(self, record: Any) -> dict[str, tuple[int, ...]]:
        given = as_mapping(record)
        if given.keys() != self._inputs.keys():
            raise damaged(f"a plan is for inputs {sorted(given)!r:.60}")
        shapes = {name: tuple(lengths_of(given[name], name)) for name in self._inputs}
        for name, shape in shapes.items():
            kind = _tensor(self._inputs[name])
            if kind.shape is not None and (
                len(kind.shape) != len(shape)
                or any(
                    isinstance(dim, int) and dim != length
                    for dim, length in zip(kind.shape, shape, strict=True)
                )
            ):
                raise damaged(f"a plan is for {name!r} of {list(shape)}, and it is {kind}")
        return shapes

    def _contents(self, shapes: Any, record: Any) -> dict[str, Array]:
        contents: dict[str, Array] = {}
        for name, text in as_mapping(record).items():
            if name not in self._inputs:
                raise damaged(f"a plan is for the content of {name!r:.40}, which is no input")
            dtype, lengths = _tensor(self._inputs[name]).dtype, tuple(shapes[name])
            try:
                data = base64.b64decode(as_text(text), validate=True)
            except ValueError as error:
                raise damaged(f"the content of {name!r} is no base64") from error
            if len(data) > MOST_CONTENT_BYTES or len(data) != math.prod(lengths) * dtype.item_bytes:
                raise damaged(f"the content of {name!r} has {len(data)} bytes")
            contents[name] = np.frombuffer(data, dtype.numpy).reshape(lengths)
        return contents


def _text_of(array: Array) -> str:
    if array.nbytes > MOST_CONTENT_BYTES:
        raise NotSupportedError(f"content of {array.nbytes} bytes is in no blob")
    return base64.b64encode(array.tobytes()).decode()


def _key(shapes: Shapes, contents: Contents) -> Any:
    return (
        tuple(sorted((name, tuple(shape)) for name, shape in shapes.items())),
        tuple(sorted((name, array.tobytes()) for name, array in contents.items())),
    )


def _tensor(kind: Any) -> TensorType:
    if not isinstance(kind, TensorType):
        raise damaged(f"plans are for tensors, and an input or output is {kind}")
    return kind


def _no_graph(_shapes: Shapes, _contents: Contents) -> Graph:
    raise BlobError("nothing makes the graphs of these plans")
