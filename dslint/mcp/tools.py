"""The tools: what each takes, what it answers, and which command of dslint it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

from dslint.mcp.run import Failed, Roots
from dslint.record import Record
from dslint.settings.table import FACTS, SETTINGS

Schema = dict[str, Any]
Arguments = dict[str, Any]

OUTPUTS = {
    "check": "output",
    "show": "show",
    "estimate": "estimate",
    "fit": "fit",
    "tune": "tune",
    "diagnose": "diagnosis",
    "rule": "rule",
    "init": "init",
}
"""The file of `dslint.report` with the schema of a command's JSON output, without `.schema.json`."""


class Call(Record):
    """A command of dslint: its arguments, and the text on its standard input."""

    words: tuple[str, ...]
    text: str = ""


class Tool(Record):
    """A tool: its name and title, what it is for, its arguments, its answer, and the command for a call.

    With `has_report`, the beginning of the command's report is the short answer; otherwise that is made from the JSON output.
    """

    name: str
    title: str
    description: str
    inputs: Schema
    answer: Schema
    call: Callable[[Arguments, Roots], Call]
    has_report: bool = False


def _string(meaning: str, **more: Any) -> Schema:
    return {"type": "string", "description": meaning, **more}


def _number(meaning: str) -> Schema:
    return {"type": "integer", "minimum": 1, "description": meaning}


def _setting(name: str) -> Schema:
    return {"description": SETTINGS[name].meaning.replace("--gpu", "gpu"), **SETTINGS[name].kind.schema()}


def _facts() -> Schema:
    return {name.replace("-", "_"): _setting(name) for name in FACTS}


def _object(properties: Schema, *, required: tuple[str, ...] = (), one_of: tuple[str, ...] = ()) -> Schema:
    choice = {"oneOf": [{"required": [name]} for name in one_of]} if one_of else {}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False, **choice}


_CONFIG = {
    "path": _string(
        "The file: a DeepSpeed config, a training file (YAML), a launch script, a Python program. Below the folders of the server."
    ),
    "text": _string("The text of a DeepSpeed config (JSON or HJSON), in place of a path."),
}
_EITHER = ("path", "text")

_WORKLOAD = {
    "params": _string("The number of parameters, such as 7B, if the model is not known."),
    "sequence_length": _number("Tokens per sample. Default: those of the model, up to 2048."),
    "micro_batch": _number("The micro batch size, instead of that of the config."),
    "lora_rank": _number("Train only LoRA adapters, of this rank."),
    "activation_checkpointing": _number("The model uses activation checkpointing for every K-th layer; 1: for every layer."),
}


def _versioned(meaning: str, **properties: Schema) -> Schema:
    """The schema of a JSON output of which only some keys are promised."""
    version = {"type": "integer", "description": "Increases when a key is removed or changes its meaning."}
    return {
        "type": "object",
        "description": meaning,
        "properties": {"version": version, **properties},
        "required": ["version", *properties],
    }


def _options(arguments: Arguments, roots: Roots, names: Iterator[str] | tuple[str, ...] = FACTS) -> Iterator[str]:
    """Settings as options of the command line."""
    for name in names:
        value = arguments.get(name.replace("-", "_"))
        if value is None:
            continue
        if name == "checkpoint" or (name == "model" and roots.is_path(value)):
            value = roots.inside(value)
        if isinstance(value, bool):
            yield from [f"--{name}"] if value else []
        elif isinstance(value, dict):
            for key, entry in value.items():
                yield f"--{name}={key}{'==' if name == 'package' else '='}{entry}"
        else:
            yield f"--{name}={','.join(value) if isinstance(value, list) else value}"


def _subject(arguments: Arguments, roots: Roots) -> tuple[str, str]:
    """The argument for the config, and the text on standard input."""
    if "text" in arguments:
        return "-", str(arguments["text"])
    return _file(arguments["path"], roots), ""


def _file(path: str, roots: Roots) -> str:
    """A path that is not an option or standard input, whatever it begins with."""
    inside = roots.inside(path)
    return f"./{inside}" if inside.startswith("-") else inside or "."


def _check(arguments: Arguments, roots: Roots) -> Call:
    given = ("checkpoint", "env", "select", "ignore", "pedantic")
    words = ["check", "--output-format=json", "--jobs=1", *_options(arguments, roots, (*FACTS, *given))]
    if "command" in arguments:
        return Call((*words, f"--command={arguments['command']}"))
    if "text" in arguments:
        name = _file(arguments["filename"], roots) if "filename" in arguments else "ds_config.json"
        return Call((*words, f"--stdin-filename={name}", "-"), str(arguments["text"]))
    return Call((*words, "--", _file(arguments["path"], roots)))


def _on_config(command: str, *fixed: str) -> Callable[[Arguments, Roots], Call]:
    def call(arguments: Arguments, roots: Roots) -> Call:
        path, text = _subject(arguments, roots)
        said = [f"--{name.replace('_', '-')}={arguments[name]}" for name in _WORKLOAD if name in arguments]
        said += [f"--{name}={arguments[name]}" for name in ("limit", "sweep", "network") if name in arguments]
        said += ["--free-batch"] if arguments.get("free_batch") else []
        return Call((command, *fixed, *_options(arguments, roots), *said, "--", path), text)

    return call


def _init(arguments: Arguments, roots: Roots) -> Call:
    names = ("params", "stage", "sequence_length", "micro_batch", "lora_rank")
    said = [f"--{name.replace('_', '-')}={arguments[name]}" for name in names if name in arguments]
    return Call(("init", "--output-format=json", *_options(arguments, roots), *said, "--", "-"))


def _rule(arguments: Arguments, roots: Roots) -> Call:  # noqa: ARG001 - what every tool is called with
    return Call(("rule", f"--key={arguments['key']}") if "key" in arguments else ("rule", "--", str(arguments["rule"])))


def _error(arguments: Arguments, roots: Roots) -> Call:  # noqa: ARG001 - the same
    if not str(arguments["text"]).strip():
        raise Failed("text is empty: pass the error message, or the traceback.")
    return Call(("rule", "--error=-"), str(arguments["text"]))


def _diagnose(arguments: Arguments, roots: Roots) -> Call:
    words = ["diagnose"]
    words += [f"--{name}={_file(arguments[name], roots)}" for name in ("config", "program") if name in arguments]
    words += _options(arguments, roots, ("model",))
    path, text = _subject(arguments, roots)
    return Call((*words, "--", path), text)


def output_schema(command: str) -> Schema:
    """The schema of the JSON output of a command."""
    text = files("dslint.report").joinpath(f"{OUTPUTS[command]}.schema.json").read_text(encoding="utf-8")
    schema: Schema = json.loads(text)
    del schema["$schema"]  # it may be a part of another one
    return schema


def tools() -> tuple[Tool, ...]:
    """All tools, the most useful first."""
    facts = _facts()
    return (
        Tool(
            "check",
            "Check a DeepSpeed config or training setup",
            "Find mistakes in a DeepSpeed config, a training file of a framework (YAML), a launch script, a program or "
            "a launch command, without running it. Call it after every edit of such a file. Each finding has its place, what DeepSpeed "
            "does, what to write instead, and often a fix as edits. Pass the facts that are known (world_size, integration, gpu, model): "
            "more rules run.",
            _object(
                {
                    **_CONFIG,
                    "text": _string("The text of a file, in place of a path. `filename` says what it is."),
                    "filename": _string("The name of the file for `text`: ds_config.json, train.yaml, run.sh, train.py."),
                    "command": _string(
                        'A launch command, in place of a path: "deepspeed --num_gpus 8 train.py --deepspeed ds_config.json".'
                    ),
                    **facts,
                    **{name: _setting(name) for name in ("checkpoint", "env", "pedantic")},
                    **{
                        name: {"type": "array", "items": {"type": "string"}, "description": SETTINGS[name].meaning}
                        for name in ("select", "ignore")
                    },
                },
                one_of=("path", "text", "command"),
            ),
            output_schema("check"),
            _check,
        ),
        Tool(
            "show",
            "Show the effective config",
            "The config that DeepSpeed will use: every value with its origin (written, default, derived, filled by the loader, ignored).",
            _object({**_CONFIG, **facts}, one_of=_EITHER),
            output_schema("show"),
            _on_config("show"),
            has_report=True,
        ),
        Tool(
            "estimate",
            "Estimate the memory of a training",
            "How much GPU and host memory a training with this config needs, and whether it fits. Requires the model (a name such as "
            "llama-3-8b, its config.json, or params) and world_size.",
            _object({**_CONFIG, **facts, **_WORKLOAD, "limit": _string("The memory limit of a GPU, such as 40GiB.")}, one_of=_EITHER),
            output_schema("estimate"),
            _on_config("estimate"),
            has_report=True,
        ),
        Tool(
            "fit",
            "Make a training fit in memory",
            "Changes that make the config fit in the GPU, best first, each as a diff with its costs; or what a config that fits does not "
            "need. Requires the model, world_size, and gpu or limit.",
            _object({**_CONFIG, **facts, **_WORKLOAD, "limit": _string("The memory limit of a GPU, such as 40GiB.")}, one_of=_EITHER),
            output_schema("fit"),
            _on_config("fit"),
            has_report=True,
        ),
        Tool(
            "tune",
            "Find the fastest config that fits",
            "The fastest configs for the setup that fit in memory by estimate and pass `check` (ZeRO stage, micro batch size, activation "
            "checkpointing, offload, ...), each as a diff with its predicted time. Nothing runs. Requires the model, world_size, and gpu.",
            _object(
                {
                    **_CONFIG,
                    **facts,
                    **_WORKLOAD,
                    "limit": _string("The memory limit of a GPU, such as 40GiB."),
                    "network": _string("The network of a machine, such as 8x400Gb/s."),
                    "free_batch": {"type": "boolean", "description": "The number of samples per optimizer step may change."},
                },
                one_of=_EITHER,
            ),
            output_schema("tune"),
            _on_config("tune"),
            has_report=True,
        ),
        Tool(
            "init",
            "Write a starter config",
            "A new DeepSpeed config for a model, a GPU and a number of GPUs: the fastest ZeRO stage and offload at which the model fits. "
            "No file is written; write the answer yourself.",
            _object(
                {
                    **facts,
                    "integration": {
                        "enum": ["transformers", "accelerate", "lightning", "deepspeed"],
                        "description": SETTINGS["integration"].meaning,
                    },
                    **{name: _WORKLOAD[name] for name in ("params", "sequence_length", "micro_batch", "lora_rank")},
                    "stage": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": 3,
                        "description": "The ZeRO stage. Default: the fastest that fits.",
                    },
                },
                required=("integration",),
            ),
            _versioned("The config and its reasons.", config=output_schema("init"), fits={"type": "boolean"}, reasons={"type": "string"}),
            _init,
        ),
        Tool(
            "explain_rule",
            "Explain a rule",
            "What a rule finds, why it matters, what to write instead, with examples; or all rules about a config key.",
            _object(
                {"rule": _string("The code or name of the rule: DS501."), "key": _string("A config key: zero_optimization.offload_param.")},
                one_of=("rule", "key"),
            ),
            output_schema("rule"),
            _rule,
            has_report=True,
        ),
        Tool(
            "explain_error",
            "Explain an error message",
            "The cause of an error message or traceback of a DeepSpeed training, what to do, and the rules behind it.",
            _object({"text": _string("The message, the traceback, or the end of the log.")}, required=("text",)),
            output_schema("rule"),
            _error,
            has_report=True,
        ),
        Tool(
            "diagnose",
            "Diagnose a failed job",
            "Why a job failed, from its log: what ran, how it ended, the first cause with its evidence, and what to change.",
            _object(
                {
                    "path": _string("The log, or a directory with the logs of the ranks. Below the folders of the server."),
                    "text": _string("The text of the log, in place of a path."),
                    "config": _string("The DeepSpeed config of the job, if its log does not print it: a path."),
                    "program": _string("The program, launch script or training YAML of the job: a path."),
                    "model": _setting("model"),
                },
                one_of=_EITHER,
            ),
            output_schema("diagnose"),
            _diagnose,
            has_report=True,
        ),
    )
