"""DS8: the section `compile`, which counts once the program calls `engine.compile()`."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import without

SECTION = "compile"
DEEP = f"{SECTION}.deepcompile"
STAGE = "zero_optimization.stage"
ENGINE = "deepspeed/runtime/engine.py, DeepSpeedEngine.compile"
CALLED = "raised by engine.compile, which the program calls"
OFFLOADS = ("offload_activation", "offload_opt_states", "offload_parameters")
PASSES = (*OFFLOADS, "symmetric_memory", "free_activation")
CPU = ("cpu", "nvme")


def _compiled(inner: str, stage: int, more: str = "") -> str:
    return f'{{"train_micro_batch_size_per_gpu": 4, "compile": {{{inner}}}, "zero_optimization": {{"stage": {stage}{more}}}}}'


def _is(config: Config, name: str) -> bool:
    key = f"{SECTION}.{name}"
    return config.has(key) and config.value(key) is True


@rule("DS846", "deepcompile-without-zero", effect=Effect.IGNORED, references=(ENGINE, "https://www.deepspeed.ai/docs/config-json/"))
@bad(_compiled('"deepcompile": true', 0), at=DEEP)
@good(_compiled('"deepcompile": true', 1))
@good(_compiled('"deepcompile": true, "passes": ["autotp"]', 0))
def deepcompile_without_zero(config: Config) -> Iterator[Finding]:
    """DeepCompile schedules what ZeRO gathers and reduces, and at stage 0 there is nothing of it.

    `engine.compile()` logs a line and takes PyTorch's compiler.

    Set a ZeRO stage from 1 to 3, or remove it.
    """
    if _is(config, "deepcompile") and config.value(STAGE) == 0 and not config.has(f"{SECTION}.passes"):
        yield Finding(
            DEEP,
            "deepcompile does nothing at ZeRO stage 0: engine.compile() falls back to PyTorch's compiler.",
            help='Set "stage" to 1, 2 or 3, or remove it.',
            related=((STAGE, "the stage is set here"),) if config.has(STAGE) else (),
            fix=without(config, DEEP),
        )


@rule("DS847", "compile-setting-without-deepcompile", effect=Effect.IGNORED, references=(ENGINE,))
@bad(_compiled('"offload_parameters": true', 3), at=f"{SECTION}.offload_parameters")
@bad(_compiled('"deepcompile": true, "offload_opt_states": true', 2), at=f"{SECTION}.offload_opt_states")
@good(_compiled('"deepcompile": true, "offload_opt_states": true', 3))
def compile_setting_without_deepcompile(config: Config) -> Iterator[Finding]:
    """A pass of DeepCompile's is switched on where DeepCompile is off, or at a stage without that pass.

    All of them but `autoep_non_moe` are read by DeepCompile alone; what offloads and shares memory belongs to its passes for stage 3.

    Write `"deepcompile": true`, and the stage that the pass is for; or remove it.
    """
    deep, stage = config.value(DEEP), config.value(STAGE)
    for name in PASSES:
        if not _is(config, name):
            continue
        if deep is False:
            why, advice = (
                "deepcompile is false" if config.has(DEEP) else "deepcompile is not written, which makes it false",
                '"deepcompile": true',
            )
        elif deep is True and stage in (1, 2) and name != "free_activation":
            why, advice = f"it is a pass for ZeRO stage 3, and the stage is {stage}", '"stage": 3'
        else:
            continue
        key = f"{SECTION}.{name}"
        yield Finding(key, f"{name} does nothing: {why}.", help=f"Write {advice}, or remove it.", fix=without(config, key))


@rule(
    "DS848",
    "deepcompile-passes-clash",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    references=(ENGINE, "deepspeed/compile/init_z3.py"),
    untried=CALLED,
)
@bad(_compiled('"deepcompile": true, "offload_parameters": true, "offload_opt_states": true', 3), at=f"{SECTION}.offload_opt_states")
@bad(_compiled('"deepcompile": true, "offload_activation": true, "offload_parameters": true', 3), at=f"{SECTION}.offload_activation")
@bad(
    _compiled('"deepcompile": true, "offload_opt_states": true', 3, ', "offload_optimizer": {"device": "cpu"}'),
    at=f"{SECTION}.offload_opt_states",
)
@bad(_compiled('"deepcompile": true, "passes": ["z3", "autotp"]', 3), at=f"{SECTION}.passes")
@good(_compiled('"deepcompile": true, "offload_parameters": true', 3))
def deepcompile_passes_clash(config: Config) -> Iterator[Finding]:
    """Passes of DeepCompile that exclude each other, or ZeRO's own offload.

    Each of the offloading passes plans for the whole memory, so that only one may be on; optimizer states cannot be moved by two at once. Where ZeRO offloads optimizer and
    parameters to the CPU, DeepSpeed switches `offload_parameters` on by itself. `engine.compile()` raises a `ValueError`. The pass "autotp" runs alone, and raises
    `NotImplementedError` beside others.

    Keep one.
    """
    if not _is(config, "deepcompile"):
        return
    passes = config.value(f"{SECTION}.passes")
    if isinstance(passes, list) and "autotp" in passes and len(set(passes)) > 1:
        yield Finding(
            f"{SECTION}.passes",
            f'passes {config.quote(f"{SECTION}.passes")}: "autotp" runs alone, and engine.compile() raises NotImplementedError "The AutoTP compile pass cannot yet be combined with AutoSP or the ZeRO passes".',
            help='Write ["autotp"], or leave it out.',
        )
        return
    if not config.value(STAGE) >= 3:
        return
    optimizer, param = (config.value(f"zero_optimization.{name}.device") for name in ("offload_optimizer", "offload_param"))
    activation, states, parameters = (_is(config, name) for name in OFFLOADS)
    implied = optimizer == "cpu" and param == "cpu" and not parameters
    also = ", which DeepSpeed switches on since both are offloaded to the CPU," if implied else ""
    if states and optimizer in CPU:
        key, why = (
            "offload_opt_states",
            f"offload_opt_states moves what offload_optimizer keeps on the {'NVMe' if optimizer == 'nvme' else 'CPU'}",
        )
    elif activation and (states or parameters or implied):
        other = "offload_opt_states" if states else "offload_parameters"
        key, why = "offload_activation", f"offload_activation excludes {other}{also if other == 'offload_parameters' else ''}"
    elif states and (parameters or implied):
        key, why = "offload_opt_states", f"offload_opt_states excludes offload_parameters{also}"
    else:
        return
    yield Finding(f"{SECTION}.{key}", f"{why.rstrip(',')}: engine.compile() raises ValueError.", help="Keep one of the two.")


@rule("DS849", "autoep-compile-clash", effect=Effect.CRASH, phase=Phase.STEP, references=(ENGINE,), untried=CALLED)
@bad(_compiled('"autoep_non_moe": true', 3), at=f"{SECTION}.autoep_non_moe")
@bad(_compiled('"autoep_non_moe": true, "deepcompile": true', 1), at=f"{SECTION}.autoep_non_moe")
@good(_compiled('"autoep_non_moe": true', 1))
def autoep_compile_clash(config: Config) -> Iterator[Finding]:
    """`autoep_non_moe` compiles around the experts, with PyTorch's compiler, and goes with few other things.

    `engine.compile()` raises a `ValueError` with DeepCompile, ZeRO stage 3, offload, tensor or sequence parallelism, and the communication of DeepEP.

    Remove one of the two.
    """
    if not _is(config, "autoep_non_moe"):
        return
    against = (
        (DEEP, _is(config, "deepcompile"), "deepcompile"),
        (STAGE, config.value(STAGE) == 3, "ZeRO stage 3"),
        ("zero_optimization.offload_optimizer", config.value("zero_optimization.offload_optimizer.device") in CPU, "offload_optimizer"),
        ("zero_optimization.offload_param", config.value("zero_optimization.offload_param.device") in CPU, "offload_param"),
        ("tensor_parallel.autotp_size", config.value("tensor_parallel.autotp_size") > 1, "tensor parallelism"),
        ("expert_parallel.comm_backend", config.value("expert_parallel.comm_backend") == "deepep", 'comm_backend "deepep"'),
    )
    for key, excluded, what in against:
        if excluded:
            yield Finding(
                f"{SECTION}.autoep_non_moe",
                f"autoep_non_moe does not go with {what}: engine.compile() raises ValueError.",
                help="Remove one of the two.",
                related=((key, "set here"),) if config.has(key) else (),
            )
            return


@rule(
    "DS862",
    "compile-pass-left-out",
    effect=Effect.IGNORED,
    references=("deepspeed/runtime/engine.py, get_autotp_backend and get_autosp_backend",),
)
@bad(_compiled('"deepcompile": true, "passes": ["autotp"]', 1), at=f"{SECTION}.passes")
@bad(_compiled('"deepcompile": true, "passes": ["autosp"]', 2), at=f"{SECTION}.passes")
@good(
    '{"train_micro_batch_size_per_gpu": 4, "compile": {"deepcompile": true, "passes": ["autotp"]}, "tensor_parallel": {"autotp_size": 2}}'
)
@good(_compiled('"deepcompile": true, "passes": ["autosp"]', 1))
def compile_pass_left_out(config: Config) -> Iterator[Finding]:
    """A pass for tensor or sequence parallelism, in a run that it is not for.

    "autotp" wants `tensor_parallel.autotp_size` above 1, "autosp" a ZeRO stage of 0 or 1. Where that is not so, `engine.compile()` logs a
    line and takes PyTorch's compiler: nothing is divided among the ranks.

    Set what the pass needs, or remove it.
    """
    passes, stage, size = config.value(f"{SECTION}.passes"), config.value(STAGE), config.value("tensor_parallel.autotp_size")
    if not _is(config, "deepcompile") or not isinstance(passes, list):
        return
    for name, missing, need in (
        ("autotp", size <= 1, '"tensor_parallel": {"autotp_size": N} with an N above 1'),
        ("autosp", stage in (2, 3), "ZeRO stage 0 or 1"),
    ):
        if passes == [name] and missing:
            yield Finding(
                f"{SECTION}.passes",
                f'The pass "{name}" needs {need}: engine.compile() falls back to PyTorch\'s compiler.',
                help=f"Set {need}, or remove the pass.",
            )
