"""Options that several commands have."""

from __future__ import annotations

import argparse

from .arguments import CommandParser, positive_integer

__all__ = ["add_affinity", "add_common", "add_config", "add_device", "add_shapes"]


def add_device(group: argparse._ActionsContainer) -> None:
    """Add what a network is loaded on."""
    group.add_argument(
        "-d",
        "--device",
        dest="d",
        metavar="DEVICE",
        default="AUTO",
        help="a device, see aioinfer devices (default: AUTO)",
    )


def add_shapes(group: argparse._ActionsContainer) -> None:
    """Add the shapes of inputs."""
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


def add_affinity(group: argparse._ActionsContainer) -> None:
    """Add the options that place single nodes, for HETERO."""
    group.add_argument(
        "--affinity",
        metavar="NODE=DEVICE",
        action="append",
        default=[],
        help="run a node on this device of HETERO; may be repeated",
    )


def add_config(group: argparse._ActionsContainer) -> None:
    """Add properties of the device."""
    group.add_argument(
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set a property of the device, or with DEVICE:KEY=VALUE of one device of a virtual "
        "one; may be repeated",
    )


def add_common(parser: CommandParser) -> None:
    """Add what every command has; last."""
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.set_defaults(parser=parser)
