"""What a compiler keeps of a model, and for how long."""

from __future__ import annotations

import weakref

from aioinfer.backends.accelerator.compiler import Compiler, CompileRules
from aioinfer.backends.accelerator.kernels.registry import KERNELS
from aioinfer.backends.accelerator.passes.attention_inputs import AttentionMatmulFusion
from aioinfer.backends.accelerator.precision import F32
from aioinfer.runtime.passes.folding.constant_cache import ConstantCache
from unit.backends.accelerator.opened import Opened, typed


def test_what_passes_made_of_weights_goes_with_the_weights() -> None:
    opened, cache = Opened(), ConstantCache()
    seen = weakref.ref(cache)
    model = typed("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    rules = CompileRules(KERNELS, (AttentionMatmulFusion(cache),))
    compiler = Compiler(model, opened.device, F32, rules)
    del cache, rules
    compiler.compile({"x": (4,)}, {})
    assert seen() is not None
    compiler.release_weights()
    assert seen() is None
    opened.close()
