"""A rung in a process where there is no GPU."""

import sys

import pytest

from gpu.rungs.__main__ import main
from unit.gpu_ladder.stand_in import stand_in

stand_in(pytest.MonkeyPatch())
sys.exit(main())
