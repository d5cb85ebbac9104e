"""The memory that bodies take together."""

import pytest

from aioinfer.serving.protocol.in_flight import BodiesInFlight
from aioinfer.serving.protocol.refusal import RefusedError


def test_what_does_not_fit_beside_the_others_is_refused_until_they_end() -> None:
    bodies = BodiesInFlight(100)
    with bodies.share() as first, bodies.share() as second:
        first.take(60)
        second.expect(40)
        second.take(40)
        with pytest.raises(RefusedError, match="100 bytes") as refused:
            second.take(1)
        assert (refused.value.status, refused.value.retry_after_s) == (503, 1)
        assert repr(bodies) == "<BodiesInFlight 100 of 100 bytes>"
    assert bodies.taken_bytes == 0
    with bodies.share() as third:
        third.take(100)


def test_what_is_only_declared_takes_nothing() -> None:
    bodies = BodiesInFlight(100)
    with bodies.share() as liar, bodies.share() as other:
        liar.expect(100)
        other.take(100)
        with pytest.raises(RefusedError):
            liar.expect(1)


def test_it_is_given_back_after_an_error() -> None:
    bodies = BodiesInFlight(100)
    share = bodies.share()
    share.take(100)
    with pytest.raises(RefusedError), share:
        share.take(1)
    assert bodies.taken_bytes == 0
