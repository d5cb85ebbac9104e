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
    port_number,
    positive_integer,
    whole_number,
)

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
requests in flight, batch and precision, one step after another. What is compared
takes turns, so that a busy machine is so for all. Prints the best beside what the
default and the hints give, lines to paste, and what a precision changes in the
outputs. Ctrl-C prints what was found so far."""

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


QUANTIZE = """\
Quantise a model to 8 bits by onnxruntime's quantizer (pip install aioinfer[quantize]),
and run both models on all samples: how far each output is off is printed. Ranges of
values are measured with the samples, or, with --dynamic, in each run.

An array is one sample, several with one axis more than the input has, or several
batches one after another; a folder holds one file for each."""

QUANTIZE_EXAMPLES = """\
examples:
  aioinfer quantize -m resnet.onnx --data samples.npz -o resnet.int8.onnx
  aioinfer quantize -m bert.onnx --data ids:folder/ids --data mask:folder/mask
  aioinfer quantize -m bert.onnx --dynamic --data samples"""


SERVE = """\
Serve one ONNX file, or a directory of models (name/version/model.onnx), by the Open
Inference Protocol (KServe V2) over HTTP and gRPC. Only this machine reaches it unless --host
says otherwise. SIGTERM and Ctrl-C let requests under way finish; a second one ends
them. How to call it is in docs/serving.md."""

SERVE_EXAMPLES = """\
examples:
  aioinfer serve model.onnx -d CPU
  aioinfer serve models --port 8000 --poll 5 --allow-management
  AIOINFER_TOKEN=secret aioinfer serve models --host 0.0.0.0"""


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
    _add_quantize(
        commands.add_parser(
            "quantize",
            help="quantise a model to 8 bits",
            description=QUANTIZE,
            epilog=QUANTIZE_EXAMPLES,
            usage="aioinfer quantize -m MODEL --data FILES [-o FILE] [options]",
        )
    )
    _add_serve(
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
    _add_common(parser)


def _add_properties(parser: CommandParser) -> None:
    parser.add_argument("device", metavar="DEVICE", nargs="?", help="a device (default: all)")
    _add_devices(parser)


def _add_query(parser: CommandParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the ONNX file")
    _add_device(parser)
    _add_affinity(parser)
    _add_config(parser)
    _add_shapes(parser.add_argument_group("shapes (with them, every cut is known in bytes)"))
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
    _add_common(parser)


def _add_compile(parser: CommandParser) -> None:
    parser.add_argument("-m", "--model", metavar="MODEL", required=True, help="the ONNX file")
    _add_device(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="where to write the network (default: the model's name and .blob, here)",
    )
    _add_affinity(parser)
    _add_config(parser)
    _add_shapes(parser.add_argument_group("shapes (a network of fixed shapes is imported fastest)"))
    _add_common(parser)


def _add_quantize(parser: CommandParser) -> None:
    parser.add_argument("-m", "--model", metavar="MODEL", required=True, help="the ONNX file")
    parser.add_argument(
        "--data",
        metavar="[NAME:]PATH",
        action="append",
        help="samples of the inputs: .npz or .npy files, or a folder of them; may be repeated",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="where to write the model (default: the model's name and .int8.onnx, here)",
    )
    parser.add_argument(
        "--samples", metavar="COUNT", type=positive_integer, help="use the first ones only"
    )
    how = parser.add_argument_group("how")
    how.add_argument(
        "--dynamic",
        action="store_true",
        help="quantise products only, by ranges that each run measures; needs no samples",
    )
    how.add_argument(
        "--format",
        metavar="FORMAT",
        type=choice("qdq", "qoperator"),
        default="qdq",
        help="qdq: ONNX's operators between QuantizeLinear and DequantizeLinear (default); "
        "qoperator: operators on stored numbers",
    )
    how.add_argument(
        "--activations",
        metavar="TYPE",
        type=choice("int8", "uint8"),
        default="uint8",
        help="what values are stored in (default: uint8)",
    )
    how.add_argument(
        "--weights",
        metavar="TYPE",
        type=choice("int8", "uint8"),
        default="int8",
        help="what weights are stored in (default: int8, which CPU computes with)",
    )
    how.add_argument(
        "--per-tensor",
        action="store_true",
        help="one scale for all weights of a node (default: one for each channel)",
    )
    how.add_argument(
        "--method",
        metavar="METHOD",
        type=choice("minmax", "entropy", "percentile"),
        default="minmax",
        help="how samples give ranges: minmax (default), entropy or percentile",
    )
    how.add_argument(
        "--exclude",
        metavar="NODE",
        action="append",
        help="leave a node as it is; may be repeated",
    )
    compared = parser.add_argument_group("comparison")
    _add_device(compared)
    _add_config(compared)
    _add_common(parser)


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
    _add_device(what)
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
    _add_affinity(what)
    _add_limits(parser.add_argument_group("how long (default: 10 seconds)"))
    _add_data(parser.add_argument_group("shapes and inputs"))
    _add_resources(parser.add_argument_group("resources"))
    _add_reports(parser.add_argument_group("reports"))
    _add_common(parser)


def _add_tune(parser: CommandParser) -> None:
    what = parser.add_argument_group("what")
    what.add_argument("-m", "--model", metavar="MODEL", required=True, help="the ONNX file")
    _add_device(what)
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
    _add_shapes(how)
    how.add_argument(
        "--seed",
        metavar="NUMBER",
        type=whole_number,
        default=0,
        help="seed of the random inputs (default: 0)",
    )
    _add_config(how)
    results = parser.add_argument_group("results")
    results.add_argument("--json", action="store_true", help="print JSON instead of tables")
    results.add_argument(
        "-o", "--output", dest="o", metavar="FILE", type=Path, help="write the configuration"
    )
    _add_common(parser)


def _add_serve(parser: CommandParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the ONNX file, or the model directory")
    _add_device(parser)
    _add_config(parser)
    address = parser.add_argument_group("address")
    address.add_argument(
        "--host", metavar="HOST", default="127.0.0.1", help="address to listen on (127.0.0.1)"
    )
    address.add_argument(
        "--port",
        metavar="PORT",
        type=port_number,
        default=8000,
        help="port for HTTP; 0: any that is free (default: 8000)",
    )
    address.add_argument(
        "--grpc-port",
        metavar="PORT",
        type=port_number,
        help="serve gRPC, too, on this port, which is 8001 elsewhere; 0: any that is free",
    )
    models = parser.add_argument_group("model directory")
    models.add_argument(
        "--poll",
        metavar="SECONDS",
        type=duration,
        help="look for new, changed and removed models so often (default: never)",
    )
    models.add_argument(
        "--allow-management", action="store_true", help="let clients load and unload models"
    )
    models.add_argument(
        "--memory-limit",
        metavar="MB",
        type=positive_integer,
        help="of all loaded versions' files together, in MiB (default: none)",
    )
    parser.add_argument(
        "--access-log",
        metavar="FILE",
        help="append a JSON line for each request; -: to standard error (default: none)",
    )
    safety = parser.add_argument_group("safety")
    safety.add_argument(
        "--token-file",
        metavar="FILE",
        type=Path,
        help="want the bearer token in this file of every request (default: AIOINFER_TOKEN's)",
    )
    safety.add_argument("--tls-certificate", metavar="FILE", type=Path, help="serve with TLS")
    safety.add_argument("--tls-key", metavar="FILE", type=Path, help="the certificate's key")
    safety.add_argument(
        "--max-body-mb",
        metavar="MB",
        type=positive_integer,
        default=64,
        help="the longest body that is taken, in MiB (default: 64)",
    )
    safety.add_argument(
        "--max-bodies-mb",
        metavar="MB",
        type=positive_integer,
        help="bodies in memory together, in MiB (default: 8 of the longest)",
    )
    safety.add_argument(
        "--max-connections",
        metavar="COUNT",
        type=positive_integer,
        default=1024,
        help="open connections, and calls by gRPC under way, at most (default: 1024)",
    )
    safety.add_argument(
        "--drain",
        metavar="SECONDS",
        type=duration,
        default=30.0,
        help="how long requests under way may take at the end (default: 30)",
    )
    _add_common(parser)


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
    _add_shapes(group)
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
    _add_config(group)


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


def _add_device(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "-d",
        "--device",
        dest="d",
        metavar="DEVICE",
        default="AUTO",
        help="a device, see aioinfer devices (default: AUTO)",
    )


def _add_shapes(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "-shape",
        "--shape",
        metavar="SHAPES",
        help='shapes of inputs, such as "image[1,3,224,224],x[2,3]"; [1,3] alone is for all',
    )
    group.add_argument(
        "-b",
        "--batch",
        dest="b",
        metavar="COUNT",
        type=positive_integer,
        help="length of the first dimension of every input where the model leaves it open",
    )


def _add_affinity(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--affinity",
        metavar="NODE=DEVICE",
        action="append",
        default=[],
        help="run a node on this device of HETERO; may be repeated",
    )


def _add_config(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a property of the device, or with DEVICE:KEY=VALUE of one device of a virtual "
        "one; may be repeated",
    )


def _add_common(parser: CommandParser) -> None:
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(parser=parser)
