"""The tables: findings before anything is changed, the report at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkfleet.spec.finding import Finding, Level
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
    for finding in sorted(shown, key=lambda one: order.index(one.level)):
        sentences = [finding.what, finding.why, finding.next]
        words = Text(" ".join(sentence for sentence in sentences if sentence))
        if finding.level == "unknown" and finding.raw:
            words.append(f"\nThe host said: {finding.raw.strip()[:400]}", style="dim")
        level = Text(WORDS[finding.level], style=STYLES[finding.level])
        table.add_row(finding.host, finding.check, level, words)
    return table


def report_table(rows: Iterable[ReportRow]) -> Table:
    """The table that a run ends with: one row a service."""
    table = Table(title="Fleet", title_justify="left")
    for column in ("host", "service", "recipe", "image", "mem", "state", "endpoint", "time"):
        table.add_column(column, overflow="fold")
    for row in rows:
        good = row.state.startswith(("proven", "unchanged"))
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
