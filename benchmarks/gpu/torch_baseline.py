"""The same networks by torch: eager in half precision, and torch.compile at its best.

    python benchmarks/gpu/torch_baseline.py

ResNet-50 is in channels_last, inputs lie on the device. ``max-autotune`` replays CUDA graphs, and
takes minutes to compile, so it comes last: by worth, as long as there is time. What aioinfer should
reach beside it stands under "wanted" of the other programs; at batch 1 it is 1.5 times the rate of
max-autotune.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from measuring import Settings, interleaved, rotated, run_benchmark, set_count
from predictions import BATCHES, BERT_BASE, RESNET50
from reporting import Report

from aioinfer.runtime.devices.device_name import parse_device

EAGER, COMPILED, AUTOTUNED = "eager", "compile", "compile max-autotune"
COMPILE_S = 90.0
"""What compiling one batch may take."""
TOKENS, VOCABULARY = 128, 30_522
NETWORKS = {"resnet50": RESNET50, "bert_base": BERT_BASE}
COMPILED_BATCHES = (("resnet50", 1), ("resnet50", 256), ("bert_base", 64), ("bert_base", 1))
COMPILED_LATER = (("resnet50", 64), ("resnet50", 8), ("bert_base", 8), ("bert_base", 256))
"""By worth."""


def torch_reason(device: str) -> str | None:
    """Say why torch cannot use such a device here, or None; it is torch's current one then."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    torch.cuda.set_device(int(parse_device(device).id or 0))
    return None


def jobs() -> Iterator[tuple[str, str, int]]:
    """List what is measured by worth: way, network, batch. Pure."""
    for name in NETWORKS:
        for batch in BATCHES:
            yield EAGER, name, batch
    for name, batch in (*COMPILED_BATCHES, *COMPILED_LATER):
        yield AUTOTUNED, name, batch
    for name, batch in COMPILED_BATCHES:
        yield COMPILED, name, batch


def measure(report: Report, settings: Settings) -> None:
    import torch

    torch.backends.cudnn.benchmark = True
    report.facts["cudnn of torch"] = torch.backends.cudnn.version()
    for way, name, batch in jobs():
        title = f"{name}, {way}, batch {batch}"
        if not settings.has_time(5.0 if way == EAGER else COMPILE_S):
            report.refuse(title, "left out: no time")
            continue
        try:
            measure_job(report, settings, way, name, batch)
        except Exception as error:  # torch raises what its compilers raise; the next job may work
            report.refuse(title, error)
            torch.cuda.empty_cache()


def measure_job(report: Report, settings: Settings, way: str, name: str, batch: int) -> None:
    """Measure one network in one way; the time to compile is a row of its own."""
    import torch

    torch.compiler.reset()
    call, sets = network_of(name), inputs_of(name, batch)
    if way != EAGER:
        mode = "max-autotune" if way == AUTOTUNED else "default"
        call = torch.compile(call, mode=mode, fullgraph=True)
    inputs = rotated(sets)
    title = f"{name}, {way}, batch {batch}"
    with torch.inference_mode():
        began_s = time.perf_counter()
        repeat(call, inputs, 3)
        if way != EAGER:
            report.add(f"{title}, to compile", time.perf_counter() - began_s, "s")
        ways = {"all": partial(repeat, call, inputs), "one": partial(one_by_one, call, inputs)}
        times_us = interleaved(ways, settings.rounds, settings.round_s)
    predicted = NETWORKS[name][batch]
    note = "predicted is for aioinfer"
    report.add(title, batch / times_us["all"] * 1e6, "/s", predicted.per_s, note=note)
    report.add(f"{title}, one by one", times_us["one"], "us", predicted.graph_us, note=note)


def repeat(call: Callable[..., Any], inputs: Iterator[tuple[Any, ...]], count: int) -> None:
    """Enqueue a number of them and wait for all."""
    import torch

    for _ in range(count):
        call(*next(inputs))
    torch.cuda.synchronize()


def one_by_one(call: Callable[..., Any], inputs: Iterator[tuple[Any, ...]], count: int) -> None:
    """Wait for each."""
    for _ in range(count):
        repeat(call, inputs, 1)


def network_of(name: str) -> Any:
    """Make a network in half precision on the device."""
    import torch
    import torch_models

    made = getattr(torch_models, name)().cuda().half().eval()
    return made.to(memory_format=torch.channels_last) if name == "resnet50" else made


def inputs_of(name: str, batch: int) -> list[tuple[Any, ...]]:
    """Draw as many sets of inputs on the device as no cache holds."""
    import torch

    if name == "resnet50":
        count = set_count(batch * 3 * 224 * 224 * 2)
        shape = (batch, 3, 224, 224)
        drawn = (torch.randn(shape, device="cuda", dtype=torch.half) for _ in range(count))
        return [(images.to(memory_format=torch.channels_last),) for images in drawn]
    form = (batch, TOKENS)
    ids = [torch.randint(0, VOCABULARY, form, device="cuda") for _ in range(8)]
    mask = torch.ones(form, device="cuda", dtype=torch.long)
    mask[:, TOKENS * 3 // 4 :] = 0
    types = torch.zeros(form, device="cuda", dtype=torch.long)
    return [(each, mask, types) for each in ids]


if __name__ == "__main__":
    run_benchmark("torch_baseline", measure, __doc__, torch_reason)
