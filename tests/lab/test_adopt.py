"""What the owner runs by hand is recognised, taken over with his word, and put back on failure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.conftest import Fleet
from tests.lab.observe import complete, key_of

pytestmark = pytest.mark.lab

RECIPE = {"recipe": "lab-standin", "preset": "shared"}
BAD = {"recipe": "lab-wrong-answer", "preset": "shared"}


def run_by_hand(fleet: Fleet, host: str, name: str) -> None:
    """What the published guide has its reader type: weights in the home, a container."""
    image = f"{fleet.lab.registry}/sparkfleet/standin:1"
    weights = "/home/spark/aeon-model"
    download = (
        "from huggingface_hub import snapshot_download;"
        f"snapshot_download('lab/tiny-qwen3', local_dir='/w', endpoint='{fleet.lab.hub}')"
    )
    fleet.lab.exec(
        host,
        f"""set -e
        docker pull -q {image}
        install -d -o spark {weights}
        docker run --rm -e HF_HUB_DISABLE_XET=1 -v {weights}:/w --entrypoint python3 {image} \\
          -c "{download}"
        docker run -d --name {name} --restart unless-stopped -p 8000:8000 -v {weights}:/model:ro \\
          --entrypoint vllm {image} serve /model --served-model-name by-hand --port 8000
        """,
        timeout=300,
        check=True,
    )


def containers(fleet: Fleet, host: str) -> dict[str, str]:
    """Name → state of every container on a host."""
    out = fleet.lab.exec(host, "docker ps -a --format '{{.Names}} {{.State}}'").stdout
    return dict(line.split(" ", 1) for line in out.splitlines())


def test_a_hand_run_engine_is_left_alone_and_then_taken_over(
    fleet: Fleet, host: str, bare: Callable[..., None]
) -> None:
    bare(host)
    run_by_hand(fleet, host, "lab-standin")

    asked = fleet.deploy({host: {}}, **RECIPE)
    assert asked.code == 1
    assert "--data adopt=true" in asked.said and "lab-standin" in asked.said
    assert containers(fleet, host) == {"lab-standin": "running"}, "nothing was touched"

    taken = fleet.deploy({host: {}}, "--data", "adopt=true", **RECIPE)
    assert taken.code == 0, taken.said
    assert "Taking over lab/tiny-qwen3" in taken.said
    states = containers(fleet, host)
    assert states.pop("lab-standin") == "running"
    ((parked, state),) = states.items()
    assert parked.startswith("lab-standin-by-hand-") and state == "exited"
    assert complete(fleet.lab, host, "lab-standin", key_of(fleet.dir))

    again = fleet.deploy({host: {}}, **RECIPE)
    assert again.code == 0 and "nothing changed" in again.out, again.said


def test_a_release_that_fails_gives_the_owner_s_engine_back(
    fleet: Fleet, host: str, bare: Callable[..., None]
) -> None:
    bare(host)
    run_by_hand(fleet, host, "lab-wrong-answer")
    failed = fleet.deploy({host: {}}, "--data", "adopt=true", **BAD)
    assert failed.code == 1, failed.said
    assert containers(fleet, host) == {"lab-wrong-answer": "running"}
    policy = fleet.lab.exec(
        host, "docker inspect -f '{{.HostConfig.RestartPolicy.Name}}' lab-wrong-answer"
    )
    assert policy.stdout.strip() == "unless-stopped"
