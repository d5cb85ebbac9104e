"""The passes that every device wants, in the order in which they help each other."""

from __future__ import annotations

from collections.abc import Sequence

from .common_subexpressions import CommonSubexpressions
from .constant_folding import ConstantFolding
from .dead_code import DeadCode
from .identity_elimination import IdentityElimination
from .pass_base import Pass

__all__ = ["default_passes"]


def default_passes(keep_ops: Sequence[str] = ()) -> tuple[Pass, ...]:
    """List the passes for any device; one that has more appends its own.

    ``keep_ops`` are operators whose meaning is not ONNX's: a user brings his own kernel for them.
    """
    return (
        ConstantFolding(keep_ops=keep_ops),
        IdentityElimination(keep_ops=keep_ops),
        CommonSubexpressions(),
        DeadCode(),
    )
