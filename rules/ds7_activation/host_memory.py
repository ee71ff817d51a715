"""DS7: whether the host memory of a machine holds what its ranks load. The memory estimate is imported only when the rule runs."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Release
from dslint.facts.gpus import in_words
from dslint.job.events import LOADS, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.model import counted
from dslint.rules.helpers.zero import STAGE, USUAL_RANKS

_ELSEWHERE = ("device_map", "low_cpu_mem_usage", "quantization_config", "load_in_4bit", "load_in_8bit")
"""Arguments with which the weights do not stand in host memory whole, or not in 16 or 32 bits."""

_FROM = '"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}'
_PROGRAM = (
    "import deepspeed\nfrom transformers import AutoModelForCausalLM\n"
    'model = AutoModelForCausalLM.from_pretrained("m"%s)\nengine, *_ = deepspeed.initialize(model=model, config="ds_config.json")\n'
)
_13B = {
    "model_type": "llama",
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "vocab_size": 32000,
}
_GIB = 1 << 30


@rule(
    "DS708",
    effect=Effect.MEMORY,
    needs=("model", "host_memory", "world_size"),
    watches=("setup",),
    references=(
        "https://huggingface.co/docs/transformers/main_classes/deepspeed",
        "https://github.com/deepspeedai/DeepSpeed/issues/3722",
        "https://github.com/deepspeedai/DeepSpeedExamples/issues/498",
    ),
)
@bad(
    f'{{{_FROM}, "zero_optimization": {{"stage": 2}}}}',
    at="",
    program=_PROGRAM % "",
    model=_13B,
    world_size=8,
    host_memory=128 * _GIB,
    integration="deepspeed",
    message="train.py:3 loads the whole model (13 billion parameters) in each of the 8 ranks of one machine (assumed; pass --nodes): at least 194 GiB of host memory in 16 bits, and twice that in fp32. The machine has 128 GiB.",
)
@bad(
    f'{{{_FROM}, "zero_optimization": {{"stage": 3}}}}',
    at="",
    program=_PROGRAM % "",
    model=_13B,
    world_size=16,
    nodes=2,
    host_memory=128 * _GIB,
    integration="deepspeed",
    message="train.py:3 loads the whole model (13 billion parameters) in each of the 8 ranks of each machine: at least 194 GiB of host memory in 16 bits, and twice that in fp32. The machine has 128 GiB.",
)
@good(
    f'{{{_FROM}, "zero_optimization": {{"stage": 2}}}}',
    program=_PROGRAM % "",
    model=_13B,
    world_size=8,
    host_memory=512 * _GIB,
    integration="deepspeed",
)
@good(
    f'{{{_FROM}, "zero_optimization": {{"stage": 2}}}}',
    program=_PROGRAM % ", device_map={'': 0}",
    model=_13B,
    world_size=8,
    host_memory=128 * _GIB,
    integration="deepspeed",
)
def ranks_load_whole_models(config: Config) -> Iterator[Finding]:
    """Each rank of a machine loads the whole model, and together they may need more host memory than the machine has.

    `from_pretrained` builds the model in host memory, and every rank calls it. At stage 3 a rank loads only its part, but only if
    transformers knows the DeepSpeed config by then (DS958). The estimate counts 16 bits per weight; `from_pretrained` without `torch_dtype`
    loads 32 bits before transformers 5. The system kills a rank that finds no memory with signal 9. Newer releases of transformers map
    the file of the weights, and may need less.

    At stage 3 create `TrainingArguments` or `HfDeepSpeedConfig` first. Otherwise pass `device_map={"": local_rank}` at stages 0 to 2, or
    start fewer ranks on a machine.
    """
    facts, setup = config.facts, config.setup
    program = setup.program if setup is not None else None
    if program is None or facts.model is None or facts.host_memory is None or facts.world_size is None or facts.model.quantization:
        return
    stage = config.value(STAGE)
    if stage not in (0, 1, 2, 3) or (stage == 3 and program.loaded_early is None):
        return
    load = next((one for one in program.events.of(LOADS) if _loads_whole(one, config)), None)
    if load is None:
        return
    ranks = facts.world_size // facts.nodes if facts.nodes else min(facts.world_size, USUAL_RANKS)
    model = counted(facts.model)
    least = ranks * 2 * model.size
    if least <= facts.host_memory:
        return
    machine = f"{'each' if ranks < facts.world_size else 'one'} machine{'' if facts.nodes else ' (assumed; pass --nodes)'}"
    yield Finding(
        "",
        f"{load.at.where} loads the whole model ({model.in_billions}) in each of the {ranks} ranks of {machine}: at least "
        f"{in_words(least)} of host memory in 16 bits, and twice that in fp32. The machine has {in_words(facts.host_memory)}.",
        help="Tell transformers of the config before the model is loaded."
        if stage == 3
        else 'Pass device_map={"": local_rank} to from_pretrained, or start fewer ranks on a machine.',
        elsewhere=load.at.related(""),
        certain=False,
    )


def _loads_whole(event: Event, config: Config) -> bool:
    """Whether a call certainly loads the model of the facts into host memory whole."""
    model, given = config.facts.model, event.argument("pretrained_model_name_or_path", 0)
    transformers = config.context.at_least("transformers")
    if not event.certain or not event.complete or (transformers is not None and transformers >= Release(5, 0, 0)):
        return False
    if any(event.argument(name) is not None for name in _ELSEWHERE) or model is None:
        return False
    name = given.value if given is not None else None
    is_other = isinstance(name, str) and "/" in str(model) and basename(name).lower() != basename(str(model)).lower()
    return not is_other
