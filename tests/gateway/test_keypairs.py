"""Key pairs over HTTP: made, imported, listed and deleted, for oneself and as an administrator."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, pkcs12

from gateway.key_material import fingerprint, generated
from tests.support.compute_api import fault
from tests.support.served import Served

KEYS = "/os-keypairs"
PUBLIC, _ = generated("ssh", "user")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def create(api: Served, name: str = "mine", version: str = "2.10", token: str = "member", **more: Any) -> Any:
    return api("POST", KEYS, {"keypair": {"name": name} | more}, version=version, token=token)


def test_a_key_that_is_made_here_is_told_once(api: Served) -> None:
    made = create(api, version="2.1")

    assert made.status_code == 200
    keypair = made.json()["keypair"]
    assert set(keypair) == {"name", "public_key", "private_key", "fingerprint", "user_id"}
    assert load_ssh_private_key(keypair["private_key"].encode(), None)
    assert "private_key" not in api.get(f"{KEYS}/mine", token="member")["keypair"]


def test_a_certificate_that_is_made_here_names_its_user(api: Served) -> None:
    made = create(api, version="2.2", type="x509")

    assert made.status_code == 201, made.text
    keypair = made.json()["keypair"]
    certificate = x509.load_pem_x509_certificate(keypair["public_key"].encode())
    assert certificate.subject.rfc4514_string() == "CN=user"
    key, same, _ = pkcs12.load_key_and_certificates(base64.b64decode(keypair["private_key"]), None)
    assert key is not None
    assert same == certificate
    assert keypair["fingerprint"] == fingerprint(keypair["public_key"], "x509")
    assert api.get(KEYS, version="2.2", token="member")["keypairs"][0]["keypair"]["type"] == "x509"


def test_from_2_92_a_key_has_to_be_brought(api: Served) -> None:
    assert fault(create(api, version="2.92"))[0] == 400
    assert fault(create(api, "me@home.example", version="2.91"))[0] == 400
    assert create(api, "me@home.example", version="2.92", public_key=PUBLIC).status_code == 201


def test_type_is_told_from_2_2(api: Served) -> None:
    create(api, public_key=PUBLIC)
    assert "type" not in api.get(f"{KEYS}/mine", version="2.1", token="member")["keypair"]
    assert api.get(f"{KEYS}/mine", version="2.2", token="member")["keypair"]["type"] == "ssh"
    assert fault(create(api, "other", version="2.1", type="ssh"))[0] == 400


def test_a_delete_answers_204_from_2_2(api: Served) -> None:
    create(api, "one", public_key=PUBLIC)
    create(api, "two", public_key=PUBLIC)
    assert api("DELETE", f"{KEYS}/one", version="2.1", token="member").status_code == 202
    assert api("DELETE", f"{KEYS}/two", version="2.2", token="member").status_code == 204
    assert fault(api("DELETE", f"{KEYS}/two", token="member")) == (
        404,
        "itemNotFound",
        "Keypair two not found for user user",
    )


def test_administrators_have_a_say_about_others_from_2_10(api: Served) -> None:
    assert create(api, token="admin", user_id="someone", public_key=PUBLIC).status_code == 201
    assert create(api, "other", user_id="someone", public_key=PUBLIC).status_code == 403
    assert api("GET", f"{KEYS}?user_id=someone", version="2.10", token="member").status_code == 403
    [listed] = api.get(f"{KEYS}?user_id=someone", version="2.10")["keypairs"]
    assert listed["keypair"]["name"] == "mine"
    assert api.get(f"{KEYS}?user_id=someone", version="2.9")["keypairs"] == []
    assert api("DELETE", f"{KEYS}/mine?user_id=someone", version="2.10").status_code == 204


def test_a_list_is_paged_from_2_35(api: Served) -> None:
    for name in ("b", "a", "c"):
        create(api, name, public_key=PUBLIC)

    page = api.get(f"{KEYS}?limit=2", version="2.35", token="member")
    assert [k["keypair"]["name"] for k in page["keypairs"]] == ["a", "b"]
    assert page["keypairs_links"][0]["href"].endswith("/os-keypairs?limit=2&marker=b")
    rest = api.get(f"{KEYS}?marker=b", version="2.35", token="member")
    assert [k["keypair"]["name"] for k in rest["keypairs"]] == ["c"]
    assert len(api.get(f"{KEYS}?limit=2", version="2.34", token="member")["keypairs"]) == 3
    refused = api("GET", f"{KEYS}?marker=x", version="2.35", token="member")
    assert fault(refused) == (400, "badRequest", "Marker x could not be found.")


@pytest.mark.parametrize(
    ("more", "status", "message"),
    [
        ({"name": "a:b"}, 400, "Only letters, digits, spaces"),
        ({"name": ""}, 400, "too short|non-empty|''"),
        ({"public_key": "no key"}, 400, "Keypair data is invalid: failed to generate fingerprint"),
        ({"public_key": "", "type": "x509"}, 400, "Keypair data is invalid: failed to generate X509 fingerprint"),
        ({"type": "dsa"}, 400, "dsa"),
        ({"name": "taken"}, 409, "Key pair 'taken' already exists."),
    ],
)
def test_a_key_pair_that_is_refused_records_nothing(
    api: Served, more: dict[str, Any], status: int, message: str
) -> None:
    create(api, "taken", public_key=PUBLIC)
    before = api.recorded()

    answer = create(api, **({"public_key": PUBLIC} | more))

    assert answer.status_code == status
    assert any(part in fault(answer)[2] for part in message.split("|"))
    assert api.recorded() == before


def test_beyond_the_quota_there_is_none(api: Served) -> None:
    api("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"key_pairs": 0}})
    assert fault(create(api)) == (403, "forbidden", "Quota exceeded, too many key pairs.")
