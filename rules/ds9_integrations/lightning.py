"""DS9: arguments of Lightning's Trainer and strategy, and a config for the strategy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.job.events import Events
from dslint.job.model import Launch, Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LIGHTNING, lightning_program
from dslint.rules.helpers.zero import STAGE
from dslint.source.integers import integer
from dslint.source.tree import Mapping

SOURCE = "lightning/pytorch/strategies/deepspeed.py, DeepSpeedStrategy"
_STAGE_2 = '{"zero_optimization": {"stage": 2}}'
_STAGE_3 = '{"zero_optimization": {"stage": 3}}'
_CLIPPING = '{"gradient_clipping": 0.5, "zero_optimization": {"stage": 2}}'


def _program(*, trainer: str = "", strategy: str = "") -> str:
    """A program with these arguments for Lightning's Trainer and its strategy, for examples."""
    return (
        "from lightning.pytorch import Trainer\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n"
        f"trainer = Trainer(strategy=DeepSpeedStrategy(config='ds_config.json'{strategy}){trainer})\n"
    )


@rule(
    "DS927",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("fact:integration",),
    references=(f"{SOURCE}._format_batch_size_and_grad_accum_config",),
    untried=RAISED_BY_LIGHTNING,
)
@bad(
    '{"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}',
    at="gradient_accumulation_steps",
    integration="lightning",
    message='Lightning\'s Trainer may raise "Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the `accumulate_grad_batches` argument". Only Lightning Fabric accepts the key.',
)
@bad(
    '{"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}',
    at="gradient_accumulation_steps",
    program=_program(),
    message='Lightning\'s Trainer raises "Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the `accumulate_grad_batches` argument". Only Lightning Fabric accepts the key.',
)
@good(_STAGE_2, integration="lightning")
@good(
    '{"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}',
    program="import lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
    "L.Fabric(strategy=DeepSpeedStrategy(config='ds_config.json'))\n",
)
def accumulation_under_lightning(config: Config) -> Iterator[Finding]:
    """The config sets `gradient_accumulation_steps`, which Lightning's Trainer sets itself.

    The Trainer raises "Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the
    `accumulate_grad_batches` argument passed via the Lightning Trainer." Lightning Fabric has no such argument and accepts the key.

    Remove the key, and pass `accumulate_grad_batches` to the Trainer.
    """
    program = lightning_program(config)
    if program is not None and program.fabric:
        return
    if config.facts.integration is Integration.LIGHTNING and config.has("gradient_accumulation_steps"):
        yield Finding(
            "gradient_accumulation_steps",
            "Lightning's Trainer raises \"Do not set `gradient_accumulation_steps` in the DeepSpeed config as this will be set with the "
            '`accumulate_grad_batches` argument". Only Lightning Fabric accepts the key.',
            help="Remove it, and pass accumulate_grad_batches to the Trainer.",
            certain=program is not None and program.lightning_trainer,
        )


@rule(
    "DS933",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("lightning/fabric/strategies/deepspeed.py, _format_precision_config",),
)
@bad(
    '{"bf16": {"enabled": false}, "zero_optimization": {"stage": 2}}',
    at="bf16.enabled",
    program=_program(trainer=", precision='bf16-mixed'"),
    message="train.py:3 sets precision 'bf16-mixed', but the config has a section bf16 that is not enabled: Lightning does not change it. DeepSpeed leaves the model as it is, in fp32 by default, and Lightning casts its inputs to bf16.",
)
@good('{"bf16": {"enabled": false}, "zero_optimization": {"stage": 2}}', program=_program(trainer=", precision='bf16-true'"))
@good(_STAGE_2, program=_program(trainer=", precision='bf16-mixed'"))
def precision_under_lightning(config: Config) -> Iterator[Finding]:
    """Lightning's Trainer gets a precision, but the config has the section of that precision and does not enable it.

    Lightning writes the section `bf16` or `fp16` only if the config has none, and does not change an existing one: DeepSpeed then does not cast
    the model, which is in fp32 by default, and Lightning casts its inputs to the precision of the argument. With `bf16-true` and `16-true`
    Lightning casts the model itself.

    Remove the section, or set `"enabled": true`.
    """
    program = lightning_program(config)
    given = program.trainer.get("precision") if program else None
    if given is None or not isinstance(config.document.root, Mapping):
        return
    kind = next((kind for word, kind in (("bf16", "bf16"), ("16", "fp16")) if str(given.value).startswith(word)), None)
    if kind is None or not config.has(kind) or config.enabled(kind) is UNKNOWN or config.enabled(kind) is True:
        return
    if config.is_auto(f"{kind}.enabled") or str(given.value).endswith("-true"):
        return  # DS901 reports it, or Lightning casts the model
    yield Finding(
        f"{kind}.enabled",
        f"{given.where} sets precision {given.raw}, but the config has a section {kind} that is not enabled: "
        f"Lightning does not change it. DeepSpeed leaves the model as it is, in fp32 by default, and Lightning casts its inputs to {kind}.",
        help=f'Remove the section {kind}, so that Lightning writes it, or set "enabled": true.',
        related=(given.related(f"selects {kind}"),),
    )


@rule(
    "DS936",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(f"{SOURCE}._format_batch_size_and_grad_accum_config",),
)
@bad(
    _CLIPPING,
    at="",
    program=_program(trainer=", gradient_clip_val=1.0"),
    message="gradient_clip_val=1.0 has no effect: the config sets gradient_clipping to 0.5, which Lightning does not change.",
)
@good(_CLIPPING, program=_program(trainer=", gradient_clip_val=0.5"))
@good(_STAGE_2, program=_program(trainer=", gradient_clip_val=1.0"))
def clipping_under_lightning(config: Config) -> Iterator[Finding]:
    """Lightning's Trainer gets a value for gradient clipping, and the config sets another one.

    Lightning writes `gradient_clip_val` into the config only if it has no `gradient_clipping`. Otherwise DeepSpeed clips at the value of the
    config, and the argument has no effect.

    Keep one of the two.
    """
    program = lightning_program(config)
    given = program.trainer.get("gradient_clip_val") if program else None
    used = config.value("gradient_clipping")
    if given is None or not config.has("gradient_clipping"):
        return
    if not isinstance(given.value, int | float) or not isinstance(used, int | float) or given.value == used:
        return
    yield Finding(
        "",
        f"{given.shown} has no effect: the config sets gradient_clipping to {config.quote('gradient_clipping')}, "
        "which Lightning does not change.",
        help="Remove gradient_clipping from the config, or this argument from the program.",
        elsewhere=given.related(""),
        related=(("gradient_clipping", "this value is used"),),
    )


@rule(
    "DS937",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(f"{SOURCE}.init_deepspeed",),
    untried=RAISED_BY_LIGHTNING,
)
@bad(
    _STAGE_2,
    at="",
    program=_program(trainer=", gradient_clip_val=0.5, gradient_clip_algorithm='value'"),
    message='gradient_clip_algorithm is "value": Lightning raises "DeepSpeed does not support clipping gradients by value".',
)
@good(_STAGE_2, program=_program(trainer=", gradient_clip_val=0.5, gradient_clip_algorithm='norm'"))
def clipping_by_value(config: Config) -> Iterator[Finding]:
    """Lightning's Trainer should clip each gradient by value, which DeepSpeed does not support.

    DeepSpeed clips by the norm of all gradients. Lightning raises `MisconfigurationException: DeepSpeed does not support clipping gradients
    by value.`

    Remove `gradient_clip_algorithm`, or write "norm".
    """
    program = lightning_program(config)
    given = program.trainer.get("gradient_clip_algorithm") if program else None
    if given is not None and given.value == "value":
        yield Finding(
            "",
            'gradient_clip_algorithm is "value": Lightning raises "DeepSpeed does not support clipping gradients by value".',
            help='Remove it, or write "norm".',
            elsewhere=given.related(""),
        )


@rule(
    "DS938",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=(f"{SOURCE}.__init__",),
)
@bad(
    _STAGE_2,
    at="",
    program=_program(strategy=", stage=3, offload_optimizer=True"),
    message="stage, offload_optimizer have no effect: the strategy is given a config and ignores the arguments that would build one.",
)
@good(_STAGE_2, program=_program(strategy=", load_full_weights=True"))
def strategy_arguments_beside_config(config: Config) -> Iterator[Finding]:
    """Lightning's `DeepSpeedStrategy` gets a config, and arguments that it uses only without a config.

    The strategy builds a config from `stage`, `offload_optimizer` and some thirty other arguments if it is given none. With a config it
    silently ignores them: `stage=3` trains with the stage of the config.

    Set the same in the config, and remove the arguments.
    """
    program = lightning_program(config)
    if program is None or not program.strategy:
        return
    first, *others = program.strategy
    names = list(dict.fromkeys(given.name for given in program.strategy))  # two strategies may get the same argument
    yield Finding(
        "",
        f"{', '.join(names)} {'have' if len(names) > 1 else 'has'} no effect: the strategy is given a config and ignores the arguments that would build one.",
        help="Set the same in the config, and remove the arguments.",
        elsewhere=first.related(""),
        related=tuple(given.related("also ignored") for given in others),
    )


_CHECKED_SINCE = Release(2, 1, 0)
"""The first release of Lightning that compares the devices with torchrun's ranks: 2.0.9 has no `validate_settings`, 2.1.4 has it."""
_FOUR_DEVICES = _program(trainer=", devices=4")
_ON_TWO_MACHINES = _program(trainer=", devices=8, num_nodes=2")
_SRUN = "#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node={tasks}\n#SBATCH --gpus-per-node=8\nsrun python train.py\n"


@rule(
    "DS989",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        "lightning/fabric/plugins/environments/torchelastic.py, TorchElasticEnvironment.validate_settings",
        "lightning/fabric/plugins/environments/slurm.py, SLURMEnvironment.validate_settings",
    ),
    untried=RAISED_BY_LIGHTNING,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_FOUR_DEVICES,
    launch="torchrun --nproc_per_node 8 train.py\n",
    message="Lightning is given devices=4 and num_nodes=1, but torchrun starts 8 ranks: it raises ValueError before it trains.",
)
@bad(
    _STAGE_2,
    at="",
    program=_program(trainer=", devices=8"),
    launch=_SRUN.format(nodes=2, tasks=8),
    message="Lightning is given num_nodes=1 (the default), but srun starts tasks on 2 machines: it raises ValueError before it trains.",
)
@bad(
    _STAGE_2,
    at="",
    program=_FOUR_DEVICES,
    launch=_SRUN.format(nodes=1, tasks=8),
    message="Lightning is given devices=4, but srun starts 8 tasks on each machine: it raises ValueError before it trains.",
)
@bad(
    _STAGE_2,
    at="",
    program=_ON_TWO_MACHINES,
    launch="python train.py\n",
    message="Lightning is given num_nodes=2, and train.py starts by itself: where nothing sets NODE_RANK and MASTER_ADDR, each machine waits for the ranks of all 2 at 127.0.0.1, and may end with a timeout before it trains.",
)
@bad(
    _STAGE_2,
    at="",
    program=_program(trainer=", devices=-1, num_nodes=2"),
    launch="python3 train.py\n",
    message="Lightning is given num_nodes=2, and train.py starts by itself: where nothing sets NODE_RANK and MASTER_ADDR, each machine waits for the ranks of all 2 at 127.0.0.1, and may end with a timeout before it trains.",
)
@good(_STAGE_2, program=_ON_TWO_MACHINES, launch="export MASTER_ADDR=10.0.0.4\nexport NODE_RANK=$1\npython train.py\n")
@good(_STAGE_2, program=_ON_TWO_MACHINES, launch="NODE_RANK=0 MASTER_ADDR=10.0.0.4 MASTER_PORT=29500 python train.py\n")
@good(_STAGE_2, program=_ON_TWO_MACHINES, launch="mpirun -np 16 python train.py\n")
@good(_STAGE_2, program="import os\nos.environ['NODE_RANK'] = os.environ['INDEX']\n" + _ON_TWO_MACHINES, launch="python train.py\n")
@good(_STAGE_2, program=_program(trainer=", devices=8, num_nodes=2, plugins=[environment]"), launch="python train.py\n")
@good(_STAGE_2, program=_program(trainer=", devices=8, num_nodes=1"), launch="python train.py\n")
@good(_STAGE_2, program=_program(trainer=", devices=8"), launch="python train.py\n")
@good(_STAGE_2, program=_ON_TWO_MACHINES, launch="torchrun --nnodes 2 --nproc_per_node 8 train.py\n")
@good(_STAGE_2, program=_ON_TWO_MACHINES)
@good(_STAGE_2, program=_FOUR_DEVICES, launch="torchrun --nproc_per_node 4 train.py\n")
@good(_STAGE_2, program=_FOUR_DEVICES, launch="deepspeed --num_gpus 8 train.py\n")
@good(_STAGE_2, program=_program(trainer=", devices=8, num_nodes=2"), launch=_SRUN.format(nodes=2, tasks=8))
@good(_STAGE_2, program=_program(trainer=", devices='auto', num_nodes=2"), launch=_SRUN.format(nodes=2, tasks=8))
def devices_do_not_match_launcher(config: Config) -> Iterator[Finding]:
    """`devices` and `num_nodes` of Lightning's Trainer differ from the ranks that are started.

    Under these launchers Lightning starts no ranks itself. It compares their number with its arguments before it trains, and raises
    `ValueError`: "You set `devices=4` and `num_nodes=1` in Lightning, but the product (4 * 1) does not match the world size (8)". `num_nodes`
    is 1 by default.

    A program that plain Python starts is one process, which starts those of its own machine. With `num_nodes=2` it then waits for the ranks of
    the other machine, at the address in `MASTER_ADDR`. Where nothing sets `NODE_RANK` and that variable, each machine is the first one and waits at
    127.0.0.1, until the time of the process group is over.

    Pass the GPUs of one machine as `devices`, and the number of machines as `num_nodes`. Start a program on several machines with torchrun or srun.
    """
    program, launch = lightning_program(config), config.setup.launch if config.setup else None
    release = config.facts.loader_release
    if program is None or launch is None or (release is not None and release < _CHECKED_SINCE):
        return
    if not program.path.endswith(".py") or "plugins" in program.trainer:
        return  # the command of the Lightning CLI overrides a file, and an environment among the plug-ins decides by itself
    yield from _alone_of_several(config, program, launch)
    found = _difference(program, launch)
    place = program.trainer.get("devices") or program.trainer.get("num_nodes") or launch.given
    if found is not None and place is not None:
        yield Finding(
            "",
            f"Lightning is given {found}: it raises ValueError before it trains.",
            help="Pass the GPUs of one machine as devices, and the number of machines as num_nodes.",
            elsewhere=place.related(""),
        )


def _alone_of_several(config: Config, program: Program, launch: Launch) -> Iterator[Finding]:
    """The finding for one process that plain Python starts, and that waits for those of other machines."""
    given = program.trainer.get("num_nodes")
    nodes = integer(str(given.value)) if given is not None else None
    texts = [one.text for one in config.setup.documents.values()] if config.setup is not None else []
    if given is None or nodes is None or nodes < 2 or launch.bare is None or launch.in_slurm_job or any(map(_OF_SEVERAL_MACHINES, texts)):
        return
    yield Finding(
        "",
        f"Lightning is given num_nodes={nodes}, and {launch.bare.raw} starts by itself: where nothing sets NODE_RANK and MASTER_ADDR, each machine waits "
        f"for the ranks of all {nodes} at 127.0.0.1, and may end with a timeout before it trains.",
        help="Start it with torchrun or srun on all machines, set both variables on each, or pass num_nodes=1.",
        elsewhere=given.related(""),
        related=(launch.bare.related("started here"),),
        certain=False,
    )


_OF_SEVERAL_MACHINES = re.compile(r"NODE_RANK|GROUP_RANK|MASTER_ADDR|SLURM|SBATCH|ClusterEnvironment|\w+Environment\(").search
"""What programs and scripts contain that set or read how the machines of a job find each other."""


def _difference(program: Program, launch: Launch) -> str | None:
    """What the arguments of Lightning's trainer say, and what its launcher starts, if these differ."""
    devices = integer(str(program.trainer["devices"].value)) if "devices" in program.trainer else None
    nodes = integer(str(program.trainer["num_nodes"].value)) if "num_nodes" in program.trainer else 1 if program.trainer_complete else None
    world, machines = launch.world_size, launch.nodes
    if launch.launcher == "torchrun" and devices and nodes and world and devices > 0 and devices * nodes != world:
        return f"devices={devices} and num_nodes={nodes}, but torchrun starts {world} ranks"
    if launch.launcher != "srun" or world is None or machines is None or launch.given is None or "per-node" not in launch.given.name:
        return None
    if nodes and nodes != machines:
        return (
            f"num_nodes={nodes}{'' if 'num_nodes' in program.trainer else ' (the default)'}, but srun starts tasks on {machines} machines"
        )
    if devices and devices > 0 and devices * machines != world:
        return f"devices={devices}, but srun starts {world // machines} tasks on each machine"
    return None


_TWO_OPTIMIZERS = (
    "import torch\nimport lightning as L\nclass Model(L.LightningModule):\n    def configure_optimizers(self):\n"
    "        first = torch.optim.Adam(self.one.parameters())\n        second = torch.optim.Adam(self.other.parameters())\n"
    "        return %s\n"
)
_FABRIC = (
    "import lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
    "fabric = L.Fabric(strategy=DeepSpeedStrategy(config='ds_config.json'))\n"
)
_OTHER_DEVICES = frozenset({"cpu", "mps", "tpu", "hpu"})
_OTHER_PRECISIONS = frozenset({"64", "64-true", "transformer-engine", "transformer-engine-float16"})
"""Values of `precision` that Lightning takes and its DeepSpeed strategy does not."""
_AVERAGING, _ON = "stochastic_weight_avg", frozenset({"True", "true"})


@rule(
    "DS990",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(
        f"{SOURCE}.setup_environment",
        "lightning/pytorch/plugins/precision/deepspeed.py, DeepSpeedPrecision.__init__",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/12607",
    ),
    untried=RAISED_BY_LIGHTNING,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_program(trainer=", accelerator='cpu'"),
    message="train.py:3 sets accelerator='cpu': Lightning's DeepSpeed strategy is only supported on CUDA GPUs, and raises before the training.",
)
@bad(
    _STAGE_2,
    at="",
    program=_program(trainer=", precision='64-true'"),
    message="train.py:3 sets precision='64-true': Lightning's DeepSpeed strategy does not support it, and raises before the training.",
)
@bad(
    _STAGE_2,
    at="",
    program=_TWO_OPTIMIZERS % "[first, second], []" + _program(),
    message='configure_optimizers returns 2 optimizers (train.py:6): Lightning may raise "DeepSpeed currently only supports single optimizer, single optional scheduler.".',
)
@bad(
    _STAGE_3,
    at="",
    program=_FABRIC + "model = fabric.setup_module(model)\noptimizer = fabric.setup_optimizers(optimizer)\n",
    message='train.py:5 calls fabric.setup_optimizers: Lightning raises "The `DeepSpeedStrategy` requires the model and optimizer(s) to be set up jointly".',
)
@bad(
    _STAGE_2,
    at="",
    program=_FABRIC + "model, first, second = fabric.setup(model, first, second)\n",
    message='train.py:4 sets up 2 optimizers: Lightning raises "Currently only one optimizer is supported with DeepSpeed. Got 2 optimizers instead.".',
)
@bad(
    _STAGE_2,
    at="",
    program=_program(trainer=", stochastic_weight_avg=True"),
    message="train.py:3 sets stochastic_weight_avg=True: Lightning's DeepSpeed strategy does not support averaged weights, and may raise before the training.",
)
@bad(
    _STAGE_2,
    at="",
    program=_FABRIC + "model, first = fabric.setup(model, first)\ncritic, second = fabric.setup(critic, second)\nfabric.backward(loss)\n",
    message='train.py:6 calls fabric.backward without model=, and fabric has set up 2 models: Lightning raises "When using multiple models + deepspeed, please provide the model used to perform the optimization".',
)
@good(
    _STAGE_2,
    program=_FABRIC
    + "model, first = fabric.setup(model, first)\ncritic, second = fabric.setup(critic, second)\nfabric.backward(loss, model=model)\n",
)
@good(_STAGE_2, program=_FABRIC + "model, first = fabric.setup(model, first)\nfabric.backward(loss)\n")
@good(_STAGE_2, program=_program(trainer=", stochastic_weight_avg=False"))
@good(_STAGE_2, program=_FABRIC + "model, optimizer = fabric.setup(model, optimizer)\n")
@good(_STAGE_2, program=_TWO_OPTIMIZERS % "[first], [second]" + _program())
@good(_STAGE_2, program=_program(trainer=", accelerator='gpu', precision='bf16-mixed'"))
@good(_STAGE_2, program=_program(trainer=", accelerator='auto', precision=32"))
@good(_STAGE_2, program=_program() + "tester = Trainer(accelerator='cpu', devices=1, precision='64-true')\n")
@good(_STAGE_2, program=_program() + "tester = Trainer(strategy='auto', accelerator='cpu')\n")
def refused_by_strategy(config: Config) -> Iterator[Finding]:
    """Lightning gets a device, a precision or several optimizers that its DeepSpeed strategy does not support.

    The strategy runs on CUDA GPUs only, and raises RuntimeError "The DeepSpeed strategy is only supported on CUDA GPUs". Of precisions it takes
    32-true, 16-true, bf16-true, 16-mixed and bf16-mixed, and raises ValueError for every other one.

    With `stochastic_weight_avg` the Trainer averages weights, which raises MisconfigurationException "SWA currently works with 1 `optimizer`" at
    the start of the training; Lightning 1.7 removed the argument. DS983 is about the callback.

    A module whose `configure_optimizers` returns several optimizers, as for a GAN, ends with MisconfigurationException "DeepSpeed currently
    only supports single optimizer, single optional scheduler". In Fabric the model and its one optimizer belong into one call of `setup`:
    it raises for several optimizers, and for `setup_optimizers`.

    After two calls of `setup`, `fabric.backward` requires the model whose engine it runs on: without `model=` it raises ValueError.

    Use GPUs and one of these precisions, and one optimizer with groups of parameters, or another strategy.
    """
    program = lightning_program(config)
    several = program.several_optimizers if program is not None and program.lightning_trainer and not program.fabric else None
    if several is not None:
        yield Finding(
            "",
            f"configure_optimizers returns {several.value} optimizers ({several.where}): Lightning raises "
            '"DeepSpeed currently only supports single optimizer, single optional scheduler.".',
            help="Return one optimizer with several groups of parameters, or choose another strategy.",
            elsewhere=several.related(""),
            certain=False,
        )
    events = program.events if program is not None and program.fabric else Events()
    yield from _backward_of_several(events)
    yield from _refused_by_fabric(events, needs_optimizer=config.value(STAGE) in (1, 2) and not config.has("optimizer"))
    given = program.trainer if program is not None else {}
    for name, refused, error, advice in (
        ("accelerator", _OTHER_DEVICES, "is only supported on CUDA GPUs", 'Set accelerator="gpu", or choose another strategy.'),
        ("precision", _OTHER_PRECISIONS, "does not support it", "Set precision to bf16-mixed, 16-mixed, bf16-true, 16-true or 32-true."),
        (_AVERAGING, _ON, "does not support averaged weights", "Remove it, or choose another strategy."),
    ):
        found = given.get(name)
        if found is not None and str(found.value) in refused:
            yield Finding(
                "",
                f"{found.where} sets {found.shown}: Lightning's DeepSpeed strategy {error}, and raises before the training.",
                help=advice,
                elsewhere=found.related(""),
                certain=found.path.endswith(".py") and name != _AVERAGING,  # releases before 1.7 have the argument
            )


def _backward_of_several(events: Events) -> Iterator[Finding]:
    """The first `backward` of a `Fabric` without the model, after it has set up several."""
    setups = [one for one in events.of(r"lightning.*\.Fabric\.(setup|setup_module)") if one.always]
    for call in events.of(r"lightning.*\.Fabric\.backward"):
        number = sum(one.origin == call.origin for one in setups)
        if number < 2 or not call.complete or "model" in call.arguments or call.tells_setups_apart:
            continue
        yield Finding(
            "",
            f"{call.at.where} calls {call.called} without model=, and {call.called.rpartition('.')[0] or 'Fabric'} has set up {number} models: Lightning raises "
            '"When using multiple models + deepspeed, please provide the model used to perform the optimization".',
            help="Pass the model whose optimizer steps next: fabric.backward(loss, model=model).",
            elsewhere=call.at.related(""),
            phase=Phase.STEP,
            certain=call.certain and call.flow == 0,
        )
        return


def _refused_by_fabric(events: Events, *, needs_optimizer: bool) -> Iterator[Finding]:
    """The first call of a method of `Fabric` that sets up an optimizer without the model, or several optimizers with it.

    At ZeRO stages 1 and 2 a `setup_module` before it raises already, because DeepSpeed gets no optimizer there: DS654 reports that.
    """
    first = next(events.of(r"lightning.*\.Fabric\.(setup_module|setup_optimizers)"), None)
    if needs_optimizer and first is not None and first.name.endswith("setup_module"):
        return
    for call in events.of(r"lightning.*\.Fabric\.(setup|setup_optimizers)"):
        number = len(call.arguments.keys() - {"0", "module", *_OPTIONS_OF_SETUP})
        alone = call.name.endswith("setup_optimizers")
        if not call.complete or call.tells_setups_apart or not (alone or number > 1):
            continue
        what, error = (
            (
                f"calls {call.called}",
                "The `DeepSpeedStrategy` requires the model and optimizer(s) to be set up jointly",
            )
            if alone
            else (
                f"sets up {number} optimizers",
                f"Currently only one optimizer is supported with DeepSpeed. Got {number} optimizers instead.",
            )
        )
        yield Finding(
            "",
            f'{call.at.where} {what}: Lightning raises "{error}".',
            help="Pass the model and one optimizer to one fabric.setup, or choose another strategy.",
            elsewhere=call.at.related(""),
            certain=call.certain and call.flow == 0,
        )
        return


_OPTIONS_OF_SETUP = ("scheduler", "move_to_device", "_reapply_compile")
