"""DS8: pipeline parallelism, as programs use its engine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.events import DATA_LOADER, ENGINE, Event, Events, GivenArgument
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.batch import place_of_ranks
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.project import calls_itself

_KEEPS_LAST = trained('"zero_optimization": {"stage": 1}')
_CONFIG = trained('"zero_optimization": {"stage": 1}, "dataloader_drop_last": true')
_PROGRAM = (
    "import deepspeed\nfrom deepspeed.pipe import PipelineModule\nmodel = PipelineModule(layers=layers, num_stages=2)\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
    "for batch in loader:\n    %s\n"
)


@rule(
    "DS867",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=("deepspeed/runtime/pipe/engine.py, PipelineEngine.forward, backward and step",),
    untried="a pipeline requires several GPUs",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_PROGRAM % "loss = engine(batch)",
    integration="deepspeed",
    message='train.py:6 calls engine(batch) of a pipeline: DeepSpeed raises PipelineError "Only train_batch() is accessible in pipeline mode.".',
)
@good(_CONFIG, program=_PROGRAM % "loss = engine.train_batch(iterator)", integration="deepspeed")
@good(
    _CONFIG,
    program=_PROGRAM % "loss = engine.train_batch(iterator)"
    + "def test_plain():\n    engine, *_ = deepspeed.initialize(model=plain, config={'train_batch_size': 2})\n    loss = engine(batch)\n    engine.step()\n",
    integration="deepspeed",
)
def step_of_pipeline(config: Config) -> Iterator[Finding]:
    """The program calls the engine of a pipeline as that of another model.

    A `PipelineModule` gets a `PipelineEngine`, whose `train_batch` runs all micro batches of a step, with their backward passes and the step of
    the optimizer. Its `forward`, `backward` and `step` raise `PipelineError: Only train_batch() is accessible in pipeline mode.`

    Call `engine.train_batch(data_iterator)` once per step, and `engine.eval_batch(data_iterator)` to evaluate.
    """
    program = config.setup.program if config.setup else None
    if program is None or program.pipeline is None:
        return
    calls = program.events.of(r"deepspeed\.initialize\.(__call__|forward|backward|step)")
    engines = {one.start for one in program.events.of(re.escape(ENGINE)) if _is_of_pipeline(one)}
    call = next((one for one in calls if one.origin in engines and not one.conditions), None)
    if call is not None:
        yield Finding(
            "",
            f'{call.at.where} calls {call.at.raw} of a pipeline: DeepSpeed raises PipelineError "Only train_batch() is accessible in pipeline mode.".',
            help="Call engine.train_batch(data_iterator) once per step, or engine.eval_batch(data_iterator) to evaluate.",
            elsewhere=call.at.related(""),
            certain=call.certain,
        )


def _is_of_pipeline(engine: Event) -> bool:
    """Whether the model of an engine is a `PipelineModule`; a program may make other engines besides."""
    model = engine.argument("model", 1)
    return model is not None and model.made.endswith(".PipelineModule")


_LOADED = "from torch.utils.data import DataLoader, TensorDataset\n" + _PROGRAM.replace("for batch", "loader = DataLoader(data)\nfor batch")
_GIVEN_DATA = "from torch.utils.data import TensorDataset\n" + _PROGRAM.replace("config=", "training_data=TensorDataset(%s), config=")


_COLLATED = (
    "import deepspeed\nfrom deepspeed.pipe import PipelineModule\nfrom torch.utils.data import DataLoader\n"
    "def collate(rows):\n    return %s\nmodel = PipelineModule(layers=layers, num_stages=2)\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n'
    "loader = DataLoader(data, 4, collate_fn=collate)\nfor batch in range(9):\n    loss = engine.train_batch(%s)\n"
)
_OWN_DATA = (
    "import deepspeed\nclass Rows:\n    def __getitem__(self, n):\n        return %s\nmodel = deepspeed.pipe.PipelineModule(layers=layers, num_stages=2)\n"
    'engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), training_data=Rows(), config="ds_config.json")\n'
    "engine.train_batch()\n"
)


@rule(
    "DS874",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=("deepspeed/runtime/pipe/engine.py, PipelineEngine._next_batch and _exec_load_micro_batch",),
    untried="a pipeline requires several GPUs",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_LOADED.replace("DataLoader(data)", "DataLoader(\n    data,\n)") % "loss = engine.train_batch(loader)",
    integration="deepspeed",
    message="train.py:10 passes a DataLoader to train_batch, which calls next() on it: Python raises TypeError \"'DataLoader' object is not an iterator\".",
)
@bad(
    _CONFIG,
    at="",
    program=_GIVEN_DATA % ("ids, mask, labels", "loss = engine.train_batch()"),
    integration="deepspeed",
    message="train.py:5 passes a TensorDataset of 3 tensors to a pipeline: DeepSpeed takes the first as inputs and the second as labels, and ignores the others.",
)
@bad(
    _CONFIG,
    at="",
    program=_GIVEN_DATA % ("ids", "loss = engine.train_batch()"),
    integration="deepspeed",
    message='train.py:5 passes a TensorDataset of 1 tensor to a pipeline: DeepSpeed takes the second as labels and raises IndexError "list index out of range".',
)
@bad(
    _CONFIG,
    at="",
    program=_COLLATED % ("ids, mask, labels", "iter(loader)"),
    integration="deepspeed",
    message="train.py:8 passes collate_fn collate, which gives 3 tensors for each batch, to a pipeline: DeepSpeed takes the first as inputs and the second as labels, and ignores the others.",
)
@bad(
    _CONFIG,
    at="",
    program=_COLLATED % ("{'input_ids': ids, 'labels': labels}", "iter(deepspeed.utils.RepeatingLoader(loader))"),
    integration="deepspeed",
    message="train.py:8 passes collate_fn collate, which gives a dict for each batch, to a pipeline: DeepSpeed takes batch[0] as inputs and batch[1] as labels, and Python raises KeyError 0.",
)
@bad(
    _CONFIG,
    at="",
    program=_OWN_DATA % "self.ids[n], self.mask[n], self.labels[n]",
    integration="deepspeed",
    message="train.py:6 passes data Rows(), which gives 3 tensors for each sample, to a pipeline: DeepSpeed takes the first as inputs and the second as labels, and ignores the others.",
)
@good(_CONFIG, program=_OWN_DATA % "(self.ids[n], self.mask[n]), self.labels[n]", integration="deepspeed")
@good(_CONFIG, program=_COLLATED % ("(ids, mask), labels", "iter(loader)"), integration="deepspeed")
@good(_CONFIG, program=_COLLATED % ("torch.stack(ids)", "iter(loader)"), integration="deepspeed")
@good(_CONFIG, program=_COLLATED % ("ids, mask, labels", "pairs_of(loader)"), integration="deepspeed")
@good(
    _CONFIG,
    program=(_COLLATED % ("ids, mask, labels", "iter(loader)")).replace("for batch", "engine.set_batch_fn(pairs)\nfor batch"),
    integration="deepspeed",
)
@good(_CONFIG, program=_LOADED % "loss = engine.train_batch(iter(loader))", integration="deepspeed")
@good(
    _CONFIG,
    program=_LOADED.replace("DataLoader(data)", "deepspeed.utils.RepeatingLoader(DataLoader(data))") % "loss = engine.train_batch(loader)",
    integration="deepspeed",
)
@good(
    _CONFIG,
    program=_LOADED.replace(
        "loader = DataLoader", "class Endless(DataLoader):\n    def __next__(self):\n        return 1\nloader = Endless"
    )
    % "loss = engine.train_batch(loader)",
    integration="deepspeed",
)
@good(_CONFIG, program=_GIVEN_DATA % ("ids, labels", "loss = engine.train_batch()"), integration="deepspeed")
@good(
    _CONFIG,
    program=_GIVEN_DATA % ("ids, mask, labels", "engine.set_batch_fn(pairs)\n    loss = engine.train_batch()"),
    integration="deepspeed",
)
def data_of_pipeline(config: Config) -> Iterator[Finding]:
    """A program gives the engine of a pipeline data in a form that it does not read.

    `train_batch` and `eval_batch` call `next()` on their argument: a `DataLoader` is not an iterator, and Python raises `TypeError`. Each batch
    is a pair `(inputs, labels)`, where each is a tensor or a tuple of tensors. From a flat batch of more tensors DeepSpeed takes the first as
    inputs and the second as labels.

    Pass `iter(deepspeed.utils.RepeatingLoader(loader))`. Let the dataset or `collate_fn` return `((ids, mask), labels)`, or convert the
    batches with `engine.set_batch_fn`.
    """
    program = config.setup.program if config.setup else None
    if program is None or program.pipeline is None:
        return
    engines = {one.start: one for one in program.events.of(re.escape(ENGINE)) if _is_of_pipeline(one)}
    loaders = {one.start: one for one in program.events.of(DATA_LOADER)}
    for call in program.events.of(r"deepspeed\.initialize\.(train|eval)_batch"):
        given = call.argument("data_iter", 0)
        loader = loaders.get(given.origin) if given is not None and given.origin is not None and call.origin in engines else None
        if loader is not None and given is not None and given.made == loader.name and calls_itself(config, loader, "DataLoader"):
            certain = call.always
            yield Finding(
                "",
                f"{call.at.where} passes a DataLoader to {call.name.rpartition('.')[2]}, which calls next() on it: Python "
                f"{'raises' if certain else 'may raise'} TypeError \"'DataLoader' object is not an iterator\".",
                help=f"Pass iter(deepspeed.utils.RepeatingLoader({given.raw})), made once before the loop.",
                elsewhere=call.at.related(""),
                certain=certain,
            )
            break
    if not any(program.events.of(r".*\.set_batch_fn")):
        yield from _flat_data(config, program.events, engines.values())
        yield from _other_batches(config, program.events, engines, loaders)


def _other_batches(config: Config, events: Events, engines: Mapping[int, Event], loaders: Mapping[int, Event]) -> Iterator[Finding]:
    """Batches of the project's own data, or of its `collate_fn`, that are not pairs: of a loader, or of the data that an engine gets."""
    sources = [(one, 4, 9) for one in engines.values()]
    for call in events.of(r"deepspeed\.initialize\.(train|eval)_batch"):
        given = call.argument("data_iter", 0) if call.origin in engines else None
        loader = _loader_of(events, given, loaders)
        if loader is not None and calls_itself(config, loader, "DataLoader"):
            sources.append((loader, 0, 7))
    for source, data_at, collate_at in sources:
        data = source.argument("training_data" if data_at else "dataset", data_at)
        collate = source.argument("collate_fn", collate_at)
        maker, what = (collate, "collate_fn") if collate is not None and collate.raw != "None" else (data, "data")
        count = maker.gives if maker is not None else None
        if maker is None or count is None or count in (1, 2) or not source.complete or source.unlikely:
            continue
        certain = source.certain and not source.conditions
        takes = (
            "takes the first as inputs and the second as labels, and ignores the others"
            if count
            else f"takes batch[0] as inputs and batch[1] as labels, and Python {'raises' if certain else 'may raise'} KeyError 0"
        )
        batches = f"{what} {maker.raw}, which gives {f'{count} tensors' if count else 'a dict'} for each " + (
            "batch" if what != "data" else "sample"
        )
        yield Finding(
            "",
            f"{source.at.where} passes {batches}, to a pipeline: DeepSpeed {takes}.",
            help="Return (inputs, labels), where each is a tensor or a tuple of tensors, or convert the batches with engine.set_batch_fn.",
            elsewhere=source.at.related(""),
            effect=Effect.SILENT if count else Effect.CRASH,
            phase=None if count else Phase.STEP,
            certain=certain,
        )
        return


def _loader_of(events: Events, given: GivenArgument | None, loaders: Mapping[int, Event]) -> Event | None:
    """The data loader whose batches an argument gives as they are: `iter(loader)`, `RepeatingLoader(loader)`."""
    for _ in range(_DEEPEST):
        if given is None or given.origin is None:
            return None
        made = given.made.removesuffix(".iter")
        found = loaders.get(given.origin)
        if found is not None and found.name == made:
            return found
        repeating = next((one for one in events.of(_REPEATS) if one.start == given.origin and one.name == made), None)
        given = repeating.argument("loader", 0) if repeating is not None else None
    return None


_DEEPEST = 4
_REPEATS = r"deepspeed\.(\w+\.)*RepeatingLoader"


def _flat_data(config: Config, events: Events, engines: Iterable[Event]) -> Iterator[Finding]:
    """A `TensorDataset` that a pipeline gets, and that does not hold inputs and labels only."""
    datasets = {one.start: one for one in events.of(r"torch\.utils\.data\.(\w+\.)?TensorDataset")}
    for engine in engines:
        given = engine.argument("training_data", 4)
        data = datasets.get(given.origin) if given is not None and given.origin is not None else None
        if data is None or not data.complete or not calls_itself(config, data, "TensorDataset"):
            continue
        count = sum(name.isdecimal() for name in data.arguments)
        if count in (0, 2) or engine.argument("collate_fn", 9) is not None:
            continue
        fails = 'takes the second as labels and raises IndexError "list index out of range"'
        ignores = "takes the first as inputs and the second as labels, and ignores the others"
        yield Finding(
            "",
            f"{engine.at.where} passes a TensorDataset of {count} tensor{'s' * (count > 1)} to a pipeline: DeepSpeed {fails if count == 1 else ignores}.",
            help="Write a dataset that returns (inputs, labels), where inputs may be a tuple of tensors, or convert the batches with set_batch_fn.",
            elsewhere=engine.at.related(""),
            effect=Effect.CRASH if count == 1 else Effect.SILENT,
            phase=Phase.STEP if count == 1 else None,
            certain=engine.certain and not engine.conditions,
        )


_MODULE = r"deepspeed\.(\w+\.)*PipelineModule"
_GETS_DATA = _PROGRAM.replace("config=", "training_data=data, config=") % "loss = engine.train_batch()"


@rule(
    "DS885",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "deepspeed/runtime/pipe/engine.py, PipelineEngine._build_data_iter and _exec_recv_activations",
        "https://github.com/deepspeedai/DeepSpeed/issues/326",
        "https://github.com/awslabs/slapo/pull/19",
    ),
    untried="a pipeline requires several GPUs",
    setup=True,
)
@bad(
    _KEEPS_LAST,
    at="",
    program=_GETS_DATA,
    integration="deepspeed",
    message="train.py:4 gives a pipeline its data, and dataloader_drop_last is not true: the last micro batch of an epoch may have fewer than 4 samples. The stages exchange tensors of the size of the first one, so the run may hang or fail there.",
)
@good(_CONFIG, program=_GETS_DATA, integration="deepspeed")
@good(_KEEPS_LAST.replace("4", "1"), program=_GETS_DATA, integration="deepspeed")
@good(_KEEPS_LAST, program=_GETS_DATA.replace("num_stages=2", "num_stages=2, dynamic_shape=True"), integration="deepspeed")
@good(_KEEPS_LAST, program=_GETS_DATA.replace("num_stages=2", "num_stages=1"), integration="deepspeed")
@good(_KEEPS_LAST, program=_PROGRAM % "loss = engine.train_batch(iterator)", integration="deepspeed")
def partial_batch_of_pipeline(config: Config) -> Iterator[Finding]:
    """The data loader of a pipeline keeps a last micro batch that is smaller than the others.

    `deepspeed.initialize` makes a data loader of `training_data`, which drops an incomplete last batch only with `dataloader_drop_last`.
    The stages of a pipeline tell each other the shapes of their tensors once, with the first micro batch, and then receive into buffers of
    that size. A smaller batch at the end of an epoch does not fill them: the run hangs, or the communication fails.

    Set `dataloader_drop_last` to true, or create the `PipelineModule` with `dynamic_shape=True`, which sends the shapes each time.
    """
    program = config.setup.program if config.setup else None
    micro = config.value("train_micro_batch_size_per_gpu")
    if program is None or program.pipeline is None or not micro >= 2 or config.value("dataloader_drop_last") is True:
        return
    if config.has("data_efficiency") or config.has("curriculum_learning"):
        return  # its sampler makes the batches
    modules = {one.start: one for one in program.events.of(_MODULE)}
    for engine in program.events.of(re.escape(ENGINE)):
        model, data = engine.argument("model", 1), engine.argument("training_data", 4)
        module = modules.get(model.origin) if model is not None and model.origin is not None else None
        if module is None or data is None or data.value is None or not module.complete or not (engine.certain or engine.likely):
            continue
        stages, dynamic = module.argument("num_stages", 1), module.argument("dynamic_shape")
        if dynamic is None and stages is not None and isinstance(stages.value, int) and stages.value >= 2:
            yield Finding(
                "",
                f"{engine.at.where} gives a pipeline its data, and dataloader_drop_last is not true: the last micro batch of an epoch may have "
                f"fewer than {micro} samples. The stages exchange tensors of the size of the first one, so the run may hang or fail there.",
                help="Set dataloader_drop_last to true.",
                elsewhere=engine.at.related(""),
                certain=False,
            )
            return


_FEW_LAYERS = (
    _PROGRAM.replace("import deepspeed\n", "import deepspeed, torch.nn as nn\n", 1).replace("layers=layers", "layers=[nn.Linear(8, 8)]")
    % "loss = engine.train_batch(iterator)"
)


@rule(
    "DS886",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(
        "deepspeed/runtime/utils.py, partition_uniform: as many items as parts, and the last parts are empty",
        "torch/optim/optimizer.py, Optimizer.__init__",
    ),
    untried="a pipeline requires several GPUs",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_FEW_LAYERS,
    integration="deepspeed",
    message='train.py:3 divides 1 layer among 2 pipeline stages, so the last stage has none: its optimizer raises ValueError "optimizer got an empty parameter list".',
)
@good(_CONFIG, program=_FEW_LAYERS.replace("[nn.Linear(8, 8)]", "[nn.Linear(8, 8), nn.Linear(8, 8)]"), integration="deepspeed")
@good(_CONFIG, program=_FEW_LAYERS.replace("[nn.Linear(8, 8)]", "[nn.Linear(8, 8)] + layers"), integration="deepspeed")
@good(_CONFIG, program=_FEW_LAYERS.replace("num_stages=2", "num_stages=1"), integration="deepspeed")
def more_stages_than_layers(config: Config) -> Iterator[Finding]:
    """A pipeline has more stages than layers.

    `PipelineModule` gives each stage one of the layers, and the last stages none. A rank without a layer has no parameters, and the optimizer
    raises `ValueError: optimizer got an empty parameter list`.

    Use at most as many stages as layers.
    """
    program = config.setup.program if config.setup else None
    if program is None or program.pipeline is None:
        return
    for module in program.events.of(_MODULE):
        layers, stages = module.argument("layers", 0), module.argument("num_stages", 1)
        count = layers.length if layers is not None else None
        if count is None or stages is None or not isinstance(stages.value, int) or not count < stages.value or not module.always:
            continue
        empty = stages.value - count
        which = "the last stage has" if empty == 1 else f"the last {empty} stages have"
        certain = config.has("optimizer") and any(_has_plain_parameters(one, module) for one in program.events.of(re.escape(ENGINE)))
        yield Finding(
            "",
            f"{module.at.where} divides {count} layer{'s' * (count != 1)} among {stages.value} pipeline stages, so {which} none: "
            f'{"its" if empty == 1 else "their"} optimizer {"raises" if certain else "may raise"} ValueError "optimizer got an empty parameter list".',
            help=f"Use at most {count} stage{'s' * (count != 1)}.",
            elsewhere=module.at.related(""),
            certain=certain,
        )
        return


def _has_plain_parameters(engine: Event, module: Event) -> bool:
    """Whether the engine of a pipeline builds its optimizer of the bare parameters: a list of groups may hold empty ones."""
    model, given, optimizer = engine.argument("model", 1), engine.argument("model_parameters", 3), engine.argument("optimizer", 2)
    is_plain = given is None or given.made.endswith(".parameters")
    return model is not None and model.origin == module.start and is_plain and optimizer is None and engine.complete


_STAGES = _PROGRAM.replace("num_stages=2", "num_stages=3") % "loss = engine.train_batch(iterator)"


@rule(
    "DS869",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup", "fact:pipeline_parallel", "fact:tensor_parallel"),
    references=(
        "deepspeed/runtime/pipe/module.py, PipelineModule.__init__",
        "megatron/core/parallel_state.py, initialize_model_parallel",
        "https://github.com/EleutherAI/gpt-neox/blob/main/megatron/neox_arguments/arguments.py, calculate_derived",
    ),
    untried="raised by the program, before the engine exists; tests/setup asks PipelineModule",
)
@bad(
    _CONFIG,
    at="",
    program=_STAGES,
    integration="deepspeed",
    world_size=8,
    message='3 pipeline stages do not divide 8 ranks: DeepSpeed raises RuntimeError "num_stages (3) must divide distributed world size (8)".',
)
@bad(
    _CONFIG,
    at="",
    tensor_parallel=2,
    pipeline_parallel=3,
    world_size=8,
    message="2 tensor parallel ranks times 3 pipeline stages do not divide 8 ranks: the program cannot form its groups, and raises before the training.",
)
@good(_CONFIG, program=_STAGES, integration="deepspeed", world_size=6)
@good(_CONFIG, tensor_parallel=2, pipeline_parallel=4, world_size=8)
def parallel_sizes_against_ranks(config: Config) -> Iterator[Finding]:
    """The tensor and pipeline parallel sizes do not divide the number of ranks.

    One copy of the model takes the product of the two sizes, and the number of ranks has to be a multiple of it. DeepSpeed's
    `PipelineModule`, Megatron and GPT-NeoX raise otherwise, before the training.

    Change one of the sizes, or the number of ranks.
    """
    ranks, tensor, stages = config.facts.world_size, config.facts.tensor_parallel or 1, config.facts.pipeline_parallel or 1
    if ranks is None or ranks % (tensor * stages) == 0:
        return
    from dslint.frameworks.registry import of_arguments  # few configs come here

    framework = of_arguments(config.setup.of_framework) if config.setup is not None else None
    if framework is not None and framework.lowers_parallel_sizes:
        tensor = min(tensor, ranks)  # its programs lower both sizes to what the ranks allow
        stages = min(stages, ranks // tensor)
        if ranks % (tensor * stages) == 0:
            return
    sizes = [f"{tensor:,} tensor parallel ranks"] * (tensor > 1) + [f"{stages:,} pipeline stages"] * (stages > 1)
    module = config.setup.program.pipeline if config.setup and config.setup.program else None
    error, certain = "the program cannot form its groups, and raises before the training", True
    if module is not None and module.value == stages and tensor == 1:
        error = f'DeepSpeed raises RuntimeError "num_stages ({stages}) must divide distributed world size ({ranks})"'
    elif _has_flag_of_any_program(config):
        error, certain = "if this flag divides the ranks of the training, the program cannot form its groups", False
    yield Finding(
        "",
        f"{' times '.join(sizes)} do not divide {ranks:,} ranks: {error}.",
        help=f"Run on a multiple of {tensor * stages:,} ranks, or change the sizes.",
        related=(*((module.related("set here"),) if module is not None else ()), *place_of_ranks(config)),
        certain=certain,
    )


def _has_flag_of_any_program(config: Config) -> bool:
    """Whether a size comes from a flag of a program that may mean the ranks of something else by it."""
    from dslint.frameworks.registry import has_parallel_flag_of_another  # few configs come here

    launch = config.setup.launch if config.setup else None
    flags = launch.passed.flags if launch is not None and launch.passed is not None else {}
    return has_parallel_flag_of_another(flags, {name for name, _ in config.context.evidence})
