"""Memory, tried out before it is asked for by code that cannot do without.

oneDNN checks most of its allocations, and not all. So as much memory as making a primitive takes is
mapped first and given back untouched: if that fails it is an error like any other. Others may be
quicker to take what was there; a process that runs out of all that it may have can only be made
unlikely to end.
"""

from __future__ import annotations

__all__ = ["COMPILE_BYTES"]

COMPILE_BYTES = 16 << 20  # what making a primitive takes at most, for those that were measured
