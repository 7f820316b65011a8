"""What the HTTP faces of one gateway process reach: the command side, the views on this machine, the services beside it."""

from __future__ import annotations

from typing import Any

from commands.appender import Appender
from commands.assembly import Storage
from commands.host_keys import HostKeys
from commands.log.port import Log
from commands.neighbours.standalone.identity import StandaloneIdentity
from commands.neighbours.standalone.images import StandaloneImages
from commands.neighbours.standalone.networks import StandaloneNetworks
from gateway.backend import Backend
from gateway.options import Options
from gateway.server_filters import install
from gateway.view_reader import Reading, SharedHeads, ViewReader, ViewReplicas


class GatewayRole:
    def __init__(
        self,
        options: Options,
        storage: Storage[Any],
        the_log: Log,
        appender: Appender,
        networks: StandaloneNetworks,
        host_keys: HostKeys,
    ) -> None:
        """Raises:
        AccountsInvalid, TokenKeyInvalid.
        """
        self.options = options
        self.storage = storage
        self.networks = networks
        self.host_keys = host_keys
        self.identity = StandaloneIdentity(
            options.directory, auth_url=f"{options.url}/identity/v3", token_lifetime_s=options.token_lifetime_s
        )
        self.images = StandaloneImages(options.directory / "images", max_bytes=options.image_size_bytes)
        views = options.directory / "views"
        self.backend = Backend(
            appender, the_log, ViewReader(SharedHeads(storage.log), ViewReplicas(views, install)), storage.vault
        )
        # With replicas of its own: a connection to SQLite is one thread's at a time.
        self.reading = Reading(storage.store.head, ViewReplicas(views, install))
