"""The GPU tools that the lab puts in place of NVIDIA's."""

import importlib.machinery
import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

FILES = Path(__file__).parents[3] / "lab" / "files"
GB10 = {"name": "NVIDIA GB10", "driver": "580.142", "memory_mib": None}
H200 = {
    "name": "NVIDIA H200",
    "driver": "580.159.04",
    "compute_cap": "9.0",
    "memory_mib": 143771,
}


def load(name: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(FILES / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


SMI = load("nvidia-smi")
CTK = load("nvidia-ctk")


@pytest.mark.parametrize(
    ("gpu", "fields", "style", "said"),
    [
        (GB10, "name,driver_version,compute_cap,memory.total", "csv,noheader,nounits",
         "NVIDIA GB10, 580.142, 12.1, [N/A]\n"),
        (GB10, "memory.total,memory.free,name", "csv,noheader", "[N/A], [N/A], NVIDIA GB10\n"),
        # As read off a datacenter host.
        (H200, "name,driver_version,compute_cap,memory.total", "csv,noheader,nounits",
         "NVIDIA H200, 580.159.04, 9.0, 143771\n"),
        (H200, "memory.total", "csv,noheader", "143771 MiB\n"),
        (H200, "name,memory.total", "csv", "name, memory.total [MiB]\nNVIDIA H200, 143771 MiB\n"),
    ],
)  # fmt: skip
def test_query(
    gpu: dict[str, object], fields: str, style: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert SMI.query({**SMI.GPU, **gpu}, fields.split(","), style) == 0
    assert capsys.readouterr().out == said


def test_a_field_that_the_real_tool_refuses_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert SMI.query(SMI.GPU, ["memory.totl"], "csv,noheader") == 2
    assert 'Field "memory.totl" is not a valid field to query.' in capsys.readouterr().out


def test_the_table_says_not_supported(capsys: pytest.CaptureFixture[str]) -> None:
    SMI.table(SMI.GPU)
    said = capsys.readouterr().out
    assert "Not Supported" in said
    assert {len(line) for line in said.splitlines()} == {91}


def test_configure_merges_into_the_owners_file(tmp_path: Path) -> None:
    config = tmp_path / "daemon.json"
    owners = {"labels": ["keep=me"], "runtimes": {"other": {"path": "/bin/other"}}}
    config.write_text(json.dumps(owners))
    assert CTK.main(["runtime", "configure", "--runtime=docker", f"--config={config}"]) == 0
    merged = json.loads(config.read_text())
    assert merged["labels"] == ["keep=me"]
    assert merged["runtimes"]["other"] == {"path": "/bin/other"}
    assert merged["runtimes"]["nvidia"] == {"args": [], "path": "nvidia-container-runtime"}


def test_configure_refuses_a_broken_file(tmp_path: Path) -> None:
    config = tmp_path / "daemon.json"
    config.write_text("{,}")
    assert CTK.main(["runtime", "configure", "--runtime", "docker", "--config", str(config)]) == 1
    assert config.read_text() == "{,}"
