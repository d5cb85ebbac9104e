"""Networks that are opened and closed again while their users go on.

Each caller gets an answer or ClosedError, and of a network that was closed nothing is under way.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import aioinfer
from stress.client import WAIT_S, Client
from stress.closing_users import USES, Told, User
from stress.networks import COMMON, SMALL
from stress.plant import FEWEST_RUNS, Plant

CLOSING = -1  # stands for all these networks in what the client has seen
TASKS = 4
MOST_USERS = 6
MOST_ANSWERS = 20
ANSWERS = ("finished", "failed", "cancelled", "expired")


@dataclass(frozen=True)
class RoundPlan:
    """One network: of which kind, who uses it, and how and when it is closed."""

    kind: str
    uses: tuple[type[User], ...]
    way: Literal["aclose", "close", "both", "abort", "core"]
    drain: bool
    after: int
    """How many answers come before it is closed."""

    @property
    def may_abort(self) -> bool:
        """True if runs may end with ClosedError although a network has let them in."""
        return self.way in ("both", "abort") or (not self.drain and self.way != "core")


def draw_plan(chance: random.Random, kinds: list[str]) -> RoundPlan:
    return RoundPlan(
        kind=chance.choice(kinds),
        uses=tuple(chance.choice(USES) for _ in range(chance.randrange(2, MOST_USERS + 1))),
        way=chance.choice(("aclose", "close", "both", "abort", "core")),
        drain=chance.random() < 0.5,
        after=chance.randrange(MOST_ANSWERS),
    )


class ClosingClient(Client):
    """Some tasks on one event loop, each with one network after the other."""

    def __init__(self, plant: Plant, number: int, make_loop: Any) -> None:
        super().__init__(plant, number)
        self._make_loop = make_loop
        self._kinds = [*COMMON, *([SMALL] if plant.small is not None else ())]
        self._aborted_count = self._late_count = 0
        self._network_count = 0
        self._tolds: Counter[str] = Counter()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            runner.run(self._main())

    def check_end(self) -> None:
        super().check_end()
        counts = f"{self._aborted_count} aborted, {self._late_count} too late"
        print(f"{self._network_count} networks were closed: told {dict(self._tolds)}, {counts}")
        if self.plant.run_count >= FEWEST_RUNS:
            assert self._aborted_count > 0
            assert self._late_count > 0

    async def _main(self) -> None:
        await asyncio.gather(*(self._work(task) for task in range(TASKS)))
        mine = asyncio.current_task()
        self.left_tasks = [repr(task) for task in asyncio.all_tasks() if task is not mine]

    async def _work(self, task: int) -> None:
        for number in itertools.count():
            if not self.plant.goes_on:
                break
            name = f"{task} {number}"
            await self._play(draw_plan(self.chance_of(name), self._kinds), name)

    async def _play(self, plan: RoundPlan, name: str) -> None:
        networks = self.plant.networks
        core = networks.core
        if plan.way == "core":
            core = aioinfer.Core()
            networks.add_devices(core)
        target = await asyncio.to_thread(networks.load, plan.kind, core)
        told = Told(self.plant, plan.after)
        users = [
            use(target, told, self.chance_of(f"{name} {user}"), plan.kind == SMALL)
            for user, use in enumerate(plan.uses)
        ]
        everybody = asyncio.gather(*(user.work() for user in users))
        everybody.add_done_callback(lambda _users: told.is_time.set())
        await told.is_time.wait()
        await _close(target.network, core, plan)
        assert target.network.admission.run_count == 0, plan
        async with asyncio.timeout(WAIT_S):
            await everybody
        self._check(plan, target.network, sum((user.seen for user in users), Counter()))

    def _check(
        self, plan: RoundPlan, network: aioinfer.ExecutableNetwork, seen: Counter[str]
    ) -> None:
        statistics = network.statistics()
        counted = {outcome: getattr(statistics, f"{outcome}_request_count") for outcome in ANSWERS}
        aborted_count = statistics.aborted_request_count
        where = f"{plan}: counted {counted} and {aborted_count} aborted, told {seen}"
        unknown_count = sum(counted.values()) - sum(seen[outcome] for outcome in ANSWERS)
        assert all(counted[outcome] >= seen[outcome] for outcome in ANSWERS), where
        assert 0 <= unknown_count <= seen["unknown"], where
        assert aborted_count <= seen["closed"] + seen["unknown"], where
        assert plan.may_abort or aborted_count == 0, where
        admission = network.admission
        assert (admission.waiting_count, len(admission.runs)) == (0, 0), where
        assert len(admission._idle) == admission.slot_count, where
        self._aborted_count += aborted_count
        self._network_count += 1
        self._late_count += max(0, seen["closed"] - aborted_count)
        self._tolds += seen
        for outcome, count in seen.items():
            self.seen[CLOSING, outcome] += count


async def _close(network: aioinfer.ExecutableNetwork, core: aioinfer.Core, plan: RoundPlan) -> None:
    if plan.way == "core":
        await core.aclose()
    elif plan.way == "close":
        await asyncio.to_thread(network.close, drain=plan.drain)
    elif plan.way == "both":
        closing = asyncio.to_thread(network.close, drain=not plan.drain)
        await asyncio.gather(network.aclose(drain=plan.drain), closing)
    else:
        if plan.way == "abort":
            network.abort()
        await network.aclose(drain=plan.drain)
