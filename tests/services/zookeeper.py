"""ZooKeeper for tests: one server, or an ensemble of three, started from its jars.

Found in the directory that `PLISKA_TEST_ZOOKEEPER_HOME` names (an unpacked
Apache release, or one that has `zookeeper.jar`), beside a `zkServer.sh` on
PATH, or where Debian's package puts it. Ticks are short so that sessions may be.
"""

import os
import shutil
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services import debian
from services.missing import ServiceMissingError
from services.process import ServiceProcess, free_ports

TICK_MS = 200
SESSION_MS_MIN = 200
SESSION_MS_MAX = 60_000
HEAP_MB = 96
DEBIAN_JARS = Path("/usr/share/java")
DEBIAN_JAR_NAMES = ("zookeeper", "slf4j-simple", "netty-codec", "netty-resolver")
"""The last two are for TLS; the package's own list of jars forgets them."""
HOW_TO_GET = (
    "no ZooKeeper here: `apt-get install zookeeper default-jre-headless` as root, or name an "
    "unpacked release by PLISKA_TEST_ZOOKEEPER_HOME, or a running server by "
    "PLISKA_TEST_ZOOKEEPER=host:port (`docker compose up -d` brings one to 127.0.0.1:2181)"
)


@dataclass(frozen=True, slots=True)
class ZookeeperServer:
    """A server and where it listens; `process` is None for one that was running before."""

    host_port: str
    process: ServiceProcess | None

    def fresh_address(self) -> str:
        """The address of an empty store on it."""
        return fresh_address([self])

    def ask(self, word: str) -> str:
        """Answer of a four-letter command; empty when the server does not answer."""
        return _ask(self.host_port, word)


def fresh_address(servers: Sequence[ZookeeperServer]) -> str:
    """The address of an empty store on these servers."""
    hosts = ",".join(server.host_port for server in servers)
    return f"zookeeper://{hosts}/pliska-test/{uuid.uuid4().hex}"


def classpath() -> str:
    """The jars to start ZooKeeper from, installed on Debian when they are not there.

    Raises:
        ServiceMissingError: There are none, and we may not install them.
    """
    jars = _find_jars()
    if (not jars or shutil.which("java") is None) and debian.can_install():
        debian.install("zookeeper", "default-jre-headless")
        jars = _find_jars()
    if not jars or shutil.which("java") is None:
        raise ServiceMissingError(HOW_TO_GET)
    return ":".join(map(str, jars))


def start_one(
    directory: Path, jars: str, extra: str = "", java: Sequence[str] = ()
) -> ZookeeperServer:
    """Start a server of its own.

    Args:
        directory: Empty, for its data, configuration and log.
        jars: See `classpath`.
        extra: Further lines of its configuration.
        java: Further options of the virtual machine.
    """
    (port,) = free_ports(1)
    server = _start(directory, jars, port, extra, java)
    server.process.wait_until_ready()
    return server


def start_with_sasl(
    directory: Path, jars: str, user: str, password: str, *, serves_others: bool
) -> ZookeeperServer:
    """Start a server of its own to which `user` can prove by SASL who it is.

    Args:
        directory: See `start_one`.
        jars: See `classpath`.
        user: Letters only.
        password: What the user knows.
        serves_others: Whether it serves also who does not try to prove anything.
    """
    directory.mkdir(parents=True, exist_ok=True)
    jaas = directory / "jaas.conf"
    jaas.write_text(
        "Server {\n"
        "  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
        f'  user_{user}="{password}";\n'
        "};\n"
    )
    java = [
        f"-Djava.security.auth.login.config={jaas}",
        "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    ]
    if not serves_others:
        java.append("-Dzookeeper.sessionRequireClientSASLAuth=true")
    return start_one(directory, jars, java=java)


def start_ensemble(directory: Path, jars: str) -> list[ZookeeperServer]:
    """Start three servers that replicate each other."""
    ports = free_ports(9)
    members = "".join(
        f"server.{i + 1}=127.0.0.1:{ports[3 * i + 1]}:{ports[3 * i + 2]}\n" for i in range(3)
    )
    servers = []
    for i in range(3):
        own = directory / f"server-{i + 1}"
        (own / "data").mkdir(parents=True)
        (own / "data/myid").write_text(f"{i + 1}\n")
        extra = f"initLimit=25\nsyncLimit=10\n{members}"
        servers.append(_start(own, jars, ports[3 * i], extra, ()))
    for server in servers:
        server.process.wait_until_ready()
    return servers


def _find_jars() -> list[Path]:
    home = os.environ.get("PLISKA_TEST_ZOOKEEPER_HOME")
    script = shutil.which("zkServer.sh")
    if home is None and script is not None:
        home = str(Path(script).resolve().parents[1])
    if home is not None:
        folders = (Path(home), Path(home, "lib"))
        jars = [jar for folder in folders for jar in sorted(folder.glob("*.jar"))]
        if any(jar.name.startswith("zookeeper") for jar in jars):
            return jars
    jars = [DEBIAN_JARS / f"{name}.jar" for name in DEBIAN_JAR_NAMES]
    return jars if all(jar.exists() for jar in jars) else []


def _start(
    directory: Path, jars: str, port: int, extra: str, java: Sequence[str]
) -> ZookeeperServer:
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "zoo.cfg"
    config.write_text(
        f"dataDir={directory}/data\n"
        f"clientPort={port}\n"
        "clientPortAddress=127.0.0.1\n"
        f"tickTime={TICK_MS}\n"
        f"minSessionTimeout={SESSION_MS_MIN}\n"
        f"maxSessionTimeout={SESSION_MS_MAX}\n"
        "maxClientCnxns=0\n"
        "admin.enableServer=false\n"
        "4lw.commands.whitelist=*\n"
        # kill -9 loses no page of the kernel, and tests need not wait for the disk.
        "forceSync=no\n"
        f"{extra}"
    )
    command = [
        "java",
        f"-Xmx{HEAP_MB}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        *java,
        "-cp",
        jars,
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(config),
    ]
    host_port = f"127.0.0.1:{port}"
    process = ServiceProcess(
        f"ZooKeeper at {host_port}", command, directory, lambda: "Mode: " in _ask(host_port, "srvr")
    )
    return ZookeeperServer(host_port, process)


def _ask(host_port: str, word: str) -> str:
    host, _, port = host_port.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 1) as connection:
            connection.sendall(word.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
    except OSError:
        return ""
