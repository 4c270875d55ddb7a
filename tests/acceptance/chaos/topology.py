"""The platform under chaos, in one of two shapes.

*postgres*: PostgreSQL, a Guardian, an API and two workers, each on a host of its own; the Guardian keeps its record in
the same database. *sqlite*: `turnkeeper serve` and a Guardian, each with a file. In both the Guardian is a process of
its own, reached over HTTP.
"""

import secrets
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tests.acceptance.chaos.database import Postgres
from tests.acceptance.chaos.members import Member
from tests.acceptance.chaos.namespaces import Host, Network
from tests.acceptance.server import TURNKEEPER, clean_environment, free_port

Shape: TypeAlias = Literal["postgres", "sqlite"]

PARTS: Final[dict[Shape, dict[str, str]]] = {
    "postgres": {"guardian": "guardian", "api": "api", "one": "work", "two": "work"},
    "sqlite": {"guardian": "guardian", "serve": "serve"},
}
"""Each part's command, in the order in which they begin."""

LEASE_MS: Final = 6_000
COMMAND_TIMEOUT_S: Final = 600
DISK_MIB: Final = 384
OWNER: Final = "the-second-worker"
OTHER_UPTIME_S: Final = 4_000_000
SETTINGS: Final = f"""
[sandbox]
warm = 0
[worker]
lease_ttl_ms = {LEASE_MS}
poll_ms = 200
pause_warm_ms = 500
cancel_grace_ms = 2000
[webhooks]
allow_http = true
networks = ["127.0.0.0/8", "10.77.0.0/24"]
poll_ms = 200
[log]
format = "json"
"""
ALLOW_ALL: Final = "version: 1\nname: allow-all\ndefault: allow\nrules: []\n"


@dataclass
class Platform:
    """Everything that is ours to break."""

    shape: Shape
    folder: Path
    network: Network
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    database: Postgres | None = None
    api_key: str = ""
    _ports: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def front(self) -> Member:
        """The process with the turn API."""
        return self.members["api" if self.shape == "postgres" else "serve"]

    @property
    def workers(self) -> list[Member]:
        """The processes that run turns."""
        return [self.members[name] for name, command in PARTS[self.shape].items() if command in ("work", "serve")]

    @property
    def url(self) -> str:
        """Of the turn API."""
        return f"http://{self.front.host.address}:{self._ports[self.front.name]}"

    async def begin(self, model_config: str) -> None:
        """Starts every process and waits until all of them work."""
        (self.folder / "home").mkdir()
        names = [*PARTS[self.shape], *(["database"] if self.shape == "postgres" else [])]
        self._ports = {name: free_port() for name in names}
        hosts = {name: self._host(name, number) for number, name in enumerate(names, start=2)}
        for name in names:
            self._mount(name)
        if "database" in hosts:
            self.database = Postgres(self.data_dir("database"), hosts["database"], self._ports["database"])
            self.database.start()
        self._write_settings(model_config, hosts["guardian"])
        for name, command in PARTS[self.shape].items():
            self.members[name] = self._member(name, command, hosts[name])
            self.members[name].begin()
            await self.members[name].ready()
        made = self.run("keys", "create", config="turnkeeper.toml", data_dir=self.front.name, more=("--name", "chaos"))
        assert made.returncode == 0, made.stderr
        self.api_key = made.stdout.strip()

    async def end(self) -> dict[str, int]:
        """Ends every process in order; their exit codes."""
        codes = {name: await self.members[name].end() for name in reversed(self.members)}
        if self.database is not None:
            self.database.stop()
        return codes

    def data_dir(self, name: str) -> Path:
        """What a part has on its own disk."""
        return self.folder / f"{name}-data"

    def audit(self) -> subprocess.CompletedProcess[str]:
        """`turnkeeper verify` of the Guardian's record against what the turn side was shown."""
        more = ("--json", "--secret-file", str(self.folder / "shared.key"))
        return self.run("verify", config="audit.toml", data_dir="guardian", more=more)

    def export(self, session_id: str) -> subprocess.CompletedProcess[str]:
        """`turnkeeper export` of a session."""
        return self.run("export", config="audit.toml", data_dir="guardian", more=(session_id,))

    def run(
        self, *words: str, config: str, data_dir: str, more: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """A command beside the processes."""
        place = ("--config", str(self.folder / config), "--data-dir", str(self.data_dir(data_dir)))
        return subprocess.run(
            [TURNKEEPER, *words, *place, *more],
            env=clean_environment(self.folder, {"STUB_KEY": "k"}),
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            cwd=self.folder / "home",
            check=False,
        )

    def _host(self, name: str, number: int) -> Host:
        # One host has been up for longer than the others: no two parts may compare their monotonic clocks.
        return self.network.host(name, number, uptime_s=OTHER_UPTIME_S if name == "two" else 0)

    def _mount(self, name: str) -> None:
        folder = self.data_dir(name)
        folder.mkdir()
        if self.network.isolated:
            mode = "755" if name == "database" else "700"
            options = f"size={DISK_MIB}m,mode={mode}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)

    def _write_settings(self, model_config: str, guardian: Host) -> None:
        record = store = ""
        if self.database is not None:
            record = f'[guardian]\ndatabase_url = "{self.database.address}"\n'
            store = f'[store]\nurl = "{self.database.url}"\n'
        door = f'[guardian]\nurl = "http://{guardian.address}:{self._ports["guardian"]}/acs"\n'
        shared = f'secret_file = "{self.folder}/shared.key"\n'
        seen = store or f'[store]\nurl = "sqlite:///{self.data_dir("serve")}/turnkeeper.db"\n'
        texts = {
            "turnkeeper.toml": model_config + store + door + shared + SETTINGS,
            "guardian.toml": record,
            "audit.toml": record + seen,
            "policy.yaml": ALLOW_ALL,
            "shared.key": secrets.token_hex(32) + "\n",
        }
        for name, text in texts.items():
            (self.folder / name).write_text(text)

    def _member(self, name: str, command: str, host: Host) -> Member:
        settings = "guardian.toml" if command == "guardian" else "turnkeeper.toml"
        words = [command, "--config", str(self.folder / settings)]
        if command != "work":
            words += ["--host", host.address, "--port", str(self._ports[name])]
        if command == "guardian":
            policy, key = self.folder / "policy.yaml", self.folder / "shared.key"
            words += ["--policy", str(policy), "--secret-file", str(key)]
        extra = {"STUB_KEY": "k", **({"TURNKEEPER_CHAOS_OWNER": OWNER} if name == "two" else {})}
        ready_word = "works as" if command == "work" else "listens"
        return Member(name, host, words, self.folder, clean_environment(self.folder, extra), ready_word)
