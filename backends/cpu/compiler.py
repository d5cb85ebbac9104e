"""From a model and its input shapes to a plan: specialise, fuse, lower."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from ...errors import AioInferError, BlobError
from ...executors import is_shortage
from ...executors.cached_property import cached_property
from ...executors.late_imports import late_imports
from ...runtime.graph import DType, Graph, Model, Node, Value, check_graph
from ...runtime.graph.mapped_file import mapped_files
from ...runtime.graph.stand_ins import release_constants
from ...runtime.graph.sym_int import Trace
from ...runtime.passes import (
    ConstantFolding,
    DeadCode,
    Pass,
    default_passes,
    run_passes,
    specialize,
)
from ...runtime.passes.folding.constant_cache import ConstantCache
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
from .plans.subgraph_id import SubgraphId
from .programs.team_size import team_size

if TYPE_CHECKING:
    from .blobs.open_plans import StoredPlans
    from .plans.plan_template import FreeLengths, PlanTemplate

__all__ = ["Compiler"]

_log = logging.getLogger("aioinfer")

Array = np.ndarray[Any, Any]

MOST_TEMPLATES = 8
"""Of one network; the one that served longest ago makes room for another."""
TRIES_IN_A_ROW = 3
"""Attempts at a template that no other signature than their own has used, before pauses begin."""
LONGEST_PAUSE = 256
"""Signatures that are built by themselves before tracing is tried again."""

_UNTRACEABLE = (
    AioInferError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What code raises that does not take a SymInt for a number, or oneDNN for its arguments."""


class Compiler:
    """Builds the plans of one network. Thread-safe; plans share packed weights.

    ``passes`` make their constants with ``constants``, so that these go once they are packed.
    ``is_kept`` says of which nodes its ``passes`` want to see, where constants would fold.
    ``only_plan`` brings that of a network which was compiled before, ``stored`` the plans of one
    whose model is there, too, and ``check_model`` is called before others are made of that.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine,
        *,
        device: str,
        thread_count: int,
        float_dtype: DType,
        passes: Sequence[Pass],
        constants: ConstantCache | None = None,
        is_kept: Callable[[Node], bool] | None = None,
        keep_nan: bool = False,
        states: Mapping[str, str] | None = None,
        keeps_model: bool = False,
        only_plan: Callable[[WeightStore], Plan] | None = None,
        stored: StoredPlans | None = None,
        check_model: Callable[[], None] | None = None,
    ) -> None:
        self._states, self._keeps_model = states or {}, keeps_model
        self._model, self.engine = model, engine
        self._device, self._thread_count = device, thread_count
        self._float_dtype, self._passes = float_dtype, tuple(passes)
        self._is_kept, self._keep_nan = is_kept, keep_nan
        self._has_one = has_static_types(model.inputs)
        """True for one signature of lengths: the model itself may become its plan."""
        self.weights = WeightStore(constants)
        self._only_plan, self._check_model = only_plan, check_model
        self.stored = self._fitting(stored)
        self.damage: BlobError | None = None
        """What is wrong with stored plans and their weights; none is used then."""
        self.latest: Plan | None = None
        self._templates: list[PlanTemplate] = []
        self._has_built = self.stored is not None
        """From then on plans are made by templates."""
        self._vain_count = self._pause_count = 0
        """Attempts at a template since one last served another signature, and the signatures that
        are built before the next attempt."""
        self._files = WeakSet(mapped_files(model.graph))
        if only_plan is None and self.stored is None:  # else there may be no plan to make
            self._begin()
        self.shape_tensors = () if only_plan else KERNELS.shape_tensors(model.graph)

    def compile(self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Array]) -> Plan:
        """Build the plan for these input shapes; packs nothing yet. Blocks.

        ``contents`` are those of ``shape_tensors``: the plan is for these alone. Raises ModelError
        if the file that weights are mapped from was written to.
        """
        if self._only_plan is not None:
            self.latest = self._only_plan(self.weights)
            return self.latest
        for file in self._files:
            file.check()
        if self.stored is not None:
            if self.damage is not None:
                raise BlobError(str(self.damage))
            plan = self.stored.read(shapes, contents, self.weights)
            if plan is not None:
                self.latest = plan
                return plan
            self.stored.offer_weights(self.weights)
        self.check_model()
        plan = None if contents else self._plan_of_template(shapes)
        if plan is None:
            builder = self._builder(shapes, contents, self.engine)
            with self.engine.with_threads(builder.thread_count):
                plan = builder.build(KERNELS.lower)
            plan.release_graph()
            if self._has_built and not contents:
                self._count_unserved()
            self._has_built = True
        self.latest = plan
        return plan

    @property
    def is_imported(self) -> bool:
        """True if there is a plan alone, and no model to make others of."""
        return self._only_plan is not None

    @property
    def packed_bytes(self) -> int:
        """Bytes of packed weights, those included whose plans no run has asked for yet."""
        stored = 0 if self.stored is None else self.stored.packed_bytes
        in_bits = 0
        if self.latest is not None and not self.weights.is_closed:
            in_bits = self.latest.bit_weights_bytes
        return max(self.weights.packed_bytes, stored) + in_bits

    def check_model(self) -> None:
        """Have the weights of an imported model checked, once; raises BlobError."""
        check = self._check_model
        if check is not None:
            check()
            self._check_model = None

    def _fitting(self, stored: StoredPlans | None) -> StoredPlans | None:
        """Leave plans aside that were made with anything else than this network has."""
        if stored is None:
            return None
        for key, have in self.made_with.items():
            if stored.made_with.get(key) != have:
                _log.info(
                    "plans of model %r are made anew: its blob's are for %s %r, and this is for %r",
                    self._model.name,
                    key,
                    stored.made_with.get(key),
                    have,
                )
                return None
        stored.graph_of = self.graph_of
        return stored

    def _begin(self) -> None:
        """Do once for all plans what is done before the first."""
        _ = self._prepared, self.ids

    @cached_property
    def _prepared(self) -> Model | None:
        return prepared_model(self._model, shapeless_passes(self._passes))

    @cached_property
    def _free(self) -> FreeLengths:
        with late_imports:
            from .plans.plan_template import FreeLengths

        return FreeLengths(self._model.inputs)

    @cached_property
    def _folding(self) -> tuple[Pass, ...] | None:
        return None if self._is_kept is None else default_passes(is_kept=self._is_kept)

    @cached_property
    def ids(self) -> SubgraphId:
        """Name the plans."""
        names = [item.name for item in self._passes]
        return SubgraphId(self._model.graph, self._float_dtype, names)

    @property
    def made_with(self) -> dict[str, Any]:
        """What shapes a plan beside the model and its inputs' shapes."""
        with late_imports:
            from .blobs.plan_record import plan_facts

        return {
            "threads": self._thread_count,
            "precision": self._float_dtype.label,
            "keep_nan": self._keep_nan,
            "passes": [item.name for item in self._passes],
            "states": dict(self._states),
            **plan_facts(self.engine),
        }

    def graph_of(self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Array]) -> Graph:
        """Make the graph that a plan executes."""
        graph = self._rewritten(shapes, contents).graph
        release_constants(graph)
        return graph

    def _plan_of_template(self, shapes: Mapping[str, Sequence[int]]) -> Plan | None:
        """Make the plan by a template, from the second signature on; None if none is right.

        Where attempts serve their own signature alone, or fail, they come more and more seldom.
        """
        if not self._has_built or not self._free.count:
            return None
        free = self._free.lengths(shapes)
        for place, template in enumerate(self._templates):
            plan = self._plan_for(template, free, shapes)
            if plan is not None:
                self._templates.insert(0, self._templates.pop(place))
                self._vain_count = self._pause_count = 0
                return plan
        if self._pause_count:
            return None
        made = self._traced(shapes, free)
        plan = None if made is None else self._plan_for(made, free, shapes)
        if made is not None and plan is not None:
            self._templates.insert(0, made)
            del self._templates[MOST_TEMPLATES:]
            self._count_attempt()
        return plan

    def _count_unserved(self) -> None:
        """Count lengths that no template was right for; those that the model refuses do not."""
        if self._pause_count:
            self._pause_count -= 1
        else:
            self._count_attempt()

    def _count_attempt(self) -> None:
        self._vain_count += 1
        excess = self._vain_count - TRIES_IN_A_ROW
        if excess >= 0:
            self._pause_count = min(4 << min(excess, 8), LONGEST_PAUSE)

    def _plan_for(
        self, template: PlanTemplate, free: Sequence[int], shapes: Mapping[str, Sequence[int]]
    ) -> Plan | None:
        with self.engine.with_threads(template.thread_count):
            return template.plan_for(free, self.ids.of(shapes, {}))

    def _traced(
        self, shapes: Mapping[str, Sequence[int]], free: Sequence[int]
    ) -> PlanTemplate | None:
        """Build the plan with SymInts for the free lengths; None where that cannot be.

        Want of memory, and what is no answer to a SymInt, is raised as that of any plan.
        """
        with late_imports:
            from .onednn.traced_engine import TracedEngine
            from .plans.plan_template import PlanTemplate

        trace = Trace(free)
        symbolic = self._free.with_lengths(shapes, trace.variables())
        try:
            builder = self._builder(symbolic, {}, TracedEngine(self.engine, trace))
            with self.engine.with_threads(builder.thread_count):
                plan = builder.build(KERNELS.lower)
        except BaseException as error:
            trace.close()
            if is_shortage(error) or not isinstance(error, _UNTRACEABLE):
                raise
            _log.debug("%r cannot be traced: %s", self._model.name, error, exc_info=True)
            return None
        plan.release_graph()
        template = PlanTemplate(trace, plan, self.engine, builder.symbolic_constants)
        return template if template.is_reusable else None

    def _builder(
        self,
        shapes: Mapping[str, Sequence[int]],
        contents: Mapping[str, Array],
        engine: Engine,
    ) -> PlanBuilder:
        model = self._rewritten(shapes, contents)
        check_graph(model.graph)
        refuse_what_cannot_fit(model.graph, most_length=COUNTED_IN_32_BITS)
        KERNELS.refuse_open_outputs(model.graph, self._device)
        thread_count = team_size(model.graph, self._thread_count)
        return PlanBuilder(
            model,
            engine,
            self.weights,
            device=self._device,
            thread_count=thread_count,
            float_dtype=self._float_dtype,
            keep_nan=self._keep_nan,
            name="" if engine.is_traced else self.ids.of(shapes, contents),
            states=self._states,
            has_open_lengths=not self._has_one,
        )

    def _rewritten(
        self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Array]
    ) -> Model:
        model = self._specialize(contents, shapes)
        run_passes(model, (*self._passes, ConstantFolding(), DeadCode()), check=False)
        return model

    def _specialize(
        self, contents: Mapping[str, Array], shapes: Mapping[str, Sequence[int]]
    ) -> Model:
        """Specialise the half-fused model; the one it was made of where our own rules fail."""
        is_last = self._has_one and not self.shape_tensors and not self._keeps_model
        for model in (self._prepared, self._model):
            if model is not None:
                given = with_contents(model, contents)
                special = specialize(given, shapes, self._folding, check=False, is_last=is_last)
                if model is self._model or has_static_types(_results(special.graph)):
                    return special
        raise AssertionError("the second model is always specialised")

    def release_weights(self) -> None:
        """Free the model's weights; for a network whose only plan has been built.

        What that plan uses it keeps, and packing then frees each original as soon as it is packed.
        Graphs show stand-ins, full of NaN, instead.
        """
        for model in (self._model, vars(self).get("_prepared")):
            if model is not None:
                release_constants(model.graph)
        if self.latest is not None:
            self.latest.release_graph()
        self.weights.forget_sources()
        self._passes = ()

    def close(self) -> None:
        """Free all weights, those that plans use, too; nothing is computed any more."""
        self.stored = self._check_model = None
        self.release_weights()
        for template in self._templates:
            template.release_graph()
        self._templates.clear()
        self.weights.close()


def _results(graph: Graph) -> Iterator[Value]:
    for node in graph.nodes:
        yield from node.outputs
