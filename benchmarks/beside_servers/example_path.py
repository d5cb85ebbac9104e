"""Puts the image service's example on the path; import it before that."""

import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "05_image_service"

for _folder in (EXAMPLE, EXAMPLE.parent):
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))
