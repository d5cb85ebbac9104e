"""What a network's spans show: runs, their critical paths, and files to look at.

Everything here is a pure function of spans, apart from saving. The writers of files are loaded when
one is written, and not before.
"""

from .trace import Trace, check_trace_file

__all__ = ["Trace", "check_trace_file"]
