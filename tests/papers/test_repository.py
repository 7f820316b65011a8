"""What is in the files: paths that exist, and nothing of the machine they were written on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.papers.repository import ROOT, documents, texts

KNOWN_HOSTS = re.compile(
    r"127\.0\.0\.1|0\.0\.0\.0|docs\.openstack\.org|www\.apache\.org|(.+\.)?example(\.(org|com|net))?"
)
# The name of a host ends there: `kafka.net.compat` is a module, `num.io.threads` a setting.
HOST = re.compile(r"(?:https?://)([\w.-]*\w\.[\w.-]*\w)|(?<![@\w.-])((?:[\w-]+\.)+(?:org|com|net|io|dev))\b(?!\.\w)")
PLACES = re.compile(r"(?<![\w\"'}$)./])/(?:work|root|home/\w+|Users/\w+)/|\.\./shar[e]d|\.librar[y]\b")


def named_paths(text: str) -> set[str]:
    """What is written as code and begins like a path of this repository; and what links lead to."""
    tops = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    code = {word.rstrip("/") for word in re.findall(r"`([\w./{},*-]+)`", text)}
    paths = {word for word in code if word.partition("/")[0] in tops and "/" in word}
    return paths | {link.partition("#")[0] for link in re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", text)}


def exists(name: str, place: Path) -> bool:
    if braces := re.search(r"\{([^{}]*)\}", name):
        return all(exists(name.replace(braces[0], one), place) for one in braces[1].split(","))
    return any(next(folder.glob(name.rstrip("/")), None) is not None for folder in (ROOT, place))


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_a_document_names_exists(document: Path) -> None:
    assert [name for name in named_paths(document.read_text()) if not exists(name, document.parent)] == []


def test_every_path_that_code_and_scripts_name_exists() -> None:
    wrong = {
        f"{file}: {name}"
        for file, text in texts()
        if not file.endswith((".md", ".json"))
        for name in named_paths(re.sub(r"\]\(", "", text))
        if not exists(name, (ROOT / file).parent)
    }
    assert wrong == set()


def test_no_file_tells_of_the_place_it_was_written_in() -> None:
    home = str(Path.home())
    wrong = []
    for file, text in texts():
        wrong += [f"{file}: {found[0]}" for found in PLACES.finditer(text)]
        wrong += [f"{file}: {place}" for place in (str(ROOT), f"{home}/") if len(place) > 6 and place in text]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://a.example/x", "a.example"),
        ("see b.example.org.", "b.example.org"),
        ("c.example.com:9092", "c.example.com"),
        ("from kafka.net.compat import x", None),
        ("num.io.threads=4", None),
        ("somebody@example.org", None),
    ],
)
def test_a_host_is_told_from_a_dotted_name(text: str, found: str | None) -> None:
    told = HOST.search(text)
    assert (told and (told[1] or told[2])) == found


def test_no_file_names_a_host_of_the_outer_world() -> None:
    wrong = {
        f"{file}: {host}"
        for file, text in texts()
        if file != "LICENSE"
        for found in HOST.finditer(text)
        if not KNOWN_HOSTS.fullmatch(host := found[1] or found[2])
    }
    assert wrong == set()
