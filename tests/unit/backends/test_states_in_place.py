"""States that a processor's devices write where they lie: CPU, REFERENCE, and parts of HETERO."""

from __future__ import annotations

import pytest

import aioinfer
from unit.backends.states_in_place import CHECKS, FORMS


@pytest.mark.parametrize("device", ["CPU", "REFERENCE", "HETERO:REFERENCE,CPU"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("check", CHECKS)
def test_a_state_is_written_in_place(
    core: aioinfer.Core, check: str, form: str, device: str
) -> None:
    CHECKS[check](core, FORMS[form], device)
