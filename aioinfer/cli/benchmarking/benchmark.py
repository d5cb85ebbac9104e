"""``aioinfer benchmark``: measures a model on a device, in nine steps that it prints."""

from __future__ import annotations

import argparse
import platform
import shlex
from collections.abc import Sequence
from time import perf_counter, perf_counter_ns

import numpy as np
from rich.console import Console

from ... import __version__
from ...runtime.blobs.layout import is_blob
from ...runtime.devices.core import Core
from ...runtime.devices.device_aliases import understood
from ...runtime.devices.device_name import parse_device
from ...runtime.graph import Model, TensorType, is_static, shape_text
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.network.infer_request import InferRequest
from ...runtime.tensors.tensor import Port, check_inputs, ports_of
from ..console import make_console, print_indented
from ..error_line import error_line
from ..input_files import find_files, load_arrays, load_shaped
from ..inputs import InputSets, random_inputs
from ..shapes import asked_shapes, choose_shapes
from .measure import (
    Limits,
    Measurement,
    measure_async,
    measure_callback,
    measure_sync,
    run_on_event_loop,
    whole_rounds,
)
from .options import BenchmarkOptions, network_config, parse_options
from .percentiles import summarize, throughput_per_s, window_between
from .progress import progress_bar
from .report import BenchmarkReport
from .summed_node_times import NodeTimes
from .tables import (
    print_network_properties,
    print_node_times,
    print_ports,
    print_results,
    print_stages,
)

__all__ = ["run_benchmark"]

STEP_COUNT = 9
"""Of a model; a network that was compiled before is imported in one step, not read and loaded."""
INTERRUPTED = 130


def run_benchmark(parsed: argparse.Namespace, argv: Sequence[str]) -> int:
    """Measure and print; 130 if it was interrupted while it measured. Errors are raised.

    The report, if one is wanted, is written in every case, with the error in it.
    """
    options = parse_options(parsed)
    report = BenchmarkReport(shlex.join(["aioinfer", *argv]), options.to_dict())
    try:
        with Core() as core:
            Benchmark(options, core, make_console(), report).run()
    except BaseException as error:
        report.error = error_line(error)
        report.is_interrupted = isinstance(error, KeyboardInterrupt)
        raise
    finally:
        if options.report is not None:
            report.write(options.report)
    return INTERRUPTED if report.is_interrupted else 0


class Benchmark:
    """One benchmark; ``run`` goes through its steps and fills the report."""

    def __init__(
        self, options: BenchmarkOptions, core: Core, console: Console, report: BenchmarkReport
    ) -> None:
        self._options, self._core = options, core
        self._console, self._report = console, report
        self._is_exported = _is_exported(options.model)
        self._step_number, self._step_count = 0, STEP_COUNT - self._is_exported

    def run(self) -> None:
        self._tell_options()
        self._tell_devices()
        self._tell_config()
        if self._is_exported:
            with self._import_network() as network:
                self._measure_network(network, self._choose_inputs(network.inputs, network.name))
            return
        model = self._read_model()
        inputs = self._choose_inputs(ports_of(model.inputs), model.name, model)
        with self._load_network(model, inputs) as network:
            self._measure_network(network, inputs)

    def _measure_network(self, network: ExecutableNetwork, inputs: InputSets) -> None:
        self._tell_network(network)
        requests = self._infer_first(network, inputs)
        self._measure(network, requests, inputs)

    def _step(self, title: str) -> None:
        self._step_number += 1
        self._console.print(f"[Step {self._step_number}/{self._step_count}] {title}", style="bold")

    def _say(self, line: str) -> None:
        print_indented(self._console, line)

    def _tell_options(self) -> None:
        options = self._options
        self._step("Checking the options")
        limits = []
        if options.iteration_count is not None:
            limits.append(f"{options.iteration_count} inferences")
        if options.duration_s is not None:
            limits.append(f"{options.duration_s:g} s")
        self._say(f"{options.model} on {options.device}")
        self._say(f"api {options.api}, hint {options.hint}, stops after {' or '.join(limits)}")

    def _tell_devices(self) -> None:
        self._step("Starting the runtime")
        environment = {
            "aioinfer": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(),
        }
        self._say(", ".join(f"{name} {version}" for name, version in environment.items()))
        name = parse_device(understood(self._options.device, self._core.plugin_names))
        for device in [entry.device for entry in name.entries] or [str(name)]:
            full_name = str(self._core.get_metric(device, "FULL_DEVICE_NAME"))
            environment[device] = full_name
            if full_name != device:
                self._say(f"{device}: {full_name}")
        self._report.environment = environment

    def _tell_config(self) -> None:
        self._step("Configuring the device")
        config = self._options.config if self._is_exported else network_config(self._options)
        for key, value in config.items():
            self._say(f"{key} = {value}")

    def _read_model(self) -> Model:
        self._step("Reading the model")
        began_s = perf_counter()
        model = self._core.read_model(self._options.model)
        self._report.read_model_ms = (perf_counter() - began_s) * 1e3
        self._say(
            f"{model.name}: {len(model.graph)} nodes, read in {self._report.read_model_ms:.2f} ms"
        )
        print_ports(self._console, ports_of(model.inputs), ports_of(model.outputs))
        return model

    def _import_network(self) -> ExecutableNetwork:
        """Import what was compiled; it has its own properties, but for those of --config."""
        self._step("Importing the network")
        options = self._options
        device = None if options.device == "AUTO" else options.device
        began_s = perf_counter()
        network = self._core.import_network(options.model, device, options.config)
        self._report.load_network_ms = (perf_counter() - began_s) * 1e3
        self._say(
            f"{network.name}: imported on {network.device} in {self._report.load_network_ms:.2f} ms"
        )
        print_ports(self._console, network.inputs, network.outputs)
        return network

    def _choose_inputs(
        self, ports: Sequence[Port], name: str, model: Model | None = None
    ) -> InputSets:
        """Choose shapes and arrays; a model that is still to be loaded is given these shapes."""
        self._step("Choosing shapes and inputs")
        options = self._options
        files = find_files(options.inputs, ports)
        given = load_arrays(files, ports)
        tensors = {port.name for port in ports if isinstance(port.type, TensorType)}
        known = {name: arrays[0].shape for name, arrays in given.items() if name in tensors}
        chosen = choose_shapes(ports, options.shapes, options.batch, known)
        for note in chosen.notes:
            self._say(note)
        pinned = asked_shapes(ports, options.shapes, options.batch)
        if pinned and model is not None:
            model.reshape(pinned)
            ports = ports_of(model.inputs)
        for port_name, arrays in load_shaped(files, ports, chosen.shapes).items():
            given.setdefault(port_name, []).extend(arrays)
        rest = [port for port in ports if port.name not in given]
        values = {
            **{name: list(arrays) for name, arrays in given.items()},
            **{
                name: [value]
                for name, value in random_inputs(rest, chosen.shapes, options.seed).items()
            },
        }
        for port in ports:
            source = f"{len(values[port.name])} given" if port.name in given else "random"
            shape = shape_text(chosen.shapes[port.name]) if port.name in chosen.shapes else ""
            self._say(f"{port.name}{shape}: {source}")
        self._report.batch = chosen.batch
        self._report.shapes = {name: list(shape) for name, shape in chosen.shapes.items()}
        inputs = InputSets(values)
        for number in range(inputs.count):
            check_inputs(inputs.at(number), ports, name)
        return inputs

    def _load_network(self, model: Model, inputs: InputSets) -> ExecutableNetwork:
        self._step("Loading the network")
        config = network_config(self._options)
        if not all(is_static(port.shape) for port in ports_of(model.inputs)):
            config.setdefault("INPUT_SHAPES", _signatures(inputs))
        began_s = perf_counter()
        network = self._core.load_network(model, self._options.device, config)
        self._report.load_network_ms = (perf_counter() - began_s) * 1e3
        self._say(f"loaded on {network.device} in {self._report.load_network_ms:.2f} ms")
        return network

    def _tell_network(self, network: ExecutableNetwork) -> None:
        self._step("Asking for properties")
        self._report.execution_devices = list(network.execution_devices)
        self._report.properties = {
            key: network.get_config(key) for key in network.get_metric("SUPPORTED_CONFIG_KEYS")
        }
        print_network_properties(self._console, network)

    def _infer_first(self, network: ExecutableNetwork, inputs: InputSets) -> list[InferRequest]:
        self._step("Making requests, and the first inference")
        optimal = int(network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        count = self._options.request_count or optimal
        requests = [network.create_infer_request() for _ in range(count)]
        began_s = perf_counter()
        requests[0].infer_sync(inputs.at(0))
        self._report.request_count = count
        self._report.first_inference_ms = (perf_counter() - began_s) * 1e3
        self._say(f"requests in flight: {count} (optimal: {optimal})")
        self._say(f"first inference: {self._report.first_inference_ms:.2f} ms, left out below")
        return requests

    def _measure(
        self, network: ExecutableNetwork, requests: list[InferRequest], inputs: InputSets
    ) -> None:
        options, report = self._options, self._report
        count = options.iteration_count
        limits = Limits(count and whole_rounds(count, len(requests)), options.duration_s)
        times = NodeTimes()
        look = (lambda request: times.add(request.profiling())) if options.has_node_times else None
        measurement = Measurement(limits, look=look)
        if options.trace is not None:
            network.trace()  # from here on every device tells its times
        before, start_ns = network.statistics(), perf_counter_ns()
        try:
            self._infer_repeatedly(requests, inputs, measurement)
        except KeyboardInterrupt:
            report.is_interrupted = True
            self._say("interrupted; this is what was measured so far")
        finally:
            report.window = window_between(before, network.statistics())
            report.latencies_ms = measurement.latencies_ms
            report.duration_ms = measurement.duration_s * 1e3
            report.latency = summarize(report.latencies_ms, options.percentile)
            report.throughput_fps = throughput_per_s(
                measurement.count, report.batch or 1, measurement.duration_s
            )
        print_results(self._console, report)
        print_stages(self._console, report.window)
        if options.trace is not None:
            trace = network.trace().since(start_ns)
            trace.save(options.trace)
            self._console.print(f"wrote {options.trace}: {len(trace)} spans", soft_wrap=True)
        if options.has_node_times:
            report.nodes = times.means()
            print_node_times(self._console, report.nodes)

    def _infer_repeatedly(
        self, requests: list[InferRequest], inputs: InputSets, measurement: Measurement
    ) -> None:
        """Announce the step once an interrupt ends it in good order, and measure."""

        async def measure() -> None:
            self._step("Measuring")
            await measure_async(requests, inputs, measurement)

        with progress_bar(self._console, measurement):
            if self._options.api == "async":
                run_on_event_loop(measure)
            else:
                self._step("Measuring")
                if self._options.api == "callback":
                    measure_callback(requests, inputs, measurement)
                else:
                    measure_sync(requests[0], inputs, measurement)


def _signatures(inputs: InputSets) -> list[dict[str, tuple[int, ...]]]:
    """List the different shapes that the inputs come in, to be compiled ahead."""
    signatures = [
        {
            name: value.shape
            for name, value in inputs.at(number).items()
            if isinstance(value, np.ndarray)
        }
        for number in range(inputs.count)
    ]
    return [item for place, item in enumerate(signatures) if item not in signatures[:place]]


def _is_exported(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return is_blob(file.read(8))
    except (OSError, ValueError):
        return False  # the reader of models says what is wrong
