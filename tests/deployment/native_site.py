"""Both servers of a small task in one process, with A's rounds conducted, and its clients' door on the loopback."""

import datetime
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precad.deployment import doors, tls
from precad.deployment.attendance import Patience
from precad.deployment.client_config import ClientConfig
from precad.deployment.client_door import client_app
from precad.deployment.conductor import Conductor
from precad.deployment.native import NativeClient, Update
from precad.deployment.parties import Parties
from precad.deployment.way_to_a import WayToA
from tests.deployment import world
from tests.deployment.consortium import Consortium

NOW = datetime.datetime.now(datetime.UTC)


def add_half(model: NDArray[np.float64], round_: int, look: float) -> NDArray[np.float64]:
    """A training."""
    del round_, look
    return np.full(model.size, 0.5)


class NativeSite(Consortium):
    """All parties, and A as a service that can be stopped and come back on the same port."""

    def __init__(self, folder: Path, setting: Parties | None = None, *, rounds: int = 2) -> None:
        setting = setting or world.make(replace(world.TRAINING, rounds=rounds), now=NOW)
        super().__init__(folder, setting)
        setting.save(folder)
        self.listening = doors.listen("127.0.0.1", 0)
        self.port: int = self.listening.getsockname()[1]
        self.conductor: Conductor

    def config(self, name: str, **changes: Any) -> ClientConfig:
        own = self.folder / name
        settings = ClientConfig(
            task=self.folder / "task.json",
            name=name,
            key=own.with_suffix(".key"),
            tls_key=self.folder / f"{name}.tls.key",
            certificate=self.folder / f"{name}.tls.pem",
            store=own.with_suffix(".db"),
            audit_log=own.with_suffix(".audit.log"),
            port=self.port,
        )
        return replace(settings, **changes)

    def way(self, name: str, **changes: Any) -> WayToA:
        return WayToA(self.task, self.config(name, **changes))

    @contextmanager
    def conducting(self, patience: Patience | None = None) -> Iterator[None]:
        """A's rounds and its door, until the end of the block."""
        self.conductor = Conductor(self.a, patience or Patience(round=60.0, join=20.0))
        members = [member.identity for member in self.task.roster]
        pair = tls.Pair(self.folder / "alpha.tls.pem", self.folder / "alpha.tls.key")
        context = tls.pinned_context(ssl.PROTOCOL_TLS_SERVER, pair, self.task.server_a, *members)
        if self.listening.fileno() < 0:
            self.listening = doors.listen("127.0.0.1", self.port)
        door = doors.serve_aside(client_app(self.conductor), [self.listening], context)
        thread = threading.Thread(target=self.conductor.run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.conductor.stop()
            thread.join()
            door.leave()
            self.listening.close()

    def close(self) -> None:
        super().close()
        self.listening.close()

    def take_part(self, name: str, train: Update = add_half, **options: Any) -> str:
        """A native client of this name, until it ends; why it ended."""
        config = self.config(name)
        with closing(config.open_client(self.task)) as client, closing(WayToA(self.task, config)) as way:
            return NativeClient(config, client, way, train, **options).run()

    @contextmanager
    def clients(self, *names: str, train: Update = add_half) -> Iterator[dict[str, str]]:
        """These clients in threads, each waited for at the end of the block; why each ended."""
        ended: dict[str, str] = {}

        def play(name: str) -> None:
            try:
                ended[name] = self.take_part(name, train)
            except Exception as error:
                ended[name] = repr(error)

        threads = [threading.Thread(target=play, args=(name,), daemon=True) for name in names]
        for each in threads:
            each.start()
        yield ended
        for each in threads:
            each.join(60)
