"""What makes a Debian root look like a Spark."""

import json

from lab import dress
from lab.settings import from_environment, host_names

SETTINGS = from_environment({})
KEYS = {"host": "SECRET", "host.pub": "ssh-ed25519 AAAA spark-1\n", "client.pub": "ssh-ed25519 B\n"}


def files(name: str) -> dict[str, dress.File]:
    return dress.of_host(SETTINGS, name, host_names(3), KEYS)


def figures(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines())
    assert all(row[2] == "kB" for row in (line.split() for line in text.splitlines()))
    return {row[0].rstrip(":"): int(row[1]) for row in rows}


def test_memory_is_a_sparks() -> None:
    memory = figures(dress.meminfo())
    assert memory["MemTotal"] == 127_600_812
    assert memory["MemAvailable"] == 118 * 1024 * 1024
    assert memory["SwapTotal"] == 0
    assert memory["MemFree"] + memory["Cached"] == memory["MemAvailable"]


def test_memory_of_a_crowded_box_stays_sane() -> None:
    memory = figures(dress.meminfo(available_kib=1000, swap_kib=16_777_212))
    assert memory["MemAvailable"] == 1000
    assert memory["MemFree"] >= 0
    assert memory["SwapFree"] == 16_777_212


def test_dgx_release_repeats_the_update_and_holds_a_serial_number_of_its_own() -> None:
    one, two = dress.dgx_release("spark-1"), dress.dgx_release("spark-2")
    versions = [line for line in one.splitlines() if line.startswith("DGX_OTA_VERSION=")]
    assert versions == ['DGX_OTA_VERSION="7.3.1"', 'DGX_OTA_VERSION="7.4.0"']
    serials = [line for line in (one + two).splitlines() if "SERIAL" in line]
    assert len(set(serials)) == 2


def test_docker_has_an_owners_setting_beside_the_toolkits() -> None:
    daemon = json.loads(files("spark-1")["/etc/docker/daemon.json"].content)
    assert daemon["insecure-registries"] == ["10.213.77.1:5000"]
    assert daemon["labels"] == ["owner.example/asset=rack-7"]
    assert daemon["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"


def test_hosts_are_told_apart() -> None:
    one, two = files("spark-1"), files("spark-2")
    for path in ("/etc/machine-id", "/etc/hostname", "/etc/lab/gpu.json", "/etc/dgx-release"):
        assert one[path].content != two[path].content, path
    assert "10.213.77.13 spark-3\n" in one["/etc/hosts"].content
    # Or every sudo prints "unable to resolve host".
    assert "127.0.1.1 spark-1\n" in one["/etc/hosts"].content
    assert "Address=10.213.77.12/24" in two["/etc/systemd/network/10-host0.network"].content
    assert "Gateway" not in two["/etc/systemd/network/10-host0.network"].content


def test_secrets_are_closed() -> None:
    assert files("spark-1")["/etc/ssh/ssh_host_ed25519_key"].mode == 0o600
    assert files("spark-1")["/home/spark/.ssh/authorized_keys"].owner == 1000
    assert dress.common()["/etc/sudoers.d/spark"].mode == 0o440
