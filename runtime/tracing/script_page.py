"""HTML pages that bring their style and script along, and that may run and load nothing else."""

from __future__ import annotations

import base64
import hashlib

__all__ = ["script_page"]

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
{head}<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""


def script_page(
    title: str, style: str, script: str, body: str, *, head: str = "", allowed: str = ""
) -> str:
    """Write a page whose policy allows its style and script, by their hashes.

    ``title``, ``head`` (lines) and ``body`` are markup. ``allowed``: directives of the policy for
    what the script may do beside, each with its semicolon.
    """
    policy = (
        f"default-src 'none'; {allowed}style-src {_source(style)}; script-src {_source(script)}"
    )
    return _PAGE.format(
        policy=policy, head=head, title=title, style=style, body=body, script=script
    )


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
