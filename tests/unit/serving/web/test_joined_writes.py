"""Writes of one turn of the loop are one, in order, and none is lost or late."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from anyio.lowlevel import checkpoint

from aioinfer.serving.web.joined_writes import JoinedWrites


class Transport:
    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.told.append(bytes(data))

    def close(self) -> None:
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.told


def joined() -> tuple[JoinedWrites, list[bytes | str]]:
    transport = Transport()
    made = JoinedWrites(cast(Any, transport), asyncio.get_running_loop())
    return made, transport.told


async def test_a_head_and_its_body_are_one_write() -> None:
    writes, told = joined()
    writes.write(b"head")
    assert told == []
    writes.write(b"body")
    assert told == [b"headbody"]
    await checkpoint()
    assert told == [b"headbody"]


async def test_a_write_alone_goes_when_the_loop_comes_round() -> None:
    writes, told = joined()
    writes.write(b"event")
    await checkpoint()
    assert told == [b"event"]
    writes.write(b"next")
    writes.write(b"")
    assert told == [b"event", b"next"]


async def test_what_is_long_is_not_copied_and_keeps_its_place() -> None:
    writes, told = joined()
    long = bytes(100_000)
    writes.write(b"head")
    writes.write(long)
    writes.write(b"end")
    assert told == [b"head", long]
    await checkpoint()
    assert told == [b"head", long, b"end"]


async def test_closing_writes_what_waits_and_aborting_drops_it() -> None:
    writes, told = joined()
    writes.write(b"bye")
    writes.close()
    await checkpoint()
    assert (told, writes.is_closing()) == ([b"bye", "close"], True)
    writes, told = joined()
    writes.write(b"never")
    writes.abort()
    await checkpoint()
    assert told == ["abort"]
