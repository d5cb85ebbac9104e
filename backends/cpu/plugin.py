"""The CPU plugin: oneDNN on the cores of this machine."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import DeviceError, PropertyError
from ...executors import CpuAllowance, QuotaMeter, StreamsConfig, allowed_cpus
from ...executors.late_imports import late_imports
from ...runtime.devices.extension import bind_kernels
from ...runtime.devices.plugin import CoreHandle, Plugin
from ...runtime.graph import Graph, Model
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.states.state_pairs import find_pairs
from ...runtime.passes import DeadCode, PassReport, default_passes, run_passes
from ...runtime.passes.decomposing import Decomposing
from ...runtime.passes.folding.constant_cache import ConstantCache
from ...runtime.passes.precision.half_widening import HalfWidening
from ...runtime.properties.properties import (
    DEVICE_SHARE,
    EXPORTABLE,
    INFERENCE_PRECISION_HINT,
    NUM_STREAMS,
    NUMA,
    Configuration,
    Property,
)
from .compiler import Compiler
from .executable_network import CpuNetwork
from .kernels.registry import KERNELS, nodes_by_numpy
from .native.extension import native_extension
from .native.step_runner import build_mark, step_runner
from .onednn.bindings import Engine, OneDnnError, open_engine
from .onednn.post_ops import slow_steps
from .passes import (
    INT8_FUSION,
    first_passes,
    has_half_constants,
    is_kept_for_plans,
    plan_passes,
    shared_passes,
    writing_passes,
)
from .passes.quantization_facts import is_int8_weights
from .pieces.stepped_nodes import SteppedNodes, holds_objects
from .plans.packed_weights import WeightStore
from .plans.plan import Plan
from .precision import (
    PRECISIONS,
    chosen_precision,
    find_unsupported_precision,
    has_half_loads,
    has_int8,
    has_native_int8,
    precisions_of,
)
from .properties import (
    CPU_ADAPTIVE_TEAMS,
    CPU_DISABLED_PASSES,
    CPU_KEEP_NAN,
    EXECUTION_MODE_HINT,
    PROPERTIES,
)
from .stream_choice import streams_config

if TYPE_CHECKING:  # few processes import or export a network: they load what reads and writes it
    from ...runtime.blobs.network_record import NetworkRecord
    from ...runtime.blobs.reader import Blob
    from .blobs.open_plans import StoredPlans
    from .pieces.object_outputs import ObjectOutputs

__all__ = ["CpuPlugin"]

_OF_PLANS = (
    EXPORTABLE.key,
    INFERENCE_PRECISION_HINT.key,
    EXECUTION_MODE_HINT.key,
    CPU_KEEP_NAN.key,
    CPU_DISABLED_PASSES.key,
)
"""Properties that a plan has been made with, and that an import cannot change."""


class CpuPlugin(Plugin):
    """Compiles a model for each shape into one table of oneDNN primitives, run by a native call."""

    properties: ClassVar[tuple[Property[Any], ...]] = PROPERTIES
    takes_mapped_constants: ClassVar[bool] = True
    takes_extensions: ClassVar[bool] = True
    unfolded_ops: ClassVar[frozenset[str]] = frozenset({"DequantizeLinear"})

    def __init__(self, core: CoreHandle, name: str) -> None:
        super().__init__(core, name)
        self._engine = open_engine()
        self._latest: (
            tuple[Configuration, CpuAllowance, tuple[StreamsConfig, Configuration]] | None
        ) = None
        """What the properties of the last load were resolved to; its other parts have the same."""
        step_runner(self._engine)

    def close(self) -> None:
        self._latest = None  # whose properties know this plugin

    def device_ids(self) -> list[str]:
        return ["0"]

    def check_device_id(self, device_id: str) -> None:
        """Raise DeviceError for an id that is no CPU; ids beyond 0 are parts of the one device."""
        if not device_id.isdecimal() or not int(device_id):
            super().check_device_id(device_id)
            return
        count = len(allowed_cpus().cpus)
        if int(device_id) >= count:
            raise DeviceError(
                f"{self.name} has no device {device_id!r}: this process may use {count} CPUs, so "
                f"the last part of one is {self.name}.{count - 1}",
                device=f"{self.name}.{device_id}",
            )

    def full_device_name(self, device_id: str) -> str:
        return _processor_name()

    def capabilities(self) -> list[str]:
        names = {"f32": "FP32", "bf16": "BF16", "f16": "FP16"}
        found = precisions_of(self._engine.instruction_set)
        int8 = ["INT8"] if has_int8(self._engine.instruction_set) else []
        return [*(names[precision] for precision in found), *int8, "DYNAMIC", "EXPORT_IMPORT"]

    def stream_range(self) -> tuple[int, int]:
        return (1, max(1, allowed_cpus().count))

    def check_values(self, config: Configuration) -> None:
        if config["NUM_STREAMS"] in (0, NUMA):
            raise PropertyError(
                f"{self.name} does not place its streams on NUMA nodes; set NUM_STREAMS to AUTO, "
                f"or to 1 or more (given: {config['NUM_STREAMS']})",
                "NUM_STREAMS",
                self.name,
                value=config["NUM_STREAMS"],
            )
        self._check_share(config[DEVICE_SHARE.key])
        hint = config[INFERENCE_PRECISION_HINT.key]
        reason = find_unsupported_precision(hint, self._engine.instruction_set)
        if reason is not None:
            raise PropertyError(
                f"{self.name} cannot honour INFERENCE_PRECISION_HINT={hint!r}: {reason}",
                INFERENCE_PRECISION_HINT.key,
                self.name,
                value=hint,
            )

    def _check_share(self, share: str) -> None:
        wanted = int(share.partition("/")[2] or 1)
        if wanted > 1 and wanted > (count := len(allowed_cpus().cpus)):
            raise PropertyError(
                f"{self.name}: {wanted} parts with CPUs of their own are wanted, and this process "
                f"may use {count}; list fewer, or give {DEVICE_SHARE.key} yourself",
                DEVICE_SHARE.key,
                self.name,
                value=share,
            )

    def transform_network(self, model: Model, config: Configuration) -> tuple[Model, PassReport]:
        copied = self.bind_extensions(model.to_rewrite())
        is_kept = is_int8_weights if self._fuses_int8(config) else None
        shared = shared_passes(config[CPU_DISABLED_PASSES.key])
        folding = default_passes(is_kept=is_kept)
        passes = (
            *first_passes(
                config[CPU_DISABLED_PASSES.key],
                reads_halves=self._reads_halves(copied, config),
            ),
            Decomposing(whole_ops=("RotaryEmbedding",)),
            *writing_passes(),
            *folding,
            *shared,
            DeadCode(),
        )
        return copied, run_passes(copied, passes, check=False)

    def remarks(self, model: Model, report: PassReport, config: Configuration) -> tuple[str, ...]:
        found = []
        if HalfWidening.name in [item.name for item in report.results if item.patches]:
            precision = self._resolved(config)[1][INFERENCE_PRECISION_HINT]
            found.append(
                f"what the model stores in float16 or bfloat16 is computed in {precision}, and not "
                f"rounded in between"
            )
        is_quantized = "QuantizeLinear" in [node.op_type for node in model.graph.nodes]
        if is_quantized and not self._fuses_int8(config):
            found.append(
                "what the model quantises is computed in float32, and rounded to what 8 bits hold: "
                + (
                    "the pass for int8 is disabled"
                    if has_int8(self._engine.instruction_set)
                    else "this CPU has no instructions by which int8 is faster"
                )
            )
        return tuple(found)

    def _fuses_int8(self, config: Configuration) -> bool:
        is_disabled = INT8_FUSION in config[CPU_DISABLED_PASSES.key]
        return has_int8(self._engine.instruction_set) and not is_disabled

    def _reads_halves(self, model: Model, config: Configuration) -> bool:
        if not has_half_constants(model.graph) or not has_half_loads(self._engine.instruction_set):
            return False
        return bool(self._resolved(config)[1][INFERENCE_PRECISION_HINT] == "f32")

    def bind_extensions(self, model: Model) -> Model:
        bind_kernels(model, self.extensions)
        return model

    def find_unsupported(self, model: Model, config: Configuration) -> dict[str, str]:
        return self._stepped(model).unsupported_nodes(model.graph)

    def find_implementations(self, model: Model, _config: Configuration) -> Mapping[str, str]:
        return dict.fromkeys(nodes_by_numpy(model.graph), "numpy")

    def compile_network(self, model: Model, config: Configuration) -> ExecutableNetwork:
        stepped = self._stepped(model)
        if not (stepped.has_any(model.graph, config.device) or holds_objects(model.graph)):
            return self._network(model, config)
        objects = self._cut_objects(model, stepped, config.device)
        if objects is not None:
            return self._network(objects.planned, config, objects=objects)
        return self._pieced_network(model, stepped, config)

    def _cut_objects(
        self, model: Model, stepped: SteppedNodes, device: str
    ) -> ObjectOutputs | None:
        """Return how a model is one plan, but for outputs that are objects; None if it is not."""
        if not holds_objects(model.graph):
            return None
        with late_imports:
            from .pieces.object_outputs import cut_objects

        objects = cut_objects(model, native_extension().zip_rows)
        if objects is None or stepped.has_any(objects.planned.graph, device):
            return None
        return objects

    def load_alike(
        self, model: Model, config: Configuration, known: ExecutableNetwork
    ) -> ExecutableNetwork | None:
        if self.extensions or not isinstance(known, CpuNetwork) or known.objects is not None:
            return None
        with late_imports:
            from .plans.alike_plan import alike_plan, may_be_shared

        own, plan = model.to_rewrite(), known.only_plan
        own.is_settled = True
        if plan is None or config[EXPORTABLE] or not may_be_shared(plan):
            return self._network(own, config)
        streams, resolved = self._resolved(config)
        again = partial(_compiler, self.name, self._engine, config=resolved, streams=streams)
        ids, graph_of = known.plan_ids, partial(_graph_of, again)
        compiler = Compiler(
            own,
            self._engine,
            device=self.name,
            thread_count=streams.thread_count,
            float_dtype=PRECISIONS[resolved[INFERENCE_PRECISION_HINT]],
            passes=(),
            only_plan=lambda _: alike_plan(plan, ids, own, graph_of),
        )
        return CpuNetwork(own, compiler, streams, resolved, self.core)

    def _stepped(self, model: Model) -> SteppedNodes:
        return SteppedNodes(model.opsets, self._extensions)

    def import_network(
        self, blob: Blob, record: NetworkRecord, config: Configuration
    ) -> ExecutableNetwork:
        with late_imports:
            from ...runtime.blobs.tensors_record import damaged
            from .blobs.plan_record import ONLY_PLAN, plan_facts, read_plan, read_planned_ports

        if f"{ONLY_PLAN}/plan" not in blob:
            return self._import_model(blob, record, config)
        planned = blob.under(ONLY_PLAN)
        model = read_planned_ports(planned)
        model.name = record.name
        record.refuse_other(plan_facts(self._engine))
        streams, resolved = self._resolved(config)
        record.refuse_other_values(resolved, _OF_PLANS)
        try:
            network = self._network(
                model,
                config,
                lambda weights: read_plan(
                    planned, model.graph, self._engine, weights, streams, self.bind_extensions
                ),
                planned.check_frames,
            )
        except OneDnnError as error:
            raise damaged(f"its plan contradicts itself: {error}") from error
        _look_at_file(network, blob)
        network.removed_nodes = record.removed_nodes
        network.remarks = record.remarks
        return network

    def _import_model(
        self, blob: Blob, record: NetworkRecord, config: Configuration
    ) -> ExecutableNetwork:
        """Load a network from its model, and the plans beside it that are right here."""
        with late_imports:
            from ...runtime.blobs.graph_record import read_model_record
            from .blobs.open_plans import OPEN_PLANS, StoredPlans

        record.refuse_other_values(config, [CPU_DISABLED_PASSES.key])
        if f"{OPEN_PLANS}/index" not in blob:
            return super().import_network(blob, record, config)
        model = self.bind_extensions(read_model_record(blob))
        model.name = record.name
        KERNELS.refuse_unsupported(model.graph, config.device)
        stored = StoredPlans(blob, model, self._engine, self.bind_extensions)
        network = self._network(
            model,
            config,
            None,
            stored.check,
            stored,
            lambda: blob.check_frames(but=OPEN_PLANS),
        )
        _look_at_file(network, blob)
        network.removed_nodes = record.removed_nodes
        network.remarks = record.remarks
        return network

    def cache_facts(self, config: Configuration) -> Mapping[str, Any]:
        with late_imports:
            from .blobs.plan_record import plan_facts

        streams, resolved = self._resolved(config)
        return {
            **super().cache_facts(config),
            **plan_facts(self._engine),
            "kernels": build_mark(),
            "streams": streams.stream_count,
            "threads": streams.thread_count,
            "precision": resolved[INFERENCE_PRECISION_HINT],
        }

    def _network(
        self,
        model: Model,
        config: Configuration,
        only_plan: Callable[[WeightStore], Plan] | None = None,
        check: Callable[[], None] | None = None,
        stored: StoredPlans | None = None,
        check_model: Callable[[], None] | None = None,
        objects: ObjectOutputs | None = None,
    ) -> ExecutableNetwork:
        streams, config = self._resolved(config)
        compiler = _compiler(
            self.name,
            self._engine,
            model,
            config,
            streams,
            states=find_pairs(model, config),
            only_plan=only_plan,
            stored=stored,
            check_model=check_model,
        )
        return CpuNetwork(model, compiler, streams, config, self.core, check, objects)

    def _pieced_network(
        self, model: Model, stepped: SteppedNodes, config: Configuration
    ) -> ExecutableNetwork:
        """Make the network of a model that has nodes which no plan can have."""
        with late_imports:
            from .pieces.pieced_network import PiecedNetwork

        streams, config = self._resolved(config)
        return PiecedNetwork(
            model,
            stepped,
            lambda piece: _compiler(self.name, self._engine, piece, config, streams),
            self._engine,
            streams,
            config,
            self.core,
        )

    def _resolved(self, config: Configuration) -> tuple[StreamsConfig, Configuration]:
        """Return the streams of a network, and its properties with what the device has chosen."""
        allowance, latest = allowed_cpus(), self._latest
        if latest is None or latest[0] is not config or latest[1] != allowance:
            latest = self._latest = config, allowance, self._resolve_for(config, allowance)
        return latest[2]

    def _resolve_for(
        self, config: Configuration, allowance: CpuAllowance
    ) -> tuple[StreamsConfig, Configuration]:
        device = f"{self.name}.{config['DEVICE_ID']}"
        can_follow = (
            allowance.count > allowance.whole_count
            and config[CPU_ADAPTIVE_TEAMS.key]
            and QuotaMeter.open() is not None
        )
        streams = streams_config(config, allowance, device, can_follow_quota=can_follow)
        precision = chosen_precision(
            config[INFERENCE_PRECISION_HINT.key],
            INFERENCE_PRECISION_HINT.key in config.given,
            config[EXECUTION_MODE_HINT.key],
            self._engine.instruction_set,
        )
        chosen = {NUM_STREAMS: streams.stream_count, INFERENCE_PRECISION_HINT: precision}
        return streams, config.with_defaults(chosen)


def _compiler(
    device: str,
    engine: Engine,
    model: Model,
    config: Configuration,
    streams: StreamsConfig,
    **of_whole: Any,
) -> Compiler:
    """Make what builds the plans of a model; ``of_whole`` is what no piece of one has."""
    is_native = has_native_int8(engine.instruction_set)
    constants = ConstantCache()
    passes = plan_passes(
        config[CPU_DISABLED_PASSES.key],
        constants,
        keep_nan=config[CPU_KEEP_NAN.key],
        has_int8=has_int8(engine.instruction_set),
        slow=slow_steps(engine.instruction_set),
        has_native_int8=is_native,
    )
    return Compiler(
        model,
        engine,
        device=device,
        thread_count=streams.thread_count,
        float_dtype=PRECISIONS[config[INFERENCE_PRECISION_HINT]],
        passes=passes,
        constants=constants,
        is_kept=is_kept_for_plans(passes, has_native_int8=is_native),
        keep_nan=config[CPU_KEEP_NAN.key],
        keeps_model=config[EXPORTABLE],
        **of_whole,
    )


def _graph_of(compiler_of: Callable[[Model], Compiler], model: Model) -> Graph:
    """Make the graph that the plan of a model executes, for which passes once a model do nothing.

    The model may be rewritten.
    """
    model.is_settled = True
    return compiler_of(model).graph_of({}, {})


def _look_at_file(network: ExecutableNetwork, blob: Blob) -> None:
    """Have runs look whether the file of their weights was written to, if it is mapped."""
    if isinstance(network, CpuNetwork) and blob.is_mapped:
        network.refuse_if_changed = blob.refuse_if_changed


def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
