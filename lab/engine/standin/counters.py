"""The engine's metrics under vLLM's names, in Prometheus' text format."""

from __future__ import annotations

from dataclasses import dataclass

ACCEPTED = 0.6
"""Part of the drafted tokens that is accepted, as on a good day of a real drafter."""


@dataclass
class Counters:
    """What `/metrics` shows. `drafts` is how many tokens are speculated a step; 0 is none."""

    model: str
    drafts: int = 0
    running: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    accepted: int = 0
    still: bool = False
    """A fault: tokens are drafted, and the draft counters do not move."""

    def generated(self, tokens: int) -> None:
        """Count generated tokens, and the drafting that made them."""
        self.tokens += tokens
        if self.drafts and not self.still:
            self.steps += tokens
            self.accepted = int(self.steps * self.drafts * ACCEPTED)

    def text(self) -> str:
        """The body of `/metrics`."""
        label = f'engine="0",model_name="{self.model}"'
        rows: list[tuple[str, str, str, float]] = [
            ("vllm:num_requests_running", "gauge", label, self.running),
            ("vllm:num_requests_waiting", "gauge", label, 0),
            ("vllm:kv_cache_usage_perc", "gauge", label, 0.01 * self.running),
            ("vllm:prompt_tokens_total", "counter", label, self.prompt_tokens),
            ("vllm:generation_tokens_total", "counter", label, self.tokens),
            ("vllm:request_success_total", "counter", f'{label},finished_reason="stop"',
             self.requests),
        ]  # fmt: skip
        if self.drafts:
            spec = "vllm:spec_decode_num_"
            rows += [
                (f"{spec}drafts_total", "counter", label, self.steps),
                (f"{spec}draft_tokens_total", "counter", label, self.steps * self.drafts),
                (f"{spec}accepted_tokens_total", "counter", label, self.accepted),
            ]
            each = self.accepted / self.drafts
            rows += [
                (f"{spec}accepted_tokens_per_pos_total", "counter", f'{label},position="{at}"',
                 int(each))
                for at in range(self.drafts)
            ]  # fmt: skip
        lines, told = [], set()
        for name, kind, labels, value in rows:
            if name not in told:
                family = name.removesuffix("_total")
                lines += [f"# HELP {name} {family}.", f"# TYPE {name} {kind}"]
                told.add(name)
            lines.append(f"{name}{{{labels}}} {float(value)}")
        return "\n".join(lines) + "\n"
