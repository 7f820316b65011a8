from domain.serialization import EVENTS
from tests.papers.events_document import DOCUMENT, RECORDED, document


def test_the_document_of_events_is_what_the_classes_say() -> None:
    assert DOCUMENT.read_text() == document(), "run python -m tests.papers.events_document"


def test_every_event_says_who_records_it() -> None:
    assert set(RECORDED) == set(EVENTS)
