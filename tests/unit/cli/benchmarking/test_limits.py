"""When a measurement is over."""

from aioinfer.cli.benchmarking.measure import Limits, Measurement


def test_one_inference_is_run_however_late_its_turn_comes() -> None:
    times = iter([0, 3_000_000_000, 3_000_000_000])
    measurement = Measurement(Limits(None, 2.0), clock=lambda: next(times))
    measurement.start()
    assert measurement.take() == 0
    assert measurement.take() is None


def test_a_number_of_inferences_is_not_exceeded() -> None:
    measurement = Measurement(Limits(2, None), clock=lambda: 0)
    measurement.start()
    assert [measurement.take() for _ in range(3)] == [0, 1, None]
