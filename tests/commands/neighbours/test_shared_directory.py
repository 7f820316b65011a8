"""One directory of the standalone services under several processes at the same time: real ones, let go together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
import yaml

from commands.neighbours.standalone.accounts import Accounts, Project
from commands.neighbours.standalone.identity import Scope, StandaloneIdentity
from commands.neighbours.standalone.image_record import Image
from commands.neighbours.standalone.images import ImageBusy, StandaloneImages

T = TypeVar("T")

SPAWN = multiprocessing.get_context("spawn")
WAIT_S = 60
TIMES = 25
PROJECT = "project-ours"

_barrier: Barrier | None = None


def together(work: Callable[..., T], *given: tuple[Any, ...]) -> list[T]:
    """What `work` returns in as many processes as there are arguments for."""
    barrier = SPAWN.Barrier(len(given))
    with ProcessPoolExecutor(len(given), SPAWN, initializer=_meet_at, initargs=(barrier,)) as processes:
        answers = [processes.submit(_let_go, work, one) for one in given]
        return [answer.result(WAIT_S) for answer in answers]


def _meet_at(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier


def _let_go(work: Callable[..., T], given: tuple[Any, ...]) -> T:
    assert _barrier is not None
    _barrier.wait(WAIT_S)
    return work(*given)


# identity


def identity_at(directory: Path, port: int = 8774, lifetime_s: int = 3600) -> StandaloneIdentity:
    return StandaloneIdentity(directory, auth_url=f"http://127.0.0.1:{port}/identity/v3", token_lifetime_s=lifetime_s)


def token_of(identity: StandaloneIdentity, name: str = "demo") -> str:
    accounts = identity.accounts
    scope = Scope(project_id=accounts.projects_by_name[name].id)
    return identity.issue(accounts.users_by_name[name], scope, ("password",))[0]


def start_and_log_in(directory: Path, port: int) -> tuple[str, str]:
    identity = identity_at(directory, port)
    clouds = yaml.safe_load((directory / "clouds.yaml").read_text())["clouds"]
    identity.log_in(identity.accounts.users_by_name["admin"], clouds["admin"]["auth"]["password"])
    return token_of(identity), clouds["admin"]["auth"]["auth_url"]


def test_of_processes_that_start_first_at_once_one_makes_what_all_use(tmp_path: Path) -> None:
    ports = [9001, 9002, 9003, 9004]
    answers = together(start_and_log_in, *((tmp_path / "new", port) for port in ports))
    identity = identity_at(tmp_path / "new", ports[0])
    said = [identity.validate(token) for token, _ in answers]
    assert None not in said
    assert len({one.project_id for one in said if one is not None}) == 1
    assert {url for _, url in answers} <= {f"http://127.0.0.1:{port}/identity/v3" for port in ports}
    assert not [path for path in (tmp_path / "new").iterdir() if path.name.startswith(".")]


def add_projects(directory: Path, prefix: str) -> None:
    identity = identity_at(directory)
    for number in range(TIMES):
        project = Project(id=uuid4().hex, name=f"{prefix}{number}")

        def added(accounts: Accounts, project: Project = project) -> Accounts:
            return replace(accounts, projects={**accounts.projects, project.id: project})

        identity.change_accounts(added)


def test_accounts_changed_by_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    watching = identity_at(tmp_path)
    together(add_projects, (tmp_path, "a"), (tmp_path, "b"))
    names = {f"{prefix}{number}" for prefix in "ab" for number in range(TIMES)}
    assert set(watching.accounts.projects_by_name) == names | {"admin", "demo"}


def revoke_or_start(directory: Path, revokes: bool) -> list[str]:
    """One revokes, and gives the others something to drop each time; they start and start again."""
    identity, brief = identity_at(directory), identity_at(directory, lifetime_s=0)
    revoked = []
    for _ in range(TIMES):
        if revokes:
            brief.revoke(token_of(brief))
            revoked.append(token_of(identity))
            identity.revoke(revoked[-1])
        else:
            identity_at(directory)
    return revoked


def test_a_revocation_is_seen_by_every_process_and_survives_the_starts_of_others(tmp_path: Path) -> None:
    watching = identity_at(tmp_path)
    token = token_of(watching)
    assert watching.validate(token)
    answers = together(revoke_or_start, (tmp_path, True), (tmp_path, True), (tmp_path, False))
    revoked = [token for answer in answers for token in answer]
    assert len(revoked) == 2 * TIMES
    for identity in (watching, identity_at(tmp_path)):
        assert [identity.validate(one) for one in revoked] == [None] * len(revoked)
        assert identity.validate(token)


def revoke(directory: Path, token: str) -> None:
    identity_at(directory).revoke(token)


def test_a_token_known_here_and_revoked_by_another_process_is_refused(tmp_path: Path) -> None:
    here = identity_at(tmp_path)
    token = token_of(here)
    assert here.validate(token)
    together(revoke, (tmp_path, token))
    assert here.validate(token) is None


# images


def queued(images: StandaloneImages) -> Image:
    given = {"owner": PROJECT, "disk_format": "raw", "container_format": "bare", "visibility": "private"}
    return images.create(Image(id=str(uuid4()), created_at=0, updated_at=0, **given))  # type: ignore[arg-type]


def upload(directory: Path, image_id: str, data: bytes) -> bool:
    images = StandaloneImages(directory)
    try:
        begun = images.begin_upload(image_id)
    except ImageBusy:
        return False
    for _ in range(TIMES):
        begun.write(data)
    begun.commit()
    return True


def test_of_processes_that_upload_one_image_at_once_one_does(tmp_path: Path) -> None:
    images = StandaloneImages(tmp_path)
    image = queued(images)
    data = [bytes([65 + number]) * 1000 for number in range(4)]
    won = together(upload, *((tmp_path, image.id, one) for one in data))
    assert sorted(won) == [False, False, False, True]
    images.fetch(image.id, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data[won.index(True)] * TIMES


def hang(directory: Path, image_id: str, begun: Connection) -> None:
    kept = StandaloneImages(directory).begin_upload(image_id)
    kept.write(b"never all of it")
    begun.send(True)
    begun.poll(None)  # nothing will come


@contextmanager
def uploading_elsewhere(directory: Path, image_id: str) -> Iterator[Callable[[], None]]:
    """Another process in the middle of an upload; what is called kills it."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=hang, args=(directory, image_id, theirs))

    def kill() -> None:
        process.kill()
        process.join(WAIT_S)

    process.start()
    try:
        assert ours.poll(WAIT_S)
        yield kill
    finally:
        kill()


def test_an_upload_whose_process_was_killed_is_begun_again_by_another(tmp_path: Path) -> None:
    images = StandaloneImages(tmp_path)
    image = queued(images)
    with uploading_elsewhere(tmp_path, image.id) as kill:
        assert [one.status for one in images.all()] == ["saving"]
        with pytest.raises(ImageBusy):
            images.begin_upload(image.id)
        with pytest.raises(ImageBusy):
            StandaloneImages(tmp_path).begin_upload(image.id)
        kill()
        assert [one.status for one in images.all()] == ["queued"]
        assert upload(tmp_path, image.id, b"all of it")
    assert [one.status for one in images.all()] == ["active"]


def test_a_start_clears_away_what_a_killed_process_left(tmp_path: Path) -> None:
    images = StandaloneImages(tmp_path)
    image = queued(images)
    with uploading_elsewhere(tmp_path, image.id) as kill:
        StandaloneImages(tmp_path)
        assert (tmp_path / f"{image.id}.part").exists()
        kill()
        StandaloneImages(tmp_path)
        assert not (tmp_path / f"{image.id}.part").exists()


def add_tags(directory: Path, image_id: str, prefix: str) -> None:
    images = StandaloneImages(directory)
    for number in range(TIMES):
        tag = f"{prefix}{number}"
        images.change(image_id, lambda one, tag=tag: replace(one, tags=(*one.tags, tag)))  # type: ignore[misc]


def test_an_image_changed_by_processes_at_once_loses_nothing(tmp_path: Path) -> None:
    images = StandaloneImages(tmp_path)
    image = queued(images)
    together(add_tags, (tmp_path, image.id, "a"), (tmp_path, image.id, "b"))
    kept = images.get(image.id)
    assert kept is not None
    assert set(kept.tags) == {f"{prefix}{number}" for prefix in "ab" for number in range(TIMES)}
