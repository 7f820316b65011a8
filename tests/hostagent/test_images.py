import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hostagent.images import FRESH_S, ImageCache, ImageCorrupt, ImageError

CONTENT = b"an image" * 1000


class Store:
    """Where images come from; counts how often it is asked."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.asked: list[str] = []

    def fetch(self, image_id: str, path: Path) -> None:
        self.asked.append(image_id)
        path.write_bytes(self.content)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.set_by = 0.0

    def __call__(self) -> float:
        return self.now + self.set_by

    def elapsed(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def cache(tmp_path: Path, clock: Clock) -> ImageCache:
    return ImageCache(tmp_path / "images", max_bytes=2 * len(CONTENT), clock=clock, elapsed=clock.elapsed)


def files(cache: ImageCache) -> set[str]:
    return {image.image_id for image in cache.held()}


@pytest.mark.parametrize("algorithm", ["sha512", "sha256", "md5"])
def test_an_image_is_downloaded_once_and_verified(cache: ImageCache, store: Store, algorithm: str) -> None:
    checksum = hashlib.new(algorithm, CONTENT).hexdigest()

    path = cache.ensure("an-id", algorithm, checksum, store.fetch)

    assert path.read_bytes() == CONTENT
    assert cache.ensure("an-id", algorithm, checksum, store.fetch) == path
    assert store.asked == ["an-id"]


def test_a_corrupt_download_is_refused_and_leaves_nothing(cache: ImageCache, store: Store, tmp_path: Path) -> None:
    with pytest.raises(ImageCorrupt, match=r"an-id.*sha256"):
        cache.ensure("an-id", "sha256", "0" * 64, store.fetch)

    assert list((tmp_path / "images").iterdir()) == []


def test_a_download_that_fails_half_way_leaves_nothing(cache: ImageCache, tmp_path: Path) -> None:
    def fetch(image_id: str, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("connection reset")

    with pytest.raises(OSError, match="connection reset"):
        cache.ensure("an-id", None, None, fetch)

    assert list((tmp_path / "images").iterdir()) == []


def test_what_a_killed_agent_left_half_downloaded_is_removed(tmp_path: Path) -> None:
    (tmp_path / "an-id@unverified.part").write_bytes(b"half")

    ImageCache(tmp_path, max_bytes=0)

    assert list(tmp_path.iterdir()) == []


def test_an_image_without_a_checksum_is_taken_as_it_is(cache: ImageCache, store: Store) -> None:
    assert cache.ensure("an-id", None, None, store.fetch).read_bytes() == CONTENT


def test_an_unknown_algorithm_is_refused_before_anything_is_downloaded(cache: ImageCache, store: Store) -> None:
    with pytest.raises(ImageError, match="crc32"):
        cache.ensure("an-id", "crc32", "00", store.fetch)

    assert store.asked == []


def test_other_content_under_the_same_id_is_another_file(cache: ImageCache) -> None:
    paths = {
        cache.ensure("an-id", "sha256", hashlib.sha256(content).hexdigest(), Store(content).fetch)
        for content in (b"one", b"two")
    }

    assert {path.read_bytes() for path in paths} == {b"one", b"two"}


@pytest.mark.parametrize("image_id", ["../../etc/passwd", "a/b", "a@b"])
def test_an_images_id_never_leaves_the_cache(cache: ImageCache, store: Store, tmp_path: Path, image_id: str) -> None:
    path = cache.ensure(image_id, None, None, store.fetch)

    assert path.parent == tmp_path / "images"
    assert files(cache) == {image_id}


def test_threads_that_want_one_image_share_one_download(cache: ImageCache, store: Store) -> None:
    started, go = threading.Event(), threading.Event()

    def fetch(image_id: str, path: Path) -> None:
        started.set()
        assert go.wait(30)
        store.fetch(image_id, path)

    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(cache.ensure, "an-id", None, None, fetch) for _ in range(8)]
        assert started.wait(30)
        other = cache.ensure("another", None, None, store.fetch)  # is not kept waiting
        go.set()
        paths = {done.result() for done in waiting}

    assert len(paths) == 1
    assert other.exists()
    assert store.asked == ["another", "an-id"]


def test_the_images_unused_for_longest_are_removed_until_the_cache_is_within_its_bound(
    cache: ImageCache, store: Store, clock: Clock
) -> None:
    for image_id in ("one", "two", "three", "four"):
        clock.now += 1
        cache.ensure(image_id, None, None, store.fetch)
    clock.now += 1
    cache.ensure("one", None, None, store.fetch)
    clock.now += FRESH_S

    removed = cache.trim(in_use=set())

    assert [image.image_id for image in removed] == ["two", "three"]
    assert files(cache) == {"four", "one"}


def test_an_image_in_use_is_never_removed(cache: ImageCache, store: Store, clock: Clock) -> None:
    for image_id in ("one", "two", "three"):
        cache.ensure(image_id, None, None, store.fetch)
    clock.now += FRESH_S

    assert cache.trim(in_use={"one", "two", "three"}) == []
    assert files(cache) == {"one", "two", "three"}


def test_an_image_asked_for_lately_stays_for_the_guest_that_is_being_made(
    cache: ImageCache, store: Store, clock: Clock
) -> None:
    for image_id in ("one", "two", "three"):
        cache.ensure(image_id, None, None, store.fetch)
    clock.now += FRESH_S - 1

    assert cache.trim(in_use=set()) == []


def test_a_clock_that_is_set_makes_no_image_older(cache: ImageCache, store: Store, clock: Clock) -> None:
    for image_id in ("one", "two", "three"):
        cache.ensure(image_id, None, None, store.fetch)
    clock.set_by += 2 * FRESH_S
    assert cache.trim(in_use=set()) == []

    clock.set_by -= 4 * FRESH_S
    clock.now += FRESH_S
    assert len(cache.trim(in_use=set())) == 1


def test_a_removed_image_is_downloaded_again(tmp_path: Path, store: Store, clock: Clock) -> None:
    cache = ImageCache(tmp_path, max_bytes=0, clock=clock, elapsed=clock.elapsed)
    cache.ensure("an-id", None, None, store.fetch)
    clock.now += FRESH_S
    assert len(cache.trim(in_use=set())) == 1

    assert cache.ensure("an-id", None, None, store.fetch).exists()
    assert store.asked == ["an-id", "an-id"]
