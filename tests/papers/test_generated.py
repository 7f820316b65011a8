from __future__ import annotations

from gateway.microversions import NEWEST, OLDEST
from tests.papers.generated import ROOT, filled, parts


def test_the_made_parts_of_the_documents_are_what_the_code_says() -> None:
    for name, made in parts().items():
        text = (ROOT / name).read_text()
        assert filled(text, made) == text, f"{name} is out of date: make papers"


def test_the_document_of_the_api_names_the_versions_that_are_served() -> None:
    text = (ROOT / "docs" / "compute-api.md").read_text()
    assert f"microversions {OLDEST} to {NEWEST}." in text
