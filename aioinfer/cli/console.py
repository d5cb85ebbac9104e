"""Text on the terminal: lines and tables, by rich."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["make_console", "print_indented", "print_table"]

PIPE_COLUMNS = 1000  # a pipe has no width: a row stays on one line, for grep


def make_console() -> Console:
    """Make a console on stdout that prints text as it is: brackets are shapes, not markup."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_COLUMNS
    return console


def print_indented(console: Console, line: str) -> None:
    """Print a line below a heading; what does not fit goes on further right."""
    filled = textwrap.fill(
        line,
        console.width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    console.print(filled, soft_wrap=True)


def print_table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    fold: Sequence[str] = (),
) -> None:
    """Print a table; columns whose names start with ">" are numbers and stand to the right.

    When the terminal is narrow, only the columns in ``fold`` are broken into lines; without any,
    all are.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        name = column.removeprefix(">")
        table.add_column(
            name,
            justify="right" if column != name else "left",
            overflow="fold",
            no_wrap=bool(fold) and name not in fold,
        )
    for row in rows:
        table.add_row(*row)
    console.print(title, style="bold", soft_wrap=True)
    console.print(table)
    console.print()
