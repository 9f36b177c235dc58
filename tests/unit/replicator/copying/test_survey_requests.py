"""When a session asks for the next survey."""

from __future__ import annotations

from replicator.copying.session import SurveyRequests
from tests.worlds.clocks import StandingClock

INTERVAL_MS = 5_000


class Surveys:
    """Counts what it is asked."""

    asked = 0

    def request(self, _known: object, _refused: object) -> int:
        self.asked += 1
        return self.asked

    def result(self) -> None:
        return None

    def close(self) -> None: ...


def asked_soon(*without_end: int) -> list[bool]:
    """After each of these numbers of partitions without an end, whether a survey is due at once."""
    requests = SurveyRequests(Surveys(), StandingClock())
    found = []
    for count in without_end:
        requests.note_without_end(count)
        found.append(requests.due(INTERVAL_MS))
        requests.request({}, {}, ())
        assert not requests.due(INTERVAL_MS)
    return found


def test_a_survey_is_due_once_in_an_interval() -> None:
    clock, surveys = StandingClock(), Surveys()
    requests = SurveyRequests(surveys, clock)
    clock.sleep_ms(INTERVAL_MS - 1)
    assert not requests.due(INTERVAL_MS)
    clock.sleep_ms(1)
    assert requests.due(INTERVAL_MS)
    requests.request({}, {}, ())
    assert not requests.due(INTERVAL_MS)
    assert surveys.asked == 1


def test_while_partitions_of_a_new_topic_get_their_leaders_the_next_survey_is_due_at_once() -> None:
    assert asked_soon(55, 23, 1, 0) == [True, True, True, False]


def test_partitions_that_stay_without_an_end_are_left_to_the_interval() -> None:
    assert asked_soon(5, 5, 5) == [True, False, False]
    assert asked_soon(0, 0) == [False, False]
    assert asked_soon(5, 5, 7, 6) == [True, False, False, True]


def test_the_next_new_topic_is_met_as_the_first_one_was() -> None:
    assert asked_soon(5, 0, 5) == [True, False, True]
