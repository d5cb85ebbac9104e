import io

from rich.console import Console

from aioinfer.cli.benchmarking.measure import Limits, Measurement
from aioinfer.cli.benchmarking.progress import progress_bar


def test_a_terminal_shows_how_much_was_measured() -> None:
    screen = io.StringIO()
    measurement = Measurement(Limits(4, None))
    with progress_bar(Console(file=screen, force_terminal=True, width=80), measurement):
        measurement.latencies_ns += [1, 1]
    assert "2 inferences" in screen.getvalue()
    assert "50%" in screen.getvalue()


def test_what_is_no_terminal_shows_no_bar() -> None:
    screen = io.StringIO()
    with progress_bar(Console(file=screen), Measurement(Limits(4, None))):
        pass
    assert screen.getvalue() == ""
