"""The program that throws wrong requests at the server runs, and finds nothing in a few."""

from serving_fuzz.protocol import ask_application, read_purely


def test_bodies_and_messages_are_read_or_refused() -> None:
    findings: list[str] = []
    told = read_purely(600, 7, findings.append)
    assert findings == []
    assert told["read"] > 60
    assert told["refused 400"] > 200


def test_the_application_answers_whatever_comes() -> None:
    findings: list[str] = []
    told = ask_application(300, 7, findings.append)
    assert findings == []
    assert set(told) <= {"status 200", "status 400", "status 413"}
    assert told["status 200"] > 30
