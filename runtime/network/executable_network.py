"""ExecutableNetwork: a model compiled for a device, serving any number of requests.

Theory of operation. A backend subclasses it and supplies slots: the places where runs live on the
device, each with its stages. Every run, of a request, of ``network.infer``, or of an outer network,
goes into one admission queue (``run_admission.py``).
The file is long because every call of users has its place here; what takes more than a few lines is
done elsewhere.
"""

from __future__ import annotations

import itertools
import logging
import threading
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from sys import modules
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, Unpack, overload

import numpy as np

from ...errors import (
    AioInferError,
    ClosedError,
    DeviceError,
    NotSupportedError,
    PropertyError,
    TensorError,
    nearest,
    placed,
)
from ...executors import (
    Clock,
    ExecutorManager,
    Ready,
    StreamsConfig,
    StreamsExecutor,
    TaskExecutor,
    Then,
    process_timer,
)
from ...executors.base import refuse_own_thread
from ...executors.fork import ProcessMark
from ..blobs.graph_record import write_model_record
from ..blobs.network_record import write_network_record
from ..blobs.tensors_record import TensorWriter
from ..blobs.writer import BlobWriter
from ..graph import Graph, Model
from ..loops.closing import Closing
from ..loops.completion import must_end, until
from ..loops.inline_turn import threads
from ..properties.properties import (
    DEFAULT_DEADLINE_S,
    INLINE_THRESHOLD_US,
    INPUT_SHAPES,
    MAX_QUEUED_REQUESTS,
    OUTPUT_LOCATION,
    Configuration,
    Metric,
    property_keys,
)
from ..properties.property_parsers import parse_input_shapes
from ..runs.admission import ticket_of
from ..runs.bindings import NO_TENSORS, Bindings, Deferred, Results, RunProfile
from ..runs.deadline import Deadline
from ..runs.inline_gate import InlineGate
from ..runs.inline_route import InlineRoute
from ..runs.run import Run, RunOwner
from ..runs.run_admission import RunAdmission
from ..runs.shared_route import SharedRoute
from ..runs.slot import Slot
from ..runs.stage import Stop, new_stop_word
from ..tensors.device_array import AdoptArray
from ..tensors.input_checker import InputChecker
from ..tensors.kept_array import KeptArray
from ..tensors.late_inputs import LateInputs
from ..tensors.tensor import Port
from ..tracing.copied_bytes import CopyCounts
from ..tracing.recorder import StageTally
from ..tracing.statistics import NetworkStatistics, PlanStatistics
from ..tracing.timeline import Trace
from .deadlines import check_timeout, deadline_from_now
from .export import ExportTarget, export_to, network_record
from .infer_request import InferRequest
from .network_facts import config_value, known_metrics, metric_value
from .network_statistics import network_statistics
from .result_stream import (
    ResultStream,
    Source,
    StreamOptions,
    check_sequence,
    default_look_ahead,
)
from .shutdown import close_at_exit
from .states.kept_states import KeptStates, NetworkStates
from .user_functions import Postprocess
from .warm_up import made_up_inputs, warm_up_network

if TYPE_CHECKING:
    from ..plans.shape_plans import ShapePlans

__all__ = ["ExecutableNetwork", "Slot"]

_log = logging.getLogger("aioinfer")
_numbers = itertools.count(1)


class ExecutorOwner(Protocol):
    """What a network asks of its Core."""

    @property
    def executors(self) -> ExecutorManager:
        """The executors that all networks of the Core share."""


class ExecutableNetwork(Closing):
    """A model compiled for one device, or for several by a virtual one.

    Made by ``Core.load_network``. Thread-safe, and usable from any number of event loops. Close it,
    or use it in a ``with`` or ``async with`` block.

    ```python
    image = np.zeros((1, 1, 8, 8), np.float32)
    with aioinfer.Core() as core, core.load_network("model.onnx", "CPU") as network:
        both = await asyncio.gather(network.infer(image), network.infer(image))
        async for outputs in network.stream([image, image]):
            print(outputs["logits"].argmax())
    ```
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
        adopt_array: AdoptArray | None = None,
    ) -> None:
        self.name, self.device = name, device
        self.copy = 1
        """Tells it from the Core's other open networks of the same name and device."""
        self.keep_at_close: Callable[[ExecutableNetwork], None] | None = None
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
        self.clock: Clock = process_timer()
        """What deadlines are counted by; a test may put a VirtualTimer here."""
        self.default_deadline_s = config.value_or_default(DEFAULT_DEADLINE_S) or None
        """The deadline of requests that are given none; None: they have none."""
        self.model_again: Callable[[], Model] | None = None
        """Makes the transformed model once more, for an export without weights; None: cannot."""
        self.removed_nodes: tuple[str, ...] = ()
        """Nodes of the file for which ``runtime_graph`` has none: passes made them needless."""
        self.adopt_array = adopt_array
        """Takes arrays in the device's memory; None: this network reads and writes the host's."""
        self.check_inputs: Callable[[Any], dict[str, Any]] = InputChecker(
            self.inputs, name, adopt_array
        ).check
        """Turns what a caller gave into name -> array, or raises TensorError."""
        self.inline_route: InlineRoute | None = None
        """The way of short runs that stay on their callers' threads; None: all runs go to slots."""
        self.shared_route: SharedRoute | None = None
        """The way of awaited calls that share a run; None: each has one of its own."""
        self.batching_refusal = ""
        """Why its requests do not share runs, where that was asked for if it can be."""
        self.has_perf_count = bool(config["PERF_COUNT"])
        """True if node times are recorded."""
        self.free_inputs: frozenset[str] = frozenset()
        """Inputs for which callers give anything, as functions of theirs make the tensors."""
        self.inline_postprocess: Postprocess | None = None
        """What the thread that takes a run's results calls with them."""
        self.remarks: tuple[str, ...] = ()
        """What its device did to the model that a user should know; for ``explain``."""
        self.reason = "the device asked for"
        """Why it is on its device; for ``explain``."""
        self.kept_outputs = _kept_outputs(config, self.outputs, name)
        """The outputs that stay on the device; a backend adds those that become state there."""
        self.host_inputs: frozenset[str] = frozenset()
        """Inputs that the host reads itself, for what is computed depends on their content."""
        self._core = core
        self._process = ProcessMark()
        self._closed_error = partial(_closed_error, name, device, self._process)
        self._lock = threading.Lock()
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
        self._request_ids = itertools.count()
        self._number = next(_numbers)
        self._callback_executor: StreamsExecutor | None = None
        self._downloads: StreamsExecutor | None = None
        close_at_exit(self)

    def keep_states(self, pairs: Mapping[str, str]) -> None:
        """Have each request feed outputs to inputs, {input: output}; before the first run."""
        states = NetworkStates(
            pairs, self.model_inputs, self.model_outputs, self.name, self.adopt_array
        )
        self.states, self.inputs, self.outputs = states, states.given, states.returned
        checker = InputChecker(self.inputs, self.name, self.adopt_array)
        self.check_inputs = states.checker(checker.check)
        if self.admission.gate is not None:
            self.admission.gate.follow_states(states.by_name)

    @abstractmethod
    def runtime_graph(self) -> Graph:
        """Return a copy of the graph that is executed; nodes carry the original names."""

    def _provide_slots(self, slots: Sequence[Slot]) -> None:
        """Say where runs can live; called once by the backend, at the end of its constructor."""
        self.admission.add_slots(slots)
        threshold_us = self.config.value_or_default(INLINE_THRESHOLD_US)
        if threshold_us and slots and all(slot.may_run_inline for slot in slots):
            gate = self.admission.gate = InlineGate(self.inputs, threshold_us)
            self.inline_route = InlineRoute(self.admission, gate, slots[0].stages[-1].executor)

    def _abandon(self) -> None:
        """Give the device back when the constructor fails; for backends, instead of closing."""
        self.admission.is_closed = True
        self._is_released = True
        self._release_device()
        self.admission.let_go_of_slots()

    def _release_device(self) -> None:
        """(optional) Give back executors and memory; called once, when no run is left."""
        return

    def _metrics(self) -> Sequence[Metric]:
        """(optional) List the backend's own facts about a network."""
        return ()

    def input_memory(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """(optional) Make memory, all zeros, for a caller to write an input to."""
        return np.zeros(shape, dtype)

    @property
    def lends_memory(self) -> bool:
        """True if its device reads ``input_memory`` where it is, and nothing else of the host's."""
        return False

    def run_everywhere(self, inputs: Mapping[str, Any], stop: Stop) -> None:
        """(optional) Run these inputs on every stream, or in every slot; for ``warm_up``. Blocks.

        Called when they have been run once. ``stop`` is that of all these runs.
        """
        return

    def begin_ahead(self, count: int) -> None:
        """Make room for the plans of a warm-up of that number of signatures."""
        if self._plans is not None:
            self._plans.begin_ahead(count)

    def end_ahead(self) -> list[str]:
        """End what ``begin_ahead`` began; say what is lost of the plans, if any."""
        lost = "" if self._plans is None else self._plans.end_ahead()
        return [lost] if lost else []

    def run_kept_everywhere(self, stop: Stop) -> None:
        """Run made up inputs everywhere of all shapes that have a plan; for an outer network."""
        for shapes, contents in () if self._plans is None else self._plans.kept():
            stop.raise_if_set()
            self.run_everywhere(made_up_inputs(self.model_inputs, shapes, contents), stop)

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

    def create_infer_request(self) -> InferRequest:
        """Make a request of its own; any number of them may be in flight."""
        self.refuse_if_closed()
        return InferRequest(self, next(self._request_ids))

    async def infer(
        self,
        inputs: Any,
        outputs: Mapping[str, Any] | None = None,
        *,
        deadline_s: float | None = None,
        priority: int = 0,
    ) -> Results:
        """Run one inference without a request; any number of tasks may call it.

        ``outputs``: arrays of the caller to write into, by name. Otherwise as InferRequest.infer.
        """
        if outputs is not None:
            if not isinstance(outputs, Mapping):
                raise TensorError(
                    f"outputs is a mapping name -> array to write into, not "
                    f"{type(outputs).__name__}",
                    **self.admission.where,
                )
            request = self.create_infer_request()
            for name, array in outputs.items():
                request.set_tensor(name, array)
            return await request.infer(inputs, deadline_s=deadline_s, priority=priority)
        if deadline_s is None:
            deadline_s = self.default_deadline_s
        deadline = None
        if deadline_s is not None:
            deadline = deadline_from_now(self.clock, deadline_s, self.admission.where)
        elif self.shared_route is not None and not priority:
            share = self.shared_route.join(inputs, threads.turn)
            if share is not None:
                try:
                    await share.future
                except BaseException:
                    share.leave()
                    raise
                return share.results()
        run = self.make_run(inputs, deadline, priority)
        route = self.inline_route
        if route is not None and not ("trio" in modules and must_end()):
            turn = threads.turn
            if route.carry(run, turn):
                if turn.used_ns >= turn.most_ns:
                    await turn.give_way()
                if run.error is None and self.inline_postprocess is None:
                    return run.bindings.results
                return run.outcome()
        # Launched by the last call before this thread sleeps: the worker that is woken finds the
        # interpreter free, and need not sleep again.
        await until(run.launch, run.cancel)
        return run.outcome()

    @overload
    def stream(
        self, source: Source, ordered: Literal[True] = True, **options: Unpack[StreamOptions]
    ) -> AsyncGenerator[Results, None]: ...

    @overload
    def stream(
        self, source: Source, ordered: Literal[False], **options: Unpack[StreamOptions]
    ) -> AsyncGenerator[tuple[int, Results], None]: ...

    def stream(
        self,
        source: Source,
        ordered: bool = True,
        *,
        look_ahead: int | None = None,
        deadline_s: float | None = None,
        priority: int = 0,
        request: InferRequest | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Run what the source gives, and yield the results in its order; use with ``async for``.

        ``source``: an iterable, pulled on the event loop, or an async one, of inputs in any form
        that ``infer`` takes; the stream owns it, and closes a generator. With ``ordered`` false,
        (index, results) as they finish. At most ``look_ahead`` items (None: what keeps the device
        busy) are pulled and not handed out, so a slow consumer holds up the source. ``deadline_s``
        counts for each item from its pull. An item that fails raises at its turn, with its index
        in a note; what the source raises comes last. Whenever a stream ends early, by an error,
        ``aclose`` or cancellation, its runs are cancelled; all but the last wait for their end.
        A plain ``break`` leaves that to the loop; ``contextlib.aclosing`` does it at once, even
        before the first result was asked for. A full network (MAX_QUEUED_REQUESTS) is waited for
        while runs of the stream are under way.

        With a ``request`` of this network all items are runs of it, one behind the other: in order,
        and without a look-ahead. A stream over a network with state is of one request by nature,
        a new one if none is given: each item starts from what the one before has left.
        """
        self.refuse_if_closed()
        if request is None and self.states is not None:
            request = self.create_infer_request()
        if request is not None:
            with placed(**self.admission.where):
                check_sequence(self, request, ordered, look_ahead)
            look_ahead = 1
        elif look_ahead is None:
            most_waiting = self.config.value_or_default(MAX_QUEUED_REQUESTS)
            look_ahead = default_look_ahead(self.optimal_request_count, most_waiting)
        if deadline_s is None:
            deadline_s = self.default_deadline_s
        with placed(**self.admission.where):
            stream = ResultStream(self, source, ordered, look_ahead, deadline_s, priority, request)
        return stream.results()

    def make_run(
        self,
        inputs: Any,
        deadline: Deadline | None = None,
        priority: int = 0,
        request: RunOwner | None = None,
    ) -> Run:
        """Make a run of a caller, with a place in all queues; ``inputs`` as given.

        ``request`` is that whose run it is. Raises ClosedError, TensorError and PropertyError.
        """
        if self.admission.is_closed or not self._process.is_current:
            raise self._closed_error()
        try:
            bindings = Bindings(
                self.check_inputs(inputs),
                ticket_of(priority),
                next(self._request_ids) if request is None else request.id,
                NO_TENSORS,
                {},
                RunProfile() if self.has_perf_count else None,
                perf_counter_ns(),
            )
            if self.states is not None:
                kept = None if request is None else request.kept_states
                bindings.states = (kept or KeptStates(self.states)).begin()
                bindings.has_own_states = True
                self._bind_states(bindings)
        except AioInferError as error:
            error.within(**self.admission.where)
            raise
        if self.inline_postprocess is not None:
            bindings.answer = Deferred(self.inline_postprocess)
        run = Run(self.admission, bindings)
        late = bindings.inputs
        if late.__class__ is LateInputs:  # no call: each run asks
            assert isinstance(late, LateInputs)
            bindings.inputs = late.read_in_place(self._reads_in_place)
            if bindings.inputs.__class__ is LateInputs:
                run.downloads = self._download_executor
        if request is not None:
            run.request = request
        if deadline is not None:
            run.deadline = deadline
        return run

    @property
    def _download_executor(self) -> TaskExecutor:
        """The thread on which runs download inputs that other devices have kept."""
        with self._lock:
            if self._downloads is None:
                self._downloads = self._core.executors.acquire(StreamsConfig("downloads"))
            return self._downloads

    def _reads_in_place(self, name: str, kept: KeptArray) -> bool:
        """(optional) True if an input that a device has kept is read where it is.

        Asked of what ``adopt_array`` does not take, on the thread of a caller; never blocks.
        """
        return False

    def _bind_states(self, bindings: Bindings) -> None:
        """(optional) Put the states of a run beside the inputs that its caller has given."""
        if bindings.states is not None:
            bindings.inputs = bindings.states.bind(bindings.inputs)

    def start_run(self, bindings: Bindings, stop: Stop, after: Ready, then: Then) -> None:
        """Send a run to the device as soon as a slot is free; like ``TaskExecutor.run``.

        Either raises ClosedError and has kept nothing, or calls ``then`` exactly once. Never
        blocks. For outer networks, whose run was admitted already; users call ``infer``.
        """
        self.refuse_if_closed()
        Run(self.admission, bindings, stop, after, then).start()

    def warm_up(
        self, shapes: Mapping[str, Sequence[int]] | Sequence[Any] | None = None
    ) -> list[str]:
        """Run made up inputs, so that the first request is as fast as later ones. Blocks.

        Plans are built, weights packed, and every stream or slot has run once. ``shapes`` is like
        INPUT_SHAPES: {input: shape}, or a sequence of such mappings; None takes those of
        INPUT_SHAPES, else what the model declares, with 1 for what it leaves open. Real numbers are
        ones, integers zeros. Returns, and logs, for each signature that fails on them what
        happened, and how many plans are lost for PLAN_CACHE_COUNT, if that is set, or
        PLAN_CACHE_BYTES; else there is room for all. Raises TensorError for shapes that contradict
        the model, and ClosedError. A network that is loaded with INPUT_SHAPES has done it. On an
        event loop await ``warm_up_async``.
        """
        refuse_own_thread("warm_up", **self.admission.where)
        self.refuse_if_closed()
        try:
            wanted = parse_input_shapes(shapes) if shapes is not None else None
        except ValueError as error:
            text = f"warming up {self.name!r}: {error}"
            raise TensorError(text, **self.admission.where) from error
        if wanted is None:
            wanted = self.config.value_or_default(INPUT_SHAPES) or ({},)
        with self._closer, placed(**self.admission.where):  # what a close frees is in use
            return warm_up_network(self, wanted, self._warm_up_stop)

    async def warm_up_async(
        self, shapes: Mapping[str, Sequence[int]] | Sequence[Any] | None = None
    ) -> list[str]:
        """Warm up on a thread, so that the event loop goes on; as ``warm_up``."""
        from anyio import to_thread

        return await to_thread.run_sync(lambda: self.warm_up(shapes))

    def place_of(self, bindings: Bindings) -> str:
        """Say where a run is, for ``repr``: waiting for a slot, or in a stage."""
        return self.admission.place_of(bindings)

    @property
    def is_full(self) -> bool:
        """True if a request that starts now would be refused, for MAX_QUEUED_REQUESTS; a guess."""
        return self.admission.is_full

    @property
    def callback_executor(self) -> TaskExecutor:
        """The one thread on which the callbacks of this network's requests run, in turn."""
        with self._lock:
            if self._callback_executor is None:
                config = StreamsConfig(f"callbacks.{self.name}#{self._number}")
                self._callback_executor = self._core.executors.acquire(config)
            return self._callback_executor

    def statistics(self) -> NetworkStatistics:
        """Return a frozen picture of what the network has done so far, and of what waits now."""
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
        return PlanStatistics() if self._plans is None else self._plans.statistics()

    def _part_statistics(self) -> tuple[NetworkStatistics, ...]:
        """(optional) Picture the networks that it is made of."""
        return ()

    def trace(self) -> Trace:
        """Return the latest spans, oldest first: which stage of which run ran where and when.

        With PERF_COUNT its ``nodes`` are those of the latest runs, drawn below their stages.
        ``trace().save("trace.html")`` makes a page of them, ``.json`` a file for Perfetto.
        """
        self.refuse_after_fork()
        recorder = self.admission.recorder
        spans, nodes = recorder.spans(self.device), recorder.nodes()
        return Trace(self.name, self.device, spans, recorder.forgot_until_ns, nodes)

    def explain(self) -> str:
        """Say in words which device runs which node, and why."""
        graph = self.runtime_graph()
        text = f"{self.name}: all {len(graph)} nodes on {self.device}, {self.reason}"
        if self.removed_nodes:
            text += f"; passes made needless: {', '.join(self.removed_nodes)}"
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
        self.refuse_if_closed()
        return export_to(target, self.write_blob)

    async def export_async(self, target: ExportTarget | None = None) -> bytes | None:
        """Export on a thread, so that the event loop goes on; as ``export``."""
        from anyio import to_thread

        self.refuse_if_closed()
        return await to_thread.run_sync(partial(export_to, target, self.write_blob))

    def write_blob(self, blob: BlobWriter) -> None:
        """Add facts and payload to a blob, which may be that of a network around this one."""
        self.refuse_if_closed()
        self.write_frames(blob)

    def write_frames(self, blob: BlobWriter) -> None:
        """Do what ``write_blob`` does, also for ``keep_at_close``, when runs are refused."""
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
        model = self._model_to_export()
        if model is None and self.model_again is not None:
            with placed(**self.admission.where):
                model = self.model_again()
        if model is None:
            raise NotSupportedError(
                f"{self.device} has let go of the weights of network {self.name!r} and cannot "
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
        """(optional) Let go of what only an export needs, once there was one."""
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
        use then, which is given back by the next close that waits long enough. Raises
        PropertyError for a negative ``timeout_s``, and RequestStateError on one of aioinfer's own
        threads (as in a callback). On an event loop use ``await aclose()``.
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
        return True

    def _release(self) -> None:
        self.model_again = None
        self._release_device()
        self.admission.let_go_of_slots()
        for executor in (self._callback_executor, self._downloads):
            if executor is not None:
                self._core.executors.release(executor)

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
