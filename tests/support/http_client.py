"""A user of a running ledger over plain HTTP: logs in as clouds.yaml says, and sends what it is told to, right or wrong."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.support.hypervisors import eventually
from tests.support.ledger_process import LedgerProcess
from tests.support.region import RegionLedger

VERSION = "2.96"
SETTLED = ("ACTIVE", "ERROR")
LIMIT_S = 120.0

Json = dict[str, Any]


class User:
    """One of a ledger's users. May be used from several threads."""

    def __init__(
        self,
        ledger: LedgerProcess | RegionLedger,
        cloud: str = "demo",
        *,
        version: str = VERSION,
        url: str | None = None,
        cafile: Path | None = None,
    ) -> None:
        """`url`: of one of several gateways; `cafile`: who vouches for it."""
        self.version = version
        self.http = httpx.Client(
            base_url=url or ledger.url,
            timeout=LIMIT_S,
            limits=httpx.Limits(max_connections=64),
            verify=ssl.create_default_context(cafile=cafile),
        )
        auth = ledger.credentials(cloud)
        domain = {"name": "Default"}
        body = {
            "auth": {
                "identity": {
                    "methods": ["password"],
                    "password": {
                        "user": {"name": auth["username"], "password": auth["password"], "domain": domain},
                    },
                },
                "scope": {"project": {"name": auth["project_name"], "domain": domain}},
            }
        }
        answer = self.http.post("/identity/v3/auth/tokens", json=body)
        assert answer.status_code == 201, answer.text
        self.token = answer.headers["X-Subject-Token"]
        self.project_id: str = answer.json()["token"]["project"]["id"]
        self.user_id: str = answer.json()["token"]["user"]["id"]

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> User:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        version: str | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        content: bytes | None = None,
        service: str = "/compute/v2.1",
    ) -> httpx.Response:
        """One request to the Compute API; `content` is a body as it stands."""
        sent: dict[str, Any] = {
            "X-Auth-Token": self.token,
            "OpenStack-API-Version": f"compute {version or self.version}",
        }
        if content is not None:
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        more: Json = {"content": content} if content is not None else {} if body is None else {"json": body}
        return self.http.request(method, service + path, headers=sent, **more)

    def get(self, path: str, **more: Any) -> Any:
        """What a GET answers, which has to be 200."""
        answer = self("GET", path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    # what most journeys need

    def upload_image(self, name: str = "an image", data: bytes = b"a disk", **properties: str) -> str:
        """The id of a new image."""
        made = self(
            "POST",
            "/images",
            {"name": name, "disk_format": "raw", "container_format": "bare", **properties},
            service="/image/v2",
        )
        assert made.status_code == 201, made.text
        put = self(
            "PUT",
            f"/images/{made.json()['id']}/file",
            content=data,
            headers={"Content-Type": "application/octet-stream"},
            service="/image/v2",
        )
        assert put.status_code == 204, put.text
        return str(made.json()["id"])

    def create_flavor(self, name: str, *, vcpus: int = 1, ram: int = 64, disk: int = 0) -> str:
        """The id of a new flavor; only administrators may."""
        body = {"flavor": {"name": name, "id": name, "vcpus": vcpus, "ram": ram, "disk": disk}}
        made = self("POST", "/flavors", body)
        assert made.status_code == 200, made.text
        return str(made.json()["flavor"]["id"])

    def set_quota(self, project_id: str, **limits: int) -> None:
        answer = self("PUT", f"/os-quota-sets/{project_id}", {"quota_set": limits})
        assert answer.status_code == 200, answer.text

    def create_server(self, image: str, flavor: str, name: str = "a server", **more: Any) -> str:
        """The id of a new server, which is not made yet."""
        answer = self("POST", "/servers", server_body(image, flavor, name, **more))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["server"]["id"])

    def server(self, server_id: str) -> Json:
        shown: Json = self.get(f"/servers/{server_id}")["server"]
        return shown

    def servers(self, **query: str) -> list[Json]:
        """All of them, page after page."""
        found: list[Json] = []
        path: str | None = "/servers/detail" + (f"?{httpx.QueryParams(query)}" if query else "")
        while path is not None:
            page = self.get(path)
            found += page["servers"]
            (following,) = [link["href"] for link in page.get("servers_links", [])] or [None]
            path = None if following is None else following.partition("/compute/v2.1")[2]
        return found

    def act(self, server_id: str, action: str, value: object = None) -> None:
        answer = self("POST", f"/servers/{server_id}/action", {action: value})
        assert answer.status_code == 202, answer.text

    def wait_for(self, server_id: str, *statuses: str, within_s: float = LIMIT_S) -> Json:
        """The server, once it is in one of these states and nothing is being done to it."""
        seen: list[Json] = []

        def settled() -> bool:
            seen[:] = [self.server(server_id)]
            return seen[0]["status"] in statuses and seen[0]["OS-EXT-STS:task_state"] is None

        eventually(settled, f"server {server_id} is {' or '.join(statuses)}", within_s=within_s)
        return seen[0]

    def wait_until_gone(self, server_id: str, *, within_s: float = LIMIT_S) -> None:
        eventually(
            lambda: self("GET", f"/servers/{server_id}").status_code == 404,
            f"server {server_id} is gone",
            within_s=within_s,
        )

    def delete_server(self, server_id: str) -> None:
        answer = self("DELETE", f"/servers/{server_id}")
        assert answer.status_code == 204, answer.text

    def quota_use(self) -> Json:
        """What is held of the project's quota: instances, cores, ram."""
        shown = self.get(f"/os-quota-sets/{self.project_id}/detail")["quota_set"]
        return {name: shown[name]["in_use"] for name in ("instances", "cores", "ram")}


def server_body(image: str, flavor: str, name: str = "a server", **more: Any) -> Json:
    return {"server": {"name": name, "imageRef": image, "flavorRef": flavor, "networks": "auto", **more}}
