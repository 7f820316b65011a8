"""Servers asked for through the API: several at once, and what they are called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from commands.neighbours.standalone.image_record import Image
from tests.support.compute_api import PROJECT
from tests.support.ledger import SMALL
from tests.support.servers import Servers


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Servers]:
    served = Servers(tmp_path)
    yield served
    served.close()


@pytest.fixture
def image(api: Servers) -> str:
    made = api.images.create(
        Image(
            id=str(uuid4()),
            owner=PROJECT,
            disk_format="raw",
            container_format="bare",
            visibility="private",
            created_at=0,
            updated_at=0,
        )
    )
    upload = api.images.begin_upload(made.id)
    upload.write(b"a disk")
    upload.commit()
    return made.id


def create(api: Servers, image: str, version: str = "2.104", **server: Any) -> Any:
    body = {"name": "web", "imageRef": image, "flavorRef": SMALL.flavor_id, "networks": "auto"} | server
    if int(version[2:]) < 37:
        body.pop("networks")
    return api("POST", "/servers", {"server": body}, token="member", version=version)


def test_several_servers_are_made_by_one_request_and_found_by_its_reservation(api: Servers, image: str) -> None:
    create(api, image, name="alone")
    answer = create(api, image, min_count=2, max_count=3, return_reservation_id=True)

    assert answer.status_code == 202
    [(name, reservation)] = answer.json().items()
    assert name == "reservation_id"
    assert set(api.listed(f"reservation_id={reservation}", token="member")) == {"web-1", "web-2", "web-3"}
    shown = api.get(f"/servers/detail?reservation_id={reservation}", version="2.3")["servers"]
    assert {one["OS-EXT-SRV-ATTR:reservation_id"] for one in shown} == {reservation}
    assert {(one["OS-EXT-SRV-ATTR:launch_index"], one["OS-EXT-SRV-ATTR:hostname"]) for one in shown} == {
        (0, "web-1"),
        (1, "web-2"),
        (2, "web-3"),
    }


def test_the_first_of_several_is_answered_without_a_reservation_asked_for(api: Servers, image: str) -> None:
    answer = create(api, image, min_count=2).json()["server"]

    assert set(answer) == {"id", "links", "OS-DCF:diskConfig", "security_groups", "adminPass"}
    assert api.show(answer["id"])["name"] == "web-1"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"min_count": 3, "max_count": 2}, "min_count must be <= max_count"),
        ({"min_count": 0}, "Invalid input for field/attribute min_count"),
        ({"max_count": 0}, "Invalid input for field/attribute max_count"),
        ({"max_count": "many"}, "Invalid input for field/attribute max_count"),
        (
            {"min_count": 2, "hostname": "one-name"},
            "Unable to allocate a single hostname to multiple instances",
        ),
        ({"hostname": "-"}, "Invalid input for field/attribute hostname"),
        ({"hostname": "a" * 256}, "Invalid input for field/attribute hostname"),
        ({"hostname": "under_score"}, "Invalid input for field/attribute hostname"),
    ],
)
def test_numbers_and_names_that_make_no_sense_are_refused(
    api: Servers, image: str, changes: dict[str, Any], said: str
) -> None:
    status, message = api.refused(lambda: create(api, image, **changes))

    assert status == 400
    assert said in message


@pytest.mark.parametrize(
    ("name", "hostname"),
    [
        ("Web Server_1.example", "web-server-1-example"),
        ("déjà vu", "dj-vu"),
        ("-.-", None),
        ("日本", None),
        ("n" * 100, "n" * 63),
    ],
)
def test_a_host_is_called_after_its_server(api: Servers, image: str, name: str, hostname: str | None) -> None:
    server = create(api, image, name=name).json()["server"]["id"]

    shown = api.show(server, token="member", version="2.90")["OS-EXT-SRV-ATTR:hostname"]

    assert shown == (hostname or f"Server-{server}")


def test_a_host_is_called_as_was_asked_from_2_90_and_by_a_domain_name_from_2_94(api: Servers, image: str) -> None:
    assert create(api, image, "2.89", hostname="mine").status_code == 400
    assert create(api, image, "2.93", hostname="mine.example.org").status_code == 400
    for version, hostname in (("2.90", "mine"), ("2.94", "mine.example.org")):
        server = create(api, image, version, hostname=hostname).json()["server"]["id"]
        assert api.show(server, version="2.90")["OS-EXT-SRV-ATTR:hostname"] == hostname


def test_addresses_are_kept_as_all_write_them(api: Servers, image: str) -> None:
    address = "0000:0000:0000:0000:0000:babe:220.12.22.2"
    server = create(api, image, accessIPv4="192.0.2.1", accessIPv6=address).json()["server"]["id"]

    shown = api.show(server)

    assert (shown["accessIPv4"], shown["accessIPv6"]) == ("192.0.2.1", "::babe:dc0c:1602")
