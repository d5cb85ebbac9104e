"""Write the rows of onnx_reader/signatures afresh from the schemas of the installed onnx."""

import textwrap
from pathlib import Path

import onnx.defs

from aioinfer.runtime.onnx_reader.conversion.schema_signature import of_schema
from aioinfer.runtime.onnx_reader.plain.plain_opsets import NEWEST_OPSET, OLDEST_OPSET
from aioinfer.runtime.onnx_reader.signatures.signature_table import row

FILE = Path(__file__).resolve().parent.parent / "runtime/onnx_reader/signatures/signature_rows.py"

HEAD = '''"""A row for each operator and opset from which on its signature is another one.

Written by .ci/write_signatures.py. ``signature_table`` says what a row means.
"""

__all__ = ["ROWS"]

ROWS = """\\
'''


def rows() -> list[str]:
    """Give the rows that the schemas ask for, by operator and opset."""
    found = []
    names = {
        schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain
    }
    for name in sorted(names):
        before = None
        for opset in range(OLDEST_OPSET, NEWEST_OPSET + 1):
            try:
                schema = onnx.defs.get_schema(name, opset)
            except onnx.defs.SchemaError:
                continue
            signature = of_schema(schema)
            if signature != before:
                found.append(row(name, schema.since_version, signature))
            before = signature
    return found


def wrapped(line: str) -> str:
    """Break a row so that what follows is indented, with the space that it had."""
    options = {"width": 99, "break_long_words": False, "break_on_hyphens": False}
    return "\n  ".join(textwrap.wrap(line, **options))


if __name__ == "__main__":
    FILE.write_text(HEAD + "\n".join(map(wrapped, rows())) + '\n"""\n', encoding="utf-8")
