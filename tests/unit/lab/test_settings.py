"""Addresses and directories of the lab, from its environment."""

import pytest

from lab.errors import LabError
from lab.settings import from_environment, host_names


def test_defaults_keep_to_one_private_range() -> None:
    settings = from_environment({"HOME": "/home/owner"})
    assert settings.gateway == "10.213.77.1"
    assert settings.address("spark-1") == "10.213.77.11"
    assert settings.address("spark-12") == "10.213.77.22"
    assert settings.registry == "10.213.77.1:5000"
    assert settings.hub == "http://10.213.77.1:8090"
    assert str(settings.cache) == "/home/owner/.cache/sparkfleet-lab"
    assert str(settings.state_file) == "/run/sparkfleet-lab/lab.json"


def test_environment_moves_everything() -> None:
    settings = from_environment(
        {
            "SPARKFLEET_LAB_NET": "192.168.9.0/24",
            "SPARKFLEET_LAB_RUN": "/tmp/run",
            "SPARKFLEET_LAB_CACHE": "/var/cache/lab",
            "XDG_CACHE_HOME": "/not/used",
        }
    )
    assert settings.address("spark-2") == "192.168.9.12"
    assert str(settings.pid_file) == "/tmp/run/supervisor.json"
    assert str(settings.disk("spark-2")) == "/var/cache/lab/hosts/spark-2"


@pytest.mark.parametrize(
    ("net", "why"),
    [
        ("10.213.77.5/24", "is not an IPv4 range"),
        ("lab", "is not an IPv4 range"),
        ("10.213.0.0/16", "must be a private /24"),
        ("8.8.8.0/24", "must be a private /24"),
    ],
)
def test_a_range_that_could_mean_a_real_host_is_refused(net: str, why: str) -> None:
    with pytest.raises(LabError, match=why) as caught:
        from_environment({"SPARKFLEET_LAB_NET": net})
    assert "SPARKFLEET_LAB_NET" in str(caught.value)


@pytest.mark.parametrize("count", [0, -1, 201])
def test_a_count_that_cannot_be_is_refused(count: int) -> None:
    with pytest.raises(LabError, match="1 to 200 hosts"):
        host_names(count)


@pytest.mark.parametrize("name", ["spark", "spark-0", "spark-x", "box-1"])
def test_a_name_the_lab_does_not_use_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="no host called"):
        from_environment({}).address(name)
