"""DS9: the flags that a launcher passes to a program, and those that its parser knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.evaluate.python.words import WORDS_PARSED
from dslint.facts import Release
from dslint.frameworks.base import Framework
from dslint.frameworks.registry import named, of_arguments
from dslint.job.arguments import SourcedValue
from dslint.job.events import MISSING_ARGUMENT, PARSED_VALUES
from dslint.job.model import Launch, PassedOn, Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.parsers import Parser, ParserKind, hydras_parser, only_command, only_parser
from dslint.rules.helpers.project import programs_of
from dslint.setups.command import CONFIG_FLAGS
from dslint.setups.project import project_of
from dslint.source.similar import MANY, similar

_PROGRAM = (
    "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\n"
    "%sparser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)\n"
)
_COMMAND = (
    'import click\nimport deepspeed\n@click.command()\n@click.option("--lr", type=float)\n%sdef main(**options):\n'
    "    deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\nmain()\n"
)
_TYPER = (
    "import transformers\nimport typer\napp = typer.Typer()\n\n@app.command()\ndef main(data: str%s):\n"
    "    transformers.Trainer(model, transformers.TrainingArguments('out')).train()\napp()\n"
)
_HYDRA = (
    'import deepspeed\nimport hydra\n@hydra.main(version_base="1.3", config_path="conf", config_name="base")\ndef main(cfg):\n'
    "    deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\nmain()\n"
)
_REQUIRES = (
    'parser.add_argument("--local_rank", type=int)\nparser.add_argument("--epochs", type=int)\n'
    'parser.add_argument("--mode", choices=["full", "lora"], required=True)\n'
)
_CLOSE = 0.8
_STAGE_2 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
_CLASSES = (
    "import dataclasses, transformers\n@dataclasses.dataclass\nclass Script:\n    model: str = 'm'\n    use_lora: bool = False\n    bf16: bool = True\n"
    "args = transformers.HfArgumentParser(Script).parse_args_into_dataclasses()[0]\n"
    "transformers.Trainer(model, transformers.TrainingArguments('out')).train()\n"
)
_LLAMA_FACTORY = (
    "stage: sft\nmodel_name_or_path: m\ndataset: d\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\ndeepspeed: ds_config.json\n"
)
_FROM_FILE = (
    "import json\nimport deepspeed\nimport sys\n%s\n"
    "engine, *_ = deepspeed.initialize(model=Net(options), optimizer=optimizer, config='ds_config.json')\n"
)
_OLD_SWIFT = "deepspeed --num_gpus 4 train.py --model_type qwen-7b-chat --dataset d --deepspeed ds_config.json\n"
_SWIFT_SCRIPT = "from swift.llm import sft_main\nif __name__ == '__main__':\n    sft_main()\n"
_LAUNCH = "deepspeed --num_gpus 4 %strain.py --deepspeed_config ds_config.json\n"
_OF_TORCH = "python -m torch.distributed.launch --nproc_per_node 4 %strain.py\n"
_RANK = 'parser.add_argument("--local_rank", type=int)\n'


@rule(
    "DS973",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.PARSER,
    watches=("setup",),
    references=(
        'deepspeed/launcher/launch.py, main: cmd.append(f"--local_rank={local_rank}")',
        "deepspeed/launcher/multinode_runner.py: only PDSHRunner.get_cmd starts launch.py",
        "https://github.com/huggingface/trl/issues/596",
    ),
    untried="raised by the parser of the program, before the engine exists",
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "",
    program=_PROGRAM % "",
    integration="deepspeed",
    message='The deepspeed launcher passes --local_rank, and the parser of train.py:5 does not know it: each rank ends with "error: unrecognized arguments: --local_rank=0", with its own number.',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 4 train.py --lr 1e-4\n",
    program=_COMMAND % "",
    integration="deepspeed",
    message='The deepspeed launcher passes --local_rank, and the parser of train.py:3 does not know it: each rank ends with "No such option: --local_rank".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 4 train.py lr=1e-4\n",
    program=_HYDRA,
    integration="deepspeed",
    message='The deepspeed launcher passes --local_rank, and Hydra\'s parser, which runs the function of train.py:3, does not know it: each rank ends with "error: unrecognized arguments: --local_rank=0", with its own number.',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="torchrun --nproc_per_node 4 train.py --deepspeed_config ds_config.json lr=1e-4\n",
    program=_HYDRA,
    integration="deepspeed",
    message='Hydra\'s parser, which runs the function of train.py:3, has no flag --deepspeed_config: each rank ends with "error: unrecognized arguments: --deepspeed_config".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="torchrun --nproc_per_node 4 train.py corpus --deepspeed ds_config.json\n",
    program=_TYPER % "",
    integration="transformers",
    message='The parser of train.py:5 has no flag --deepspeed: each rank ends with "No such option: --deepspeed".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="torchrun --nproc_per_node 4 train.py --deepspeed ds_config.json\n",
    program=_TYPER.replace("@app.command()\n", "").replace("app()", "fire.Fire(main)").replace("typer\n", "typer\nimport fire\n") % "",
    integration="transformers",
    message='Fire, which calls the function that train.py:8 gives it, has no flag --deepspeed: each rank ends with "Could not consume arg: --deepspeed", after the function has run without it.',
)
@good(
    BF16_ZERO_2,
    launch="torchrun --nproc_per_node 4 train.py corpus --deepspeed ds_config.json\n",
    program=_TYPER % ", deepspeed: str = None",
    integration="transformers",
)
@good(BF16_ZERO_2, launch="deepspeed --num_gpus 4 --no_local_rank train.py lr=1e-4\n", program=_HYDRA, integration="deepspeed")
@good(BF16_ZERO_2, launch="torchrun --nproc_per_node 4 train.py --config-name=large lr=1e-4\n", program=_HYDRA, integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 4 train.py lr=1e-4\n",
    program="import sys\nsys.argv = [one for one in sys.argv if not one.startswith('--local_rank')]\n" + _HYDRA,
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 4 train.py lr=1e-4\n",
    program="from sys import argv\nfor one in list(argv):\n    if one.startswith('--local_rank'):\n        argv.remove(one)\n" + _HYDRA,
    integration="deepspeed",
)
@bad(
    _STAGE_2,
    at="",
    training=_LLAMA_FACTORY,
    launch="deepspeed --num_gpus 4 src/train.py train.yaml\n",
    message="The deepspeed launcher passes --local_rank before train.yaml, and LLaMA-Factory reads a YAML file only as the first argument: each rank may end with an error about missing or unknown arguments.",
)
@bad(
    _STAGE_2,
    at="",
    training=_LLAMA_FACTORY,
    launch="deepspeed --num_gpus 4 train.py train.yaml\n",
    program="from llamafactory.train.tuner import run_exp\nif __name__ == '__main__':\n    run_exp()\n",
    message="The deepspeed launcher passes --local_rank before train.yaml, and LLaMA-Factory reads a YAML file only as the first argument: each rank may end with an error about missing or unknown arguments.",
)
@good(
    _STAGE_2,
    training=_LLAMA_FACTORY,
    launch="deepspeed --num_gpus 4 train.py train.yaml\n",
    program="import sys\nfrom llamafactory.train.tuner import run_exp\n"
    "sys.argv = [one for one in sys.argv if not one.startswith('--local_rank')]\nrun_exp()\n",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed --num_gpus 4 train.py options.json\n",
    program=_FROM_FILE % "with open(sys.argv[1]) as file:\n    options = json.load(file)",
    integration="deepspeed",
    message="The deepspeed launcher passes --local_rank before the arguments of the program, and train.py:4 reads it as the path of a file: each rank raises \"No such file or directory: '--local_rank=0'\".",
)
@good(
    BF16_ZERO_2,
    launch="torchrun --nproc_per_node 4 train.py options.json\n",
    program=_FROM_FILE % "options = json.load(open(sys.argv[1]))",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 4 train.py options.json\n",
    program=_FROM_FILE % "options = json.load(open(sys.argv[-1]))",
    integration="deepspeed",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH.replace(" --deep", " --mode full --epoch 3 --learning_rate 1e-4 --deep") % "",
    program=_PROGRAM % _REQUIRES,
    integration="deepspeed",
    message='The parser of train.py:8 has no flag --learning_rate: each rank ends with "error: unrecognized arguments: --learning_rate".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH.replace(" --deep", " --mode full --rounds 3 --colour red --deep") % "",
    program=_PROGRAM % (_REQUIRES + "parser.add_argument('--local_rank', type=int)\n"),
    integration="deepspeed",
    message='The parser of train.py:9 has no flags --rounds and --colour: each rank ends with "error: unrecognized arguments: --rounds".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="torchrun --nproc_per_node 4 train.py --deepspeed ds_config.json --use-lora --no_bf16\n",
    program=_CLASSES,
    integration="transformers",
    message='The parser of train.py:7 has no flag --deepspeed: each rank ends with ValueError "Some specified arguments are not used by the HfArgumentParser".',
)
@good(
    BF16_ZERO_2,
    launch="torchrun --nproc_per_node 4 train.py --deepspeed ds_config.json --use-lora --no_bf16\n",
    program=_CLASSES.replace("(Script)", "((Script, transformers.TrainingArguments))"),
    integration="transformers",
)
@good(
    BF16_ZERO_2,
    launch="torchrun --nproc_per_node 4 train.py --deepspeed ds_config.json --use-lora --no_bf16\n",
    program=_CLASSES.replace("classes()", "classes(return_remaining_strings=True)"),
    integration="transformers",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH.replace(" --deep", " --mode quick --deep") % "",
    program=_PROGRAM % _REQUIRES,
    integration="deepspeed",
    message="--mode quick: the parser of train.py:8 ends each rank with \"error: argument --mode: invalid choice: 'quick'\".",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "",
    program=_PROGRAM % _REQUIRES,
    integration="deepspeed",
    message='train.py is launched without --mode: the parser of train.py:8 ends each rank with "error: the following arguments are required: --mode".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "",
    program=_PROGRAM % (_REQUIRES + "parser.add_argument('--data', '-d', required=True)\n"),
    integration="deepspeed",
    message='train.py is launched without --mode and --data: the parser of train.py:9 ends each rank with "error: the following arguments are required: --mode, --data/-d".',
)
@good(
    BF16_ZERO_2,
    deepspeed="0.9.5",
    launch="mpirun -np 4 python train.py --deepspeed_mpi --deepspeed --deepspeed_config ds_config.json\n",
    program=_PROGRAM % "",
    integration="deepspeed",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="mpirun -np 4 python train.py --deepspeed_mpi --deepspeed --deepspeed_config ds_config.json\n",
    program=_PROGRAM % "",
    integration="deepspeed",
    message='The parser of train.py:5 has no flag --deepspeed_mpi: each rank ends with "error: unrecognized arguments: --deepspeed_mpi".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH.replace(" --deep", " --deepspeed --deep") % "",
    program="import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\n"
    + _RANK
    + "args = parser.parse_args()\nengine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())\n",
    integration="deepspeed",
    message='The parser of train.py:5 has no flags --deepspeed and --deepspeed_config: each rank ends with "error: unrecognized arguments: --deepspeed".',
)
@good(
    BF16_ZERO_2,
    launch=_LAUNCH.replace(" --deep", " --mode lora --epochs 3 --deep") % "",
    program=_PROGRAM % _REQUIRES,
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 4 train.py --lr 1e-4\n",
    program=_COMMAND % '@click.option("--local_rank", type=int)\n',
    integration="deepspeed",
)
@good(_STAGE_2, training=_LLAMA_FACTORY, launch="torchrun --nproc_per_node 4 src/train.py train.yaml\n")
@good(_STAGE_2, training=_LLAMA_FACTORY, launch="deepspeed --num_gpus 4 --no_local_rank src/train.py train.yaml\n")
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_PROGRAM % 'parser.add_argument("--local_rank", type=int)\n', integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch="deepspeed --force_multi --launcher OpenMPI train.py --deepspeed --deepspeed_config ds_config.json\n",
    program=_PROGRAM % "",
    integration="deepspeed",
)
@bad(
    _STAGE_2,
    at="",
    launch=_OLD_SWIFT,
    program=_SWIFT_SCRIPT,
    message='The deepspeed launcher does not set LOCAL_WORLD_SIZE, which ms-swift before 3.0 reads: each rank takes the 4 GPUs of its machine for its own, and may raise "DeepSpeed is not compatible with MP.".',
)
@good(_STAGE_2, launch=_OLD_SWIFT, program=_SWIFT_SCRIPT, pins={"ms-swift": Release(3, 0, 0)})
@good(_STAGE_2, launch=_OLD_SWIFT.replace("--model_type", "--model"), program=_SWIFT_SCRIPT)
@good(_STAGE_2, launch=_OLD_SWIFT.replace("deepspeed --num_gpus 4", "torchrun --nproc_per_node 4"), program=_SWIFT_SCRIPT)
@good(_STAGE_2, launch=_OLD_SWIFT.replace("gpus 4", "gpus 1"), program=_SWIFT_SCRIPT)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_OF_TORCH % "",
    program=_PROGRAM % _RANK,
    integration="deepspeed",
    pins={"torch": Release(2, 3, 0)},
    message='torch.distributed.launch passes --local-rank, and the parser of train.py:6 does not know it: each rank ends with "error: unrecognized arguments: --local-rank=0", with its own number.',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_OF_TORCH % "",
    program=_PROGRAM % _RANK,
    integration="deepspeed",
    message='torch.distributed.launch since PyTorch 2.0 passes --local-rank, and the parser of train.py:6 does not know it: each rank ends with "error: unrecognized arguments: --local-rank=0", with its own number.',
)
@good(BF16_ZERO_2, launch=_OF_TORCH % "--use_env ", program=_PROGRAM % _RANK, integration="deepspeed")
@good(BF16_ZERO_2, launch=_OF_TORCH % "", program=_PROGRAM % _RANK, integration="deepspeed", pins={"torch": Release(1, 13, 1)})
@good(BF16_ZERO_2, launch=_OF_TORCH % "", program=_PROGRAM % _RANK.replace("(", '("--local-rank", ', 1), integration="deepspeed")
@good(
    BF16_ZERO_2, launch=(_OF_TORCH % "").replace("distributed.launch", "distributed.run"), program=_PROGRAM % _RANK, integration="deepspeed"
)
@good(
    BF16_ZERO_2, launch=_OF_TORCH % "", program=(_PROGRAM % _RANK).replace("parse_args()", "parse_known_args()[0]"), integration="deepspeed"
)
@good(BF16_ZERO_2, launch=_LAUNCH % "--no_local_rank ", program=_PROGRAM % "", integration="deepspeed")
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_PROGRAM.replace("parse_args()", "parse_known_args()[0]") % "", integration="deepspeed")
def arguments_not_parsed(config: Config) -> Iterator[Finding]:
    """The program's parser does not know an argument that it gets, or lacks one that it requires.

    The launcher `deepspeed` starts each rank with `--local_rank=N` among its arguments. A parser without that flag ends each rank with
    "error: unrecognized arguments: --local_rank=0"; transformers' HfArgumentParser raises ValueError "Some specified arguments are not used by
    the HfArgumentParser". LLaMA-Factory reads a YAML file only if it is the first argument of the program, and the launcher puts its flag first;
    so does a program that reads its arguments from the file `sys.argv[1]`, or only if `len(sys.argv) == 2`. ms-swift before 3.0 has no such
    argument, and raises.

    The same parser ends each rank for a flag of the launch that it does not know, for a value that it cannot read or that is not among its
    choices, and without a flag that it requires. click, typer and tyro know the parameters of one function or class, and end the program for
    any other flag. Fire calls the function without such a flag, and complains of it when the training is over. Hydra's parser knows no flags
    but its own: what a program of Hydra takes is written as `key=value`.

    A parser with the flag `--local-rank` does not know `--local_rank`. Megatron's `arguments.py` has only the one with a dash in some forks.

    Add `parser.add_argument("--local_rank", type=int, default=-1)`, or a field `local_rank` to the dataclass, or launch with `--no_local_rank`.
    Correct the flags of the launch, or those of the parser.
    """
    program = config.setup.program if config.setup else None
    launch = config.setup.launch if config.setup else None
    if launch is None:
        return
    if program is not None and launch.passed is not None:
        yield from _of_launch(config, program, launch, launch.passed)
    if _passes_rank(launch):
        yield from _rank_by_framework(config, launch)
        yield from _rank_by_script_of_swift(config, launch)
        if program is not None:
            yield from _rank_as_word(program)
            yield from _rank_by_parser(program)
            yield from _rank_by_other_file(program, launch)
    elif launch.passes_torch_rank and program is not None and not launch.may_hold_more:
        yield from _rank_of_torch(config, program)


_WITHOUT_RANK = "Launch with --no_local_rank, or with torchrun."


def _passes_rank(launch: Launch) -> bool:
    """Whether the launcher puts --local_rank before the arguments of the program."""
    if launch.launcher != "deepspeed" or "no_local_rank" in launch.flags:
        return False
    across = launch.flags.get("launcher")
    return across is None or str(across.value).lower() == "pdsh"  # on several machines mpirun or srun starts the program itself


def _rank_by_framework(config: Config, launch: Launch) -> Iterator[Finding]:
    """What a framework that reads the arguments says of --local_rank."""
    arguments, framework = config.arguments, of_arguments(config.arguments)
    if arguments is None or framework is None:
        return
    is_file = arguments.path.endswith((".yaml", ".yml")) and (
        config.setup is None or config.setup.program is None or _is_of_framework(config, framework)
    )
    elsewhere = launch.given.related("") if launch.given is not None else None
    if framework.file_comes_first and is_file:
        yield Finding(
            "",
            f"The deepspeed launcher passes --local_rank before {arguments.path}, and {arguments.framework} reads a YAML file only as the first "
            "argument: each rank may end with an error about missing or unknown arguments.",
            help=_WITHOUT_RANK,
            elsewhere=elsewhere,
            certain=False,
        )
    if framework.refuses_rank is not None:
        release = config.context.pinned(framework.packages[0])
        if framework.refuses_rank(arguments, release):
            yield _of_older_swift(config, launch, framework, f"{framework.name} {release or 'before 3.0'}")._replace(elsewhere=elsewhere)


_SWIFT_MAIN = re.compile(r"^\s*from swift\.llm import [^\n]*\b(?:sft|rlhf|pt)_main\b", re.MULTILINE)
"""What a script that only starts the training of ms-swift imports: releases before 4.0 have it."""


def _rank_by_script_of_swift(config: Config, launch: Launch) -> Iterator[Finding]:
    """A script that calls `sft_main` of ms-swift, with flags that do not tell the release: 3.0 and later require --model."""
    framework, release = named("ms-swift"), config.context.pinned("ms-swift")
    is_old = release is not None and release < _READS_LOCAL_SIZE
    if (release is not None and not is_old) or launch.passed is None or of_arguments(config.arguments) is framework:
        return
    named_by = launch.passed.flags.keys() | ({"model"} if not launch.passed.complete else set())
    if named_by & {"model", "train_type", "tuner_type", "adapters", "load_args"} or not any(map(_SWIFT_MAIN.search, programs_of(config))):
        return
    ranks, machines = launch.world_size, launch.nodes or 1
    if framework is None or "deepspeed" not in named_by or ranks is None or ranks // machines < 2:
        return
    which = f"ms-swift {release}" if is_old else "ms-swift before 3.0"
    yield Finding(
        "",
        f"The deepspeed launcher does not set LOCAL_WORLD_SIZE, which {which} reads: each rank takes the {ranks // machines} GPUs of its machine "
        f'for its own, and may raise "{framework.spread_error} MP.".',
        help="Launch with torchrun." if is_old else "Launch with torchrun, or use ms-swift 3.0 or later.",
        elsewhere=launch.passed.program.related(""),
        certain=False,
    )


_READS_LOCAL_SIZE = Release(3, 0, 0)
"""The first release of ms-swift that reads LOCAL_SIZE, which the deepspeed launcher sets."""


def _of_older_swift(config: Config, launch: Launch, framework: Framework, name: str) -> Finding:
    """What ms-swift before 3.0 says of the deepspeed launcher. It looks at the GPUs before it refuses arguments that it does not know.

    Sources: swift/llm/utils/argument.py, SftArguments.__post_init__, and swift/utils/torch_utils.py, is_mp, of 2.6.1; since 3.0 it also reads
    LOCAL_SIZE, which the launcher sets.
    """
    ranks, machines = launch.world_size, launch.nodes or 1
    if config.setup is not None and config.setup.link is not None and ranks is not None and ranks // machines > 1:
        return Finding(
            "",
            f"The deepspeed launcher does not set LOCAL_WORLD_SIZE, which {name} reads: each rank takes the {ranks // machines} GPUs of its machine for "
            f'its own, and raises "{framework.spread_error} MP.".',
            help="Launch with torchrun.",
        )
    return Finding(
        "",
        f"The deepspeed launcher passes --local_rank, and {name} does not know it: each rank raises "
        f'ValueError "{framework.refuses_flag.format(name="local_rank=0")}".',
        help=_WITHOUT_RANK if ranks == 1 else "Launch with torchrun.",
    )


def _is_of_framework(config: Config, framework: Framework) -> bool:
    """Whether the program only starts a framework, as `src/train.py` of a cloned LLaMA-Factory, and leaves the words as they are."""
    program, texts = config.setup.program if config.setup else None, programs_of(config)
    if program is None or any(program.events.of(re.escape(WORDS_PARSED))) or any(_CHANGES_WORDS.search(text) for text in texts):
        return False  # `_rank_as_word` reports the first
    packages = "|".join(map(re.escape, framework.packages))
    return any(re.search(rf"(?m)^[ \t]*(?:from|import)[ \t]+(?:{packages})\b", text) for text in texts)


def _rank_by_parser(program: Program) -> Iterator[Finding]:
    """What the parser of a program says of --local_rank."""
    readers = (only_parser(program) or only_command(program), hydras_parser(program))
    parser = next((one for one in readers if one is not None and not one.knows("--local_rank")), None)
    if parser is None or parser.kind is ParserKind.FIRE:  # which complains of it only when the training is over
        return
    given = "--local_rank" if parser.kind is ParserKind.CLICK else "--local_rank=0"
    adds = parser.adds("local_rank")
    yield Finding(
        "",
        f"The deepspeed launcher passes --local_rank, and {parser.who} does not know it: each rank ends with {_of_each_rank(parser, given)}.",
        help=f"{adds}, or launch with --no_local_rank." if adds else _WITHOUT_RANK,
        elsewhere=parser.call.at.related(""),
    )


def _of_each_rank(parser: Parser, given: str) -> str:
    """With what a parser ends each rank for the flag with its number."""
    ends = parser.ends_with(given)
    return f"{ends}, with its own number" if given.endswith("=0") and given in ends else ends


def _rank_of_torch(config: Config, program: Program) -> Iterator[Finding]:
    """What the parser of a program says of the rank that `torch.distributed.launch` passes: with a dash since PyTorch 2.0.

    Source: torch/distributed/run.py, config_from_args.
    """
    parser, torch = only_parser(program), config.context.pinned("torch")
    flag = "--local_rank" if torch is not None and torch < Release(2, 0, 0) else "--local-rank"
    if parser is None or parser.kind is not ParserKind.ARGPARSE or parser.knows(flag):
        return
    since = "" if torch is not None else "since PyTorch 2.0 "
    yield Finding(
        "",
        f"torch.distributed.launch {since}passes {flag}, and {parser.who} does not know it: "
        f"each rank ends with {_of_each_rank(parser, f'{flag}=0')}.",
        help='Write parser.add_argument("--local-rank", "--local_rank", type=int), or launch with torchrun, and read LOCAL_RANK.',
        elsewhere=parser.call.at.related(""),
        certain=torch is not None,
    )


def _rank_by_other_file(program: Program, launch: Launch) -> Iterator[Finding]:
    """What a parser says of --local_rank that the program imports and that could not be followed, as Megatron's `arguments.py`.

    It adds `--local-rank`, the spelling of torchrun since PyTorch 2.0.
    """
    if launch.passed is None or program.reads_words or any((only_parser(program), only_command(program), hydras_parser(program))):
        return
    place = project_of(program.path).parser_without("--local_rank", program.path)
    if place is not None:
        yield Finding(
            "",
            f"The deepspeed launcher passes --local_rank, and {place} adds only --local-rank: each rank may end with "
            '"error: unrecognized arguments: --local_rank=0", with its own number.',
            help='Write add_argument("--local-rank", "--local_rank", ...), or launch with --no_local_rank.',
            elsewhere=(launch.given or launch.passed.program).related(""),
            certain=False,
        )


_CHANGES_WORDS = re.compile(r"sys\.argv\s*(\[[^\]]*\]\s*)?\+?=(?!=)|sys\.argv\.\w+\(|del sys\.argv|fromfile_prefix_chars|allow_abbrev")
_IN_CHANGES = ("sys.argv", "fromfile_prefix", "allow_abbrev")
"""What changes the arguments before a parser reads them, or how it reads them."""


def _of_launch(config: Config, program: Program, launch: Launch, passed: PassedOn) -> Iterator[Finding]:
    """What argparse says of the flags of a launch, as long as nothing else may add to them or to the parser.

    It ends with its first error: it reads the values of flags, then looks for required ones, then complains of unknown ones.
    """
    documents = config.setup.documents.values() if config.setup else ()
    texts = (one.text for one in documents if one.language == "python" and any(word in one.text for word in _IN_CHANGES))
    if "" in passed.flags or any(_CHANGES_WORDS.search(text) for text in texts):
        return
    unknown: list[Finding] = []
    for parser in (only_parser(program), only_command(program), hydras_parser(program)):
        of_trl = parser is not None and parser.kind is ParserKind.CLASSES and "parse_args_into_dataclasses" not in parser.call.at.raw
        if parser is not None and not parser.call.flow and not of_trl:  # which also takes the flags of a file
            unknown += _unknown_flags(parser, passed, config.release)
    refused = list(_refused_flags(program, launch, passed))
    yield from refused[:1]
    yield from map(_behind_another, [*refused[1:], *(unknown if refused else ())])
    yield from () if refused else unknown


def _behind_another(finding: Finding) -> Finding:
    """What argparse says only when an error before it is corrected."""
    return finding._replace(message=_ENDS.sub(r"\1, once the error before it is corrected,", finding.message, count=1))


_ENDS = re.compile(r"(ends each rank|each rank ends)")


def _refused_flags(program: Program, launch: Launch, passed: PassedOn) -> Iterator[Finding]:
    """The flags of a launch whose values argparse refuses, and those that it misses, in the order in which it does so."""
    refusing = [one for one in program.events.of(r"(argparse\.ArgumentParser|transformers\.HfArgumentParser)\.refusals") if not one.flow]
    refused = refusing[0] if len(refusing) == 1 and refusing[0].certain else None
    if refused is None:
        return
    missing: dict[str, list[str]] = {}
    given = [(passed.flags.get(flag.lstrip("-").replace("-", "_")), flag, message) for flag, message in refused.arguments.items()]
    for found, flag, message in sorted(given, key=lambda one: one[0].range.start.offset if one[0] and one[0].range else 0):
        if found is None:
            required = str(message.value).partition("required: ")[2]
            missing |= {flag: required.split(", ")} if required else {}
            continue
        takes_none = str(message.value).startswith("unrecognized")  # argparse says `--flag=1` in other words
        error = f"an error, because {flag} takes no value" if takes_none else f'"error: {message.value}"'
        yield Finding(
            "",
            f"{found.shown}: the parser of {refused.at.where} ends each rank with {error}.",
            help=f"Correct {flag}.",
            elsewhere=found.related(""),
            related=(refused.at.related("parsed here"),),
        )
    if not missing or launch.lost is not None or not passed.complete:
        return  # DS978, or a variable of the environment may hold the flag
    flags = " and ".join(filter(None, (", ".join([*missing][:-1]), [*missing][-1])))
    names = ", ".join(dict.fromkeys(name for one in missing.values() for name in one))
    yield Finding(
        "",
        f"{passed.program.raw} is launched without {flags}: the parser of {refused.at.where} ends each rank with "
        f'"error: the following arguments are required: {names}".',
        help=f"Add {flags} to the launch.",
        elsewhere=passed.program.related(""),
        related=(refused.at.related("parsed here"),),
    )


_WITHOUT_MPI = Release(0, 13, 1)
"""The first release whose `deepspeed.add_config_arguments` has no `--deepspeed_mpi`. Source: deepspeed/__init__.py, _add_core_arguments."""


def _unknown_flags(parser: Parser, passed: PassedOn, release: Release) -> Iterator[Finding]:
    """The flags of a launch that a parser does not know. It takes the beginning of a name, too."""
    known = [*parser.call.arguments, "--help"]
    if "--deepscale_config" in known and release < _WITHOUT_MPI:
        known.append("--deepspeed_mpi")
    compared, strange, of_config = 0, list[SourcedValue](), list[SourcedValue]()
    for given in passed.flags.values():
        if not given.name.startswith("--") or parser.knows(given.name) or "--help".startswith(given.name):
            continue
        if "--deepspeed_mpi" in known and "--deepspeed_mpi".startswith(given.name):
            continue
        if parser.kind is ParserKind.CLASSES and any(flag.startswith(_as_field(given.name)) for flag in known):
            continue
        meant = next(iter(similar(given.name, known, cutoff=_CLOSE)), None) if compared < MANY else None
        compared += 1
        may_be_required = meant is not None and meant.replace("-", "_") == given.name.replace("-", "_")  # argparse says that first
        if meant is None and not _names_config(parser, given.name):
            strange.append(given)
            continue
        if meant is None:
            of_config.append(given)
            continue
        error = "an error" if may_be_required else parser.ends_with(given.name)
        yield _unknown(parser, f" {given.name}", error, f"Write {meant}.", [given])
    if of_config:
        names = [one.name for one in of_config]
        takes_words = len(names) > 1 or not of_config[0].raw  # --deepspeed is without a value
        is_own = parser.kind is ParserKind.ARGPARSE and takes_words and {*names} <= {"--deepspeed", "--deepspeed_config"}
        advice = f"{parser.adds(names[0].lstrip('-'))}, and pass its value on as the config."
        if is_own:
            advice = (
                f"Call deepspeed.add_config_arguments(parser), which adds {_listed(names)}, and pass the arguments to deepspeed.initialize."
            )
        yield _unknown(parser, _listed_flags(names), parser.ends_with(names[0]), advice, of_config)
    if strange:  # one error names them all
        names = [one.name for one in strange]
        flags, them = ("flags", "them") if names[1:] else ("flag", "it")
        advice = f"Remove the {flags}, or add {them} to the parser." if parser.adds("") else f"Remove the {flags}."
        yield _unknown(parser, _listed_flags(names), parser.ends_with(names[0]), advice, strange)


def _listed_flags(names: list[str]) -> str:
    return f"s {_listed(names)}" if names[1:] else f" {names[0]}"


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]


def _unknown(parser: Parser, names: str, error: str, advice: str, given: list[SourcedValue]) -> Finding:
    """The finding for flags of a launch that a parser does not know."""
    first, *others = given
    return Finding(
        "",
        f"{parser.who[0].upper()}{parser.who[1:]} has no flag{names}: each rank ends with {error}.",
        help=advice,
        elsewhere=first.related(""),
        related=(*(one.related("not known, either") for one in others), parser.call.at.related("parsed here")),
    )


def _names_config(parser: Parser, flag: str) -> bool:
    """Whether a flag that a parser does not know names the config: it is meant to reach DeepSpeed, and the parser could have it."""
    name = flag.lstrip("-")
    return name in ("deepspeed", *CONFIG_FLAGS) and bool(parser.adds(name))


def _as_field(flag: str) -> str:
    """The flag of the field that a flag of HfArgumentParser sets, which also makes `--no_x`, `--x-y` and `--no-x-y` of fields."""
    return re.sub(r"^--no_", "--", "--" + flag[2:].replace("-", "_"))


def _rank_as_word(program: Program) -> Iterator[Finding]:
    """A program that reads its arguments from a file, whose path it takes from the command line by its position."""
    for call in program.events.of(re.escape(WORDS_PARSED)):
        path, words = call.argument("path"), [one.value for name, one in call.arguments.items() if name != "path"]
        refused = words[1:]
        if not call.certain or call.handled or (path is None and (words[:1] != ["--local_rank=0"] or not refused)):
            continue
        if path is not None:
            then = f"{call.at.where} reads it as the path of a file: each rank raises \"No such file or directory: '--local_rank=0'\""
        else:
            then = (
                f"{call.at.where} parses the words of the command instead of a file: each rank ends with "
                f'"Some specified arguments are not used by the HfArgumentParser: {refused}", or an error about missing arguments'
            )
        yield Finding(
            "",
            f"The deepspeed launcher passes --local_rank before the arguments of the program, and {then}.",
            help=f"{_WITHOUT_RANK[:-1]}, or read the path from sys.argv[-1].",
            elsewhere=call.at.related(""),
        )
        return


_READS = (
    "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--local_rank", type=int, default=-1)\nparser.add_argument("--lora", action="store_true")\n'
    "%sparser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\n%s"
    "engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)\n"
)
_BEHIND_FLAG = 'if parser.parse_known_args()[0].lora:\n    parser.add_argument("--rank", type=int, default=8)\n'
_READS_RANK = "model = adapt(model, args.rank)\n"


@rule(
    "DS944",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.PARSER,
    watches=("setup",),
    references=(
        "https://docs.python.org/3/library/argparse.html#the-namespace-object",
        "https://github.com/kohya-ss/sd-scripts/issues/1288",
        "https://github.com/OpenRLHF/OpenRLHF/issues/1083",
    ),
    untried="raised by the program itself; tests/setup asks Python",
    anywhere=True,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "",
    program=_READS % ("", _READS_RANK),
    integration="deepspeed",
    message="train.py:8 reads args.rank, and nothing sets this argument: the parser does not add it, so each rank raises AttributeError \"'Namespace' object has no attribute 'rank'\".",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "",
    program=_READS % (_BEHIND_FLAG, _READS_RANK),
    integration="deepspeed",
    message="train.py:10 reads args.rank, and nothing sets this argument: the parser does not add it with these flags, so each rank raises AttributeError \"'Namespace' object has no attribute 'rank'\".",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_LAUNCH % "",
    program=_READS % ("", "if args.lora:\n    args.rank = 8\n" + _READS_RANK),
    integration="deepspeed",
    message="train.py:10 reads args.rank, and nothing sets this argument: the parser does not add it, and the program sets it with other flags only, so each rank raises AttributeError \"'Namespace' object has no attribute 'rank'\".",
)
@good(BF16_ZERO_2, launch=_LAUNCH.replace(" --deep", " --lora --deep") % "", program=_READS % (_BEHIND_FLAG, _READS_RANK))
@good(BF16_ZERO_2, launch=_LAUNCH.replace(" --deep", ' --deep "$@"') % "", program=_READS % ("", _READS_RANK))
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_READS % ("", "args.rank = 8\n" + _READS_RANK))
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_READS % ("", "if args.lora:\n    " + _READS_RANK))
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_READS % ("", "if loaded and args.rank:\n    pass\n"))
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_READS % ("", "prepare(args)\n" + _READS_RANK))
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_READS % ("", "if hasattr(args, 'rank'):\n    " + _READS_RANK))
@good(
    BF16_ZERO_2, launch=_LAUNCH % "", program=_READS % ("", "if args.local_rank == 0 and hasattr(args, 'rank') and args.rank:\n    pass\n")
)
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_READS % ("", "try:\n    " + _READS_RANK + "except AttributeError:\n    pass\n"))
@good(
    BF16_ZERO_2,
    launch=_LAUNCH % "",
    program=_READS % ("", "for key, value in stored.items():\n    setattr(args, key, value)\n" + _READS_RANK),
)
@good(BF16_ZERO_2, launch=_LAUNCH % "", program=_READS % ("", "vars(args).update(stored)\n" + _READS_RANK))
def argument_not_set(config: Config) -> Iterator[Finding]:
    """The program reads an argument that its parser does not have.

    `parse_args` returns an object with an attribute for each argument of the parser, and any other raises AttributeError "'Namespace' object
    has no attribute ...". An argument that the parser gets under a condition, or that the program sets under one, is missing where the
    condition does not hold: an argument for LoRA without `--lora`, or one for a device without CUDA.

    This is only said of a launch whose flags are all known, of a parser that no unknown function gets, and of a read that every rank reaches.

    Add the argument to the parser without a condition, or read it with `getattr(args, "name", default)`.
    """
    program = config.setup.program if config.setup else None
    launch = config.setup.launch if config.setup else None
    if program is None or launch is None or launch.passed is None or not launch.passed.complete or launch.lost is not None:
        return
    reads = program.events.of(re.escape(MISSING_ARGUMENT))
    # the first one ends the program
    read = next((one for one in reads if one.always and not any("suppress" in around for around in one.within)), None)
    texts = programs_of(config)
    if read is None or "" in launch.passed.flags or any(_CHANGES_WORDS.search(text) for text in texts):
        return
    name = next(iter(read.arguments))
    if any(re.search(rf"\bhasattr\([^()\n]*,\s*[\"']{name}[\"']\)", text) for text in texts):
        return  # the program knows that it may be missing, also within a condition such as `rank == 0 and hasattr(...) and args.name`
    parsed = list(program.events.of(re.escape(PARSED_VALUES)))
    yield Finding(
        "",
        f"{read.at.where} reads {read.at.raw}, and nothing sets this argument: {_why_missing(name, texts)}, so each rank raises "
        f"AttributeError \"'Namespace' object has no attribute '{name}'\".",
        help=f'Add the argument to the parser without a condition, or read it with getattr(args, "{name}", default).',
        elsewhere=read.at.related(""),
        related=(parsed[0].at.related("parsed here"),) if len(parsed) == 1 else (),
    )


def _why_missing(name: str, texts: list[str]) -> str:
    """Why an attribute is missing: whether the program has the argument, or sets the attribute, with other flags."""
    adds = re.compile(rf"add_argument\([^)]*[\"']--?{name.replace('_', '[-_]')}[\"']")
    if any(adds.search(text) for text in texts):
        return "the parser does not add it with these flags"
    sets = any(re.search(rf"\.{name}\s*=(?!=)", text) for text in texts)
    return f"the parser does not add it{', and the program sets it with other flags only' if sets else ''}"
