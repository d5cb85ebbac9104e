"""The options of ``aioinfer quantize``, and their help."""

from __future__ import annotations

from pathlib import Path

from ..arguments import CommandParser, choice, positive_integer
from ..common_options import add_common, add_config, add_device

__all__ = ["QUANTIZE", "QUANTIZE_EXAMPLES", "add_quantize"]

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


def add_quantize(parser: CommandParser) -> None:
    """Add the options of the command."""
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
        help="quantise by ranges that each run measures; needs no samples",
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
    add_device(compared)
    add_config(compared)
    add_common(parser)
