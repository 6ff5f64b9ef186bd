"""`deploy/`: what can run here runs, and the rest is held against what the broker takes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import palio
from palio.server.configuring import known_settings

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
PALIO: Final = (sys.executable, "-m", "palio")
WAIT_S: Final = 30.0


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What deploy/credentials.sh makes."""
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by openssl; install it")
    directory = tmp_path_factory.mktemp("deployed")
    commands = directory / "bin"
    commands.mkdir()
    (commands / "palio").write_text(f'#!/bin/sh\nexec {sys.executable} -m palio "$@"\n')
    (commands / "palio").chmod(0o755)
    environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}
    for _ in range(2):  # the second run renews certificates, and leaves keys and tokens
        command = [DEPLOY / "credentials.sh", directory / "credentials"]
        subprocess.run(command, env=environment, check=True, timeout=60, capture_output=True)
    return directory / "credentials"


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(
        (DEPLOY / "docker" / "compose.yaml").read_text("utf-8")
    )["services"]
    return found


@contextmanager
def broker(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Run `palio serve`, and return its addresses."""
    command = (*PALIO, "serve", "--json")
    with subprocess.Popen(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["listening"]
        finally:
            process.terminate()


async def test_the_brokers_of_the_compose_file_are_one_network(
    credentials: Path, tmp_path: Path
) -> None:
    """With their settings and credentials, but at free ports of loopback."""
    addresses: dict[str, str] = {}
    with ExitStack() as stack:
        for name, service in services().items():
            settings = {
                key: str(value).replace("/credentials", str(credentials))
                for key, value in service["environment"].items()
            }
            for peer, address in addresses.items():
                peers = settings.get("PALIO__PEERS__URLS", "")
                settings["PALIO__PEERS__URLS"] = peers.replace(f"palios://{peer}:7400", address)
            settings |= {
                "PALIO__BROKER__URL": "",
                "PALIO__BROKER__DATA_DIR": str(tmp_path / name),
                "PALIO__LISTEN__PORT": "0",
                "PALIO__HTTP__PORT": "0",
            }
            settings = {key: value for key, value in settings.items() if value}
            listening = await asyncio.to_thread(stack.enter_context, broker(settings))
            addresses[name] = listening["palio"].replace("127.0.0.1", "localhost")
        token = (credentials / "operator.token").read_text("utf-8").strip()
        tls = ssl.create_default_context(cafile=credentials / "ca.pem")
        async with (
            await palio.connect(addresses["south"], name="operator", token=token, tls=tls) as one,
            await palio.connect(addresses["north"], name="operator", token=token, tls=tls) as other,
        ):
            sub = await one.subscribe("price < 10")
            async with asyncio.timeout(WAIT_S):
                while len((await one.admin.topology())["brokers"]) < 3:
                    await sub.settled(timeout=WAIT_S)
            await sub.settled(timeout=WAIT_S)
            await other.publish({"price": 9}, durable=True)
            assert (await sub.receive(timeout=WAIT_S))["price"] == 9


def test_each_service_has_the_credentials_of_its_name(credentials: Path) -> None:
    for name, service in services().items():
        settings = service["environment"]
        assert settings["PALIO__BROKER__NAME"] == name
        files = [each for each in settings.values() if each.startswith("/credentials/")]
        assert len(files) == 7
        for each in files:
            assert (credentials / Path(each).name).exists(), each


def test_all_settings_that_are_named_exist() -> None:
    known = {f"PALIO__{name.replace('.', '__').upper()}" for name in known_settings()}
    for path in DEPLOY.rglob("*"):
        if path.is_file():
            named = set(re.findall(r"PALIO__\w+[A-Z]", path.read_text("utf-8")))
            assert not {each for each in named if not each.endswith("PALIO__")} - known, path


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("units are checked by systemd-analyze; install systemd")
    program = tmp_path / "palio"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (DEPLOY / "systemd" / "palio.service").read_text("utf-8")
    unit = tmp_path / "palio.service"
    unit.write_text(text.replace("/opt/palio/bin/palio", str(program)))
    checked = subprocess.run(
        [verify, "verify", unit], check=False, capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_service_manager_is_told_when_the_broker_is_ready(tmp_path: Path) -> None:
    """What `Type=notify` and `systemctl reload` rely on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(WAIT_S)
        environment = os.environ | {
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "PALIO__LISTEN__PORT": "0",
        }
        with subprocess.Popen(
            (*PALIO, "serve"), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                assert manager.recv(100) == b"READY=1"
                process.send_signal(signal.SIGHUP)
                assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(100))
                assert manager.recv(100) == b"READY=1"
            finally:
                process.terminate()
            assert manager.recv(100) == b"STOPPING=1"
        assert process.returncode == 0


def test_the_image_is_made_of_what_is_there() -> None:
    """A context without what the build copies would make an image without it."""
    kept = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE)
    assert all((ROOT / each).exists() for each in kept)
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for name in re.findall(r'(?:readme = |license-files = \[)"(\S+?)"', project):
        assert name in kept
    lint = shutil.which("hadolint")
    if lint is not None:
        subprocess.run([lint, DEPLOY / "docker" / "Dockerfile"], check=True, timeout=60)


def test_the_pods_find_their_credentials_and_ports() -> None:
    text = (DEPLOY / "kubernetes" / "palio.yaml").read_text("utf-8")
    service, budget, brokers = yaml.safe_load_all(text)
    (container,) = brokers["spec"]["template"]["spec"]["containers"]
    labels = brokers["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels == budget["spec"]["selector"]["matchLabels"]
    assert brokers["spec"]["serviceName"] == service["metadata"]["name"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {each["name"]: each["port"] for each in service["spec"]["ports"]}
    mounted = {each["name"] for each in container["volumeMounts"]}
    claims = {each["metadata"]["name"] for each in brokers["spec"]["volumeClaimTemplates"]}
    volumes = {each["name"] for each in brokers["spec"]["template"]["spec"]["volumes"]}
    assert mounted == claims | volumes


@pytest.mark.parametrize(("host", "peers"), [("palio-0", None), ("palio-2", "palio-0.palio:7400")])
def test_the_command_of_the_pods_sets_what_differs(
    host: str, peers: str | None, tmp_path: Path
) -> None:
    (tmp_path / "palio").write_text("#!/bin/sh\nenv | grep PALIO__\n")
    (tmp_path / "palio").chmod(0o755)
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / "palio.yaml").read_text("utf-8"))
    brokers = list(documents)[-1]
    (container,) = brokers["spec"]["template"]["spec"]["containers"]
    answer = subprocess.run(
        [*container["command"], *container["args"]],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "HOSTNAME": host},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    settings = dict(line.split("=", 1) for line in answer.stdout.splitlines())
    name = f"{host}.palio"
    urls = settings.pop("PALIO__PEERS__URLS", None)
    assert (urls and json.loads(urls)) == (peers and [f"palios://{peers}"])
    assert settings == {
        "PALIO__BROKER__NAME": name,
        "PALIO__BROKER__URL": f"palios://{name}:7400",
        "PALIO__TLS__CERT": f"/credentials/{name}.pem",
        "PALIO__TLS__KEY": f"/credentials/{name}.key",
        "PALIO__AUTH__TOKEN_FILE": f"/credentials/{name}.token",
        "PALIO__AUTH__BROKER_KEY": f"/credentials/{name}",
    }
