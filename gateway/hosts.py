"""A host of this process: its agent with driver, journal, image cache and workers, put together and taken apart."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from commands.assembly import utc_now
from commands.log.consumer import Consumer
from commands.log.port import Messages
from commands.log.signed import Signer
from commands.reports import NodeFacts
from domain.identifiers import HostName
from domain.resources import DISK_GB, MEMORY_MB, VCPU
from gateway.directory_lock import lock
from gateway.options import Options
from hostagent.agent import Agent, HostSettings
from hostagent.boot_time import boot_time_s
from hostagent.drivers.protocol import Driver
from hostagent.images import ImageCache
from hostagent.journal import Journal
from hostagent.payloads import Files, PayloadSource
from hostagent.queries import Queries
from hostagent.standing import Standing

WORKERS_A_HOST = 8
STOP_S = 5.0
DIRECTORIES = 0o700


class DriverChanged(Exception):
    """The directory holds guests of another driver; they would be lost from sight."""


class LocalHost:
    def __init__(
        self,
        options: Options,
        directory: Path,
        name: str,
        the_log: Messages,
        source: PayloadSource,
        take_up: Callable[[Journal], None],
        host_ip: str = "127.0.0.1",
        signer: Signer | None = None,
        incarnation: str = "",
        standing: Callable[[int, str], str] | None = None,
    ) -> None:
        """`take_up` may give a journal the identity that this host has already; `incarnation`: of the ledger whose orders it
        takes; `standing` tells what a session of this host is to the ledger.

        Raises:
            DirectoryInUse, DriverChanged, HostIdentityChanged, JournalDamaged.
        """
        directory.mkdir(mode=DIRECTORIES, parents=True, exist_ok=True)
        self._lock = lock(directory)  # two agents of one journal would both act on its guests
        self._journal = Journal(directory / "journal.db")
        kept = self._journal.fact("driver", options.driver)
        if kept != options.driver:
            raise DriverChanged(
                f"the guests in {directory} are the {kept} driver's; start with --driver {kept}, or with another directory"
            )
        take_up(self._journal)
        self.driver = make_driver(options, directory, name)
        self._executor = ThreadPoolExecutor(WORKERS_A_HOST, thread_name_prefix=f"host-{name}")
        files = Files(source, ImageCache(directory / "images", max_bytes=options.image_cache_bytes), directory, utc_now)
        settings = HostSettings(
            host=HostName(self._journal.fact("host", name)),
            host_ip=host_ip,
            availability_zone=options.zone,
            incarnation=incarnation,
        )
        facts = partial(_facts, options, settings.host)
        self.agent = Agent(settings, the_log, self.driver, self._journal, files, facts, self._executor, utc_now, signer)
        service_id = self.agent.service_id
        self.consumers: list[Consumer] = [self.agent, Queries(the_log, self.driver, service_id)]
        self._standing = None if standing is None else Standing(standing, lambda: self.agent.session, service_id)
        if self._standing is not None:
            self.consumers.append(self._standing)

    def readiness(self) -> str | None:
        if not self.agent.in_session:
            return "its session is not open yet"
        return None if self._standing is None else self._standing.wrong

    def close(self) -> None:
        self.driver.close()
        self._journal.close()
        os.close(self._lock)

    def stop_working(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def wait_until_idle(hosts: Sequence[LocalHost]) -> bool:
    """Let calls to hypervisors end, for a few seconds. One that takes longer is left: its act is journalled as begun, and
    the next start goes on from there. Whether none was left."""
    for host in hosts:
        host.stop_working()
    deadline = time.monotonic() + STOP_S
    while not (idle := all(host.agent.idle() for host in hosts)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return idle


def name_of_host(number: int, of: int) -> str:
    return socket.gethostname() if of == 1 else f"{socket.gethostname()}-{number}"


def _facts(options: Options, host: str, facts: NodeFacts) -> NodeFacts:
    """What the hypervisor says of itself, with the operator's ratios and reserves; one node a host, of its name."""
    ours = {
        VCPU: (options.cpu_allocation_ratio, options.reserved_host_cpus),
        MEMORY_MB: (options.ram_allocation_ratio, options.reserved_host_memory_mib),
        DISK_GB: (options.disk_allocation_ratio, options.reserved_host_disk_gib),
    }
    inventories = {
        name: replace(inventory, allocation_ratio=ours[name][0], reserved=min(ours[name][1], inventory.total))
        for name, inventory in facts.inventories.items()
    }
    return replace(facts, hypervisor_hostname=host, inventories=inventories, booted_at_s=boot_time_s())


def make_driver(options: Options, directory: Path, hostname: str) -> Driver:
    if options.driver == "fake":
        from hostagent.drivers.fake import FakeDriver

        return FakeDriver(
            directory / "fake",
            hostname=hostname,
            vcpus=options.fake_vcpus,
            memory_mib=options.fake_memory_mib,
            disk_gib=options.fake_disk_gib,
        )
    from hostagent.drivers.libvirt.driver import LibvirtDriver, LibvirtSettings

    default_uri = "test:///default" if options.driver == "test" else "qemu:///system"
    declared = options.driver == "test"
    return LibvirtDriver(
        LibvirtSettings(
            connection_uri=options.libvirt_uri or default_uri,
            instances_path=directory / "instances",
            virt_type=options.virt_type,
            bridge=options.bridge,
            vcpus=options.fake_vcpus if declared else None,
            memory_mib=options.fake_memory_mib if declared else None,
            disk_gib=options.fake_disk_gib if declared else None,
        )
    )
