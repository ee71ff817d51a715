"""What shows that a setup may leave a part of its model as it is."""

from __future__ import annotations

import re

from dslint.frameworks.registry import named
from dslint.job.arguments import Arguments, SourcedValue
from dslint.job.model import TOWERS, Setup

OFF = (False, 0, None, "0", "", "false", "False", "none", "None")
"""What a flag says that switches something off."""

_FLAG = re.compile(
    r"(?!pretrain_).*(lora|peft|adapter|freeze|frozen|tune_|bits?$|quant|trainable|prompt|prefix|pre_seq_len|p_tuning|ptuning|badam)"
)
"""A flag that begins with `pretrain_` only loads what was trained before: `--pretrain_mm_mlp_adapter`."""
_ARGUMENT = re.compile(r".*?(freeze|frozen|trainable_(?!tokens?$)|badam|pre_seq_len|spectrum_|relora|lisa_)")
"""The same in training arguments, where adapters have arguments that are known."""
_METHOD = re.compile(r"(finetun\w*|train(ing)?|tuner|tuning|sft)_(type|mode|method)|adapter")
"""Arguments whose value is "full" where all weights are trained."""
_SWITCH = re.compile(r"(use_|enable_|with_|train_)?q?lora(_enabled?)?|use_peft(_lora)?")
"""A key of a file that switches adapters on."""
_ON_IN_YAML = ("true", "True", "yes", "on", "1")
_IN_YAML = re.compile(r"""^[ \t]*["']?(\w{1,60})["']?[ \t]*:[ \t]*([^\s#]*)""", re.MULTILINE)
_OFF_IN_YAML = ("false", "False", "null", "~", "0", "no", "[]", '""', "''")


def may_train_part(setup: Setup | None, arguments: Arguments | None) -> str | None:
    """The place of what may leave a part of the model as it is: a flag of the launch, a training argument, or a line of the program."""
    if setup is None:
        return None
    passed = setup.launch.passed if setup.launch is not None else None
    for pattern, values in (
        (_FLAG, passed.flags if passed is not None else {}),
        (_ARGUMENT, arguments.values if arguments is not None else {}),
    ):
        for name, given in values.items():
            is_method = _METHOD.fullmatch(name) is not None and isinstance(given.value, str)
            if (given.value != "full" if is_method else pattern.match(name)) and given.value not in OFF:
                return given.where
    for shown, document in setup.documents.items():
        for key, value in _IN_YAML.findall(document.text) if document.language == "yaml" else ():
            is_given = arguments is not None and _ARGUMENT.match(key) and value not in _OFF_IN_YAML
            if is_given or (_SWITCH.fullmatch(key) and value in _ON_IN_YAML):
                return f"{key} in {shown}"
    program = setup.program
    freezes = program.freezes if program is not None else None
    return freezes.where if freezes is not None and not freezes.value == TOWERS else None  # noqa: SIM201 - UNKNOWN


def trains_all(arguments: Arguments) -> bool:
    """Whether an argument of a framework says that all weights are trained."""
    methods = (given for name, given in arguments.values.items() if _METHOD.fullmatch(name) is not None)
    return named(arguments.framework) is not None and any(given.value == "full" for given in methods)


def freezes_towers(setup: Setup | None) -> SourcedValue | None:
    """What leaves only the encoders of images and sound of a program's model as they are."""
    freezes = setup.program.freezes if setup is not None and setup.program is not None else None
    return freezes if freezes is not None and freezes.value == TOWERS else None
