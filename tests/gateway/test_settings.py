"""Settings files: what is read, and what is said of a file that cannot be meant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from gateway import settings
from gateway.settings import (
    SettingsInvalid,
    kafka_options,
    load,
    process_options,
    sample,
    store_options,
    tls_options,
)
from gateway.settings_table import options
from tests.support.certificates import certificate_of


def written(directory: Path, text: str, name: str = "ledger.conf") -> Path:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def test_without_files_everything_has_novas_default() -> None:
    found = load([])
    assert (found.cpu_allocation_ratio, found.reserved_host_memory_mb, found.shutdown_timeout) == (4.0, 512, 60)
    assert (found.api.max_limit, found.quota.instances, found.quota.ram) == (1000, 10, 51_200)
    assert found.oslo_middleware.max_request_body_size == 114_688


def test_a_later_file_wins(tmp_path: Path) -> None:
    first = written(tmp_path, "[quota]\ncores = 5\ninstances = -1\n", "1.conf")
    second = written(tmp_path, "[quota]\ncores = 6\n", "2.conf")
    found = load([first, second])
    assert (found.quota.cores, found.quota.instances) == (6, -1)


def test_an_older_name_is_still_understood(tmp_path: Path) -> None:
    found = load([written(tmp_path, "[DEFAULT]\nosapi_max_request_body_size = 5000\n")])
    assert found.oslo_middleware.max_request_body_size == 5000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[DEFAULT]\ncpu_alocation_ratio = 2\n",
            "[DEFAULT] has no option cpu_alocation_ratio (perhaps cpu_allocation_ratio)",
        ),
        ("[api]\ncores = 2\n", "[api] has no option cores"),
        ("[qouta]\ncores = 2\n", "there is no section [qouta] (perhaps [quota])"),
        ("[neutron]\n", "there is no section [neutron]"),
        ("[api]\nmax_limit = many\n", "[api] max_limit: not a number"),
        ("[api]\nmax_limit = 0\n", "[api] max_limit: Should be greater than or equal to 1"),
        ("[quota]\ncores = -2\n", "[quota] cores: Should be greater than or equal to -1"),
        ("[DEFAULT]\ncpu_allocation_ratio = nan\n", "[DEFAULT] cpu_allocation_ratio: not a finite number"),
        ("[DEFAULT]\nforce_config_drive = maybe\n", "[DEFAULT] force_config_drive"),
        ("[libvirt]\nvirt_type = xen\n", "[libvirt] virt_type: Valid values are [auto, kvm, qemu], but found 'xen'"),
        ("cores = 2\n", "ledger.conf:1"),
        ("[quota]\nnonsense\n", "ledger.conf:2"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        load([written(tmp_path, text)])
    message = str(refused.value)
    assert said in message
    assert "ledger.conf" in message
    assert "\n" not in message


@pytest.mark.parametrize("line", ["sasl_password secret", "sasl_password = a$secret", "= secret", "  secret"])
def test_a_password_that_is_written_wrongly_is_not_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        load([written(tmp_path, f"[kafka]\n{line}\n")])
    assert "ledger.conf" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_dollar_is_written_twice(tmp_path: Path) -> None:
    assert load([written(tmp_path, "[kafka]\nsasl_password = a$$secret\n")]).kafka.sasl_password == "a$secret"


@pytest.mark.parametrize("url", ["//u:secret%@h/d", "//u:secret %25@h/d", "//u:secret@h/d?sslmod=verify-full"])
def test_a_store_that_cannot_be_read_is_refused_and_its_password_not_shown(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingsInvalid, match="the store's URL cannot be read") as refused:
        store_options(load([]), tmp_path, f"postgresql:{url}")
    assert "secret" not in str(refused.value)


def test_a_gateways_certificate_is_tried_before_anything_is_started(tmp_path: Path) -> None:
    certificate, key = certificate_of(tmp_path, "one")
    _, another = certificate_of(tmp_path, "another")
    locked, nowhere = tmp_path / "locked.key", tmp_path / "nowhere"
    locked.write_bytes(with_a_password(key))

    def tried(certificate: Path, key: Path) -> object:
        return tls_options(load([written(tmp_path, f"[ssl]\ncert_file = {certificate}\nkey_file = {key}\n")]))

    assert tried(certificate, key) is not None
    for wrong, said in (
        ((nowhere, key), f"[ssl] {nowhere} cannot be read: No such file"),
        ((certificate, nowhere), f"[ssl] {nowhere} cannot be read: No such file"),
        ((certificate, another), "KEY_VALUES_MISMATCH"),
        ((key, key), f"[ssl] {key} is no certificate"),
        ((certificate, locked), f"with an open key in {locked}"),
    ):
        with pytest.raises(SettingsInvalid) as refused:
            tried(*wrong)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)


def with_a_password(key: Path) -> bytes:
    read = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"a password")
    return read.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)


def test_what_kafka_is_trusted_by_is_tried_too(tmp_path: Path) -> None:
    certificate, _ = certificate_of(tmp_path, "one")
    base = "[kafka]\nbootstrap_servers = k:9092\nsecurity_protocol = SSL\n"
    (tmp_path / "empty").write_text("")

    kafka_options(load([written(tmp_path, f"{base}ssl_cafile = {certificate}\n")]))
    for name in ("empty", "nowhere"):
        with pytest.raises(SettingsInvalid, match=f"{name} holds no certificates"):
            kafka_options(load([written(tmp_path, f"{base}ssl_cafile = {tmp_path / name}\n")]))
    with pytest.raises(SettingsInvalid, match="is no certificate"):
        kafka_options(load([written(tmp_path, f"{base}ssl_certfile = {certificate}\n")]))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.conf"
    binary.write_bytes(b"[quota]\ncores = \xff\n")
    for file in (tmp_path / "missing.conf", tmp_path, binary):
        with pytest.raises(SettingsInvalid, match=file.name):
            load([file])


def test_the_sample_names_every_option_and_changes_nothing_when_uncommented(tmp_path: Path) -> None:
    text = sample()
    lines = [
        line.removeprefix("#") if line.startswith("#") and not line.startswith("# ") else line
        for line in text.splitlines()
    ]
    given = [line for line in lines if not line.endswith("<None>")]
    found, default = load([written(tmp_path, "\n".join(given))]), load([])
    for section, opts in options().items():
        for opt in opts:
            assert f"#{opt.name} = " in text
            one, other = (
                getattr(conf if section == "DEFAULT" else getattr(conf, section), opt.dest) for conf in (found, default)
            )
            assert one == other


def test_the_embedded_deployment_is_built_from_settings(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "[DEFAULT]\nreserved_host_disk_mb = 1025\ndefault_availability_zone = az1\n"
        "[quota]\ninjected_file_path_length = 9\n[libvirt]\nconnection_uri = test:///default\n[fake]\nvcpus = 8\n",
    )
    chosen = process_options(load([file]), directory=tmp_path, url="http://x", driver="fake", hosts=2)
    assert (chosen.hosts, chosen.zone, chosen.fake_vcpus, chosen.libvirt_uri) == (2, "az1", 8, "test:///default")
    assert chosen.reserved_host_disk_gib == 2
    assert chosen.quota_defaults["injected_file_path_bytes"] == 9
    other = process_options(
        load([file]), directory=tmp_path, url="http://x", driver="libvirt", hosts=1, libvirt_uri="qemu:///session"
    )
    assert other.libvirt_uri == "qemu:///session"


def test_oslo_is_not_loaded_before_settings_are_read() -> None:
    code = (
        "import sys, gateway.settings, gateway.policy; sys.exit(any(name.startswith('oslo') for name in sys.modules))"
    )
    root = Path(settings.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
