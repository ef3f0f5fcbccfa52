"""Runs inside an engine image: what the engine's own parser says of each command line.

python3 -c "$(cat judge_argv.py)" '{"NAME": {"argv": ["serve", …], "config": "…"}, …}'

Prints one JSON object: by name, what is `wrong` with it (empty: nothing) and the values `read`.
"""

import contextlib
import dataclasses
import io
import json
import pathlib
import sys
import traceback

from vllm.config import CompilationConfig
from vllm.config.speculative import SpeculativeConfig
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
except ImportError:  # where older engines have it
    from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args

KEYS = {
    "--speculative-config": {f.name for f in dataclasses.fields(SpeculativeConfig) if f.init},
    "--compilation-config": {f.name for f in dataclasses.fields(CompilationConfig) if f.init},
    "--limit-mm-per-prompt": {"image", "video", "audio"},
}
NAMES = {
    "--tool-call-parser": ToolParserManager.list_registered,
    "--reasoning-parser": ReasoningParserManager.list_registered,
}


def judge(argv, config):
    """What is wrong with a command line, in argv, and what the parser read."""
    if "--config" in argv:
        file = pathlib.Path(argv[argv.index("--config") + 1])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(config)
    parser = make_arg_parser(FlexibleArgumentParser())
    # argparse takes abbreviations, and the engine underscores for dashes; ours are the whole names.
    options = [word for word in argv if word.startswith("--")]
    wrong = [
        f"{word} is no option" for word in options if word not in parser._option_string_actions
    ]
    wrong += [f"{word} stands twice" for word in set(options) if options.count(word) > 1]
    for word, value in zip(argv, [*argv[1:], ""], strict=True):
        if word.startswith("--") and value.startswith("{"):
            known = KEYS.get(word, set())
            wrong += [f"{word} has no key {key}" for key in json.loads(value) if key not in known]
        if word in NAMES and value not in NAMES[word]():
            wrong.append(f"{word} knows no {value}")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found = parser.parse_args(argv[1:])  # without `serve`
        validate_parsed_serve_args(found)
    except SystemExit:
        return {"wrong": [*wrong, said.getvalue().strip().splitlines()[-1]], "read": {}}
    except Exception:
        return {"wrong": [*wrong, traceback.format_exc().strip().splitlines()[-1]], "read": {}}
    asked = [word.removeprefix("--").replace("-", "_") for word in options]
    return {
        "wrong": wrong,
        "read": {k: v for k, v in vars(found).items() if k in asked}
        | {key: getattr(found, key) for key in ("middleware", "api_key", "model_tag")},
    }


print(
    json.dumps({name: judge(**row) for name, row in json.loads(sys.argv[1]).items()}, default=str)
)
