"""The study of throughput prints a row for each setting, and saves where the time went."""

from pathlib import Path

import pytest

from docs.example_files import run_example

pytest.importorskip("PIL", reason="the example needs Pillow, which is not installed")


def test_the_table_has_every_setting_and_the_trace_is_a_page(tmp_path: Path) -> None:
    trace = tmp_path / "trace.html"
    printed = run_example("07_throughput.py", "--seconds", "0.2", "--trace", str(trace))
    for word in ("one stream", "throughput", "batches of 4", "pictures/s"):
        assert word in printed
    assert str(trace) in printed.replace("\n", "")  # a table's width may break it
    assert "compute" in trace.read_text(encoding="utf-8")
