"""The grammar of the command line: commands, options and their help."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import __version__
from .arguments import (
    CommandParser,
    choice,
    duration,
    names_of,
    percentile_number,
    positive_integer,
    whole_number,
)
from .common_options import add_affinity, add_common, add_config, add_device, add_shapes
from .quantization.options import QUANTIZE, QUANTIZE_EXAMPLES, add_quantize
from .serve_options import SERVE, SERVE_EXAMPLES, add_serve

__all__ = ["build_parser"]

DESCRIPTION = """\
Run ONNX models on one device, or split over several.

A device is written NAME, NAME.ID or, for one made of others, VIRTUAL:A,B:
CPU, REFERENCE.1, HETERO:CUDA,CPU. Without -d it is AUTO, the best one there is."""

DEVICES = """\
List the devices that are there, and why others are not."""

PROPERTIES = """\
List what can be set on a device and what can be asked of it and of its networks,
with types, defaults and values; without DEVICE, of all devices."""

QUERY = """\
Say for each node of a model whether a device runs it, or why not. On a HETERO
device, show the partition: which node runs where and why, and what crosses
from one subgraph to another. Exit code 1 if no device takes a node."""

QUERY_EXAMPLES = """\
examples:
  aioinfer query model.onnx -d REFERENCE
  aioinfer query model.onnx -d HETERO:REFERENCE.0,REFERENCE.1 \\
      --affinity conv1=REFERENCE.0 --affinity conv2=REFERENCE.1 --svg cut.svg"""

BENCHMARK = """\
Measure a model on a device: latency and throughput, with random or given
inputs. The first inference is measured apart and left out. Ctrl-C prints what
was measured so far."""

BENCHMARK_EXAMPLES = """\
examples:
  aioinfer benchmark -m model.onnx -d CPU
  aioinfer benchmark -m model.onnx -d CPU -hint latency -api sync -niter 100
  aioinfer benchmark -m bert.onnx -shape "ids[8,128],mask[8,128]" -t 30
  aioinfer benchmark -m model.onnx -i image:cat.npy -pc -report result.json
  aioinfer benchmark -m model.onnx -d HETERO:CUDA,CPU -t 1 -trace trace.html"""


TUNE = """\
Search for the configuration of a device that suits a model: streams, threads,
requests in flight, batch, BATCH around the device, and precision, one step after
another. What is compared takes turns, so that a busy machine is so for all. Prints
the best beside what the default and the hints give, lines to paste, and what a
precision changes in the outputs. Ctrl-C prints what was found so far."""

TUNE_EXAMPLES = """\
examples:
  aioinfer tune -m model.onnx -d CPU --seconds 120 -o tuned.json
  aioinfer tune -m model.onnx -d CPU --goal latency --precision f32
  aioinfer tune -m bert.onnx -shape "ids[1,128],mask[1,128]" --max-latency 50"""


COMPILE = """\
Compile a model for a device and write the network to a file, which Core.import_network
and aioinfer benchmark -m load without the model. What a file is for, and for how long, is
in docs/blob-format.md."""

COMPILE_EXAMPLES = """\
examples:
  aioinfer compile -m model.onnx -d CPU -o model.blob
  aioinfer compile -m model.onnx -d CPU --config EXPORTABLE=YES   # for any processor
  aioinfer compile -m bert.onnx -d HETERO:CPU,REFERENCE -shape "ids[1,128],mask[1,128]"
  aioinfer benchmark -m model.blob"""


def build_parser() -> CommandParser:
    """Make the parser; a parsed command has its name in ``command``."""
    parser = CommandParser(
        prog="aioinfer",
        description=DESCRIPTION,
        epilog="aioinfer COMMAND --help tells the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"aioinfer {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    _add_devices(commands.add_parser("devices", help="list the devices", description=DEVICES))
    _add_properties(
        commands.add_parser(
            "properties",
            help="list the properties and metrics of devices",
            description=PROPERTIES,
        )
    )
    _add_query(
        commands.add_parser(
            "query",
            help="show which device runs which node, and why",
            description=QUERY,
            epilog=QUERY_EXAMPLES,
        )
    )
    _add_compile(
        commands.add_parser(
            "compile",
            help="compile a model and write the network to a file",
            description=COMPILE,
            epilog=COMPILE_EXAMPLES,
            usage="aioinfer compile -m MODEL [-d DEVICE] [-o FILE] [options]",
        )
    )
    _add_benchmark(
        commands.add_parser(
            "benchmark",
            help="measure latency and throughput",
            description=BENCHMARK,
            epilog=BENCHMARK_EXAMPLES,
            usage="aioinfer benchmark -m MODEL [-d DEVICE] [options]",
        )
    )
    _add_tune(
        commands.add_parser(
            "tune",
            help="search for the best configuration",
            description=TUNE,
            epilog=TUNE_EXAMPLES,
            usage="aioinfer tune -m MODEL [-d DEVICE] [options]",
        )
    )
    add_quantize(
        commands.add_parser(
            "quantize",
            help="quantise a model to 8 bits",
            description=QUANTIZE,
            epilog=QUANTIZE_EXAMPLES,
            usage="aioinfer quantize -m MODEL --data FILES [-o FILE] [options]",
        )
    )
    add_serve(
        commands.add_parser(
            "serve",
            help="serve models over HTTP and gRPC",
            description=SERVE,
            epilog=SERVE_EXAMPLES,
            usage="aioinfer serve MODEL [-d DEVICE] [options]",
        )
    )
    return parser


def _add_devices(parser: CommandParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    add_common(parser)


def _add_properties(parser: CommandParser) -> None:
    parser.add_argument("device", metavar="DEVICE", nargs="?", help="a device (default: all)")
    _add_devices(parser)


def _add_query(parser: CommandParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the ONNX file")
    add_device(parser)
    add_affinity(parser)
    add_config(parser)
    add_shapes(parser.add_argument_group("shapes (with them, every cut is known in bytes)"))
    results = parser.add_argument_group("results")
    results.add_argument("--json", action="store_true", help="print JSON instead of tables")
    results.add_argument("--dot", metavar="FILE", type=Path, help="draw the partition for Graphviz")
    results.add_argument("--svg", metavar="FILE", type=Path, help="draw the partition as a picture")
    results.add_argument(
        "--trace", action="store_true", help="print how the subgraphs were selected, step by step"
    )
    results.add_argument(
        "--save-subgraphs",
        metavar="DIR",
        type=Path,
        help="write each subgraph of the partition as an .onnx file",
    )
    add_common(parser)


def _add_compile(parser: CommandParser) -> None:
    parser.add_argument("-m", "--model", metavar="MODEL", required=True, help="the ONNX file")
    add_device(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="where to write the network (default: the model's name and .blob, here)",
    )
    add_affinity(parser)
    add_config(parser)
    add_shapes(parser.add_argument_group("shapes (a network of fixed shapes is imported fastest)"))
    add_common(parser)


def _add_benchmark(parser: CommandParser) -> None:
    what = parser.add_argument_group("what")
    what.add_argument(
        "-m",
        "--model",
        dest="m",
        metavar="MODEL",
        required=True,
        help="the ONNX file, or a network that aioinfer compile wrote",
    )
    add_device(what)
    what.add_argument(
        "-hint",
        "--hint",
        metavar="HINT",
        type=choice(
            "latency",
            "throughput",
            "cumulative_throughput",
            "none",
            tput="throughput",
            ctput="cumulative_throughput",
        ),
        help="what the device tunes for: latency, throughput, cumulative_throughput or none "
        "(default: latency for -api sync, else throughput)",
    )
    what.add_argument(
        "-api",
        "--api",
        metavar="API",
        type=choice("sync", "async", "callback"),
        default="async",
        help="sync: one request, one inference after another; async: many requests, awaited "
        "(default); callback: many requests, each started again by its callback, without an event "
        "loop",
    )
    add_affinity(what)
    _add_limits(parser.add_argument_group("how long (default: 10 seconds)"))
    _add_data(parser.add_argument_group("shapes and inputs"))
    _add_resources(parser.add_argument_group("resources"))
    _add_reports(parser.add_argument_group("reports"))
    add_common(parser)


def _add_tune(parser: CommandParser) -> None:
    what = parser.add_argument_group("what")
    what.add_argument("-m", "--model", metavar="MODEL", required=True, help="the ONNX file")
    add_device(what)
    what.add_argument(
        "--goal",
        metavar="GOAL",
        type=choice("throughput", "latency"),
        default="throughput",
        help="throughput: items per second, with many requests in flight (default); latency: the "
        "time of one request at a time",
    )
    what.add_argument(
        "--max-latency",
        metavar="MS",
        type=duration,
        help="throughput with nine of ten inferences within this number of milliseconds",
    )
    what.add_argument(
        "--precision",
        metavar="NAMES",
        type=names_of("f32", "tf32", "bf16", "f16"),
        help="the precisions to try, with commas between (default: all that the device has)",
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=duration,
        default=60.0,
        help="about how long to measure (default: 60)",
    )
    add_shapes(how)
    how.add_argument(
        "--seed",
        metavar="NUMBER",
        type=whole_number,
        default=0,
        help="seed of the random inputs (default: 0)",
    )
    add_config(how)
    results = parser.add_argument_group("results")
    results.add_argument("--json", action="store_true", help="print JSON instead of tables")
    results.add_argument(
        "-o", "--output", dest="o", metavar="FILE", type=Path, help="write the configuration"
    )
    add_common(parser)


def _add_limits(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-niter",
        "--niter",
        metavar="COUNT",
        type=positive_integer,
        help="stop after this number of inferences, rounded up to a multiple of the requests",
    )
    group.add_argument(
        "-t",
        "--time",
        dest="t",
        metavar="SECONDS",
        type=duration,
        help="stop after so long; with -niter, whichever comes first",
    )


def _add_data(group: argparse._ArgumentGroup) -> None:
    add_shapes(group)
    group.add_argument(
        "-i",
        "--input",
        dest="i",
        metavar="[NAME:]PATH",
        nargs="+",
        action="extend",
        default=[],
        help="take inputs from .npy, .npz, .bin or image files, or from folders of them; several "
        "rotate (default: random)",
    )
    group.add_argument(
        "--seed",
        metavar="NUMBER",
        type=whole_number,
        default=0,
        help="seed of the random inputs (default: 0)",
    )


def _add_resources(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-nireq",
        "--nireq",
        metavar="COUNT",
        type=positive_integer,
        help="requests in flight (default: what the network finds optimal)",
    )
    group.add_argument(
        "-nstreams",
        "--nstreams",
        metavar="COUNT",
        help="inferences that the device computes side by side, or AUTO; CUDA:2,CPU:4 for the "
        "devices of a virtual one; needs -hint none",
    )
    add_config(group)


def _add_reports(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-latency_percentile",
        "--latency-percentile",
        metavar="NUMBER",
        type=percentile_number,
        default=50,
        help="the percentile that is shown first, 1 to 100 (default: 50, the median)",
    )
    group.add_argument("-pc", "--pc", action="store_true", help="measure each node, over all runs")
    group.add_argument(
        "-report",
        "--report",
        metavar="FILE",
        type=Path,
        help="write options, results and every latency as JSON",
    )
    group.add_argument(
        "-trace",
        "--trace",
        metavar="FILE",
        type=Path,
        help="write what ran where and when: .html is a page to look at, .json is for Perfetto and "
        "chrome://tracing",
    )
