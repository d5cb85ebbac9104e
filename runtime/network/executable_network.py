"""ExecutableNetwork: a model compiled for a device, serving any number of requests.

A backend subclasses it and supplies slots: the places where runs live on the device, each with its
stages. Every run, of a request, of ``network.infer``, or of an outer network, goes into one
admission queue (``run_admission.py``).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from sys import modules
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np

from ...errors import AioInferError, TensorError, placed
from ...executors import (
    Clock,
    Ready,
    StreamsConfig,
    StreamsExecutor,
    TaskExecutor,
    Then,
    note_given_back,
    note_taken,
    process_timer,
)
from ...executors.base import refuse_own_thread
from ...executors.late_imports import late_imports
from ..loops.completion import must_end, until
from ..loops.inline_turn import threads
from ..properties.properties import (
    DEFAULT_DEADLINE_S,
    INLINE_THRESHOLD_US,
    INPUT_SHAPES,
    MAX_QUEUED_REQUESTS,
    Configuration,
)
from ..properties.property_parsers import parse_input_shapes
from ..runs.admission import ticket_of
from ..runs.atomic_route import AtomicRoute
from ..runs.bindings import NO_TENSORS, Bindings, Deferred, Results, RunProfile
from ..runs.deadline import Deadline
from ..runs.inline_gate import InlineGate
from ..runs.inline_route import InlineRoute
from ..runs.run import Run, RunOwner
from ..runs.shared_route import SharedRoute
from ..runs.slot import Slot
from ..runs.stage import Stop
from ..tensors.device_array import AdoptArray
from ..tensors.input_checker import InputChecker
from ..tensors.kept_array import KeptArray
from ..tensors.late_inputs import LateInputs
from ..tensors.tensor import Port
from .compiled_network import CompiledNetwork, ExecutorOwner
from .deadlines import deadline_from_now
from .infer_request import InferRequest
from .result_stream import (
    ResultStream,
    Source,
    StreamOptions,
    check_sequence,
    default_look_ahead,
)
from .shutdown import close_at_exit
from .states.kept_states import KeptStates, NetworkStates
from .warm_up import made_up_inputs, warm_up_network

if TYPE_CHECKING:
    from .user_functions import Postprocess

__all__ = ["ExecutableNetwork", "Slot"]

_numbers = itertools.count(1)


class ExecutableNetwork(CompiledNetwork):
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
        super().__init__(
            name=name, device=device, inputs=inputs, outputs=outputs, config=config, core=core
        )
        self.clock: Clock = process_timer()
        """What deadlines are counted by; a test may put a VirtualTimer here."""
        self.default_deadline_s = config.value_or_default(DEFAULT_DEADLINE_S) or None
        """The deadline of requests that are given none; None: they have none."""
        self.adopt_array = adopt_array
        """Takes arrays in the device's memory; None: this network reads and writes the host's."""
        self.check_inputs: Callable[[Any], dict[str, Any]] = InputChecker(
            self.inputs, name, adopt_array
        ).check
        """Turns what a caller gave into name -> array, or raises TensorError."""
        self.inline_route: InlineRoute | None = None
        """The way of short runs that stay on their callers' threads; None: all runs go to slots."""
        self.atomic_route: AtomicRoute | None = None
        """The way of short runs that are like the one before; None: each is looked at anew."""
        self.shared_route: SharedRoute | None = None
        """The way of awaited calls that share a run; None: each has one of its own."""
        self.has_perf_count = bool(config["PERF_COUNT"])
        """True if node times are recorded."""
        self.free_inputs: frozenset[str] = frozenset()
        """Inputs for which callers give anything, as functions of theirs make the tensors."""
        self.inline_postprocess: Postprocess | None = None
        """What the thread that takes a run's results calls with them."""
        self.host_inputs: frozenset[str] = frozenset()
        """Inputs that the host reads itself, for what is computed depends on their content."""
        self._lock = threading.Lock()
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
        self.refuse_atomic()

    def _provide_slots(self, slots: Sequence[Slot]) -> None:
        """Say where runs can live; called once by the backend, at the end of its constructor."""
        self.admission.add_slots(slots)
        threshold_us = self.config.value_or_default(INLINE_THRESHOLD_US)
        if threshold_us and slots and all(slot.may_run_inline for slot in slots):
            gate = self.admission.gate = InlineGate(self.inputs, threshold_us)
            executor = slots[0].stages[-1].executor
            self.inline_route = InlineRoute(self.admission, gate, executor)
            if self._may_answer_at_once:
                self.atomic_route = self.inline_route.atomic = AtomicRoute(
                    self.admission, executor, self._process, self._request_ids, InferRequest
                )
        note_taken(self, self.close)

    @property
    def _may_answer_at_once(self) -> bool:
        """True if callers get what its slots have computed, and nothing else is asked of a run."""
        return not (
            self.has_perf_count
            or self.default_deadline_s is not None
            or self.kept_outputs
            or self.states is not None
        )

    def refuse_atomic(self) -> None:
        """Have each run be looked at anew; before the first."""
        self.atomic_route = None
        if self.inline_route is not None:
            self.inline_route.atomic = None

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
        deadline, turn = None, threads.turn
        if deadline_s is not None:
            deadline = deadline_from_now(self.clock, deadline_s, self.admission.where)
        elif self.shared_route is not None and not priority:
            share = self.shared_route.join(inputs, turn)
            if share is not None:
                try:
                    await share.future
                except BaseException:
                    share.leave()
                    raise
                return share.results()
        atomic, is_ending = self.atomic_route, "trio" in modules and must_end()
        if (
            atomic is not None
            and deadline is None
            and priority.__class__ is int
            and not (priority or is_ending)
        ):
            whole = atomic.carry(inputs, None, turn)
            if whole is not None:
                if turn.used_ns >= turn.most_ns:
                    await turn.give_way()
                return whole.results
        run = self.make_run(inputs, deadline, priority)
        route = self.inline_route
        if route is not None and not is_ending:
            route.carry(run, turn)
        if run.is_inline and run.has_ended:
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
                self._downloads = self._acquire_for_runs(StreamsConfig("downloads"))
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
        with late_imports:
            from anyio import to_thread

        return await to_thread.run_sync(lambda: self.warm_up(shapes))

    def place_of(self, bindings: Bindings) -> str:
        """Return where a run is, for ``repr``: waiting for a slot, or in a stage."""
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
                self._callback_executor = self._acquire_for_runs(config)
            return self._callback_executor

    def _acquire_for_runs(self, config: StreamsConfig) -> StreamsExecutor:
        executor = self._core.executors.acquire(config)
        try:
            note_given_back(executor)  # by a load that warms up: a close, which it noted, does it
        except MemoryError:
            self._core.executors.release(executor)
            raise
        return executor

    def _release(self) -> None:
        if self.states is not None:
            self.states.release()
        if self.atomic_route is not None:
            self.atomic_route.forget()
        super()._release()
        for executor in (self._callback_executor, self._downloads):
            if executor is not None:
                self._core.executors.release(executor)
