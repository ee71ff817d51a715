"""DS8: the section `compile`, which `engine.compile()` reads."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER, OFFLOAD_PARAM
from dslint.rules.helpers.zero import STAGE, excludes_stage_3, related_stage

SECTION = "compile"
DEEPCOMPILE = f"{SECTION}.deepcompile"
AUTOEP = f"{SECTION}.autoep_non_moe"
PASS_LIST = f"{SECTION}.passes"
ENGINE = "deepspeed/runtime/engine.py, DeepSpeedEngine.compile"
BACKEND = "deepspeed/runtime/engine.py, DeepSpeedEngine.get_deepcompile_backend"
UNTRIED = "raised by engine.compile, which the program calls"
OFFLOAD_PASSES = ("offload_activation", "offload_opt_states", "offload_parameters")
PASSES = (*OFFLOAD_PASSES, "symmetric_memory", "free_activation")
"""Keys that enable a pass of DeepCompile."""
OFFLOAD_DEVICES = ("cpu", "nvme")
_FALLS_BACK = Release(0, 17, 2)
"""The first release that compiles without DeepCompile where it does not support the ZeRO stage. Before 0.17.1 `engine.compile` raises."""
_EXCLUDES_OPT_STATES = Release(0, 19, 4)
"""The first release whose `init_z3` refuses to move the optimizer states together with something else. Earlier ones use one of the two."""
_EXCLUDES_ACTIVATIONS = Release(0, 19, 8)
"""A release whose `init_z3` refuses to move activations together with something else; 0.19.5 does not yet."""


def _example(inner: str, stage: int, more: str = "") -> str:
    """The text of a config with these members in `compile`, at this ZeRO stage."""
    return f'{{"train_micro_batch_size_per_gpu": 4, "compile": {{{inner}}}, "zero_optimization": {{"stage": {stage}{more}}}}}'


def _is_on(config: Config, key: str) -> bool:
    """Whether a key of the section is written and true."""
    return config.has(key) and config.value(key) is True


@rule(
    "DS846",
    effect=Effect.IGNORED,
    watches=(DEEPCOMPILE,),
    references=(BACKEND, "https://www.deepspeed.ai/docs/config-json/"),
)
@bad(
    _example('"deepcompile": true', 0),
    at=DEEPCOMPILE,
    message="deepcompile has no effect at ZeRO stage 0: engine.compile() falls back to PyTorch's compiler.",
)
@good(_example('"deepcompile": true', 1))
@good(_example('"deepcompile": true, "passes": ["autotp"]', 0))
@good(_example('"deepcompile": true', 0), deepspeed="0.17.0")
def deepcompile_without_zero(config: Config) -> Iterator[Finding]:
    """DeepCompile schedules the communication of ZeRO, so it does nothing at stage 0.

    `engine.compile()` logs a line and falls back to PyTorch's compiler.

    Set a ZeRO stage from 1 to 3, or remove `deepcompile`.
    """
    if config.release < _FALLS_BACK or (config.enabled("expert_parallel") is True and config.value("tensor_parallel.autotp_size") > 1):
        return  # experts with tensor parallelism exclude DeepCompile
    if _is_on(config, DEEPCOMPILE) and config.value(STAGE) == 0 and config.lacks(PASS_LIST):
        yield Finding(
            DEEPCOMPILE,
            "deepcompile has no effect at ZeRO stage 0: engine.compile() falls back to PyTorch's compiler.",
            help=f'Set "stage" to {"1 or 2" if excludes_stage_3(config) else "1, 2 or 3"}, or remove deepcompile.',
            related=related_stage(config),
        )


@rule(
    "DS847",
    effect=Effect.IGNORED,
    watches=tuple(f"{SECTION}.{name}" for name in PASSES),
    references=(ENGINE, BACKEND),
)
@bad(
    _example('"offload_parameters": true', 3),
    at=f"{SECTION}.offload_parameters",
    message="offload_parameters has no effect: deepcompile defaults to false.",
)
@bad(
    _example('"deepcompile": true, "offload_opt_states": true', 2),
    at=f"{SECTION}.offload_opt_states",
    message="offload_opt_states has no effect: it requires ZeRO stage 3, and the stage is 2.",
)
@good(_example('"deepcompile": true, "offload_opt_states": true', 3))
def compile_setting_without_deepcompile(config: Config) -> Iterator[Finding]:
    """A DeepCompile pass is enabled, but DeepCompile is off or the ZeRO stage does not have this pass.

    Only DeepCompile reads these keys. The passes that offload, and `symmetric_memory`, belong to ZeRO stage 3.

    Write `"deepcompile": true` and the stage that has the pass, or remove the key.
    """
    deepcompile, stage = config.value(DEEPCOMPILE), config.value(STAGE)
    for name in PASSES:
        key = f"{SECTION}.{name}"
        if not _is_on(config, key):
            continue
        if deepcompile is False:
            reason = "deepcompile is false" if config.has(DEEPCOMPILE) else "deepcompile defaults to false"
            setting = '"deepcompile": true'
        elif deepcompile is True and stage in (1, 2) and name != "free_activation":
            reason, setting = f"it requires ZeRO stage 3, and the stage is {stage}", '"stage": 3'
        else:
            continue
        yield Finding(key, f"{name} has no effect: {reason}.", help=f"Write {setting}, or remove it.")


@rule(
    "DS848",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=(DEEPCOMPILE,),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine.get_deepspeed_compile_backend", "deepspeed/compile/init_z3.py, init_z3"),
    untried=UNTRIED,
)
@bad(
    _example('"deepcompile": true, "offload_parameters": true, "offload_opt_states": true', 3),
    at=f"{SECTION}.offload_opt_states",
    message="offload_opt_states cannot be combined with offload_parameters: engine.compile() raises ValueError.",
)
@bad(
    _example('"deepcompile": true, "offload_activation": true, "offload_parameters": true', 3),
    at=f"{SECTION}.offload_activation",
    message="offload_activation cannot be combined with offload_parameters: engine.compile() raises ValueError.",
)
@bad(
    _example('"deepcompile": true, "offload_opt_states": true', 3, ', "offload_optimizer": {"device": "cpu"}'),
    at=f"{SECTION}.offload_opt_states",
    message="offload_opt_states cannot be combined with offload_optimizer, which moves the same optimizer states: engine.compile() raises ValueError.",
)
@bad(
    _example('"deepcompile": true, "passes": ["z3", "autotp"]', 3),
    at=f"{SECTION}.passes",
    message='passes ["z3", "autotp"] combines "autotp" with other passes: engine.compile() raises NotImplementedError "The AutoTP compile pass cannot yet be combined with AutoSP or the ZeRO passes".',
)
@good(_example('"deepcompile": true, "offload_parameters": true', 3))
@good(_example('"deepcompile": true, "offload_parameters": true, "offload_opt_states": true', 3), deepspeed="0.19.3")
@good(_example('"deepcompile": true, "offload_activation": true, "offload_parameters": true', 3), deepspeed="0.19.5")
def deepcompile_passes_clash(config: Config) -> Iterator[Finding]:
    """DeepCompile passes exclude each other, or one excludes ZeRO's own offload.

    Each offload pass plans for all GPU memory, so only one may be enabled, and optimizer states can be moved either by DeepCompile or by
    ZeRO. If ZeRO offloads both optimizer and parameters to the CPU, DeepSpeed enables `offload_parameters` itself. For such a pair
    `engine.compile()` raises a `ValueError`; releases before 0.19.4 use only one of the two. The pass "autotp" works only without other passes, and raises `NotImplementedError` with them.

    Keep only one of them.
    """
    if not _is_on(config, DEEPCOMPILE):
        return
    passes = config.value(PASS_LIST)
    if isinstance(passes, list) and "autotp" in passes and len(set(passes)) > 1:
        yield Finding(
            PASS_LIST,
            f'passes {config.quote(PASS_LIST)} combines "autotp" with other passes: engine.compile() raises NotImplementedError "The AutoTP compile pass cannot yet be combined with AutoSP or the ZeRO passes".',
            help='Write ["autotp"], or remove "autotp".' if config.value("tensor_parallel.autotp_size") > 1 else 'Remove "autotp".',
        )
        return
    pair = _excluded_pair(config) if config.value(STAGE) >= 3 else None
    if pair is not None:
        key, other = pair
        yield Finding(
            f"{SECTION}.{key}", f"{key} cannot be combined with {other}: engine.compile() raises ValueError.", help="Keep only one of them."
        )


def _excluded_pair(config: Config) -> tuple[str, str] | None:
    """An enabled offload pass and what excludes it at stage 3; None if nothing does."""
    optimizer, parameters = config.value(f"{OFFLOAD_OPTIMIZER}.device"), config.value(f"{OFFLOAD_PARAM}.device")
    activation_pass, optimizer_pass, parameter_pass = (_is_on(config, f"{SECTION}.{name}") for name in OFFLOAD_PASSES)
    implied = optimizer == "cpu" and parameters == "cpu" and not parameter_pass
    parameter_pass = parameter_pass or implied
    note = " (enabled by DeepSpeed because ZeRO offloads optimizer and parameters to the CPU)" if implied else ""
    if config.release < _EXCLUDES_OPT_STATES:
        return None
    if optimizer_pass and optimizer in OFFLOAD_DEVICES:
        return "offload_opt_states", "offload_optimizer, which moves the same optimizer states"
    if activation_pass and (optimizer_pass or parameter_pass) and config.release >= _EXCLUDES_ACTIVATIONS:
        return "offload_activation", "offload_opt_states" if optimizer_pass else f"offload_parameters{note}"
    if optimizer_pass and parameter_pass:
        return "offload_opt_states", f"offload_parameters{note}"
    return None


@rule("DS849", effect=Effect.CRASH, phase=Phase.STEP, watches=(AUTOEP,), references=(ENGINE,), untried=UNTRIED)
@bad(
    _example('"autoep_non_moe": true', 3),
    at=AUTOEP,
    message="autoep_non_moe cannot be combined with ZeRO stage 3: engine.compile() raises ValueError.",
)
@bad(
    _example('"autoep_non_moe": true, "deepcompile": true', 1),
    at=AUTOEP,
    message="autoep_non_moe cannot be combined with deepcompile: engine.compile() raises ValueError.",
)
@good(_example('"autoep_non_moe": true', 1))
def autoep_compile_clash(config: Config) -> Iterator[Finding]:
    """`autoep_non_moe` cannot be combined with several other features.

    It compiles the layers around the experts with PyTorch's compiler. With DeepCompile, ZeRO stage 3, offload, tensor or sequence
    parallelism, or the DeepEP backend, `engine.compile()` raises a `ValueError`.

    Remove one of the two.
    """
    if not _is_on(config, AUTOEP):
        return
    tensor_parallel, backend = "tensor_parallel.autotp_size", "expert_parallel.comm_backend"
    exclusions = (
        (DEEPCOMPILE, _is_on(config, DEEPCOMPILE), "deepcompile"),
        (STAGE, config.value(STAGE) == 3, "ZeRO stage 3"),
        (OFFLOAD_OPTIMIZER, config.value(f"{OFFLOAD_OPTIMIZER}.device") in OFFLOAD_DEVICES, "offload_optimizer"),
        (OFFLOAD_PARAM, config.value(f"{OFFLOAD_PARAM}.device") in OFFLOAD_DEVICES, "offload_param"),
        (tensor_parallel, config.value(tensor_parallel) > 1, "tensor parallelism"),
        (backend, config.value(backend) == "deepep", 'comm_backend "deepep"'),
    )
    for key, excluded, feature in exclusions:
        if excluded:
            yield Finding(
                AUTOEP,
                f"autoep_non_moe cannot be combined with {feature}: engine.compile() raises ValueError.",
                help="Remove one of the two.",
                related=((key, "set here"),) if config.has(key) else (),
            )
            return


@rule(
    "DS862",
    effect=Effect.IGNORED,
    watches=(PASS_LIST,),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.get_autotp_backend",
        "deepspeed/runtime/engine.py, DeepSpeedEngine.get_autosp_backend",
    ),
)
@bad(
    _example('"deepcompile": true, "passes": ["autotp"]', 1),
    at=PASS_LIST,
    message='The pass "autotp" requires "tensor_parallel": {"autotp_size": N} with N above 1: engine.compile() falls back to PyTorch\'s compiler.',
)
@bad(
    _example('"deepcompile": true, "passes": ["autosp"]', 2),
    at=PASS_LIST,
    message='The pass "autosp" requires ZeRO stage 0 or 1: engine.compile() falls back to PyTorch\'s compiler.',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "compile": {"deepcompile": true, "passes": ["autotp"]}, "tensor_parallel": {"autotp_size": 2}}'
)
@good(_example('"deepcompile": true, "passes": ["autosp"]', 1))
def compile_pass_left_out(config: Config) -> Iterator[Finding]:
    """A compile pass for tensor or sequence parallelism does not run, because the config lacks what it requires.

    "autotp" requires `tensor_parallel.autotp_size` above 1, and "autosp" requires ZeRO stage 0 or 1. Otherwise `engine.compile()` logs a
    line and falls back to PyTorch's compiler, and nothing is divided among the ranks.

    Set what the pass requires, or remove the pass.
    """
    passes, stage, size = config.value(PASS_LIST), config.value(STAGE), config.value("tensor_parallel.autotp_size")
    if not _is_on(config, DEEPCOMPILE) or not isinstance(passes, list):
        return
    for name, missing, requirement in (
        ("autotp", size <= 1, '"tensor_parallel": {"autotp_size": N} with N above 1'),
        ("autosp", stage in (2, 3), "ZeRO stage 0 or 1"),
    ):
        if passes == [name] and missing:
            yield Finding(
                PASS_LIST,
                f'The pass "{name}" requires {requirement}: engine.compile() falls back to PyTorch\'s compiler.',
                help=f"Set {requirement}, or remove the pass.",
            )
