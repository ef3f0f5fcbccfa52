"""Makes the lab's tiny model; runs inside the engine image, as transformers is there.

    python3 make_model.py OUT SEED PROMPTS

writes OUT/model, OUT/drafter (the same weights, slightly off, so that some drafts are refused),
OUT/other (another seed: right shape, wrong answers) and OUT/expected.json: the exact text that
greedy decoding gives for each prompt of the JSON list PROMPTS.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENS = 32
"""Length of the expected texts; the model never ends by itself."""
MARGIN = 0.03
"""Least lead of the best token over the next, as a part of the best one's logit: ten times what
bf16 rounds, so that batching, drafting and another version of the engine give the same text."""


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, and three special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(SPECIAL))
    made = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=SPECIAL[2], pad_token=SPECIAL[0], model_max_length=4096
    )
    made.chat_template = TEMPLATE
    return made


def model(words: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Two random layers whose output can only be small letters."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=272, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=4096,
        tie_word_embeddings=False, initializer_range=0.3, bos_token_id=None,
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id, dtype="bfloat16",
    )  # fmt: skip
    made = Qwen3ForCausalLM(config).to(torch.bfloat16)
    vocabulary = words.get_vocab()
    letters = [vocabulary[chr(code)] for code in range(ord("a"), ord("z") + 1)]
    with torch.no_grad():
        head = made.lm_head.weight
        kept = torch.zeros_like(head)
        kept[letters] = head[letters]
        head.copy_(kept)
    return made


def blur(source: Qwen3ForCausalLM, target: Qwen3ForCausalLM, seed: int) -> None:
    """Make `target` the source's weights plus 3% of noise."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for old, new in zip(source.parameters(), target.parameters(), strict=True):
            jitter = torch.randn(old.shape, generator=noise) * old.float().std() * 0.03
            new.copy_((old.float() + jitter).to(old.dtype))


def greedy(made: Any, words: PreTrainedTokenizerFast, prompt: str) -> tuple[str, float]:
    """The greedy text and its smallest margin."""
    chat = [{"role": "user", "content": prompt}]
    ids = list(words.apply_chat_template(chat, add_generation_prompt=True)["input_ids"])
    start, margin = len(ids), 1.0
    with torch.no_grad():
        for _ in range(TOKENS):
            top = made(torch.tensor([ids])).logits[0, -1].float().topk(2)
            best, second = top.values.tolist()
            margin = min(margin, (best - second) / abs(best))
            ids.append(int(top.indices[0]))
    return words.decode(ids[start:]), margin


def main() -> int:
    """Make everything; fails when the seed's margin is too small to rely on."""
    out, seed, prompts = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    words = tokenizer()
    real, other, drafter = (model(words, number) for number in (seed, seed + 1, seed))
    blur(real, drafter, seed)
    for name, made in (("model", real), ("other", other), ("drafter", drafter)):
        made.save_pretrained(out / name)
        words.save_pretrained(out / name)
        (out / name / "README.md").write_text("Random weights for the simulated lab.\n")
    expected, exact = {}, real.float()  # in place, but it is saved already
    for prompt in prompts:
        expected[prompt], margin = greedy(exact, words, prompt)
        if margin < MARGIN:
            print(f"seed {seed}: margin {margin:.3f} is below {MARGIN}", file=sys.stderr)
            return 1
    (out / "expected.json").write_text(json.dumps(expected, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
