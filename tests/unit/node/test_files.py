"""Files, locks, events, ports and telling lines."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sparkfleet.node import commands, ports
from sparkfleet.node.disk import Busy, append_line, hold_lock, point_link, read_json, write_whole
from sparkfleet.node.engine import check_port, clear_way, drop_caches, to_run
from sparkfleet.node.events import Events, failure
from sparkfleet.node.faults import CONFIG, Fault
from sparkfleet.node.layout import Service, load_release
from sparkfleet.node.ports import holder, is_free, is_local
from sparkfleet.node.telling import hide, judge_log, telling

from .world import World


def test_a_file_is_whole_with_its_mode_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_whole(path, '{"a": 1}', 0o600)
    write_whole(path, '{"a": "\udcff"}', 0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]
    assert read_json(path) == {"a": "?"} and read_json(tmp_path / "none") is None


def test_a_link_moves_over_what_it_was(tmp_path: Path) -> None:
    for target in ("releases/one", "releases/two"):
        point_link(tmp_path / "current", target)
    assert (tmp_path / "current").readlink() == Path("releases/two")
    assert Service(tmp_path, "x").linked(tmp_path / "current") is not None


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "run" / "llm.lock"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\nfrom sparkfleet.node.disk import hold_lock\n"
        "with hold_lock(Path(sys.argv[2])): print('held', flush=True); sys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", code, str(Path(__file__).parents[3]), str(lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder_:
        assert holder_.stdout is not None and holder_.stdout.readline() == b"held\n"
        with pytest.raises(Busy), hold_lock(lock):
            pass
        holder_.kill()
        holder_.wait(10)
    with hold_lock(lock, patience=5):
        pass


def test_events_are_lines_and_done_is_the_last(tmp_path: Path) -> None:
    with Events(tmp_path / "j.jsonl", clock=lambda: 1.0) as events:
        events.progress("model", 5, 10, rate=2.5, item="a.safetensors")
        events.phase("boot", "bad \udcff text")
        events.done(False, {"a": 1}, failure("x", code="y"))
    events.log("after the end")
    told = [json.loads(line) for line in (tmp_path / "j.jsonl").read_text().splitlines()]
    assert [event["event"] for event in told] == ["progress", "phase", "done"]
    assert told[0]["total"] == 10 and told[2]["error"]["code"] == "y"
    assert (tmp_path / "j.jsonl").stat().st_mode & 0o077 == 0


def test_history_grows(tmp_path: Path) -> None:
    for number in (1, 2):
        append_line(tmp_path / "h.jsonl", {"n": number})
    assert len((tmp_path / "h.jsonl").read_text().splitlines()) == 2


def test_a_port_and_who_holds_it(world: World) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert not is_free("127.0.0.1", port)
        found = holder("127.0.0.1", port, world)
        assert found is not None and f"(pid {os.getpid()})" in found.words
    assert is_free("127.0.0.1", port) and holder("127.0.0.1", port, world) is None


def test_a_port_whose_container_comes_or_goes_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [ports.Holder("docker-proxy (pid 7)")] * 3 + [ports.Holder("the container x", "p", "i")]
    monkeypatch.setattr(ports, "holder", lambda *_: seen.pop(0) if len(seen) > 1 else seen[0])
    moment = iter(range(100))

    def look() -> ports.Holder | None:
        return ports.lasting_holder(
            "127.0.0.1", 1, world, clock=lambda: next(moment), sleep=lambda seconds: None
        )

    found = look()
    assert found is not None and found.project == "p"
    seen[0] = ports.Holder("docker-proxy (pid 7)")
    assert look() == seen[0]
    seen[0] = ports.Holder("nginx (pid 7)")
    before = next(moment)
    assert look() == seen[0] and next(moment) == before + 2


def test_an_address_of_another_host_is_refused(world: World) -> None:
    assert is_local("127.0.0.1") and is_local("0.0.0.0") and not is_local("192.0.2.7")
    assert not is_local("name")
    release = load_release(world.service.release_dir(world.release("a" * 12, bind="192.0.2.7")))
    with pytest.raises(Fault, match=r"no address 192\.0\.2\.7"):
        check_port(release, world)


def test_nothing_to_run_tells_systemd_not_to_try_again(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="nothing to run") as caught:
        to_run(Service(tmp_path, "llm", tmp_path / "run"))
    assert caught.value.exit == CONFIG


def test_our_leftover_is_removed_and_a_stranger_of_that_name_is_not(world: World) -> None:
    release = load_release(world.service.release_dir(world.release("a" * 12)))
    world.serving("a" * 12)
    world.run(["systemctl", "stop", "x"], 1)
    clear_way(release, world)
    assert world.box is None
    from sparkfleet.node.docker import Container, Listed

    row = Listed("f" * 64, "qwen36-35b", "running", {}, ())
    world.strangers.append((Container("f" * 64, "qwen36-35b", True, "running", ""), row))
    with pytest.raises(Fault, match="belongs to a container that is not ours"):
        clear_way(release, world)


def test_a_page_cache_that_cannot_be_dropped_is_no_reason_to_stay_down(tmp_path: Path) -> None:
    said: list[str] = []
    drop_caches(said.append, tmp_path / "absent" / "drop_caches")
    assert "could not be dropped" in said[0]
    drop_caches(said.append, tmp_path / "drop_caches")
    assert (tmp_path / "drop_caches").read_text() == "3\n" and len(said) == 1


@pytest.mark.parametrize("name", ["../x", "", "A", "x/y"])
def test_a_name_that_is_a_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Fault):
        Service(tmp_path, name)


def test_a_program_is_bounded_and_absent_ones_are_said() -> None:
    assert commands.run(["sleep", "60"], 0.2).code == 124
    assert (
        commands.run(["no-such-program"], 5).words()
        == "the program no-such-program is not installed"
    )
    said = commands.run(
        [sys.executable, "-c", "import os; os.write(1, b'\\xff'); raise SystemExit(3)"], 20
    )
    assert (said.code, said.out) == (3, "\\xff")


def test_telling_lines() -> None:
    lines = ["INFO a", "Traceback (most recent call last):", "ValueError: b", "INFO c"]
    fatal = [{"text": "Free memory", "meaning": "Too little.", "next": "Wait."}]
    assert telling(lines, fatal).lines == tuple(lines[1:3])
    found = telling([*lines, "ValueError: Free memory on device"], fatal)
    assert (found.lines, found.meaning) == (("ValueError: Free memory on device",), "Too little.")
    assert telling(["only this", ""]).lines == ("only this",)
    assert len(telling(["x" * 1000] * 100).lines) == 20


def test_log_rows() -> None:
    assert judge_log(["a b"], ["c"], ["a", "b"]) == (
        True,
        "it holds none of 1 forbidden and all of 2 required lines",
    )
    assert not judge_log(["a c"], ["c"], [])[0] and not judge_log([], [], ["a"])[0]


def test_a_secret_is_hidden_and_a_short_word_is_not() -> None:
    assert hide("api_key=sk-12345678.", "sk-12345678") == "api_key=•••."
    assert hide("abc", "") == "abc"
