"""Rewrites of the graph: one pass a file, run by ``run_passes``, which checks and names them."""

from ..graph import Model
from .common_subexpressions import CommonSubexpressions
from .constant_folding import ConstantFolding
from .dead_code import DeadCode
from .default_passes import default_passes
from .graph_patch import GraphPatch
from .identity_elimination import IdentityElimination
from .input_binding import bound_input_shapes, symbol_bindings
from .pass_base import Pass
from .pass_pipeline import find_bad_patch, run_passes
from .pass_report import PassReport, PassResult
from .patch_check import have_one_affinity
from .specialization import infer_afresh, specialize, specialize_with_report
from .support import Support, SupportMap, map_to_original

__all__ = [
    "CommonSubexpressions",
    "ConstantFolding",
    "DeadCode",
    "GraphPatch",
    "IdentityElimination",
    "Pass",
    "PassReport",
    "PassResult",
    "Support",
    "SupportMap",
    "bound_input_shapes",
    "default_passes",
    "find_bad_patch",
    "have_one_affinity",
    "map_to_original",
    "run_passes",
    "specialize",
    "specialize_with_report",
    "symbol_bindings",
]

Model.infer_types = infer_afresh
