"""The tables a person reads: nothing is lost, nothing is said three times."""

from io import StringIO

from rich.console import Console

from sparkfleet.console.progress import ProgressLines, duration, progress_line, size
from sparkfleet.console.tables import findings_table
from sparkfleet.spec.finding import Finding, Level


def finding(host: str, level: Level = "warn", what: str = "", raw: str = "") -> Finding:
    return Finding(level, host, "check", what or f"{host} is x86_64.", "It matters.", raw=raw)


def shown(*findings: Finding) -> str:
    console = Console(width=80, record=True, file=StringIO())
    table = findings_table(findings)
    assert table is not None
    console.print(table)
    return console.export_text()


def test_one_row_for_what_is_true_of_several_hosts() -> None:
    text = shown(finding("spark-1"), finding("spark-2"), finding("spark-10"))
    assert text.count("x86_64") == 1
    assert "The host is x86_64." in text
    assert all(name in text for name in ("spark-1 ", "spark-2 ", "spark-10 "))


def test_a_finding_of_one_host_names_it() -> None:
    text = shown(finding("spark-1"), finding("spark-2", what="spark-2 is full."))
    assert "spark-1 is x86_64." in text and "spark-2 is full." in text


def test_one_host_s_name_inside_another_s_is_left_alone() -> None:
    text = shown(finding("a", what="a-b is near a."), finding("b", what="a-b is near b."))
    assert text.count("a-b is near the host.") == 1


def test_the_gravest_comes_first_and_ok_is_not_shown() -> None:
    text = shown(finding("a"), finding("b", "fail", "b is torn."), finding("c", "ok", "fine"))
    assert text.index("b is torn.") < text.index("a is x86_64.")
    assert "fine" not in text
    assert findings_table([finding("a", "ok")]) is None


def test_unknown_shows_what_the_host_said() -> None:
    assert "Xid 119" in shown(finding("a", "unknown", raw="Xid 119, pid=1"))


def test_progress_in_words() -> None:
    event = {"event": "progress", "phase": "fetch", "done": 1.2e9, "total": 23.3e9, "rate": 85e6}
    assert progress_line(event) == "fetch: 1.2 GB of 23.3 GB, 85.0 MB/s, 4 min 20 s left"
    layers = {"event": "progress", "phase": "pull", "done": 3, "total": 9, "unit": "layers"}
    assert progress_line(layers) == "pull: 3 of 9 layers"


def test_sizes_and_durations() -> None:
    assert [size(n) for n in (0, 999, 1000, 23_350_000_000)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "23.4 GB",
    ]
    assert [duration(n) for n in (0.4, 59.6, 185, 4800)] == [
        "0 s",
        "1 min 00 s",
        "3 min 05 s",
        "1 h 20 min",
    ]


def test_progress_is_thinned_out_and_its_end_is_not() -> None:
    lines: list[str] = []
    clock = iter([10.0, 11.0, 14.0, 15.5, 15.6])
    show = ProgressLines(lines.append, clock=lambda: next(clock))
    for done in (1, 2, 3, 4, 9):
        show({"event": "progress", "phase": "pull", "done": done, "total": 9, "unit": "layers"})
    assert lines == ["pull: 1 of 9 layers", "pull: 4 of 9 layers", "pull: 9 of 9 layers"]
