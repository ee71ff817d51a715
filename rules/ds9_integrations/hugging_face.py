"""DS9: what the Hugging Face loaders require of `zero_optimization`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule, safe
from dslint.rules.helpers.loaders import ACCELERATE_SOURCE, HUGGING_FACE, RAISED_BY_LOADER, accelerate_file, is_loader_certain
from dslint.rules.helpers.project import programs_of
from dslint.source.change import Set
from dslint.source.tree import Mapping

STAGE = "zero_optimization.stage"
_ADDS_SECTION = re.compile(
    r"""\[\s{0,9}["']zero_optimization["']\s{0,9}\]\s{0,9}=(?!=)|(?:setdefault|update)\(\s{0,9}\{?\s{0,9}["']?zero_optimization\b"""
)
_ADDING = (
    "import argparse, json\nfrom own import train\nparser = argparse.ArgumentParser()\nparser.add_argument('--deepspeed')\n"
    "parser.add_argument('--local_rank', type=int)\nconfig = json.load(open(parser.parse_args().deepspeed))\n%strain(config)\n"
)


@rule(
    "DS910",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.PLUGIN,
    watches=("!zero_optimization",),
    references=(ACCELERATE_SOURCE,),
    untried=RAISED_BY_LOADER,
)
@bad(
    '{"train_batch_size": "auto", "bf16": {"enabled": "auto"}}',
    at="zero_optimization",
    integration="transformers",
    message='The config has no section zero_optimization: the Hugging Face Trainer raises "Please specify the ZeRO optimization config in the DeepSpeed config".',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4}',
    at="zero_optimization",
    integration="accelerate",
    message='The config has no section zero_optimization: Accelerate raises "Please specify the ZeRO optimization config in the DeepSpeed config".',
)
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 0}}', integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4}', integration="deepspeed")
@good('{"train_batch_size": "auto", "bf16": {"enabled": true}}', integration="transformers", loader_release=Release(4, 29, 2))
@good(
    '{"train_batch_size": "auto", "bf16": {"enabled": "auto"}}',
    launch="torchrun --nproc_per_node 8 train.py --deepspeed ds_config.json\n",
    program=_ADDING % "config['zero_optimization'] = {'stage': 2}\n",
)
@bad(
    '{"train_batch_size": "auto", "bf16": {"enabled": "auto"}}',
    at="zero_optimization",
    launch="torchrun --nproc_per_node 8 train.py --deepspeed ds_config.json\n",
    program=_ADDING % "",
    message='The config has no section zero_optimization: the Hugging Face Trainer may raise "Please specify the ZeRO optimization config in the DeepSpeed config".',
)
def no_zero_section(config: Config) -> Iterator[Finding]:
    """The config has no section `zero_optimization`, which the Hugging Face integrations require.

    Accelerate, which the Trainer uses since transformers 4.30, raises `ValueError: Please specify the ZeRO optimization config in the DeepSpeed config.` DeepSpeed
    itself would train without ZeRO.

    Add `"zero_optimization": {"stage": 0}` to train without ZeRO, or use the stage you want.
    """
    integration = config.facts.integration
    if integration is None or not config.facts.passes_accelerate or config.document.problems:
        return
    root = config.document.root
    if not isinstance(root, Mapping) or config.has("zero_optimization") or (not root.members and config.setup is None):
        return
    if config.is_misspelt(STAGE) or config.enabled("autotuning") is True:  # the autotuner writes the section itself
        return
    # Both Hugging Face loaders raise, so a block of Accelerate proves it, whichever the program uses. Flags of a command do not.
    inferred = not is_loader_certain(config) and accelerate_file(config) is None
    if inferred and any(_ADDS_SECTION.search(text) for text in programs_of(config)):
        return  # the program writes it into the config that it has read
    raising = "may raise" if inferred else "raises"
    yield Finding(
        "zero_optimization",
        f"The config has no section zero_optimization: {integration.label} {raising} "
        '"Please specify the ZeRO optimization config in the DeepSpeed config".',
        help='Add "zero_optimization": {"stage": 0}, or the stage you want.',
        certain=not inferred,
    )


_GATHER = '"stage3_gather_16bit_weights_on_model_save": true'


@rule(
    "DS934",
    effect=Effect.SILENT,
    watches=("fact:integration",),
    references=("accelerate/utils/deepspeed.py, HfDeepSpeedConfig.set_stage_and_offload",),
)
@bad(
    f'{{"train_batch_size": "auto", "zero_optimization": {{"stage": "3", {_GATHER}}}}}',
    at=STAGE,
    integration="transformers",
    message='The ZeRO stage is "3", a string. DeepSpeed reads it as 3, but the Hugging Face Trainer does not: every rank loads the whole model, and the saved weights are empty.',
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
)
@bad(
    f'{{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {{"stage": "3", {_GATHER}}}}}',
    at=STAGE,
    integration="accelerate",
    message='The ZeRO stage is "3", a string. DeepSpeed reads it as 3, but Accelerate does not: every rank loads the whole model, and the saved weights are empty.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
)
@good(f'{{"train_batch_size": "auto", "zero_optimization": {{"stage": 3, {_GATHER}}}}}', integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": "3"}}', integration="deepspeed")
@good('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": "auto"}}', integration="transformers")
@good(
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": "auto"}}',
    program='from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds_config.json", zero_stage=3))\n',
    integration="accelerate",
)
def stage_in_quotes(config: Config) -> Iterator[Finding]:
    """ZeRO stage 3 is written as a string: DeepSpeed reads it as 3, but the Hugging Face libraries do not.

    They compare the value with the number 3. `from_pretrained` then creates the whole model on every rank, because `zero.Init` is not used;
    "auto" in `stage3_prefetch_bucket_size` and `stage3_param_persistence_threshold` is not filled in; and `save_model` gathers nothing and
    writes empty weights.

    Write the number, without quotes.
    """
    if config.facts.integration not in HUGGING_FACE or not config.value(STAGE) >= 3:
        return
    if isinstance(config.literal(STAGE), str) and not config.is_auto(STAGE):
        yield Finding(
            STAGE,
            f"The ZeRO stage is {config.quote(STAGE)}, a string. DeepSpeed reads it as 3, but {config.facts.integration.label} does not: "
            "every rank loads the whole model, and the saved weights are empty.",
            help='Write "stage": 3, without quotes.',
            on="value",
            fix=safe("write the number 3", Set(("zero_optimization", "stage"), "3")),
        )
