"""Properties: what can be set or asked by name, typed, with defaults and documentation.

A :class:`Property` is one key: its parser refuses bad values at once. A plugin declares its keys as
a tuple of properties and the runtime does the rest: unknown keys, precedence, reading back. A
:class:`Configuration` is a finished set of values, immutable, in which every key has a value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from ...errors import PropertyError, nearest
from .property_parsers import (
    Parser,
    parse_boolean,
    parse_choice,
    parse_input_shapes,
    parse_integer,
    parse_locations,
    parse_mapping,
    parse_seconds,
    parse_share,
    parse_state,
    parse_text,
)

__all__ = [
    "ALLOW_AUTO_BATCHING",
    "AUTO",
    "CACHE_DIR",
    "CACHE_LIMIT_BYTES",
    "DEFAULT_DEADLINE_S",
    "DEVICE_ID",
    "DEVICE_SHARE",
    "ENABLE_MMAP",
    "EXPORTABLE",
    "INFERENCE_NUM_THREADS",
    "INFERENCE_PRECISION_HINT",
    "INLINE_THRESHOLD_US",
    "INPUT_SHAPES",
    "LOG_LEVEL",
    "LOG_LEVELS",
    "MAX_QUEUED_REQUESTS",
    "NUMA",
    "NUM_STREAMS",
    "OLD_NAMES",
    "OUTPUT_LOCATION",
    "PERFORMANCE_HINT",
    "PERFORMANCE_HINT_NUM_REQUESTS",
    "PERF_COUNT",
    "PLAN_CACHE_BYTES",
    "PLAN_CACHE_COUNT",
    "REQUEST_PROPERTIES",
    "STANDARD_PROPERTIES",
    "STATE",
    "UNBOUNDED",
    "Configuration",
    "Metric",
    "Property",
    "parse_boolean",
    "parse_choice",
    "parse_integer",
    "parse_mapping",
    "parse_text",
    "property_keys",
    "slot_count",
    "stream_count",
]

T = TypeVar("T")

MOST_STREAMS = 4096  # each is a thread; no machine has more CPUs, and 4096 still start

OLD_NAMES = {
    "KEY_PERF_COUNT": "PERF_COUNT",
    "KEY_DEVICE_ID": "DEVICE_ID",
    "CPU_THROUGHPUT_STREAMS": "NUM_STREAMS",
}
"""What OpenVINO 1.x called some properties; they can be read by these names, and not set."""


@dataclass(frozen=True)
class Property(Generic[T]):
    """A key that can be set: ``key`` in upper case, how to parse it, its default, what it does.

    ``only_at_load`` says that it belongs to one network and that ``set_config`` refuses it.
    ``is_local`` says that it may name files or libraries of this machine: no export holds it, and
    an import takes it from its caller alone. A Property may stand for its key wherever a
    configuration is given.
    """

    key: str
    parse: Parser[T]
    default: T
    doc: str
    only_at_load: bool = False
    is_local: bool = False

    def value_of(self, given: Any, device: str) -> T:
        """Parse what a user gave; raises PropertyError that names key, value and device."""
        try:
            return self.parse(given)
        except (ValueError, TypeError) as error:
            raise PropertyError(
                f"{device}: bad value {given!r} for {self.key}: {error}",
                self.key,
                device,
                value=given,
            ) from error

    def __hash__(self) -> int:
        return hash(self.key)


class Metric(NamedTuple):
    """A fact that can be asked for: ``read`` gets the options of ``get_metric``.

    ``options`` are the names of those that mean something to it; others are refused.
    """

    key: str
    read: Callable[[Mapping[str, Any]], Any]
    doc: str
    options: tuple[str, ...] = ()

    def value(self, options: Mapping[str, Any], where: str, common: Sequence[str] = ()) -> Any:
        """Read it; raises PropertyError, naming the place, for an option that it does not take.

        ``common``: the options that all facts of the place take.
        """
        taken = (*common, *self.options)
        for option in options:
            if option not in taken:
                hint = f"the options {', '.join(taken)}" if taken else "no options"
                raise PropertyError(
                    f"{where}: {self.key} takes {hint}, and {option!r} was given",
                    self.key,
                    value=option,
                )
        return self.read(options)


class Configuration(Mapping[str, Any]):
    """A finished set of property values: every key has one. Immutable, so thread-safe.

    ``facts`` are the keys of metrics, which errors tell from misspelt ones.
    """

    def __init__(
        self, device: str, properties: Iterable[Property[Any]], facts: Collection[str] = ()
    ) -> None:
        self.device, self._facts = device, facts
        self._properties = {declared.key: declared for declared in properties}
        self._values = {key: declared.default for key, declared in self._properties.items()}
        self._given: frozenset[str] = frozenset()

    def __getitem__(self, key: str | Property[Any]) -> Any:
        name = key.key if isinstance(key, Property) else key
        try:
            return self._values[OLD_NAMES.get(name, name)]
        except KeyError:
            raise self.unknown(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def given(self) -> frozenset[str]:
        """The keys that a caller set, rather than left at their defaults."""
        return self._given

    def knows(self, key: str) -> bool:
        """True if the key is declared here."""
        return key in self._properties

    def is_local(self, key: str) -> bool:
        """True for a key that is declared here to mean something on this machine alone."""
        return key in self._properties and self._properties[key].is_local

    def value_or_default(self, declared: Property[T]) -> T:
        """Return the value of a property that not every device declares."""
        value: T = self._values.get(declared.key, declared.default)
        return value

    def with_values(self, values: Mapping[Any, Any]) -> Configuration:
        """Return a copy in which these win; PropertyError for unknown keys and bad values."""
        keys = property_keys(values, self.device)
        if not keys:
            return self
        parsed = {}
        for key, given in keys.items():
            if key not in self._properties:
                raise self._not_settable(key)
            parsed[key] = self._properties[key].value_of(given, self.device)
        return self._with({**self._values, **parsed}, self._given | parsed.keys())

    def with_defaults(self, values: Mapping[Any, Any]) -> Configuration:
        """Return a copy with other defaults: as ``with_values``, but they do not count as given."""
        return self._with(self.with_values(values)._values, self._given)

    def _with(self, values: dict[str, Any], given: frozenset[str]) -> Configuration:
        made = Configuration(self.device, (), self._facts)
        made._properties, made._values, made._given = self._properties, values, given
        return made

    def unknown(self, key: str) -> PropertyError:
        """Make the error for a key that is not declared here."""
        hint = nearest(key, self._properties) or f"; it knows {sorted(self._properties)}"
        if key in self._facts:
            hint = "; that is a fact: ask with get_metric"
        return PropertyError(f"{self.device} has no property {key!r}{hint}", key, self.device)

    def _not_settable(self, key: str) -> PropertyError:
        if OLD_NAMES.get(key) in self._properties:
            why = f"is the old name of {OLD_NAMES[key]} and can only be read; set {OLD_NAMES[key]}"
        elif key in self._facts:
            why = "is a fact that can only be read, with get_metric"
        else:
            return self.unknown(key)
        return PropertyError(f"{self.device}: {key} {why}", key, self.device)

    def __repr__(self) -> str:
        given = {key: self._values[key] for key in sorted(self._given)}
        return f"<Configuration of {self.device}: {given}>"


def property_keys(values: Mapping[Any, Any] | None, device: str) -> dict[str, Any]:
    """Turn a user's mapping into one of plain keys.

    Raises PropertyError if it is no mapping, or names a key twice, as a Property and in words.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise PropertyError(
            f"{device}: a configuration is a mapping such as {{'NUM_STREAMS': 2}}, not "
            f"{type(values).__name__}",
            device=device,
            value=values,
        )
    plain: dict[str, Any] = {}
    for key, item in values.items():
        name = key.key if isinstance(key, Property) else str(key)
        if name in plain:
            raise PropertyError(
                f"{device}: {name} is given twice; give it once", name, device, value=item
            )
        plain[name] = item
    return plain


AUTO = -1
"""NUM_STREAMS: as many as suit the performance hint."""
NUMA = -2
"""NUM_STREAMS: one for each NUMA node."""
UNBOUNDED = -1
"""MAX_QUEUED_REQUESTS: any number of requests may wait."""

LOG_LEVELS = {
    "LOG_NONE": 100,
    "LOG_ERROR": 40,
    "LOG_WARNING": 30,
    "LOG_INFO": 20,
    "LOG_DEBUG": 10,
    "LOG_TRACE": 5,
}
"""The values of LOG_LEVEL and the levels of ``logging`` that they mean."""

PERFORMANCE_HINT = Property(
    "PERFORMANCE_HINT",
    parse_choice("LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT"),
    "LATENCY",
    "What to tune for when NUM_STREAMS is AUTO: one request's time, or requests per second.",
)
MOST_REQUESTS_IN_FLIGHT = 65_536
"""Devices of devices keep a place for each."""

PERFORMANCE_HINT_NUM_REQUESTS = Property(
    "PERFORMANCE_HINT_NUM_REQUESTS",
    parse_integer(0, high=MOST_REQUESTS_IN_FLIGHT),
    0,
    "How many requests the application keeps in flight; bounds streams and slots. 0: not said.",
)
NUM_STREAMS = Property(
    "NUM_STREAMS",
    parse_integer(0, {"AUTO": AUTO, "NUMA": NUMA}, MOST_STREAMS),
    AUTO,
    "How many runs the device computes side by side; AUTO follows PERFORMANCE_HINT.",
)
INFERENCE_NUM_THREADS = Property(
    "INFERENCE_NUM_THREADS",
    parse_integer(0),
    0,
    "Threads that all streams together may compute with; 0: all allowed CPUs.",
)
INFERENCE_PRECISION_HINT = Property(
    "INFERENCE_PRECISION_HINT",
    parse_choice("f32", "tf32", "f16", "bf16"),
    "f32",
    "The precision that float32 operators may be computed in.",
)
LOG_LEVEL = Property(
    "LOG_LEVEL",
    parse_choice(*LOG_LEVELS),
    "LOG_NONE",
    "The level of the logger 'aioinfer.<device>'; until it is set, Python's logging decides.",
)
PERF_COUNT = Property(
    "PERF_COUNT",
    parse_boolean,
    False,
    "Record the time of every node; read it with request.profiling().",
)
DEVICE_ID = Property("DEVICE_ID", parse_text, "", "Which device of the plugin; '' is the first.")
DEVICE_SHARE = Property(
    "DEVICE_SHARE",
    parse_share,
    "",
    "Which part of the device a network gets to itself: '0/2' is the first of two, '' the whole. "
    "Lists such as 'HETERO:CPU.0,CPU.1' set it.",
    only_at_load=True,
)
INPUT_SHAPES: Property[tuple[Mapping[str, tuple[int, ...]], ...]] = Property(
    "INPUT_SHAPES",
    parse_input_shapes,
    (),
    "Signatures to compile and to run once while loading, on made up inputs: {input: shape}, or a "
    "sequence of such mappings.",
    only_at_load=True,
)
OUTPUT_LOCATION: Property[Mapping[str, str]] = Property(
    "OUTPUT_LOCATION",
    parse_locations,
    MappingProxyType({}),
    "Where results are, by output: {name: 'DEVICE'} gives a Tensor whose content stays in the "
    "device's memory until it is read; a device that computes in the host's memory gives one that "
    "is there. 'HOST', as for all that are not named: a numpy array.",
    only_at_load=True,
)
CACHE_DIR = Property(
    "CACHE_DIR",
    parse_text,
    "",
    "A folder, made with mode 700, where networks are kept as they were compiled, so that the same "
    "model is loaded faster by the next process; devices inside of others keep their parts there, "
    "and AUTO how fast models ran on which device, which it measures at a first load. "
    "'': the environment's AIOINFER_CACHE_DIR, or none.",
    is_local=True,
)
CACHE_LIMIT_BYTES = Property(
    "CACHE_LIMIT_BYTES",
    parse_integer(0),
    8 << 30,
    "What the networks kept in CACHE_DIR may take, the latest one aside; those that were not "
    "loaded for longest go first.",
)
EXPORTABLE = Property(
    "EXPORTABLE",
    parse_boolean,
    False,
    "Keep what export writes in memory, on a device that would release it once the network is "
    "compiled: the weights as they were before.",
    only_at_load=True,
)
ENABLE_MMAP = Property(
    "ENABLE_MMAP",
    parse_boolean,
    True,
    "Whether a device that packs weights may leave the large ones in the model's file, which then "
    "has to stay as it is while the network lives, if its shapes are open. Only files on a disk of "
    "this machine that no other user may write to are mapped; others are read; with NO all are.",
)
ALLOW_AUTO_BATCHING = Property(
    "ALLOW_AUTO_BATCHING",
    parse_boolean,
    False,
    "With PERFORMANCE_HINT THROUGHPUT: load the network on BATCH around this device, so that "
    "requests which come while it is busy share runs, if that leaves all answers as they are. The "
    "network's explain() says whether they do, or why not.",
    only_at_load=True,
)
PLAN_CACHE_COUNT = Property(
    "PLAN_CACHE_COUNT",
    parse_integer(0),
    0,
    "Signatures of input shapes whose plans a network keeps, at most; those least recently used go "
    "first. 0: as many as suit the device, 256 on CPU and 32 on others.",
)
PLAN_CACHE_BYTES = Property(
    "PLAN_CACHE_BYTES",
    parse_integer(0),
    128 << 20,
    "Memory that these plans take, at most, the latest one aside; weights and arenas do not count. "
    "Only CPU knows it, and has the property; of HETERO and AUTO it is for CPU. 0: no bound.",
)
INLINE_THRESHOLD_US = Property(
    "INLINE_THRESHOLD_US",
    parse_integer(0),
    50,
    "Awaited runs that are known to take at most this many microseconds stay on the caller's "
    "thread, where the device can do that; 0: all runs go to the device's own threads.",
)
MAX_QUEUED_REQUESTS = Property(
    "MAX_QUEUED_REQUESTS",
    parse_integer(0, {"UNBOUNDED": UNBOUNDED}),
    UNBOUNDED,
    "A request that would have to wait while this many already wait is refused at once, with "
    "OverloadedError; 0: none may wait; UNBOUNDED: any number may.",
)
DEFAULT_DEADLINE_S = Property(
    "DEFAULT_DEADLINE_S",
    parse_seconds,
    0.0,
    "The deadline_s of requests that are given none, in seconds; infinity as deadline_s lifts it. "
    "0: no deadline.",
)

PREPROCESS_STREAMS = Property(
    "PREPROCESS_STREAMS",
    parse_integer(0, {"AUTO": AUTO}, MOST_STREAMS),
    AUTO,
    "How many threads run the preprocess function of a network that has one, for all networks "
    "with the same number together; AUTO: as many as there are allowed CPUs. 0: none, callers' "
    "threads do, event loops included, for functions that take microseconds.",
)
POSTPROCESS_STREAMS = Property(
    "POSTPROCESS_STREAMS",
    parse_integer(0, {"AUTO": AUTO}, MOST_STREAMS),
    AUTO,
    "As PREPROCESS_STREAMS, for the postprocess function; 0: the thread that "
    "takes the results does.",
)

STATE: Property[Mapping[str, str] | str] = Property(
    "STATE",
    parse_state,
    "AUTO",
    "Inputs that the same request's last run feeds: {input: output}. Callers neither give nor get "
    "them; request.query_state() does. AUTO: what the model's metadata says under "
    "'aioinfer.state'; {}: no input.",
    only_at_load=True,
)

REQUEST_PROPERTIES: tuple[Property[Any], ...] = (
    MAX_QUEUED_REQUESTS,
    DEFAULT_DEADLINE_S,
    PREPROCESS_STREAMS,
    POSTPROCESS_STREAMS,
    STATE,
)
"""What only means something to the network that users ask; a network inside another ignores it."""

STANDARD_PROPERTIES: tuple[Property[Any], ...] = (
    PERFORMANCE_HINT,
    PERFORMANCE_HINT_NUM_REQUESTS,
    NUM_STREAMS,
    INFERENCE_NUM_THREADS,
    INFERENCE_PRECISION_HINT,
    LOG_LEVEL,
    PERF_COUNT,
    DEVICE_ID,
    INPUT_SHAPES,
    OUTPUT_LOCATION,
    PLAN_CACHE_COUNT,
    PLAN_CACHE_BYTES,
    INLINE_THRESHOLD_US,
    ENABLE_MMAP,
    CACHE_DIR,
    CACHE_LIMIT_BYTES,
    EXPORTABLE,
    ALLOW_AUTO_BATCHING,
    *REQUEST_PROPERTIES,
)
"""What a device declares; one to which a key means nothing leaves that out of its
``standard_properties``, and one that cannot honour a value refuses it in ``check_values``."""


def stream_count(config: Mapping[str, Any], most: int) -> int:
    """Decide how many streams a network gets, at least 1. Pure.

    A number of streams stays as asked; else the hints decide; ``most`` is what throughput wants.
    """
    wanted = int(config[NUM_STREAMS.key])
    if wanted not in (AUTO, NUMA):
        return max(1, wanted)
    wanted = 1 if config[PERFORMANCE_HINT.key] == "LATENCY" else most
    requests = int(config[PERFORMANCE_HINT_NUM_REQUESTS.key])
    return min(wanted, requests) if requests else wanted


def slot_count(config: Mapping[str, Any], most: int) -> int:
    """Decide how many runs may be in flight on the device; ``most`` is what keeps it busy. Pure."""
    requests = int(config[PERFORMANCE_HINT_NUM_REQUESTS.key])
    return min(most, requests) if requests else most
