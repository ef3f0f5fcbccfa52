"""Runs inside an engine image: which words of an argv the engine's parser knows, and what it reads.

python3 -c "$(cat judge_argv.py)" '{"argv": ["serve", …], "config": "…"}'
"""

import dataclasses
import json
import pathlib
import sys

from vllm.config.speculative import SpeculativeConfig
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

request = json.loads(sys.argv[1])
words = request["argv"]
config = pathlib.Path(words[words.index("--config") + 1])
config.parent.mkdir(parents=True, exist_ok=True)
config.write_text(request["config"])
parser = make_arg_parser(FlexibleArgumentParser())
read = vars(parser.parse_args(words[1:]))  # without `serve`
known = {field.name for field in dataclasses.fields(SpeculativeConfig) if field.init}
asked = json.loads(words[words.index("--speculative-config") + 1])
options = [word for word in words if word.startswith("--")]
wanted = (
    "served_model_name",
    "gpu_memory_utilization",
    "limit_mm_per_prompt",
    "speculative_config",
    "shutdown_timeout",
    "middleware",
    "api_key",
)
print(
    json.dumps(
        {
            "unknown": [word for word in options if word not in parser._option_string_actions],
            "unknown_speculative_keys": sorted(set(asked) - known),
            "read": {name: read[name] for name in wanted},
        }
    )
)
