"""The tables: findings before anything is changed, the report at the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkfleet.spec.finding import Finding, Level
from sparkfleet.spec.upgrade import Move
from sparkfleet.verdict import Failure

STYLES: dict[Level, str] = {
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "unknown": "magenta",
    "mend": "cyan",
}

WORDS: dict[Level, str] = {
    "ok": "ok",
    "warn": "warning",
    "fail": "FAILED",
    "unknown": "unknown",
    "mend": "to mend",
}
"""What a level is called in a table: a word each, so that colour is never needed to tell."""


@dataclass(frozen=True)
class ReportRow:
    """One service of the report."""

    host: str
    service: str
    recipe: str
    image: str
    utilization: str
    state: str
    endpoint: str
    time: str


def findings_table(findings: Sequence[Finding]) -> Table | None:
    """Every finding that is not `ok`, the gravest first; None when there is none."""
    order: list[Level] = ["fail", "unknown", "mend", "warn"]
    shown = [finding for finding in findings if finding.level in order]
    if not shown:
        return None
    table = Table(title="Findings", title_justify="left", show_lines=True, expand=True)
    table.add_column("host", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("what, why, and what to do", ratio=1)
    for hosts, finding in alike(sorted(shown, key=lambda one: order.index(one.level))):
        words = Text(_sentences(finding))
        if finding.level == "unknown" and finding.raw:
            words.append(f"\nThe host said: {finding.raw.strip()[:400]}", style="dim")
        level = Text(WORDS[finding.level], style=STYLES[finding.level])
        table.add_row("\n".join(hosts), finding.check, level, words)
    return table


def alike(findings: Iterable[Finding]) -> list[tuple[list[str], Finding]]:
    """Findings that say the same of several hosts as one row, in which a host is `the host`."""
    rows: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        words = _anonymous(_sentences(finding), finding.host)
        said = finding.raw if finding.level == "unknown" else ""
        rows.setdefault((finding.level, finding.check, words, said), []).append(finding)
    merged = []
    for same in rows.values():
        first = same[0]
        if len(same) > 1:
            first = replace(
                first,
                what=_anonymous(first.what, first.host),
                why=_anonymous(first.why, first.host),
                next=_anonymous(first.next, first.host),
            )
        merged.append(([finding.host for finding in same], first))
    return merged


def _sentences(finding: Finding) -> str:
    return " ".join(part for part in (finding.what, finding.why, finding.next) if part)


def _anonymous(text: str, host: str) -> str:
    words = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "the host", text)
    return words[:1].upper() + words[1:] if words.startswith("the host") else words


def report_table(rows: Iterable[ReportRow]) -> Table:
    """The table that a run ends with: one row a service."""
    table = Table(title="Fleet", title_justify="left")
    for column in ("host", "service", "recipe", "image", "mem", "state", "endpoint", "time"):
        table.add_column(column, overflow="fold", no_wrap=column in ("host", "state", "endpoint"))
    for row in rows:
        good = row.state.startswith("proven")
        state = Text(row.state, style="green" if good else "bold red")
        table.add_row(
            row.host,
            row.service,
            row.recipe,
            row.image,
            row.utilization,
            state,
            row.endpoint,
            row.time,
        )
    return table


def moves_table(title: str, moves: Iterable[Move]) -> Table:
    """Pins that say something else now; `to fetch` is what a host that has the old ones lacks."""
    table = Table(title=title, title_justify="left")
    for column in ("recipe", "what", "pinned", "now", "to fetch"):
        table.add_column(column, overflow="fold")
    for move in moves:
        size = f"{move.size / 1e9:.2f} GB" if move.size else "-"
        table.add_row(move.key, move.what, move.old, move.new, size)
    return table


def print_failures(console: Console, failures: Iterable[tuple[str, Failure]]) -> None:
    """Each failure in sentences, with the log's telling lines under it."""
    for host, failure in failures:
        console.print(Text(f"{host}: {failure.what}", style="bold red"))
        if failure.why:
            console.print(Text(f"  Why:  {failure.why}"))
        if failure.next:
            console.print(Text(f"  Next: {failure.next}"))
        for line in failure.log:
            console.print(Text(f"  | {line}", style="dim"), soft_wrap=True)
