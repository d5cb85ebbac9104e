"""What a device made of a case, held against what REFERENCE made of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .drawing import Case

__all__ = ["Failure", "Finding", "Outcome", "difference", "judge", "normalized"]

Array = np.ndarray[Any, Any]

_RANDOM = {
    *("RandomUniformLike", "RandomNormalLike", "RandomUniform", "RandomNormal", "Bernoulli"),
    *("Multinomial", "Dropout"),
}
_TOLERANCES = {"float32": 2e-3, "float64": 2e-3, "float16": 2e-2, "bfloat16": 1e-1}
_LARGE = 1e30
_PIECE = 1 << 20
"""Elements that are compared at once."""
_UNITS = 8
"""What is near 0 may be a difference of numbers of about 1, as the logarithm of a sum of shares is:
so many units of the last place that 1 has tell nothing."""
_DIVIDING = frozenset(
    f"{kind}Normalization"
    for kind in ("Batch", "Group", "Instance", "Layer", "MeanVariance", "RMS")
)
"""They divide what is 0 but for rounding by as little as the root of their epsilon."""
_LEAST_DIVISOR = 1e-5**0.5
_MOST_DIVIDED = 2
"""How many of them one after the other magnify what rounding leaves of 0; more do it no more."""
_MULTIPLYING = frozenset({"ReduceProd", "CumProd"})
"""A product of many leaves the range of floats on its way in one order, and not in another."""
_LIMIT = re.compile(r"takes at most \d+ axes|has no axes longer than \d+")
"""A rank or a length that only a run tells comes too late for another device."""
_READS_NOTHING = {"CUDA", "OPENCL"}
"""Devices that cannot refuse an index at a run, and give 0 for one that is out of bounds.

On others one is not looked at where the result is empty.
"""
_NO_PLACE = re.compile(r"Gather\w* \(node .* out of bounds")


@dataclass(frozen=True)
class Failure:
    """An exception: whether it is one of aioinfer's own, and where it came from."""

    is_ours: bool
    kind: str
    message: str
    place: str = ""
    is_refusal: bool = False
    """The device said that it does not do this."""


@dataclass
class Outcome:
    """What a device made of a case: an error of loading, or one result or error for each run."""

    load_error: Failure | None = None
    runs: list[dict[str, Any] | Failure] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def was_ended(self) -> bool:
        """True if a run took until its deadline, as loops may."""
        return any(isinstance(run, Failure) and "Deadline" in run.kind for run in self.runs)

    def of_run(self, number: int) -> dict[str, Any] | Failure:
        return self.runs[number] if self.load_error is None else self.load_error


@dataclass(frozen=True)
class Finding:
    """Something that must not be; ``group`` is the same for what looks like the same fault.

    One that ``is_suspect`` is looked at again: see the arbiter.
    """

    category: str
    device: str
    group: str
    detail: str
    is_suspect: bool = False


def judge(case: Case, device: str, outcome: Outcome, reference: Outcome | None) -> list[Finding]:
    """List what is wrong with an outcome; ``reference`` is None for REFERENCE's own.

    Where the answer of a case is known, every device is held to it.
    """
    if case.answer is not None:
        return _judge_known(case, device, outcome, case.answer)
    found: dict[str, Finding] = {}
    for number in range(len(case.runs)):
        finding = _judge_run(case, device, number, outcome, reference)
        if finding is not None and finding.group not in found:
            found[finding.group] = finding
        if outcome.load_error is not None:
            break
    return list(found.values())


def _judge_known(
    case: Case, device: str, outcome: Outcome, answer: Mapping[str, Array]
) -> list[Finding]:
    for number in range(len(case.runs)):
        got = outcome.of_run(number)
        if isinstance(got, Failure):
            category, what = "refused", f"{got.kind}: {got.message[:200]} {got.place}"
        else:
            category, what = "differs", difference(dict(answer), got, case)
        if what is not None:
            return [Finding(category, device, f"{category} {device} {case.name}", what)]
    return []


def _judge_run(
    case: Case, device: str, number: int, outcome: Outcome, reference: Outcome | None
) -> Finding | None:
    got, is_valid = outcome.of_run(number), case.runs[number].is_valid
    ops = case.ops

    def finding(category: str, group: str, detail: str, is_suspect: bool = False) -> Finding:
        label = f"{category} {family(device)} {group}"
        return Finding(category, device, label, detail, is_suspect)

    if isinstance(got, Failure) and not got.is_ours:
        detail = f"{got.kind}: {got.message[:200]} at {got.place}"
        return Finding("raw", device, f"raw {got.kind} at {got.place}", detail)
    if reference is None:
        return None
    wanted = reference.of_run(number)
    if any(isinstance(item, Failure) and "Deadline" in item.kind for item in (got, wanted)):
        return None
    if isinstance(got, Failure):
        is_limit = _LIMIT.search(got.message) or (got.is_refusal and "HETERO" not in device)
        if isinstance(wanted, Failure) or is_limit:
            return None
        after_error = number > 0 and any(isinstance(run, Failure) for run in outcome.runs[:number])
        if is_valid and after_error and number and not case.runs[number - 1].is_valid:
            return finding("unusable", f"{ops} {normalized(got.message)}", got.message[:200])
        return finding(
            "refused",
            f"{ops} {normalized(got.message)}",
            f"{got.kind}: {got.message[:200]}",
            is_suspect=not is_valid,
        )
    if isinstance(wanted, Failure):
        reads_nothing = family(device) in _READS_NOTHING or not any(
            map(_has_elements, got.values())
        )
        if reads_nothing and _NO_PLACE.search(wanted.message):
            return None
        failed = re.match(r"\w+ \(node", wanted.message)
        ops = failed[0].partition(" ")[0] if failed else ops
        note = _kinds_of(case.notes)
        detail = f"REFERENCE said {wanted.kind}: {wanted.message[:150]}; got {_text(got)}"
        return finding("accepted", f"{ops} {note}", detail, is_suspect=True)
    what = difference(wanted, got, case)
    if what is not None:
        group = re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", what)
        return finding("differs", f"{ops} {group}", what, is_suspect=True)
    return None


def _has_elements(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or value.size > 0


def family(device: str) -> str:
    """Name the device whose kernels are asked first."""
    return device.removeprefix("HETERO:").partition(",")[0].partition(".")[0]


def difference(wanted: dict[str, Any], got: dict[str, Any], case: Case) -> str | None:
    """Say in what two results differ, or None."""
    if list(wanted) != list(got):
        return f"the outputs are {list(got)}, not {list(wanted)}"
    if _RANDOM.intersection(case.op_types):
        wanted = {}
    for name, value in wanted.items():
        what = _value_difference(value, got[name], case)
        if what is not None:
            return f"{what} (output {name})"
    return None


def _value_difference(wanted: Any, got: Any, case: Case) -> str | None:
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(got) != len(wanted):
            return f"a sequence is {_text_of(got)}"
        pairs = zip(wanted, got, strict=True)
        return next(filter(None, (_value_difference(a, b, case) for a, b in pairs)), None)
    if not isinstance(wanted, np.ndarray) or not isinstance(got, np.ndarray):
        return None if type(wanted) is type(got) else f"{type(got)} instead of {type(wanted)}"
    if wanted.dtype != got.dtype:
        return f"dtype {got.dtype} instead of {wanted.dtype}"
    if wanted.shape != got.shape:
        return f"shape {got.shape} instead of {wanted.shape}"
    if case.has_extremes or wanted.dtype.hasobject:
        return None
    divided = min(_MOST_DIVIDED, sum(op_type in _DIVIDING for op_type in case.op_types))
    if wanted.dtype.kind in "fV" and not _MULTIPLYING.isdisjoint(case.op_types):
        got = np.where(np.isfinite(got), got, wanted)
    return _numeric_difference(wanted, got, _LEAST_DIVISOR**divided)


def _numeric_difference(wanted: Array, got: Array, divisor: float) -> str | None:
    pieces = list(zip(_pieces(wanted), _pieces(got), strict=True))
    if wanted.dtype.kind not in "fV":
        return next(filter(None, (_exact_difference(a, b) for a, b in pieces)), None)
    with np.errstate(all="ignore"):
        scale = max((_scale(a.astype(np.float64)) for a, _ in pieces), default=0.0)
        bound = _TOLERANCES.get(wanted.dtype.name, 0.3) * scale
        least = _UNITS * float(np.finfo(np.float32).eps) / divisor
        for a, b in pieces:
            what = _float_difference(a.astype(np.float64), b.astype(np.float64), max(bound, least))
            if what is not None:
                return what
    return None


def _pieces(array: Array) -> Iterator[Array]:
    """Cut an array, which may take all the memory that there is for two of its size."""
    flat = array.reshape(-1)
    return (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))


def _exact_difference(wanted: Array, got: Array) -> str | None:
    wrong = np.asarray(wanted != got)
    if not wrong.any():
        return None
    place = int(np.argmax(wrong))
    return f"value {got[place]} instead of {wanted[place]}"


def _usual(wanted: Array) -> Array:
    return np.asarray(np.isfinite(wanted) & (np.abs(wanted) < _LARGE))


def _scale(wanted: Array) -> float:
    return float(np.abs(wanted[_usual(wanted)]).max(initial=1e-6))


def _float_difference(wanted: Array, got: Array, bound: float) -> str | None:
    wrong = _usual(wanted) & ~(np.abs(wanted - got) <= bound)
    if not wrong.any():
        return None
    place = int(np.argmax(wrong))
    return f"value {got[place]:.6g} instead of {wanted[place]:.6g}"


def normalized(message: str) -> str:
    """Leave out of a message what differs from case to case."""
    short = re.sub(r"'[^']*'", "'..'", message)
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", short)[:110]


def _kinds_of(notes: Sequence[str]) -> str:
    kinds = dict.fromkeys(note.partition(":")[0] for note in notes if ":" in note)
    return "+".join(kinds)


def _text(results: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_text_of(value)}" for name, value in results.items())[:150]


def _text_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {value.reshape(-1)[:3].tolist()}"
    return str(type(value))
