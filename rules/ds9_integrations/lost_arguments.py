"""DS9: arguments that a launch loses before the program gets them: bash ends the command early, or changes a word of it."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.model import Ending
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.parsers import only_parser

_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'

_ARGUMENTS = {
    Ending.BLANK: "blank",
    Ending.COMMENT_BEHIND: "blank between them",
    Ending.WORDS: "text behind the backslash",
    Ending.RETURN: "carriage return",
}
"""What ends a command, and is its last argument, too."""

_TO_UNIX = "Convert the script to Unix line ends, for example with dos2unix."
_NO_COMMENT = "Remove the comment and the blank: a backslash continues a command only at the end of its line."
_HELP = {
    Ending.BLANK: "Remove the blank.",
    Ending.COMMENT_BEHIND: _NO_COMMENT,
    Ending.WORDS: _NO_COMMENT,
    Ending.RETURN: _TO_UNIX,
    Ending.NO_BACKSLASH: "End the line before it with a backslash.",
}
_FILES = (".json", ".py", ".yaml", ".yml")
_LOSES_CONFIG = " This loses the DeepSpeed config, too."
_SWIFT = "NPROC_PER_NODE=4 \\\n%sswift sft --model m --dataset d --tuner_type lora --deepspeed ds_config.json\n"

_CONTINUED = "deepspeed --num_gpus 4 train.py \\\n  --deepspeed_config ds_config.json \\%s\n  --lr 1e-5\n"


@rule(
    "DS978",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("https://www.gnu.org/software/bash/manual/bash.html#Escape-Character",),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % "\n  # --fp16 \\",
    integration="deepspeed",
    message="A comment line ends the command before --lr: bash starts the training without --lr and what follows it.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % " ",
    integration="deepspeed",
    message="A blank behind the backslash ends the command before --lr: bash starts the training without --lr and what follows it. The blank is an argument, too, which a parser may refuse.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % "  # where the config is",
    integration="deepspeed",
    message="A comment behind the backslash ends the command before --lr: bash starts the training without --lr and what follows it. The blank between them is an argument, too, which a parser may refuse.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % " # where the config is",
    integration="deepspeed",
    message='A "#" one blank behind the backslash ends the command before --lr: bash starts the training without --lr and what follows it. The text behind the backslash is an argument, too, which a parser may refuse.',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % "\n",
    integration="deepspeed",
    message="An empty line ends the command before --lr: bash starts the training without --lr and what follows it.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 4 train.py \\\n  --deepspeed_config ds_config.json\n  --lr 1e-5\n",
    integration="deepspeed",
    message="A missing backslash ends the command before --lr: bash starts the training without --lr and what follows it.",
)
@bad(
    _STAGE_2,
    at="",
    launch=_SWIFT % "\n",
    message="NPROC_PER_NODE=4 is a command of its own: the launch does not get the variable, and may start another number of ranks, unless the variable was exported before the script.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_CONTINUED % "\r",
    integration="deepspeed",
    message="A Windows line end behind the backslash ends the command before --lr: bash starts the training without --lr and what follows it. The carriage return is an argument, too, which a parser may refuse.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 4 train.py --deepspeed_config ds_config.json\r\n",
    integration="deepspeed",
    message='bash passes "ds_config.json\\r", with the carriage return of the Windows line end: there is no file of that name.',
)
@good(_STAGE_2, launch=_SWIFT % "")
@good(BF16_ZERO_2, launch=_CONTINUED % "", integration="deepspeed")
@good(BF16_ZERO_2, launch="deepspeed --num_gpus 4 train.py --deepspeed_config ds_config.json\n\n# --lr 1e-5\n", integration="deepspeed")
def arguments_lost(config: Config) -> Iterator[Finding]:
    """A command that goes over several lines ends before its last arguments, or begins behind its variables.

    A backslash continues a command only as the last character of its line. With a blank or a comment behind it, before an empty line and
    before a comment line, and where it is missing, bash ends the command there. It starts the training without the arguments in the lines
    that follow, and then reports "command not found" for them, once the training is over. The blank itself is an argument, and a "#" next
    to it begins no comment, so that its words are arguments, too: argparse and transformers' HfArgumentParser refuse them, and the job ends
    before the training. A launcher whose command ends before the program gets the blank as its program, or none, and ends with an error.

    Variables before a command are given to it only if they belong to it: `NPROC_PER_NODE=8` on a line of its own, or before an empty line,
    sets a variable of the script, which the command gets only if it is exported.

    In single quotes a backslash is a character like others, and so is one with a blank behind it in a here-document: a variable with such a
    text passes it to the program as an argument, which a parser refuses.

    A script with Windows line ends breaks in the same way: bash takes the carriage return before each line end for a character of the last
    word, and a backslash before it continues nothing.

    Remove the blank, the empty line or the comment, or add the backslash. Write `export` before a variable. Convert a script from Windows to
    Unix line ends.
    """
    launch = config.setup.launch if config.setup else None
    if launch is not None and launch.lost is not None:
        lost = launch.lost
        ending: Ending = lost.value
        before = f"{ending.value[0].upper()}{ending.value[1:]} ends the command before {lost.name}: bash starts"
        argument = _ARGUMENTS.get(ending)
        parser = only_parser(config.setup.program) if argument is not None and config.setup and config.setup.program else None
        crashes = launch.without_program or parser is not None
        refused = ""
        if parser is not None and not launch.without_program:
            refused = f" The {argument} is an argument, too, and {parser.who} refuses it: each rank ends with {parser.ends_with('')}."
        elif argument is not None and not launch.without_program:
            refused = f" The {argument} is an argument, too, which a parser may refuse."
        what = launch.launcher if launch.without_program else "the training"
        config_too = _LOSES_CONFIG if launch.loses_config else ""
        yield Finding(
            "",
            f"{before} {what} without {lost.name} and what follows it.{config_too}{refused}",
            help=_HELP.get(ending, "Remove it, so that the backslash before it continues the command."),
            elsewhere=lost.related(""),
            effect=Effect.CRASH if crashes else None,
            phase=Phase.LOAD if crashes else None,
        )
    if launch is not None and launch.backslash is not None:
        yield Finding(
            "",
            "A backslash is an argument of the command: in single quotes, or with a blank behind it, it continues no line. A parser may refuse "
            'it: "error: unrecognized arguments: \\".',
            help="Remove the backslashes from the text in quotes, and the blank behind one.",
            elsewhere=launch.backslash.related(""),
            effect=Effect.CRASH,
            phase=Phase.LOAD,
            certain=False,
        )
    if launch is not None and launch.with_return is not None and str(launch.with_return.value).endswith(_FILES):
        last = launch.with_return
        yield Finding(
            "",
            f'bash passes "{last.value}\\r", with the carriage return of the Windows line end: there is no file of that name.',
            help=_TO_UNIX,
            elsewhere=last.related(""),
            effect=Effect.CRASH,
            phase=Phase.LOAD,
        )
    if launch is not None and launch.unexported is not None:
        variable = launch.unexported
        yield Finding(
            "",
            f"{variable.name}={variable.raw} is a command of its own: the launch does not get the variable, and may start another number of "
            "ranks, unless the variable was exported before the script.",
            help=f"Write export {variable.name}={variable.raw}, or put it directly before the command.",
            elsewhere=variable.related(""),
            certain=False,
        )
