"""A plan for fewer threads: the same steps in the same layouts, with primitives made for them.

A primitive divides its work among the threads that it was made for, so a smaller team needs
primitives of its own. They are made from what the first ones were made from, with every layout that
oneDNN was free to choose fixed to its choice: packed weights, and all the rest of the plan, serve
both. Only scratchpads differ, so the arena is planned anew.

A few convolutions have no quick implementation for the smaller team in the layout of the larger
one. Their packed weights are packed a second time, from the first packing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any
from weakref import ref

from ..kernels.windows.convolution_choice import is_slow
from ..onednn.bindings import ARG, Desc, Engine, OneDnnError, PrimitiveDesc
from ..onednn.open_matmul import OpenPrimitiveDesc
from ..plans.operand_layout import Buffer, Layout, Operand
from ..plans.packed_weights import PackedWeight, WeightStore
from ..plans.plan import Plan
from ..plans.step_bounds import find_primitive_overrun
from ..plans.steps import PrimitiveStep, Step, place_steps

__all__ = ["closed_plan", "resized_plan"]

_RECURRENT = (ARG.SRC, ARG.WEIGHTS, ARG.WEIGHTS_1, ARG.DST)
_OPEN_ROLES: Mapping[str, tuple[int, ...]] = {
    "convolution_forward": (ARG.SRC, ARG.WEIGHTS, ARG.DST),
    "deconvolution_forward": (ARG.SRC, ARG.WEIGHTS, ARG.DST),
    "matmul": (ARG.WEIGHTS,),
    "pooling_forward": (ARG.DST,),
    "vanilla_rnn_forward": _RECURRENT,
    "lstm_forward": _RECURRENT,
    "gru_forward": _RECURRENT,
    "lbr_gru_forward": _RECURRENT,
}
"""Which arguments have layouts that are left to oneDNN, by operation, in the order of the call."""


def resized_plan(plan: Plan, thread_count: int, weights: WeightStore) -> Plan | None:
    """Make the plan for another number of threads, or None where oneDNN would be slow by it.

    ``plan`` has its weights packed, and both plans share them. Compiles primitives, which takes
    some milliseconds; any thread. Raises ClosedError once the weights are closed.
    """
    resizing = _Resizing(plan.engine, weights)
    try:
        with plan.engine.with_threads(thread_count):
            steps = [resizing.step(step) for step in plan.steps]
    except OneDnnError:
        return None
    offsets, arena_bytes = place_steps(steps)
    return replace(
        plan,
        steps=tuple(steps),
        offsets=offsets,
        arena_bytes=arena_bytes,
        thread_count=thread_count,
        weights=(*plan.weights, *resizing.packed),
        made_of=ref(plan),
        resized={},
        _lock=Lock(),
        _is_packed=[],
    )


def closed_plan(plan: Plan, weights: WeightStore) -> Plan | None:
    """Return the plan with primitives for its own lengths alone, as a blob holds them.

    As ``resized_plan`` does, where the plan has primitives that serve all lengths.
    """
    if any(isinstance(desc, OpenPrimitiveDesc) for desc in plan.table.primitive_descs):
        return resized_plan(plan, plan.thread_count, weights)
    return plan


class _Resizing:
    """Makes the steps of one plan for this thread's team; raises OneDnnError where it cannot."""

    def __init__(self, engine: Engine, weights: WeightStore) -> None:
        self._engine, self._weights = engine, weights
        self.packed: list[PackedWeight] = []

    def step(self, step: Step) -> Step:
        if not isinstance(step, PrimitiveStep):
            return step
        given = {role: operand for role, operand in step.arguments if role != ARG.SCRATCHPAD}
        again = self._made_again(step, can_pack=False)
        if is_slow(again.implementation) and not is_slow(step.implementation):
            again = self._made_again(step, can_pack=True)
        for role, operand in given.items():
            if role == ARG.WEIGHT_SCALES:
                continue
            have, want = (made.desc("exec_arg", role) for made in (step.desc, again))
            if have != want:
                given[role] = self._packed_again(operand, have, want)
        scratch = again.desc("scratchpad")
        if not scratch.is_absent and scratch.size_bytes:
            buffer = Buffer("arena", scratch.size_bytes)
            given[ARG.SCRATCHPAD] = Operand(buffer, Layout.of(scratch))
        overrun = find_primitive_overrun(again, given.items())
        if overrun is not None:
            raise OneDnnError(overrun, 2)
        return step._replace(
            desc=again,
            primitive=again.create(),
            arguments=tuple(given.items()),
        )

    def _made_again(self, step: PrimitiveStep, can_pack: bool) -> PrimitiveDesc:
        """Describe the operation, by the same implementation if it can be."""
        call, arguments = step.desc.call, list(_fixed(step.desc, can_pack))
        first = self._engine.primitive_desc(call, *arguments)
        name = step.implementation
        found = first
        if first.implementation != name:
            same = (other for other in first.others() if other.implementation == name)
            found = next(same, first)
        if can_pack and is_slow(found.implementation):
            raise OneDnnError(f"{call} for another team", 3)
        return found

    def _packed_again(self, operand: Operand, have: Desc, want: Desc) -> Operand:
        packed = operand.buffer.array
        if operand.buffer.kind != "constant" or packed is None or operand.offset_bytes:
            raise OneDnnError("reorder of what is no packed weight", 3)
        weight = self._weights.packed(packed, have, want)
        self.packed.append(weight)
        return Operand(weight.buffer, Layout.of(want))


def _fixed(made: PrimitiveDesc, can_pack: bool) -> Iterator[Any]:
    """Return the arguments of the call, with the layouts that oneDNN chose in place of open ones.

    Those of weights stay open if they can be packed again.
    """
    roles = iter(_OPEN_ROLES.get(made.call, ()))
    for argument in made.arguments:
        if not isinstance(argument, Desc) or not argument.is_open:
            yield argument
            continue
        role = next(roles, None)
        if role is None:
            raise OneDnnError(f"{made.call} with one more open layout", 3)
        yield argument if can_pack and role == ARG.WEIGHTS else made.desc("exec_arg", role)
