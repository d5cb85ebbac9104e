"""From a model and its input shapes to a plan: specialise, fuse, lower."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.graph import DType, Graph, Model, Value, check_graph
from ...runtime.graph.mapped_file import check_files
from ...runtime.graph.stand_ins import release_constants
from ...runtime.passes import ConstantFolding, DeadCode, Pass, run_passes, specialize
from ...runtime.plans.capacity import COUNTED_IN_32_BITS, refuse_what_cannot_fit
from ...runtime.plans.shape_tensors import with_contents
from ...runtime.type_inference import has_static_types
from .kernels.registry import KERNELS
from .onednn.bindings import Engine
from .passes import shapeless_passes
from .plans.packed_weights import WeightStore
from .plans.plan import Plan
from .plans.plan_builder import PlanBuilder
from .plans.prepared_model import prepared_model
from .programs.team_size import team_size

__all__ = ["Compiler"]

Array = np.ndarray[Any, Any]


class Compiler:
    """Builds the plans of one network. Thread-safe; plans share packed weights."""

    def __init__(
        self,
        model: Model,
        engine: Engine,
        *,
        device: str,
        thread_count: int,
        float_dtype: DType,
        passes: Sequence[Pass],
        keep_nan: bool = False,
    ) -> None:
        self._model, self.engine = model, engine
        self._device, self._thread_count = device, thread_count
        self._float_dtype, self._passes = float_dtype, tuple(passes)
        self._keep_nan = keep_nan
        self._prepared = prepared_model(model, shapeless_passes(passes))
        self.weights = WeightStore()
        self.latest: Plan | None = None
        self.shape_tensors = KERNELS.shape_tensors(model.graph)

    def compile(self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Array]) -> Plan:
        """Build the plan for these input shapes; packs nothing yet. Blocks.

        ``contents`` are those of ``shape_tensors``: the plan is for these alone. Raises ModelError
        if the file that weights are mapped from was written to.
        """
        check_files(self._model.graph)
        model = self._specialize(contents, shapes)
        run_passes(model, (*self._passes, ConstantFolding(), DeadCode()), check=False)
        check_graph(model.graph)
        refuse_what_cannot_fit(model.graph, most_length=COUNTED_IN_32_BITS)
        thread_count = team_size(model.graph, self._thread_count)
        builder = PlanBuilder(
            model,
            self.engine,
            self.weights,
            device=self._device,
            thread_count=thread_count,
            float_dtype=self._float_dtype,
            keep_nan=self._keep_nan,
        )
        with self.engine.with_threads(thread_count):
            self.latest = builder.build(KERNELS.lower)
        return self.latest

    def _specialize(
        self, contents: Mapping[str, Array], shapes: Mapping[str, Sequence[int]]
    ) -> Model:
        """Specialise the half-fused model; the one it was made of where our own rules fail."""
        for model in (self._prepared, self._model):
            if model is not None:
                special = specialize(with_contents(model, contents), shapes, check=False)
                if model is self._model or has_static_types(_results(special.graph)):
                    return special
        raise AssertionError("the second model is always specialised")

    def release_weights(self) -> None:
        """Free the model's weights; for a network whose only plan has been built.

        What that plan uses it keeps, and packing then frees each original as soon as it is packed.
        Graphs show stand-ins, full of NaN, instead.
        """
        for holder in (self._model, self._prepared, self.latest):
            if holder is not None:
                release_constants(holder.graph)
        self.weights.forget_sources()
        self._passes = ()

    def close(self) -> None:
        """Free all weights, those that plans use, too; nothing is computed any more."""
        self.release_weights()
        self.weights.close()


def _results(graph: Graph) -> Iterator[Value]:
    for node in graph.nodes:
        yield from node.outputs
