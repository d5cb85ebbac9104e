import pytest

from aioinfer.backends.cpu.programs.team_size import SMALL_PLAN, multiply_adds, team_size
from unit.backends.cpu.passes.fused_models import parse_typed

pytestmark = pytest.mark.needs_no_library


def _model(nodes: str, x: str, y: str, constants: str):
    return parse_typed(f"g (float[{x}] x) => (float[{y}] y) <{constants}> {{ {nodes} }}")


@pytest.mark.parametrize(
    ("nodes", "x", "y", "weights", "wanted"),
    [
        ("y = Conv<pads=[1,1,1,1]>(x, w)", "1,2,4,4", "1,3,4,4", "3,2,3,3", 48 * 18),
        ("y = Conv<group=2>(x, w)", "1,2,4,4", "1,2,4,4", "2,1,1,1", 32),
        ("y = MatMul(x, w)", "2,5", "2,3", "5,3", 6 * 5),
        ("y = Gemm<transA=1>(x, w)", "5,2", "2,3", "5,3", 6 * 5),
        ("y = Add(x, w)", "2,3", "2,3", "2,3", 6),
    ],
)
def test_work_is_counted(nodes: str, x: str, y: str, weights: str, wanted: int) -> None:
    count = 1
    for dim in weights.split(","):
        count *= int(dim)
    numbers = ",".join(["1"] * count)
    model = _model(nodes, x, y, f"float[{weights}] w = {{{numbers}}}")
    (node,) = model.graph.nodes
    assert multiply_adds(node) == wanted


def test_a_small_plan_gets_one_thread_and_a_large_one_all() -> None:
    small = _model("y = Relu(x)", "4,4", "4,4", "float one = {1}")
    side = 1 + int(SMALL_PLAN**0.5)
    large = _model("y = Relu(x)", f"{side},{side}", f"{side},{side}", "float one = {1}")
    assert team_size(small.graph, 8) == 1
    assert team_size(large.graph, 8) == 8
    assert team_size(large.graph, 1) == 1
