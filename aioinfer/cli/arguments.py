"""What command-line arguments are made of: a parser whose errors are ours, and argument types."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ..errors import AioInferError, nearest

__all__ = [
    "CommandParser",
    "OptionError",
    "choice",
    "duration",
    "names_of",
    "parse_pairs",
    "percentile_number",
    "port_number",
    "positive_integer",
    "whole_number",
]


class OptionError(AioInferError):
    """The command line asks for something that no command does, or contradicts itself."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help as written, with an option's value named once and commands not indented twice."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        return "".join(self._format_action(command) for command in action._get_subactions())

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser that raises OptionError instead of leaving the program."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise OptionError with the message and the way to the help."""
        message = re.sub(r"^argument ([^:/]+)[^:]*: ", r"\1: ", message)
        raise OptionError(f"{message} (see {self.prog} --help)")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments; raises OptionError that names the option that was meant."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command: CommandParser = getattr(parsed, "parser", self)
            hint = nearest(unknown[0], command.option_names())
            command.error(f"unknown argument {unknown[0]!r}{hint}")
        return parsed

    def option_names(self) -> list[str]:
        """List the options as users write them."""
        return [name for action in self._actions for name in action.option_strings]


def positive_integer(text: str) -> int:
    """Take a whole number of 1 or more."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def whole_number(text: str) -> int:
    """Take a whole number of 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def duration(text: str) -> float:
    """Take seconds, more than 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def percentile_number(text: str) -> int:
    """Take a percentile, 1 to 100."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentile; give a number 1 to 100")
    return int(text)


def port_number(text: str) -> int:
    """Take a TCP port, 0 to 65535."""
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number 0 to 65535")
    return int(text)


def choice(*words: str, **aliases: str) -> Callable[[str], str]:
    """Take one of the words or aliases, in any case."""

    def parse(text: str) -> str:
        word = aliases.get(text.casefold(), text.casefold())
        if word not in words:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not one of {', '.join(words)}{nearest(text, words)}"
            )
        return word

    return parse


def names_of(*words: str) -> Callable[[str], tuple[str, ...]]:
    """Take some of the words, in any case, with commas between."""
    one = choice(*words)

    def parse(text: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one(item.strip()) for item in text.split(",")))

    return parse


def parse_pairs(
    items: Iterable[str], option: str, wanted: str, *, at_last: bool = False
) -> dict[str, str]:
    """Split texts ``KEY=VALUE`` into a dict; ``at_last``: at the last equals sign, not the first.

    Raises OptionError that names the option for an item without both sides and for a doubled key.
    """
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, value = item.rpartition("=") if at_last else item.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise OptionError(f"{option} {item!r}: {wanted} is wanted")
        if key.strip() in pairs:
            raise OptionError(f"{option}: {key.strip()!r} is given twice")
        pairs[key.strip()] = value.strip()
    return pairs
