"""InferRequest: one inference in flight, awaited, waited for or answered by a callback.

A run is answered, and ends (``runs/run_end.py``). The order at the end is fixed: the request
becomes idle, the callback runs, the waiters wake. So a callback may start the next run, and
``wait()`` means that the callback is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from sys import modules
from typing import Any, NoReturn

from ...errors import (
    NotSupportedError,
    Place,
    PropertyError,
    RequestBusyError,
    RequestStateError,
)
from ...executors import TaskExecutor, find_shortage
from ...executors.base import must_not_block, refuse_own_thread
from ...executors.interrupt import held_interrupt
from ..loops.completion import must_end, until, until_told
from ..loops.inline_turn import InlineTurn, threads
from ..loops.loop_call import is_running_here
from ..runs.atomic_run import AtomicRun
from ..runs.bindings import Results, RunProfile
from ..runs.callback import told_run
from ..runs.deadline import Deadline
from ..runs.parked_run import ParkedRun
from ..runs.run import Run
from ..tensors.array_like import copied
from ..tensors.tensor import Tensor
from .bound_tensors import BoundTensors
from .callbacks import check_callback
from .deadlines import check_timeout, deadline_from_now, deadline_of, ended_or_late
from .request_state import MOVES, Event, State, move
from .running_network import RunningNetwork
from .states.variable_state import VariableState

__all__ = ["Callback", "InferRequest"]

Callback = Callable[["InferRequest", BaseException | None], Any]
"""Called when a run of ``start_async`` has a result or an error, with the error or None."""


class InferRequest:
    """One inference in flight on a network; run it any number of times, one run at a time.

    Made by ``network.create_infer_request()``. Thread-safe: calls that do not fit the state raise
    RequestBusyError.

    ```python
    with aioinfer.Core() as core, core.load_network("model.onnx", "CPU") as network:
        request = network.create_infer_request()
        request.start_async(np.zeros((1, 1, 8, 8), np.float32))  # returns at once
        request.wait()
        print(request.results["logits"], request.latency_s)
    ```
    """

    def __init__(self, network: RunningNetwork, request_id: int) -> None:
        self.id = request_id
        """Counts up per network; appears in spans, logs and ``repr``."""
        self._network = network
        self._label = f"request {request_id} of {network.name!r}"
        self._lock = threading.Lock()
        self._state: State = "idle"
        self._run: Run | AtomicRun | None = None
        self._parked: ParkedRun | None = None
        """The last run, while it waits for the one before to end."""
        self._has_unparked = False
        """The last run has ended before it was on the device, where the one before still is."""
        self._callback: tuple[Callback, Any] | None = None
        self._tensors = BoundTensors(network)
        self._bound = self._tensors.arrays
        self._has_handles = False
        """Results are to be put into handles."""
        states = network.states
        self.kept_states = None if states is None else states.of_request()
        """What its runs leave for the next; None on a network without state. For the network."""

    async def infer(
        self, inputs: Any = None, *, deadline_s: float | None = None, priority: int = 0
    ) -> Results:
        """Run it and return the outputs by name; the arrays are the caller's.

        ``inputs``: a mapping name -> array, a sequence in order, one array, or None for what
        ``set_tensor`` bound. ``deadline_s`` counts from now; without it, DEFAULT_DEADLINE_S does,
        and infinity is no deadline. Works on asyncio and trio. If the awaiting task is cancelled,
        so is the run. A run that was cancelled before is first waited for. Raises TensorError,
        RequestBusyError, OverloadedError, DeadlineExceededError, RequestCancelledError,
        ClosedError, and whatever the device raises. Never calls the callback.
        """
        network = self._network
        if deadline_s is None:
            deadline_s = network.default_deadline_s
        deadline = None
        if deadline_s is not None:
            deadline = deadline_from_now(network.clock, deadline_s, self._where)
        while self._state == "cancelled":
            await self._wait_idle(deadline)
        turn, atomic = threads.turn, network.atomic_route
        may_carry = not ("trio" in modules and must_end())
        if (
            atomic is not None
            and deadline is None
            and priority.__class__ is int
            and not (priority or self._bound)
            and may_carry
        ):
            whole = atomic.carry(inputs, self, turn)
            if whole is not None:
                if turn.used_ns >= turn.most_ns:
                    await turn.give_way()
                return whole.results
        if self._bound or inputs is None:
            run = self.make_run(inputs, deadline, priority)
        else:
            run = network.make_run(inputs, deadline, priority, self)
        route = network.inline_route
        if route is not None and may_carry:
            route.carry(run, turn)
        if run.is_inline and run.has_ended:
            if turn.used_ns >= turn.most_ns:
                await turn.give_way()
            if run.error is None and network.inline_postprocess is None:
                return run.bindings.results
            return run.outcome()
        # Launched by the last call before this thread sleeps: the worker that is woken finds the
        # interpreter free, and need not sleep again.
        await until(run.launch, run.cancel)
        return run.outcome()

    def infer_sync(
        self, inputs: Any = None, *, deadline_s: float | None = None, priority: int = 0
    ) -> Results:
        """Run it and return the outputs by name; blocks this thread.

        Raises as ``infer`` does, and RequestStateError on one of aioinfer's own threads.
        """
        network = self._network
        atomic = network.atomic_route  # there is none where runs have a deadline by default
        if (
            atomic is not None
            and deadline_s is None
            and priority.__class__ is int
            and not (priority or self._bound)
        ):
            whole = atomic.carry(inputs, self, threads.blocking_turn)
            if whole is not None:
                return whole.results
        if must_not_block():
            self._refuse_own_thread("infer_sync")
        deadline = deadline_of(network, deadline_s)
        run = self.make_run(inputs, deadline, priority)
        route = network.inline_route
        if route is not None:
            route.carry(run, threads.blocking_turn if deadline is None else InlineTurn())
        if run.is_inline and run.has_ended:
            return run.outcome()
        answered = threading.Lock()  # an Event breaks if an interrupt comes amid its wait
        answered.acquire()
        try:
            run.launch(answered.release)
            answered.acquire()
        except BaseException as error:  # an interrupt of the waiting thread, or no memory to wait
            try:
                with held_interrupt():
                    run.cancel()
            except MemoryError:  # to hold it
                run.cancel()
            lacking = find_shortage(error, f"waiting for {self!r}")
            if lacking is None or lacking is error:
                raise
            raise lacking from error
        return run.outcome()

    def start_async(
        self,
        inputs: Any = None,
        userdata: Any = None,
        *,
        share_inputs: bool = True,
        deadline_s: float | None = None,
        priority: int = 0,
    ) -> None:
        """Start a run and return at once; a callback, ``wait`` or ``wait_async`` tells the end.

        Arrays must stay as they are until then, unless ``share_inputs`` is False: then those of
        the host are copied. Raises TensorError and OverloadedError (the request stays as it was),
        RequestBusyError while a run is under way, and ClosedError after close.
        """
        given = inputs if share_inputs else copied(inputs)
        run = self.make_run(given, deadline_of(self._network, deadline_s), priority)
        run.userdata = userdata
        if self._callback is not None:
            run.call_back(*self._callback)
        self.launch(run)

    def launch(self, run: Run) -> None:
        """Start a run of this request, as ``start_async``."""
        may_park = self._told_run is not None or self._has_unparked
        if (
            may_park
            and self._state == "cancelled"
            and ParkedRun(run, self._unpark).park(self._park)
        ):
            return
        run.launch()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Block until the last run has ended and its callback is over; False on timeout.

        Raises the run's error, each time. False as well if nothing was ever started. A timeout does
        not cancel. Raises PropertyError for a negative ``timeout_s``, and RequestStateError on one
        of aioinfer's own threads where it would block.
        """
        check_timeout(timeout_s, self._where)
        self._network.refuse_after_fork()
        run = self._run
        if run is None:
            return False
        if not run.has_ended:
            if timeout_s == 0:
                return False
            if must_not_block():
                self._refuse_own_thread("wait")
            if run.callback_loop is not None and is_running_here(run.callback_loop):
                raise self._state_error(
                    f"wait would stop the event loop that {self!r} is to call back on; "
                    f"`await request.wait_async()`"
                )
            if not run.wait_until_ended(timeout_s):
                return False
        run.outcome()
        return True

    async def wait_async(self) -> bool:
        """Suspend until the last run has ended and its callback is over; like ``wait``.

        Cancelling the awaiting task does not cancel the run.
        """
        self._network.refuse_after_fork()
        run = self._run
        if run is None:
            return False
        if not run.has_ended:
            await until_told(run.when_ended, run.forget_ended)
        run.outcome()
        return True

    def cancel(self) -> None:
        """Ask the run to end: its caller is answered now, the device gets nothing more of it.

        Without effect when nothing runs. The request is idle once the device is done.
        """
        self._network.refuse_after_fork()
        run = self._run
        if run is not None:
            run.cancel()

    def set_callback(self, callback: Callback | None, loop: Any = None) -> None:
        """Have this called as ``callback(request, error_or_None)`` when a started run is answered.

        It belongs to the runs started from now on. ``loop``: an asyncio event loop or a trio token
        to call it on; it may be a coroutine function then. Without one it is called on the
        network's callback thread, one at a time. A run that is cancelled, late or closed tells at
        once, though its device may still be busy; any other when the request is idle. It runs in
        the context that started the run, and may start the request again, which then waits for
        the device. There ``results``, ``userdata``, ``latency_s`` and ``profiling()`` tell of the
        run that it is called for, even if a later one is under way. Its exception is logged, and
        becomes what ``wait`` raises. If the loop is closed that is logged, the run ends without it,
        and ``close`` does not wait for it. Raises PropertyError for what cannot be called there.

        ```python
        async def show(request, error):
            print(error or request.results["logits"].argmax())


        request.set_callback(show, asyncio.get_running_loop())
        request.start_async(np.zeros((1, 1, 8, 8), np.float32))
        await request.wait_async()
        ```
        """
        check_callback(callback, loop, "a request and its error or None", self._where)
        self._access("access")
        self._callback = None if callback is None else (callback, loop)

    @property
    def results(self) -> Results:
        """What the last run gave, by name; raises its error, or RequestStateError if there is none.

        With a postprocess function, what that has returned.
        """
        run: Run | AtomicRun | None = self._told_run
        if run is None:
            run = self._run
            if run is None or (not run.is_answered and self._state != "idle"):
                raise self._state_error(f"{self!r} has no results yet; wait for a run first")
        return run.outcome()

    @property
    def userdata(self) -> Any:
        """What was given to ``start_async`` for the last run; the request never looks at it."""
        run = self._told_run or self._run
        return None if run is None else run.userdata

    @property
    def latency_s(self) -> float:
        """Seconds from start to end of the last finished run, waiting included."""
        run = self._told_run or self._run
        if run is None or not run.duration_ns:
            raise self._state_error(f"{self!r} has no finished run to tell the latency of")
        return run.duration_ns / 1e9

    def profiling(self) -> RunProfile:
        """List the nodes of the last run with their times, in order of execution.

        Its ``copies`` and ``copied_bytes`` say what was copied for the run, by stage and by kind.
        Needs PERF_COUNT; without it raises PropertyError.
        """
        run: Run | AtomicRun | None = self._told_run
        if run is None:
            self._access("access")
            run = self._run
        if not self._network.has_perf_count:
            raise PropertyError(
                f"{self!r} records no node times; load the network with {{'PERF_COUNT': True}}",
                "PERF_COUNT",
                self._network.device,
                value=False,
                network=self._network.name,
            )
        if run is None or run.profile is None:
            return RunProfile()
        return run.profile.copy()

    def set_tensor(self, name: str, tensor: Any) -> None:
        """Bind memory of the caller to an input (read) or output (written in place by each run).

        ``tensor``: a Tensor or anything with ``__array__``; None takes the binding back. A device
        may also take arrays in its own memory, with DLPack. Raises TensorError for a wrong name,
        dtype or shape, or an output that cannot be written.
        """
        self._tensors.bind(name, tensor, partial(self._access, "access"))

    def get_tensor(self, name: str) -> Tensor:
        """Return the request's own handle on an input or output: the same object every time.

        An output's handle shows each run's content after it. An input of static shape has memory to
        write into, which the next run reads.
        """
        handle = self._tensors.handle(name, partial(self._access, "access"))
        self._has_handles = bool(self._tensors.handles)
        return handle

    def query_state(self) -> list[VariableState]:
        """List the states that its runs hand on, in the order of the model's inputs (STATE).

        Empty on a network without state. A network that is closed has released them.
        """
        kept = self.kept_states
        if kept is None:
            return []
        return [
            VariableState(pair.input, kept.values, self._access_state, self._network.name)
            for pair in kept.states.pairs
        ]

    def reset_state(self) -> None:
        """Have the next run start from the initial states; raises RequestBusyError, ClosedError."""
        self._access_state()
        if self.kept_states is not None:
            self.kept_states.reset()

    def is_of(self, network: object) -> bool:
        """Return whether it runs on this network."""
        return self._network is network

    @property
    def _where(self) -> Place:
        return {"network": self._network.name, "device": self._network.device}

    def _refuse_own_thread(self, call: str) -> None:
        refuse_own_thread(call, request_id=self.id, state=self._state, **self._where)

    def _state_error(self, text: str) -> RequestStateError:
        return RequestStateError(text, request_id=self.id, state=self._state, **self._where)

    def _move(self, event: Event) -> State:
        """Return the next state; raises what the table says, with what the request is."""
        try:
            return move(self._state, event, self._label)
        except RequestStateError as error:
            self._say_which(error)
            raise

    def _say_which(self, error: RequestStateError) -> None:
        run = self._run
        error.within(**self._where)
        error.request_id, error.stage = self.id, "" if run is None else run.stage

    @property
    def _told_run(self) -> Run | None:
        """The run whose callback this thread is in; None outside of this request's callbacks."""
        run: Run | None = told_run()
        return run if run is not None and run.request is self else None

    def _access(self, event: Event) -> None:
        self._network.refuse_after_fork()
        with self._lock:
            self._move(event)

    def _access_state(self) -> None:
        if self.kept_states is None or self.kept_states.states.is_released:
            self._network.refuse_if_closed()
        self._access("access")

    async def _wait_idle(self, deadline: Deadline | None) -> None:
        run = self._run
        if not isinstance(run, Run) or self._state != "cancelled":
            return
        await ended_or_late(run, deadline)
        if self._state == "cancelled" and deadline is not None and deadline.has_passed:
            raise deadline.error(
                repr(self),
                "waiting for the device, still busy with the run that was cancelled before",
                stage=run.stage,
                request_id=self.id,
                **self._where,
            )

    def make_run(self, inputs: Any, deadline: Deadline | None, priority: int) -> Run:
        """Make a run of this request that is not started yet; raises TensorError."""
        network = self._network
        if self._bound:
            run = network.make_run(self._tensors.with_inputs(inputs), deadline, priority, self)
            run.bindings.bound = self._tensors.outputs()
        else:
            run = network.make_run({} if inputs is None else inputs, deadline, priority, self)
        return run

    @property
    def callback_executor(self) -> TaskExecutor:
        """Where its callbacks run."""
        return self._network.callback_executor

    def become_busy(self, run: Run) -> Any:
        """Make this the last run, and return what was, for ``restore``; raises RequestBusyError."""
        states = run.bindings.states
        with self._lock:
            if states is not None:
                try:
                    states.check_is_current()
                except RequestBusyError as error:
                    self._say_which(error)
                    raise
            state = MOVES.get((self._state, "start"))
            self._state = state or self._move("start")
            before, self._run = self._run, run
        return before

    def restore(self, run: Run, before: Any) -> None:
        """Have what the last run has left, as if this one had never been asked for."""
        with self._lock:
            if self._run is run:
                self._run, self._state = before, "idle"

    def on_answered_early(self, run: Run) -> None:
        """Note that the caller was answered and the device is not done; called by the run."""
        with self._lock:
            if self._run is run and self._state == "busy":
                self._state = move(self._state, "cancel")

    def on_ended(self, run: Run) -> Callable[[], None] | None:
        """Become idle, with the results in the handles; called by the run, before it tells.

        If a callback has started another run meanwhile, become busy with that; returns its launch.
        """
        if run.error is None and self._tensors.handles:
            self._tensors.show(run.bindings.results)
        with self._lock:
            self._state = MOVES.get((self._state, "finish")) or move(self._state, "finish")
            parked, self._has_unparked = self._parked, False
            if parked is not None:
                parked.is_taken = True
                self._parked, self._state = None, move(self._state, "start")
        return None if parked is None else parked.launch

    def _park(self, parked: ParkedRun) -> bool:
        """Keep a run that is started in a callback until the run of that callback has ended."""
        told = self._told_run
        with self._lock:
            is_told = told is not None and self._run is told
            if self._state != "cancelled" or not (is_told or self._has_unparked):
                return False
            self._run, self._parked = parked.run, parked
        return True

    def _unpark(self, parked: ParkedRun) -> bool:
        """Forget a run that was stopped before the one before had ended; False: it is launched.

        Its callback, which comes first, may have parked another one in its place.
        """
        with self._lock:
            if self._parked is parked:
                self._parked, self._has_unparked = None, True
            return not parked.is_taken

    def __reduce__(self) -> NoReturn:
        raise NotSupportedError(
            f"{self!r} cannot be pickled or copied; make another one with create_infer_request, "
            f"and send inputs and results, which are arrays, to another process",
            **self._where,
        )

    def __repr__(self) -> str:
        stage = ""
        run = self._run
        if self._state == "busy" and isinstance(run, Run):
            stage = self._network.place_of(run.bindings)
        return (
            f"<InferRequest {self.id} of {self._network.name!r} on {self._network.device}: "
            f"{self._state}{stage}>"
        )
