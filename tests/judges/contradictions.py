"""dslint judges itself: no advice leads into another finding about what it advises, and no two findings of a report contradict each other.

A case is a config with what is known beside it. Each alternative of each help, and each fix, is applied to it, and the result is checked again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from dslint.config.context import Context
from dslint.config.load import take
from dslint.diagnostics import Applicability, Diagnostic, Effect, Phase, Severity
from dslint.facts import NEWEST, Facts, Integration, Release
from dslint.facts.gpus import gpu_named
from dslint.fixes.apply import fix
from dslint.lint.document import lint_loaded
from dslint.lint.group import count_for_report, for_report
from dslint.lint.results import FileResult
from dslint.registry.rules import default_rules, loaded_rules
from dslint.rule import Example
from dslint.source.parse import parse
from tests.judges.advice import GONE, Config, Way, of_pointer, touches, ways
from tests.judges.table import Row
from tests.setup.beside import CONFIG, context_of

SAFE = frozenset({Applicability.SAFE})
BOTH = frozenset({Applicability.SAFE, Applicability.UNSAFE})
RULES = tuple(default_rules())
EARLY = (Phase.LOAD, Phase.PARSE, Phase.INITIALIZE)

ALLOWED = {
    ("DS323", "DS304"): "a section that was off is judged once it is on",
    ("DS326", "DS114"): "the deprecated cpu_offload is in the way of any section",
    ("DS617", "DS316"): "fp16 makes another type of gradients that was right before wrong",
    ("DS903", "DS319"): "one of the two values is right",
    ("DS325", "DS905"): "the help names the file with the other place",
    ("DS324", "DS904"): "the help names the file with the other place",
    ("DS323", "DS904"): "the help names the file with the other place",
    ("DS323", "DS905"): "the help names the file with the other place",
    ("DS326", "DS605"): "AdamW was not written, and so had no learning rate",
    ("DS602", "DS903"): "parameters of a type that DeepSpeed does not have are not judged",
    ("DS648", "DS820"): "a universal checkpoint at stage 0 is rare",
    ("DS504", "DS504"): "the deprecated cpu_offload sets the same",
    ("DS112", "DS303"): "the newer release reads the key, and judges it",
    ("DS112", "DS326"): "the newer release reads the key, and judges it",
    ("DS606", "DS627"): "the learning rate that the schedule then has is already reported",
}
"""Findings that advice may lead to: the rule that advises and the rule that finds, and why both are right."""

FOLLOWS = {
    "DS332": "amp excludes ZeRO, whichever stage an advice names",
    "DS303": "releases before 0.18.3 have master weights in half precision at stage 2 alone",
    "DS415": "the size of a group is judged at stage 3",
    "DS416": "prescale_gradients excludes ZeRO with reduce_scatter, whichever stage an advice names",
    "DS509": "the size of a buffer is judged at stage 3",
    "DS616": "the 1-bit optimizers exclude ZeRO, whichever stage an advice names",
    "DS505": "stage 3 reads the device of a section, and then its nvme_path is missed",
    "DS977": "a release has defects in what other rules advise, and this one names the release without them",
    "DS414": "a mixture of experts needs leaf modules at stage 3, whoever sets it",
}
"""Findings that may come after any advice, and why."""

LISTED_PAIRS = {
    ("DS323", "DS905"): '"auto" follows the arguments, where fp16 is then selected',
    ("DS325", "DS905"): "the value auto follows the arguments",
    ("DS531", "DS707"): "the device may be the CPU or nothing",
    ("DS409", "DS431"): "on one GPU ZeRO saves nothing, and its bucket costs memory",
    ("DS409", "DS706"): "on one GPU ZeRO saves nothing, and the model does not fit",
}
"""Findings that may stand beside each other though they look opposed, and why."""


class Wrong(NamedTuple):
    """A contradiction: its kind, the rules, and the sentences."""

    kind: str
    first: str
    second: str
    text: str


def report_of(case: Example) -> FileResult:
    """What is found in a case."""
    return lint_loaded(take(parse(case.text), context_of(case)), CONFIG, RULES)


def contradictions(case: Example) -> Iterator[Wrong]:
    """All that is found wrong with the report about a case."""
    before = report_of(case)
    config = config_of(case.text)
    if config is not None:
        yield from of_advice(case, before, config)
        yield from of_pairs(before, config)
    yield from of_fixes(case, before)


def config_of(text: str) -> Config | None:
    """The config of a text that is strict JSON."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


# ---------------------------------------------------------------------- what is advised is checked again


def of_advice(case: Example, before: FileResult, config: Config) -> Iterator[Wrong]:
    """Advice that leads into another finding about what it changed, or that leaves its own finding where it was."""
    for found in before.diagnostics:
        if found.path != CONFIG:
            continue
        for way in ways(found, config):
            changed = way.done(config)
            if changed is None:
                continue
            after = report_of(_with(case, changed, way.release))
            yield from _led_into(found, way, before, after)


def _with(case: Example, config: Config, release: Release | None) -> Example:
    context = case.context if release is None else case.context.but(deepspeed=release)
    return case._replace(text=json.dumps(config), context=context)


def _led_into(found: Diagnostic, way: Way, before: FileResult, after: FileResult) -> Iterator[Wrong]:
    had = {(d.code, d.pointer) for d in before.diagnostics}
    for new in after.diagnostics:
        if (found.code, new.code) in ALLOWED or new.code in FOLLOWS:
            continue
        if new.code == found.code and new.pointer == found.pointer and new.message == found.message:
            yield Wrong("stays", found.code, new.code, f"{way.words!r} leaves {found.message!r}")
        elif (new.code, new.pointer) not in had and new.severity is not Severity.INFO:
            yield from _opposes(new, found, way, before, after)


def _opposes(new: Diagnostic, found: Diagnostic, way: Way, before: FileResult, after: FileResult) -> Iterator[Wrong]:
    """Whether a finding that following an advice brings about speaks against the advice: a crash, or a finding about what was changed."""
    paths = [path for path, _ in way.changes]
    text = f"{way.words!r} ({found.message}) leads to {new.message!r}"
    crashes = new.effect is Effect.CRASH
    if crashes and _crashed_before(before, new) and of_pointer(new.pointer) not in paths:
        return
    if crashes and new.certain and (way.release is None or new.pointer == found.pointer):
        yield Wrong("crash", found.code, new.code, text)
    elif found.effect is Effect.CRASH and new.effect is Effect.MEMORY:
        return  # memory is judged once the job starts
    elif touches(paths, new.pointer) and not _follows(new, way, after):
        yield Wrong("about", found.code, new.code, text)


def _follows(new: Diagnostic, way: Way, after: FileResult) -> bool:
    """Whether the new finding can be dealt with, and what was advised stays."""
    assert after.document is not None
    return any(_together(way, one) for one in ways(new, config_of(after.document.text) or {}))


def _crashed_before(before: FileResult, new: Diagnostic) -> bool:
    """Whether the job crashed before it could come to the new crash."""
    orders = [d.order for d in before.diagnostics if d.effect is Effect.CRASH and d.certain and d.order is not None]
    return new.order is not None and any(order <= new.order for order in orders)


# ---------------------------------------------------------------------- pairs of findings


def of_pairs(report: FileResult, config: Config) -> Iterator[Wrong]:
    """Findings of a report that cannot both be true, or whose advice cannot both be followed."""
    found = [d for d in report.diagnostics if d.path == CONFIG]
    advised = [list(ways(d, config)) for d in found]
    for number, first in enumerate(found):
        for other, second in enumerate(found[:number]):
            codes = tuple(sorted((first.code, second.code)))
            if codes in LISTED_PAIRS:
                continue
            text = f"{first.message!r} ({first.help}) beside {second.message!r} ({second.help})"
            if _same_place(first, second) and _opposed(first, second):
                yield Wrong("effects", codes[0], codes[1], text)
            if advised[number] and advised[other] and not any(_together(a, b) for a in advised[number] for b in advised[other]):
                yield Wrong("advice", codes[0], codes[1], text)


def _same_place(first: Diagnostic, second: Diagnostic) -> bool:
    one, other = of_pointer(first.pointer), of_pointer(second.pointer)
    return bool(one) and bool(other) and (one[: len(other)] == other or other[: len(one)] == one)


def _opposed(first: Diagnostic, second: Diagnostic) -> bool:
    """Whether one says that DeepSpeed ignores what the other says crashes, or only runs slower what the other says does not fit."""
    for one, other in ((first, second), (second, first)):
        inside = of_pointer(other.pointer)[: len(of_pointer(one.pointer))] == of_pointer(one.pointer)
        certain = one.certain and other.certain
        if one.effect is Effect.IGNORED and other.effect is Effect.CRASH and certain and inside and other.phase is not Phase.PARSE:
            return True
        if one.effect is Effect.SLOW and other.effect is Effect.MEMORY and one.pointer == other.pointer:
            return True
    return False


def _together(first: Way, second: Way) -> bool:
    """Whether two alternatives can both be done."""
    for path, value in first.changes:
        for other, wanted in second.changes:
            if path == other and value != wanted:
                return False
            if value is not GONE and wanted is GONE and path[: len(other)] == other:
                return False
            if wanted is not GONE and value is GONE and other[: len(path)] == path:
                return False
    return True


# ---------------------------------------------------------------------- fixes


def of_fixes(case: Example, before: FileResult) -> Iterator[Wrong]:
    """Fixes that are promised and not made, that do not come to an end, or that lead into a crash."""

    def lint(text: str) -> FileResult:
        return report_of(case._replace(text=text))

    for allowed in (SAFE, BOTH):
        fixable = [d for d in before.diagnostics if d.fix and d.fix.applicability in allowed]
        if not fixable:
            continue
        made = fix(case.text, lint, allowed)
        left = [d for d in made.result.diagnostics if d.fix and d.fix.applicability in allowed]
        codes = ",".join(sorted({d.code for d in fixable}))
        if left:
            yield Wrong("left", codes, left[0].code, f"{left[0].message!r} is left in {made.text}")
        promised = [d for d in for_report(before).diagnostics if d.fix and d.fix.applicability in allowed]
        had = {(d.code, d.pointer) for d in before.diagnostics}
        fresh = [d for d in made.fixed if (d.code, d.pointer) not in had]
        offered = {(d.code, d.pointer) for d in fixable}
        kept = [d for d in made.fixed if (d.code, d.pointer) in offered]
        if count_for_report(kept) != len(promised):
            missing = {(d.code, d.pointer) for d in fixable} ^ {(d.code, d.pointer) for d in kept}
            yield Wrong(
                "count",
                codes,
                "",
                f"{len(promised)} promised, {count_for_report(kept)} fixed of {case.text}: {missing}, also {len(fresh)} new",
            )
        for new in made.result.diagnostics:
            if (new.code, new.pointer) not in had and new.effect is Effect.CRASH and new.certain and not _crashed_before(before, new):
                yield Wrong("fixed into", codes, new.code, f"{new.message!r} in {made.text}, which was {case.text}")


# ---------------------------------------------------------------------- cases


def examples() -> Iterator[tuple[str, Example]]:
    """The bad examples of all rules."""
    for rule in loaded_rules():
        for number, example in enumerate(rule.bad):
            yield f"{rule.code}-{number}", example


RELEASES = (
    NEWEST,
    NEWEST,
    NEWEST,
    *(Release.parse(text) for text in ("0.8.3", "0.9.5", "0.10.3", "0.12.6", "0.13.5", "0.14.4", "0.15.4", "0.16.4", "0.17.6", "0.18.2")),
)
GPUS = ("p100", "v100", "t4", "rtx2080ti", "rtx3090", "a100", "h100", "b200", "mi250x", "gaudi2", "ascend910b")
OPTIMIZERS = (
    "AdamW",
    "AdamW",
    "Adam",
    "Lamb",
    "Lion",
    "Muon",
    "Adagrad",
    "SGD",
    "FusedAdam",
    "OneBitAdam",
    "ZeroOneAdam",
    "OneBitLamb",
    "MuAdam",
    "adamw_torch",
)
SCHEDULES = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest", "CosineAnnealingLR", "StepLR", "Cosine")
MODELS = (
    {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000},
    {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256},
    {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257},
    {"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2},
)  # fmt: skip


def made(seed: int) -> Example:
    """The job of a seed."""
    dice = Random(f"contradictions {seed}")
    loader = dice.choice((None, *Integration, Integration.DEEPSPEED, Integration.TRANSFORMERS))
    fills = loader in (Integration.TRANSFORMERS, Integration.ACCELERATE)
    auto = fills and dice.random() < 0.5
    config: Config = {}
    if auto:
        config |= {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": "auto"}
    else:
        config["train_micro_batch_size_per_gpu"] = dice.choice((1, 2, 4, 8))
        if dice.random() < 0.4:
            config["gradient_accumulation_steps"] = dice.choice((1, 2, 4, 8))
        if dice.random() < 0.25:
            config["train_batch_size"] = dice.choice((8, 16, 24, 64, 100))
    if dice.random() < 0.5:
        config["gradient_clipping"] = "auto" if auto else dice.choice((0, 1.0, 0.5))
    _precision(config, dice, auto)
    if dice.random() < 0.9:
        config["zero_optimization"] = _zero(dice)
    if dice.random() < 0.7:
        _optimizer(config, dice, auto)
    _rest(config, dice)
    facts = Facts(
        world_size=dice.choice((None, 1, 1, 2, 4, 8, 16)),
        integration=loader,
        deepspeed=dice.choice(RELEASES),
        nodes=dice.choice((None, None, 1, 2)),
    )
    if dice.random() < 0.6:
        gpu = gpu_named(dice.choice(GPUS))
        facts = facts._replace(gpu=gpu, gpu_memory=gpu.memory)
    if dice.random() < 0.5:
        from dslint.facts.model_config import describe

        facts = facts._replace(model=describe(dict(dice.choice(MODELS)) | {"torch_dtype": dice.choice(("float16", "bfloat16", "float32"))}))
    if dice.random() < 0.2:
        facts = facts._replace(host_memory=dice.choice((32, 128, 1024)) << 30)
    from dslint.frameworks.loader import LOADERS

    files = (("train.yaml", _training(dice)),) if loader is Integration.TRANSFORMERS and dice.random() < 0.6 else ()
    return Example(json.dumps(config), Context(facts, filler=LOADERS), None, files)


def _precision(config: Config, dice: Random, auto: bool) -> None:
    for name in dice.choice((("fp16",), ("bf16",), ("fp16", "bf16"), (), ("torch_autocast",), ("amp",), ("bf16", "torch_autocast"))):
        section: Config = {"enabled": "auto" if auto and dice.random() < 0.7 else dice.random() < 0.8}
        if name == "fp16":
            options: dict[str, Sequence[Any]] = {
                "loss_scale": (0, 0, 128, 1),
                "initial_scale_power": (16, 12, 32),
                "min_loss_scale": (1, 0),
                "hysteresis": (2, 1),
                "loss_scale_window": (1000, 100),
                "auto_cast": (True, False),
                "fp16_master_weights_and_grads": (True,),
            }
        elif name == "bf16":
            options = {
                "bf16_master_weights_and_grads": (True,),
                "bf16_optimizer_states": (True,),
                "immediate_grad_update": (True, False),
                "check_grad_overflow": (True,),
                "loss_scale": (0,),
            }
        else:
            options = {"dtype": ("bf16", "fp16", "bfloat16")} if name == "torch_autocast" else {"opt_level": ("O1", "O2")}
        _some(section, options, dice, 0.25)
        config[name] = section
    if dice.random() < 0.25:
        config["data_types"] = {"grad_accum_dtype": dice.choice(("fp32", "bf16", "fp16"))}
    if dice.random() < 0.15:
        config["communication_data_type"] = dice.choice(("fp32", "bf16", "fp16"))


def _some(section: Config, options: dict[str, Sequence[Any]], dice: Random, share: float) -> None:
    for key, values in options.items():
        if dice.random() < share:
            section[key] = dice.choice(values)


def _zero(dice: Random) -> Config:
    section: Config = {"stage": dice.choice((0, 1, 2, 2, 3, 3, 3))}
    if dice.random() < 0.4:
        section["offload_optimizer"] = _offload(dice)
    if dice.random() < 0.25:
        section["offload_param"] = _offload(dice)
    options: dict[str, Sequence[Any]] = {
        "overlap_comm": (True, False),
        "contiguous_gradients": (True, False),
        "reduce_scatter": (True, False),
        "reduce_bucket_size": (5e8, 5e5, 1e10, 500000000),
        "allgather_bucket_size": (5e8, 5e10),
        "round_robin_gradients": (True,),
        "sub_group_size": (1e9, 1e12),
        "stage3_prefetch_bucket_size": (5e7, 5e9),
        "stage3_param_persistence_threshold": (1e5, 1e9),
        "stage3_max_live_parameters": (1e9, 1e6),
        "stage3_max_reuse_distance": (1e9,),
        "stage3_gather_16bit_weights_on_model_save": (True, False),
        "ignore_unused_parameters": (True, False),
        "zero_hpz_partition_size": (1, 8, 4),
        "zero_quantized_weights": (True,),
        "zero_quantized_gradients": (True,),
        "mics_shard_size": (8,),
        "cpu_offload": (True, False),
        "elastic_checkpoint": (True,),
        "memory_efficient_linear": (False,),
        "use_multi_rank_bucket_allreduce": (True,),
        "zenflow": ({"topk_ratio": 0.1}, {"topk_ratio": 0.1, "select_strategy": "auto"}),
    }
    _some(section, options, dice, 0.13)
    return section


def _offload(dice: Random) -> Config:
    device = dice.choice(("cpu", "cpu", "nvme", "none"))
    section: Config = {"device": device}
    if device == "nvme" and dice.random() < 0.7:
        section["nvme_path"] = "/local_nvme"
    options = {"pin_memory": (True, False), "ratio": (0.5, 1.0), "buffer_count": (4, 1), "pipeline_read": (True,), "fast_init": (True,), "super_offload": (True,)}  # fmt: skip
    _some(section, options, dice, 0.15)
    return section


def _optimizer(config: Config, dice: Random, auto: bool) -> None:
    params: Config = {"lr": "auto" if auto else dice.choice((1e-4, 3e-5, 1))}
    options: dict[str, Sequence[Any]] = {
        "betas": ([0.9, 0.999], [0.9, 0.95], "auto") if auto else ([0.9, 0.999], [0.9, 0.95]),
        "eps": (1e-8, 1),
        "weight_decay": (0, 0.01, 0.1, 3e-7),
        "momentum": (0.9,),
        "torch_adam": (True, False),
        "adam_w_mode": (True, False),
        "freeze_step": (100,),
        "max_grad_norm": (1.0,),
        "bias_correction": (True, False),
        "nesterov": (True,),
        "amsgrad": (True,),
        "fused": (True,),
    }
    _some(params, options, dice, 0.18)
    config["optimizer"] = {"type": dice.choice(OPTIMIZERS), "params": params}
    if dice.random() < 0.3:
        config["zero_allow_untested_optimizer"] = True
    if dice.random() < 0.2:
        config["zero_force_ds_cpu_optimizer"] = dice.random() < 0.5
    if dice.random() < 0.6:
        schedule: Config = {}
        options = {
            "total_num_steps": ("auto",) if auto else (1000, 10),
            "warmup_num_steps": ("auto",) if auto else (100, 0, 1),
            "warmup_min_lr": (0, 1e-3),
            "warmup_max_lr": ("auto",) if auto else (1e-4, 1e-3),
            "warmup_type": ("linear", "log", "cosine"),
            "cycle_min_lr": (1e-5,),
            "cycle_max_lr": (1e-4, 1e-6),
            "warmup_min_ratio": (0, 0.01),
            "cycle_momentum": (True, False),
        }
        _some(schedule, options, dice, 0.5)
        config["scheduler"] = {"type": dice.choice(SCHEDULES), "params": schedule}


def _rest(config: Config, dice: Random) -> None:
    options: dict[str, Sequence[Any]] = {
        "activation_checkpointing": (
            {"partition_activations": True},
            {"cpu_checkpointing": True},
            {"contiguous_memory_optimization": True},
        ),
        "wall_clock_breakdown": (True, False),
        "prescale_gradients": (True,),
        "gradient_predivide_factor": (2.0,),
        "tensor_parallel": ({"autotp_size": 2}, {"autotp_size": 1}),
        "compile": ({"deepcompile": True}, {"enabled": True}),
        "compression_training": ({"weight_quantization": {"shared_parameters": {"enabled": True}}},),
        "wandb": ({"enabled": True}, {"project": "x"}),
        "comms_logger": ({"enabled": True, "prof_all": True, "prof_ops": ["all_reduce"]},),
        "elasticity": ({"enabled": True, "max_train_batch_size": 64, "micro_batch_sizes": [2, 4]},),
        "aio": ({"block_size": 1048576}, {"thread_count": 2, "single_submit": True}),
        "checkpoint": ({"load_universal": True},),
        "sequence_parallel_size": (2,),
        "flops_profiler": ({"enabled": True, "profile_step": 1},),
        "hybrid_engine": ({"enabled": True, "inference_tp_size": 2},),
        "managed_gradient_accumulation": (False,),
        "sparse_gradients": (True,),
        "disable_allgather": (True,),
    }
    _some(config, options, dice, 0.07)


def _training(dice: Random) -> str:
    lines = [f"deepspeed: {CONFIG}", f"per_device_train_batch_size: {dice.choice((1, 4, 8))}", "output_dir: out"]
    options: dict[str, Sequence[Any]] = {
        "fp16": ("true", "false"),
        "bf16": ("true", "false"),
        "gradient_accumulation_steps": (1, 2, 4),
        "learning_rate": ("1e-4", "3e-5"),
        "optim": ("adamw_torch", "paged_adamw_8bit", "adafactor", "adamw_bnb_8bit", "lion_32bit"),
        "lr_scheduler_type": ("cosine", "linear", "constant_with_warmup"),
        "warmup_steps": (0, 100),
        "warmup_ratio": (0.03,),
        "max_grad_norm": (1.0, 0.5),
        "gradient_checkpointing": ("true",),
        "weight_decay": (0.1,),
        "max_steps": (1000, 50),
        "save_only_model": ("true",),
        "load_best_model_at_end": ("true",),
        "torch_compile": ("true",),
        "auto_find_batch_size": ("true",),
        "predict_with_generate": ("true",),
    }
    for key, values in options.items():
        if dice.random() < 0.25:
            lines.append(f"{key}: {dice.choice(values)}")
    return "\n".join(lines) + "\n"


def ask(count: int, seed: int) -> Row:
    """Judge the examples of all rules, and the jobs of `count` seeds."""
    findings, cases, wrong = 0, 0, []
    for number, case in (*((0, case) for _, case in examples()), *((number, made(number)) for number in range(seed, seed + count))):
        cases += 1
        findings += len(report_of(case).diagnostics)
        wrong += [(number, f"{one.kind} {one.first} {one.second}: {one.text}") for one in contradictions(case)]
    return Row("contradictions", cases, "findings", findings, findings, wrong)


def record(count: int, seed: int) -> str:
    """Nothing is recorded: dslint alone is the judge, and plain pytest asks it."""
    return "contradictions are not recorded"


def missing() -> str:
    """dslint alone is needed."""
    return ""
