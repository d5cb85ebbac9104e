"""Weights in the layouts that primitives want: packed once, shared by all plans and streams."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from ....errors import ClosedError
from ....executors.late_imports import late_imports
from ....runtime.graph.mapped_file import Reading, forget_pages, in_memory, is_mapped
from ....runtime.graph.slabs import ONE_THREAD_BYTES, Slabs
from ....runtime.passes.folding.constant_cache import ConstantCache
from ..onednn.bindings import ARG, Attributes, Desc, Engine, Memory, aligned_bytes
from .operand_layout import Buffer

__all__ = ["PackedWeight", "WeightStore", "digest_of"]

Array = np.ndarray[Any, Any]


class PackedWeight:
    """One constant in one layout; its buffer gets memory when it is packed.

    ``source`` is held until then, and not longer. Thread-safe.
    """

    __slots__ = (
        "__weakref__",
        "_lock",
        "_origin",
        "_slabs",
        "buffer",
        "derivation",
        "desc",
        "source",
        "source_desc",
    )

    def __init__(
        self,
        source: Array,
        source_desc: Desc,
        desc: Desc,
        slabs: Slabs | None = None,
        derivation: Hashable | None = None,
    ) -> None:
        self.source: Array | None = source
        self.derivation = derivation
        """What the network's ``derived`` constants know the source by, if it is one of them."""
        self.source_desc, self.desc = source_desc, desc
        self.buffer = Buffer("constant", desc.size_bytes)
        self._origin = weakref.ref(source)
        self._slabs = Slabs() if slabs is None else slabs
        self._lock = threading.Lock()

    @classmethod
    def packed_before(cls, desc: Desc, packed: Array) -> PackedWeight:
        """Make one of the bytes of another, which are held and never written."""
        weight = cls(packed, desc, desc)
        weight.source, weight.buffer.array = None, packed
        return weight

    @property
    def origin(self) -> Array | None:
        """What was, or will be, packed, if it is still there."""
        return self._origin()

    def is_of(self, source: Array) -> bool:
        """True if this very array was, or will be, packed, or one that is derived as it was."""
        return self.derivation is not None or self._origin() is source

    def pack(self, engine: Engine, reading: Reading | None = None) -> None:
        """Reorder the constant, unless that was done; by this thread's team, if it is large.

        ``reading`` has memory for constants that lie in their file, for one after the other. Raises
        ClosedError after ``free``.
        """
        is_small = self.desc.size_bytes <= ONE_THREAD_BYTES
        with engine.with_threads(1) if is_small else nullcontext():
            self._pack(engine, reading)

    def _pack(self, engine: Engine, reading: Reading | None) -> None:
        with self._lock:
            if self.buffer.array is not None:
                return
            if self.source is None:
                raise _closed()
            source = (reading or Reading()).array(self.source)
            packed = self._slabs.empty(self.desc.size_bytes)
            reorder = engine.primitive_desc(
                "reorder",
                self.source_desc,
                engine,
                self.desc,
                engine,
                Attributes(engine),
            )
            scratch_desc = reorder.desc("scratchpad")
            scratch = aligned_bytes(scratch_desc.size_bytes)
            engine.execute(
                reorder.create(),
                (
                    (ARG.SRC, Memory(engine, self.source_desc, source.ctypes.data)),
                    (ARG.DST, Memory(engine, self.desc, packed.ctypes.data)),
                    (ARG.SCRATCHPAD, Memory(engine, scratch_desc, scratch.ctypes.data)),
                ),
            )
            self.buffer.array = packed
            forget_pages(self.source)
            self.source = None

    def free(self) -> None:
        """Drop source and packing for good; waits for a thread that packs it."""
        with self._lock:
            self.source = self.buffer.array = None


class _Offer(NamedTuple):
    """A packing of an earlier network; ``source`` is the constant, or the digest of its content."""

    source: Array | str
    source_desc: Desc
    desc: Desc
    packed: Array


class WeightStore:
    """The packed weights of one network, by constant and layout. Thread-safe.

    Constants are known by their array's identity, or by how they were ``derived``, so plans that
    see the same one share one packing. It is held by the plans that use it, and goes with the last
    of them. ``derived`` gives what passes and kernels compute from constants, also once for all
    plans. What primitives read as it is (``plain``) is freed here as well, for a processor may want
    no weight packed.
    """

    def __init__(self, derived: ConstantCache | None = None) -> None:
        self.derived = ConstantCache() if derived is None else derived
        self._slabs = Slabs()
        self._lock = threading.Lock()
        self._is_closed = False
        self._known: weakref.WeakValueDictionary[tuple[Hashable, Desc, Desc], PackedWeight] = (
            weakref.WeakValueDictionary()
        )
        self._taken: weakref.WeakValueDictionary[tuple[int, Desc], PackedWeight] = (
            weakref.WeakValueDictionary()
        )
        self._plain: weakref.WeakSet[Buffer] = weakref.WeakSet()
        self._offers: dict[tuple[int | str, Desc, Desc], _Offer] = {}
        self._digests: dict[Hashable, tuple[weakref.ref[Array], str]] = {}

    def packed(self, source: Array, source_desc: Desc, desc: Desc) -> PackedWeight:
        """Return the constant in this layout, packed or to be packed by ``Plan.pack``.

        ``source_desc`` says how the array's row-major memory is to be seen. Raises ClosedError
        after ``close``.
        """
        derivation = self.derived.key_of(source)
        key = (id(source) if derivation is None else derivation, source_desc, desc)
        with self._lock:
            if self._is_closed:
                raise _closed()
            offer = None
            if self._offers:
                offer = self._offer_for(source, derivation, source_desc, desc)
            if offer is not None:
                return self._take(offer.desc, offer.packed)
            weight = self._known.get(key)
            if weight is None or not weight.is_of(source):  # the number was another array's once
                weight = self._known[key] = PackedWeight(
                    source, source_desc, desc, self._slabs, derivation
                )
            return weight

    def plain(self, source: Array) -> Buffer:
        """Make a buffer of the constant in its own row-major memory, or in a copy if it is mapped.

        Raises ClosedError after ``close``, and ModelError if its file was written to.
        """
        if is_mapped(source):
            readable = self.derived.get("copy", [source], lambda: in_memory(source, self._slabs))
        else:
            readable = np.require(source, requirements=["C", "A"])
        return self.keep(Buffer("constant", source.nbytes, array=readable))

    def keep(self, buffer: Buffer) -> Buffer:
        """Return a constant's buffer, which loses its memory at ``close``; ClosedError after it."""
        with self._lock:
            if self._is_closed:
                raise _closed()
            self._plain.add(buffer)
        return buffer

    def take(self, desc: Desc, packed: Array) -> PackedWeight:
        """Hold bytes that were packed for an earlier network; one weight for the same array."""
        with self._lock:
            if self._is_closed:
                raise _closed()
            return self._take(desc, packed)

    def _take(self, desc: Desc, packed: Array) -> PackedWeight:
        weight = self._taken.get((id(packed), desc))
        if weight is None:
            weight = self._taken[id(packed), desc] = PackedWeight.packed_before(desc, packed)
        return weight

    def offer(self, source: Array | str, source_desc: Desc, desc: Desc, packed: Array) -> None:
        """Have plans take bytes that were packed for an earlier network for a constant of theirs.

        ``source`` is the constant, or the ``digest_of`` one. Both are held until ``close``.
        """
        key = source if isinstance(source, str) else id(source)
        with self._lock:
            if self._is_closed:
                raise _closed()
            self._offers[key, source_desc, desc] = _Offer(source, source_desc, desc, packed)

    def _offer_for(
        self, source: Array, derivation: Hashable | None, source_desc: Desc, desc: Desc
    ) -> _Offer | None:
        found = self._offers.get((id(source), source_desc, desc))
        if found is not None:
            return found
        if not any(
            isinstance(offer.source, str) and (offer.source_desc, offer.desc) == (source_desc, desc)
            for offer in self._offers.values()
        ):
            return None
        key = id(source) if derivation is None else derivation
        known = self._digests.get(key)
        if known is None or (derivation is None and known[0]() is not source):
            known = self._digests[key] = weakref.ref(source), digest_of(source)
        return self._offers.get((known[1], source_desc, desc))

    def sources_of(self, weight: PackedWeight) -> list[tuple[Array | str, Desc]]:
        """Return which constants a weight is the packing of, or their digests, and how seen."""
        with self._lock:
            offers = list(self._offers.values())
        packed, origin = weight.buffer.array, weight.origin
        if origin is None and weight.derivation is not None:
            origin = self.derived.again(weight.derivation)
        offered = [(item.source, item.source_desc) for item in offers if item.packed is packed]
        if offered or origin is None or origin is packed:
            return offered
        return [(origin, weight.source_desc)]

    def forget_sources(self) -> None:
        """Drop what was derived from constants; called when no plan will be built any more."""
        self.derived = ConstantCache()

    def close(self) -> None:
        """Free all constants, and pack nothing more, whatever still holds the network's plans."""
        with self._lock:
            self._is_closed = True
            weights = [*self._known.values(), *self._taken.values()]
            plain = list(self._plain)
            self._offers.clear()
            self._digests.clear()
        for weight in weights:
            weight.free()
        for buffer in plain:
            buffer.array = None
        self._slabs.release()

    @property
    def is_closed(self) -> bool:
        """True once nothing is packed any more."""
        return self._is_closed

    @property
    def packed_bytes(self) -> int:
        """Bytes of all weights that plans have packed, or will before they run; 0 once closed."""
        with self._lock:
            if self._is_closed:
                return 0
            weights = [*self._known.values(), *self._taken.values()]
            return sum(weight.buffer.size_bytes for weight in weights)


def digest_of(source: Array) -> str:
    """Name a constant by its type, its shape and what it holds."""
    with late_imports:
        import hashlib

    plain = np.ascontiguousarray(source)
    made = hashlib.sha256(f"{plain.dtype.str} {plain.shape} ".encode())
    made.update(plain.reshape(-1).view(np.uint8).data)
    return made.hexdigest()


def _closed() -> ClosedError:
    return ClosedError("the network of these weights is closed; load the model again")
