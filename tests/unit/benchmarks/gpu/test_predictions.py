"""The predictions are consistent with what they are computed from."""

import pytest
from predictions import (
    BATCHES,
    BERT_BASE,
    COPY_BYTES_PER_S,
    PRODUCT_FLOP_PER_S,
    RESNET50,
    Prediction,
    graph_launch_us,
    transfer_us,
)


@pytest.mark.parametrize(
    ("predictions", "flop", "weight_bytes", "moved_bytes"),
    [(RESNET50, 8.18e9, 51e6, 56.9e6), (BERT_BASE, 22.3e9, 170e6, 45e6)],
)
def test_no_prediction_is_faster_than_operations_or_bytes_allow(
    predictions: dict[int, Prediction], flop: float, weight_bytes: float, moved_bytes: float
) -> None:
    assert tuple(predictions) == BATCHES
    for batch, one in predictions.items():
        floor_us = max(
            batch * flop / PRODUCT_FLOP_PER_S * 1e6,
            (weight_bytes + batch * moved_bytes) / COPY_BYTES_PER_S * 1e6,
        )
        assert one.roofline_us >= floor_us * 0.99
        assert one.graph_us > one.roofline_us


def test_larger_batches_are_predicted_to_be_faster_for_each() -> None:
    for predictions in (RESNET50, BERT_BASE):
        rates = [predictions[batch].per_s for batch in BATCHES]
        assert rates == sorted(rates)


def test_what_is_wanted_is_below_what_is_predicted() -> None:
    wanted = [one for table in (RESNET50, BERT_BASE) for one in table.values() if one.wanted_per_s]
    assert [(one.batch, one.wanted_per_s) for one in wanted] == [(256, 40_000.0), (64, 18_000.0)]
    assert all(one.per_s > (one.wanted_per_s or 0) for one in wanted)


def test_a_transfer_has_a_fixed_cost_and_a_rate() -> None:
    assert transfer_us(150_528) == pytest.approx(3.0 + 3.5, abs=0.1)
    assert transfer_us(0) == 3.5


def test_a_graph_costs_little_for_each_node() -> None:
    assert graph_launch_us(1) == pytest.approx(2.501)
    assert graph_launch_us(200) == pytest.approx(2.7)
