"""CompiledNetwork: what a device has compiled; its facts, statistics, export and close."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, overload

from ...errors import (
    ClosedError,
    DeviceError,
    NotSupportedError,
    PropertyError,
    nearest,
    placed,
)
from ...executors import ExecutorManager, note_given_back
from ...executors.base import refuse_own_thread
from ...executors.fork import ProcessMark
from ...executors.late_imports import late_imports
from ..graph import Graph, Model
from ..loops.closing import Closing
from ..properties.properties import (
    MAX_QUEUED_REQUESTS,
    OUTPUT_LOCATION,
    Configuration,
    Metric,
    property_keys,
)
from ..runs.run import Run
from ..runs.run_admission import RunAdmission
from ..runs.stage import Stop, new_stop_word
from ..tensors.tensor import Port
from ..tracing.copied_bytes import CopyCounts
from ..tracing.recorder import StageTally
from .deadlines import check_timeout
from .network_facts import config_value, known_metrics, metric_value
from .states.kept_states import NetworkStates

if TYPE_CHECKING:
    from ..blobs.tensors_record import TensorWriter
    from ..blobs.writer import BlobWriter
    from ..plans.shape_plans import ShapePlans
    from ..tracing.statistics import NetworkStatistics, PlanStatistics
    from ..tracing.timeline import Trace
    from .export import ExportTarget

__all__ = ["CompiledNetwork", "ExecutorOwner"]

_log = logging.getLogger("aioinfer")


class ExecutorOwner(Protocol):
    """What a network asks of its Core."""

    @property
    def executors(self) -> ExecutorManager:
        """The executors that all networks of the Core share."""


class CompiledNetwork(Closing):
    """A model compiled for a device, before anything runs it; thread-safe.

    Holds the admission, which a close waits for. ExecutableNetwork makes the runs that enter it.
    """

    def __init__(
        self,
        *,
        name: str,
        device: str,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        config: Configuration,
        core: ExecutorOwner,
    ) -> None:
        self.name, self.device = name, device
        self.copy = 1
        """Tells it from the Core's other open networks of the same name and device."""
        self.keep_at_close: Callable[[CompiledNetwork], None] | None = None
        """Keeps what was compiled since the load; called once no run is left, by a close that has
        time."""
        self.is_from_cache = False
        """True if CACHE_DIR had it."""
        self.is_part = False
        """True if another network is made of it, whose numbers include its own."""
        self.inputs: tuple[Port, ...] = tuple(inputs)
        self.outputs: tuple[Port, ...] = tuple(outputs)
        self.model_inputs, self.model_outputs = self.inputs, self.outputs
        """All that the device takes and makes, the states of requests included."""
        self.states: NetworkStates | None = None
        """Which of them requests keep to themselves; None: none."""
        self.config = config
        self.model_again: Callable[[], Model] | None = None
        """Makes the transformed model once more, for an export without weights; None: cannot."""
        self.removed_nodes: tuple[str, ...] = ()
        """Nodes of the file for which ``runtime_graph`` has none: passes made them needless."""
        self.is_as_given = False
        """True if the passes that its device runs once a model have changed nothing in its own."""
        self.batching_refusal = ""
        """Why its requests do not share runs, where that was asked for if it can be."""
        self.remarks: tuple[str, ...] = ()
        """What its device did to the model that a user should know; for ``explain``."""
        self.reason = "the device asked for"
        """Why it is on its device; for ``explain``."""
        self.kept_outputs = _kept_outputs(config, self.outputs, name)
        """The outputs that stay on the device; a backend adds those that become state there."""
        self._core = core
        self._process = ProcessMark()
        self._closed_error = partial(_closed_error, name, device, self._process)
        self._plans: ShapePlans[Any] | None = None
        """Set by a backend that compiles per shape; for the statistics."""
        self.admission: RunAdmission[Run] = RunAdmission(
            name,
            device,
            self._closed_error,
            config.value_or_default(MAX_QUEUED_REQUESTS),
        )
        """The slots and the runs; for requests."""
        self.admission.kept_outputs = self.kept_outputs
        self.admission.arrivals.count_batches_of(self.inputs)
        self._closer = threading.RLock()
        self._warm_up_stop = Stop()
        self._warm_up_stop.word = new_stop_word()
        self._is_released = False

    @abstractmethod
    def runtime_graph(self) -> Graph:
        """Return a copy of the graph that is executed; nodes carry the original names."""

    def _abandon(self) -> None:
        """Give the device back when the constructor fails; for backends, instead of closing."""
        self.admission.is_closed = True
        self._is_released = True
        self._release_device()
        self.admission.free_slots()

    def _release_device(self) -> None:
        """(optional) Give back executors and memory; called once, when no run is left."""
        return

    def _metrics(self) -> Sequence[Metric]:
        """(optional) List the backend's own facts about a network."""
        return ()

    @property
    def execution_devices(self) -> tuple[str, ...]:
        """The devices that compute for it."""
        return (self.device,)

    async def ready(self, device: str | None = None) -> None:
        """(optional) Wait until a device serves, of AUTO's, which may still compile for it.

        None: until no device is being compiled. Raises DeviceError for one that never will, and
        ClosedError. A network of one device is ready when it is loaded.
        """
        self.refuse_if_closed()
        names = self.execution_devices
        if device is not None and device not in {*names, *(name.split(".")[0] for name in names)}:
            raise DeviceError(
                f"network {self.name!r} is served by {', '.join(names)} and by no {device}",
                **self.admission.where,
            )

    @property
    def optimal_request_count(self) -> int:
        """How many requests in flight keep the device busy; at least 1."""
        count, wanted = self.admission.slot_count, self.config["PERFORMANCE_HINT_NUM_REQUESTS"]
        return max(1, min(count, wanted) if wanted else count)

    def statistics(self) -> NetworkStatistics:
        """Return a frozen picture of what the network has done so far, and of what waits now."""
        with late_imports:
            from .network_statistics import network_statistics

        self.refuse_after_fork()
        return network_statistics(
            self,
            self._stage_tallies(),
            self._copied_bytes(),
            self._plan_statistics(),
            self._part_statistics(),
        )

    def _stage_tallies(self) -> list[StageTally]:
        return self.admission.recorder.tallies()

    def _copied_bytes(self) -> CopyCounts:
        return self.admission.recorder.copied_bytes()

    def _plan_statistics(self) -> PlanStatistics:
        with late_imports:
            from ..tracing.statistics import PlanStatistics

        return PlanStatistics() if self._plans is None else self._plans.statistics()

    def _part_statistics(self) -> tuple[NetworkStatistics, ...]:
        """(optional) Picture the networks that it is made of."""
        return ()

    def trace(self) -> Trace:
        """Return the latest spans, oldest first: which stage of which run ran where and when.

        With PERF_COUNT its ``nodes`` are those of the latest runs, drawn below their stages.
        ``trace().save("trace.html")`` makes a page of them, ``.json`` a file for Perfetto.
        """
        with late_imports:
            from ..tracing.timeline import Trace

        self.refuse_after_fork()
        recorder = self.admission.recorder
        spans, nodes = recorder.spans(self.device), recorder.nodes()
        return Trace(self.name, self.device, spans, recorder.forgot_until_ns, nodes)

    def explain(self) -> str:
        """Return in words which device runs which node, and why, and in which numbers it does."""
        return "\n  ".join([self.explanation(), *self.how_computed()])

    def how_computed(self) -> Sequence[str]:
        """(optional) Say which nodes compute in other numbers than float32; a line for each kind.

        It is made when it is asked for, of what has been compiled by then.
        """
        return ()

    def explanation(self) -> str:
        """(optional) Return the first line of ``explain``."""
        graph = self.runtime_graph()
        text = f"{self.name}: all {len(graph)} nodes on {self.device}, {self.reason}"
        if self.removed_nodes:
            with late_imports:
                from ..graph.text import some_names

            text += f"; passes made needless: {some_names(self.removed_nodes)}"
        text = "; ".join([text, *self.remarks])
        if self.batching_refusal:
            text += f"; requests do not share runs: {self.batching_refusal}"
        return text

    def get_config(self, key: str) -> Any:
        """Return the value of a property that the network was compiled with."""
        self.refuse_after_fork()
        return config_value(self, key, self._metrics())

    def set_config(self, values: Mapping[Any, Any]) -> None:
        """(optional) Change properties of a network in use, such as MULTI's device priorities.

        Thread-safe. By default they are fixed: raises PropertyError, also for an unknown key.
        """
        self.refuse_if_closed()
        for key, value in property_keys(values, self.device).items():
            if not self.config.knows(key):
                raise self.config.unknown(key)
            raise PropertyError(
                f"{key} of network {self.name!r} on {self.device} was fixed when it was loaded; "
                f"load it again with the new value",
                key,
                self.device,
                value=value,
                network=self.name,
            )

    def get_metric(self, key: str, **options: Any) -> Any:
        """Return a fact about the network; raises PropertyError for an unknown key."""
        self.refuse_after_fork()
        return metric_value(self, key, options, self._metrics())

    def all_metrics(self) -> Mapping[str, Metric]:
        """Return every fact that ``get_metric`` tells, by key; for listings."""
        return known_metrics(self, self._metrics())

    @overload
    def export(self, target: None = None) -> bytes: ...
    @overload
    def export(self, target: ExportTarget) -> None: ...
    def export(self, target: ExportTarget | None = None) -> bytes | None:
        """Write the compiled network for ``Core.import_network``; return its bytes without target.

        target: a path, which is written whole or not at all, or an open binary file. Runs go on
        beside it. Raises NotSupportedError if the device has dropped what it would write,
        BlobError if it cannot be written, ClosedError.
        """
        with late_imports:
            from .export import export_to

        self.refuse_if_closed()
        return export_to(target, self.write_blob)

    async def export_async(self, target: ExportTarget | None = None) -> bytes | None:
        """Export on a thread, so that the event loop goes on; as ``export``."""
        with late_imports:
            from anyio import to_thread

            from .export import export_to

        self.refuse_if_closed()
        return await to_thread.run_sync(partial(export_to, target, self.write_blob))

    def write_blob(self, blob: BlobWriter) -> None:
        """Add facts and payload to a blob, which may be that of a network around this one."""
        self.refuse_if_closed()
        self.write_frames(blob)

    def write_frames(self, blob: BlobWriter) -> None:
        """Do what ``write_blob`` does, also for ``keep_at_close``, when runs are refused."""
        with late_imports:
            from ..blobs.network_record import write_network_record
            from .export import network_record

        states = {} if self.states is None else self.states.named
        facts = network_record(
            self.name,
            self.device,
            self.config,
            self.capability(),
            self.removed_nodes,
            states,
            self.remarks,
            self.local_keys(),
        )
        write_network_record(blob, facts)
        self._write_payload(blob)

    def capability(self) -> Mapping[str, Any]:
        """(optional) Tell what the payload of an export relies on, beside the format."""
        return {}

    def _write_payload(self, blob: BlobWriter) -> None:
        """(optional) Add what the plugin's ``import_network`` reads: by default the model."""
        self._write_model(blob)

    def _write_model(self, blob: BlobWriter) -> TensorWriter:
        """Add the model, with all its weights, and return its tensors."""
        with late_imports:
            from ..blobs.graph_record import write_model_record

        model = self._model_to_export()
        if model is None and self.model_again is not None:
            with placed(**self.admission.where):
                model = self.model_again()
        if model is None:
            raise NotSupportedError(
                f"{self.device} has released the weights of network {self.name!r} and cannot "
                f"export it; load it from a path, which is then read again, or with "
                f"EXPORTABLE=True, which keeps them",
                **self.admission.where,
            )
        return write_model_record(blob, model)

    def local_keys(self) -> frozenset[str]:
        """Name the properties, also of devices inside, that no export holds."""
        return frozenset(key for key in self.config if self.config.is_local(key))

    def plan_growth(self) -> tuple[int, int]:
        """(optional) Count the plans that an export holds, and those that no import brought."""
        return 0, 0

    def forget_model(self) -> None:
        """(optional) Release what only an export needs, once there was one."""
        return

    def _model_to_export(self) -> Model | None:
        """(optional) Return the transformed model with all its weights; None if they are gone."""
        return None

    @property
    def is_closed(self) -> bool:
        """True once close was called, and in a forked child."""
        return self.admission.is_closed or not self._process.is_current

    def refuse_if_closed(self) -> None:
        """Raise ClosedError if it was closed, or was made before a fork."""
        if self.admission.is_closed or not self._process.is_current:
            raise self._closed_error()

    def refuse_after_fork(self) -> None:
        """Raise ClosedError in a child that was forked after the network was made."""
        if not self._process.is_current:
            raise self._closed_error()

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> bool:
        """Refuse new runs, wait for those under way, and give the device back; twice is fine.

        With ``drain`` false, runs end with ClosedError as soon as their device can stop; a warm-up
        does so in any case. Blocks, at most ``timeout_s``; False says that the device was still in
        use then: a thread gives it back when what holds it has ended, and a next close waits for
        that. Raises PropertyError for a negative ``timeout_s``, and RequestStateError on one of
        aioinfer's own threads (as in a callback). On an event loop use ``await aclose()``.
        """
        refuse_own_thread("close", **self.admission.where)
        check_timeout(timeout_s, self.admission.where)
        if not self._process.is_current:
            return True
        if not drain:
            self.abort()
        has_time = timeout_s is None and not self.admission.is_closed
        self.admission.is_closed = True
        self._stop_warm_up()
        give_up_at = None if timeout_s is None else monotonic() + timeout_s
        if not self.admission.wait_until_over(timeout_s) or not self._closer.acquire(
            timeout=-1
            if give_up_at is None
            else min(max(0.0, give_up_at - monotonic()), threading.TIMEOUT_MAX)
        ):
            _log.info("network %r is closed with its device still in use", self.name)
            self._close_later(self.name)
            return False
        try:  # a second caller returns when the first is done
            if not self._is_released:
                self._is_released = True
                keep, self.keep_at_close = self.keep_at_close, None
                try:
                    if keep is not None and has_time:
                        keep(self)
                finally:
                    self._release()
        finally:
            self._closer.release()
        self._join_late_closer()
        return True

    def _release(self) -> None:
        note_given_back(self)
        self.model_again = None
        self._release_device()
        self.admission.free_slots()

    def abort(self) -> None:
        """Refuse new runs, and end those under way with ClosedError; does not wait for them."""
        if self._process.is_current:
            self.admission.stop_all(self._was_closed_error)
            self._stop_warm_up()

    def _stop_warm_up(self) -> None:
        self._warm_up_stop.set(self._was_closed_error())

    def _was_closed_error(self) -> ClosedError:
        return ClosedError(f"network {self.name!r} was closed", **self.admission.where)

    def __reduce__(self) -> NoReturn:
        raise NotSupportedError(
            f"network {self.name!r} on {self.device} cannot be pickled or copied, for it holds "
            f"threads and a device's memory; share it between threads and tasks as it is, and in "
            f"another process load the model from its file",
            **self.admission.where,
        )

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.admission.run_count} runs"
        return f"<{type(self).__name__} {self.name!r} on {self.device}: {state}>"


def _kept_outputs(config: Configuration, outputs: Sequence[Port], network: str) -> frozenset[str]:
    locations = config.value_or_default(OUTPUT_LOCATION)
    if not locations:
        return frozenset()
    known = [port.name for port in outputs]
    for name in locations:
        if name not in known:
            raise PropertyError(
                f"{config.device}: {OUTPUT_LOCATION.key} names {name!r}, and network {network!r} "
                f"has no such output{nearest(name, known)}; it has {known}",
                OUTPUT_LOCATION.key,
                config.device,
                value=dict(locations),
                network=network,
            )
    return frozenset(name for name in known if locations.get(name) == "DEVICE")


def _closed_error(name: str, device: str, process: ProcessMark) -> ClosedError:
    """Make the error of a closed network, without holding the network."""
    if not process.is_current:
        return process.error(f"network {name!r}", network=name, device=device)
    text = f"network {name!r} on {device} is closed; load it again"
    return ClosedError(text, network=name, device=device)
