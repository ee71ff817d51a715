"""Who reads the config that a launch names: the Trainer, the program itself, or nobody."""

from __future__ import annotations

import json

import pytest

from dslint.facts import Facts, Integration
from tests.setup.folder import Folder

FILLED = {
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "fp16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2},
    "train_micro_batch_size_per_gpu": "auto",
}
PARSED = (
    "import deepspeed\nfrom dataclasses import dataclass\nimport transformers\n"
    "@dataclass\nclass OwnArguments(transformers.TrainingArguments):\n    scale: float = 0.1\n"
    "(args,) = transformers.HfArgumentParser((OwnArguments,)).parse_args_into_dataclasses()\n"
    "engine, *_ = deepspeed.initialize(model=model, config=%s)\n"
)
LAUNCH = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --per_device_train_batch_size 4 --bf16 True --output_dir out\n"


@pytest.mark.parametrize(
    ("config", "codes"),
    [
        ("args.deepspeed_plugin.hf_ds_config.config", set()),
        ("args.hf_deepspeed_config.config", set()),
        ("args.deepspeed", {"DS901", "DS902"}),  # the file, in which nothing has replaced "auto"
    ],
)
def test_training_arguments_fill_the_config_that_they_hold(folder: Folder, config: str, codes: set[str]) -> None:
    folder.write({"train.py": PARSED % config, "run.sh": LAUNCH, "ds.json": json.dumps(FILLED)})
    assert {d.code for d in folder.diagnostics("run.sh", "train.py") if d.severity == "error"} == codes


OWN = '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": %s}}'
ANOTHER = PARSED % (OWN % 2)
TRAINS = "transformers.Trainer(model, args).train()\n"


@pytest.mark.parametrize(
    ("program", "reads_file"),
    [
        (ANOTHER, False),
        (ANOTHER.replace("engine, *_ = ", "settings = args.deepspeed\nengine, *_ = "), False),
        (ANOTHER + TRAINS, True),  # the Trainer has the config of the launch, and a model beside it has another
        (PARSED % "args.deepspeed", True),
        (PARSED % "company.config_of(args)", True),
    ],
)
def test_an_engine_with_a_config_of_its_own_leaves_that_of_the_training_arguments(folder: Folder, program: str, reads_file: bool) -> None:
    """Programs that grew out of one for the Trainer keep its parser, and their launches keep its flag."""
    folder.write({"train.py": program, "run.sh": LAUNCH, "ds.json": '{"zero_optimization": {"stage": 2, "stagee": 3}}'})
    found = {(d.code, d.path) for d in folder.diagnostics("run.sh")}
    assert (("DS101", "ds.json") in found) is reads_file
    folder.write({"train.py": program.replace("'stage': 2", "'stage': 7").replace('"stage": 2', '"stage": 7')})
    assert any(d.path == "train.py" and d.severity == "error" for d in folder.diagnostics("run.sh")) is not reads_file


AGAIN = (
    "import transformers\nfrom transformers import Trainer, TrainingArguments\nclass Own(TrainingArguments):\n    size: int = 4\n"
    "(args,) = transformers.HfArgumentParser(Own).parse_args_into_dataclasses()\n"
    "made = TrainingArguments(output_dir=args.output_dir, max_grad_norm=0.3)\ntrainer = Trainer(model=m, args=made)\ntrainer.train()\n"
)


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (AGAIN, 0),
        (AGAIN.replace("0.3)", "0.3, deepspeed=args.deepspeed)"), 1),
        (AGAIN.replace("0.3)", "0.3, **vars(args))"), 1),
        (AGAIN.replace("args=made", "args=args"), 1),
        (AGAIN.replace("trainer =", "if args.do_eval:\n    made = args\ntrainer ="), 1),
    ],
)
def test_training_arguments_that_are_made_anew_without_the_config(folder: Folder, program: str, count: int) -> None:
    """The parsed ones hold the config, and the Trainer gets others."""
    folder.write({"train.py": program, "run.sh": LAUNCH, "ds.json": '{"zero_optimization": {"stage": 2, "stagee": 3}}'})
    assert len([one for one in folder.diagnostics("run.sh") if one.code == "DS101"]) == count
    if not count:
        assert "--deepspeed ds.json" in folder.results("run.sh")["run.sh"].not_judged[0].reason


BY_STAGE = (
    "import argparse, json, deepspeed, torch\nargs = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args()\n"
    "with open(args.deepspeed_config) as file:\n    settings = json.load(file)\n"
    "with deepspeed.zero.Init(enabled=settings['zero_optimization']['stage'] == 3):\n    model = torch.nn.Linear(4, 4)\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())\n"
)
WRITES = "cat <<EOT > ds.json\n%s\nEOT\ndeepspeed train.py --deepspeed --deepspeed_config %s\n"


@pytest.mark.parametrize(("name", "found"), [("ds.json", set()), ("./ds.json", set()), ("old.json", {"DS451"})])
def test_a_program_reads_the_file_that_its_script_writes(folder: Folder, name: str, found: set[str]) -> None:
    """The file of an earlier run lies in the project, and the script writes it anew."""
    program = BY_STAGE.replace("args.deepspeed_config", "'ds.json'") if name == "old.json" else BY_STAGE
    files = {"train.py": program, "ds.json": OWN % 3, "old.json": OWN % 2}
    folder.write({**files, "run.sh": WRITES % (OWN % 2, name) if found == set() else f"deepspeed train.py --deepspeed_config {name}\n"})
    assert {d.code for d in folder.diagnostics("run.sh") if d.code == "DS451"} == found


@pytest.mark.parametrize("flag", ["--deepspeed_config", "--ds_config"])
def test_a_flag_of_an_unknown_program_does_not_say_who_reads_the_config(folder: Folder, flag: str) -> None:
    """The program may replace "auto" and add a batch size before it passes the config on."""
    config = json.dumps({**FILLED, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "fp16": {"enabled": True}})
    folder.write({"run.sh": f"deepspeed --num_gpus 2 train.py {flag} ds.json --lr 1\n", "ds.json": config})
    assert {d.code for d in folder.diagnostics("run.sh", "ds.json") if d.severity == "error"} == set()
    folder.write({"ds.json": '{"zero_optimization": {"stage": 2}}'})
    (found,) = [d for d in folder.diagnostics("run.sh") if d.code == "DS204"]
    assert found.severity == "warning"
    assert "unless the program adds one" in found.message
    folder.write(
        {"train.py": "import deepspeed\nargs = deepspeed.add_config_arguments(p).parse_args()\ndeepspeed.initialize(args=args, model=m)\n"}
    )
    if flag == "--deepspeed_config":
        assert {d.severity for d in folder.diagnostics("run.sh") if d.code == "DS204"} == {"error"}


REFERENCE = (
    "import deepspeed\nfrom copy import deepcopy\nfrom accelerate import Accelerator, DeepSpeedPlugin\n"
    "accelerator = Accelerator(%s)\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
    "def prepare_deepspeed(model):\n    plugin = accelerator.state.deepspeed_plugin\n    config = %s\n"
    "    if config['zero_optimization']['stage'] != 3:\n        config['zero_optimization']['stage'] = 0\n"
    "    engine, *_ = deepspeed.initialize(model=model, config=config)\n    return engine.eval()\nreference = prepare_deepspeed(reference)\n"
)


@pytest.mark.parametrize("plugin", ["", 'deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds.json")'])
@pytest.mark.parametrize(
    ("config", "codes"),
    [
        ("deepcopy(plugin.deepspeed_config)", set()),
        ("dict(accelerator.state.deepspeed_plugin.deepspeed_config)", set()),
        ("plugin.deepspeed_config", set()),
        ("json.load(open('ds.json'))", {"DS902"}),  # Accelerate fills its own copy
    ],
)
def test_accelerate_fills_the_config_of_a_reference_model(folder: Folder, plugin: str, config: str, codes: set[str]) -> None:
    command = "torchrun --nproc_per_node 2 train.py\n" if plugin else "accelerate launch --config_file acc.yaml train.py\n"
    filled = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto", "zero_optimization": {"stage": 2}}'
    accelerate = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    program = "import json\n" + REFERENCE % (plugin, config)
    folder.write({"train.py": program, "run.sh": command, "ds.json": filled} | ({} if plugin else {"acc.yaml": accelerate}))
    assert {d.code for d in folder.diagnostics("run.sh", "train.py") if d.severity == "error"} == codes


OWN_FLAG = (
    "import argparse\nimport os\nimport accelerate\nparser = argparse.ArgumentParser()\n"
    'parser.add_argument("--local_rank", type=int)\nparser.add_argument("--deepspeed_config")\nargs = parser.parse_args()\n'
    "%saccelerator = accelerate.Accelerator(%s)\nmodel, optimizer = accelerator.prepare(model, optimizer)\n"
    'if accelerator.is_main_process:\n    accelerator.save_state("out")\n'
)


@pytest.mark.parametrize("launcher", ["deepspeed --num_gpus 2", "torchrun --nproc_per_node 2"])
@pytest.mark.parametrize("written", [True, False])
def test_nobody_reads_a_flag_that_accelerate_does_not_get(folder: Folder, launcher: str, written: bool) -> None:
    files = {"train.py": OWN_FLAG % ("", ""), "run.sh": f"{launcher} train.py --deepspeed_config ds.json\n"}
    folder.write(files | ({"ds.json": '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'} if written else {}))
    found = [(d.code, d.path) for d in folder.diagnostics("run.sh", "train.py")]
    assert found == [("DS950", "run.sh")]
    assert folder.results("run.sh")["run.sh"].not_judged == ()


@pytest.mark.parametrize(
    ("line", "arguments", "command"),
    [
        ("", "deepspeed_plugin=accelerate.DeepSpeedPlugin(hf_ds_config=args.deepspeed_config)", "deepspeed train.py"),
        ('os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"\n', "", "deepspeed train.py"),
        ("", "", "ACCELERATE_USE_DEEPSPEED=true deepspeed train.py"),
        ("", "**options(args)", "deepspeed train.py"),
        ("", "", "accelerate launch --use_deepspeed train.py"),
    ],
)
def test_accelerate_may_get_a_config_in_another_way(folder: Folder, line: str, arguments: str, command: str) -> None:
    config = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
    folder.write({"train.py": OWN_FLAG % (line, arguments), "run.sh": f"{command} --deepspeed_config ds.json\n", "ds.json": config})
    assert "DS950" not in {d.code for d in folder.diagnostics("run.sh", "train.py")}


@pytest.mark.parametrize(
    ("body", "after", "flags", "found"),
    [
        ("    scale: float = 0.1\n", "", "", True),
        ("    scale: float = 0.1\n    bf16: bool = True\n", "", "", False),
        (
            "    scale: float = 0.1\n    def __post_init__(self):\n        self.bf16 = True\n        super().__post_init__()\n",
            "",
            "",
            False,
        ),
        ("    scale: float = 0.1\n", "args.bf16 = True\n", "", True),  # too late: the arguments have compared False
        ("    scale: float = 0.1\n", "", " --bf16 True", False),
        ("    scale: float = 0.1\n", "", " $MORE", False),
    ],
)
def test_a_class_of_arguments_keeps_the_defaults_that_it_does_not_define(
    folder: Folder, body: str, after: str, flags: str, found: bool
) -> None:
    program = (
        "import transformers\nfrom dataclasses import dataclass\nfrom typing import Optional\n"
        f"@dataclass\nclass OwnArguments(transformers.TrainingArguments):\n{body}"
        f"(args,) = transformers.HfArgumentParser((OwnArguments,)).parse_args_into_dataclasses()\n{after}"
        'model = transformers.AutoModelForCausalLM.from_pretrained("m")\ntransformers.Trainer(model=model, args=args).train()\n'
    )
    config = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}
    launch = f"deepspeed train.py --deepspeed ds.json --output_dir out{flags}\n"
    folder.write({"train.py": program, "run.sh": launch, "ds.json": json.dumps(config)})
    errors = {d.code for d in folder.diagnostics("run.sh") if d.severity == "error" and d.certain}
    assert ("DS904" in errors) is found


@pytest.mark.parametrize(
    ("script", "steps", "found"), [("src/train_bash.py", 8, True), ("src/train_bash.py", 1, False), ("run.py", 8, False)]
)
def test_a_script_of_llama_factory_has_its_defaults(folder: Folder, script: str, steps: int, found: bool) -> None:
    flags = "--deepspeed ds.json --stage sft --model_name_or_path m --dataset d --template t --output_dir o --do_train --learning_rate 1e-4"
    config = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": steps, "zero_optimization": {"stage": 2}}
    folder.write({"run.sh": f"deepspeed {script} {flags}\n", "ds.json": json.dumps(config)})
    errors = {d.code for d in folder.diagnostics("run.sh") if d.severity == "error" and d.certain}
    assert ("DS904" in errors) is found


@pytest.mark.parametrize(
    ("script", "flags", "found"),
    [
        ("src/train.py", "--dataset d", False),
        ("src/train.py", "", True),
        ("src/train.py", "--dataset d --evaluation_strategy steps", True),
        ("src/train_sft.py", "--dataset d --evaluation_strategy steps --dev_ratio 0.01", False),
    ],
)
def test_what_a_script_of_llama_factory_refuses(folder: Folder, script: str, flags: str, found: bool) -> None:
    """A script that only older releases have may name otherwise what the newest release misses."""
    common = "--deepspeed ds.json --stage sft --model_name_or_path m --template t --output_dir o --do_train --learning_rate 1e-4"
    folder.write(
        {"run.sh": f"deepspeed {script} {common} {flags}\n", "ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'}
    )
    assert ("DS975" in {one.code for one in folder.diagnostics("run.sh")}) is found


@pytest.mark.parametrize(("annotation", "found"), [("List[str]", False), ("Optional[list[str]]", False), ("str", True)])
def test_a_parser_makes_a_list_of_a_list_field(folder: Folder, annotation: str, found: bool) -> None:
    program = (
        "from dataclasses import dataclass, field\nfrom typing import List, Optional\nimport transformers\nfrom peft import LoraConfig, get_peft_model\n"
        f"@dataclass\nclass Own:\n    lora_targets: {annotation} = None\n"
        "own, args = transformers.HfArgumentParser((Own, transformers.TrainingArguments)).parse_args_into_dataclasses()\n"
        'model = transformers.AutoModelForCausalLM.from_pretrained("m")\n'
        "model = get_peft_model(model, LoraConfig(r=8, target_modules=own.lora_targets))\n"
        "transformers.Trainer(model=model, args=args).train()\n"
    )
    launch = "deepspeed train.py --deepspeed ds.json --output_dir out --lora_targets W_pack\n"
    folder.write({"train.py": program, "run.sh": launch, "ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'})
    assert ("DS994" in {one.code for one in folder.diagnostics("run.sh")}) is found


@pytest.mark.parametrize(("written", "codes"), [("args.batch", set()), (None, {"DS104"})])
def test_a_value_that_the_program_replaces_is_not_judged(folder: Folder, written: str | None, codes: set[str]) -> None:
    """A file may hold a word in the place of a value that the program writes."""
    change = f"cfg['train_batch_size'] = {written}\n" if written else ""
    program = "import argparse, json, deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch', type=int)\n"
    program += (
        f"args = parser.parse_args()\ncfg = json.load(open('ds.json'))\n{change}deepspeed.initialize(model=m, optimizer=o, config=cfg)\n"
    )
    folder.write({"train.py": program, "ds.json": '{"train_batch_size": "BATCH", "zero_optimization": {"stage": 1}}'})
    assert {code for code, _, _ in folder.found("ds.json", "train.py") if code == "DS104"} == codes


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("make_groups(cfg['tensor_parallel_size'], scheduler(cfg.get('lr_scheduler')))", {"DS102": "info"}),
        ("", {"DS102": "error", "DS103": "warning"}),
    ],
)
def test_a_key_that_the_program_reads_is_its_own(folder: Folder, line: str, codes: dict[str, str]) -> None:
    program = f"import json, deepspeed\ncfg = json.load(open('ds.json'))\n{line}\ndeepspeed.initialize(model=m, optimizer=o, config=cfg)\n"
    folder.write(
        {
            "train.py": program,
            "ds.json": '{"train_batch_size": 8, "tensor_parallel_size": 1, "lr_scheduler": {"type": "WarmupLR", "params": {}}}',
        }
    )
    found = folder.diagnostics("train.py", "ds.json")
    assert {one.code: one.severity for one in found if one.code in ("DS102", "DS103") and not one.pedantic} == codes


@pytest.mark.parametrize(("given", "found"), [("cfg['ds_config']", False), ("'all.json'", True)])
def test_a_program_may_pass_the_object_below_a_key(folder: Folder, given: str, *, found: bool) -> None:
    program = "import json, deepspeed, sys\ncfg = json.load(open('all.json'))\n"
    program += "cfg['ds_config']['train_batch_size'] = int(sys.argv[1]) if sys.argv[1:] else 8\n"
    folder.write({"train.py": f"{program}deepspeed.initialize(model=m, optimizer=o, config={given})\n"})
    folder.write({"all.json": '{"ds_config": {"train_batch_size": 8, "zero_optimization": {"stage": 1}}}'})
    codes = [one.code for one in folder.diagnostics("train.py", "all.json") if one.severity == "error"]
    assert ("DS008" in codes) is found


def test_the_trainer_takes_the_object_in_a_file_of_its_arguments(folder: Folder) -> None:
    arguments = '"model_name_or_path": "m", "output_dir": "o", "learning_rate": 1e-5, "per_device_train_batch_size": 4'
    folder.write({"args.json": f'{{{arguments}, "deepspeed": {{"train_batch_size": 8, "zero_optimization": {{"stage": 2}}}}}}'})
    assert "DS008" not in {one.code for one in folder.diagnostics("args.json")}


@pytest.mark.parametrize(("given", "code"), [("cfg['ds_config']", "DS904"), ("'all.json'", "DS008")])
def test_the_trainer_compares_no_keys_below_a_key(folder: Folder, given: str, code: str) -> None:
    program = "import json\nfrom transformers import Trainer, TrainingArguments\ncfg = json.load(open('all.json'))\n"
    program += f"args = TrainingArguments('o', per_device_train_batch_size=4, gradient_accumulation_steps=2, deepspeed={given})\n"
    folder.write({"train.py": f"{program}Trainer(model=m, args=args, train_dataset=d).train()\n"})
    folder.write(
        {
            "all.json": '{"ds_config": {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 1}}}'
        }
    )
    codes = {one.code for one in folder.diagnostics("train.py", "all.json") if one.severity == "error"}
    assert codes & {"DS008", "DS904"} == {code}


@pytest.mark.parametrize(("batch", "found"), [("${batch}", False), ("4", True)])
def test_omegaconf_reads_a_number_without_a_point(folder: Folder, batch: str, *, found: bool) -> None:
    folder.write({"ds.yaml": f"train_micro_batch_size_per_gpu: {batch}\nzero_optimization:\n  stage: 2\n  reduce_bucket_size: 5e8\n"})
    assert ("DS104" in [code for code, _, _ in folder.found("ds.yaml")]) is found


def test_a_wrong_batch_names_the_launch(folder: Folder) -> None:
    """The launch on four ranks is right."""
    config = '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}'
    launch = "deepspeed --num_gpus {} train.py --deepspeed_config ds.json\n"
    folder.write({"ds.json": config, "a.sh": launch.format(4), "b.sh": launch.format(8)})
    (found,) = [one for one in folder.diagnostics("a.sh", "b.sh") if one.code == "DS201"]
    assert [(one.path, one.message) for one in found.related][-1] == ("b.sh", "starts 8 ranks")


FROZEN = (
    "import deepspeed\ndef prepare(model, size):\n    config = {'train_micro_batch_size_per_gpu': size, 'bf16': {'enabled': True}}\n"
    "    engine, *_ = deepspeed.initialize(model=model, config=config)\n    return engine.eval()\n"
)


@pytest.mark.parametrize("integration", [Integration.ACCELERATE, Integration.TRANSFORMERS])
def test_the_integration_that_is_given_is_not_that_of_a_dict_for_deepspeed(folder: Folder, integration: Integration) -> None:
    folder.write({"reference.py": FROZEN})
    facts = Facts(integration=integration)
    assert "DS910" not in {code for code, *_ in folder.found("reference.py", facts=facts)}


def test_it_is_that_of_a_file_that_the_program_may_fill(folder: Folder) -> None:
    folder.write({"ds.json": '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}'})
    assert "DS910" in {code for code, *_ in folder.found("ds.json", facts=Facts(integration=Integration.ACCELERATE))}


CHAT = (
    "import argparse, json\nimport deepspeed\nfrom accelerate import Accelerator, DeepSpeedPlugin\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--local_rank')\nparser.add_argument('--deepspeed')\nparser.add_argument('--deepspeed_config')\n"
    "args = parser.parse_args()\nsettings = json.load(open(args.deepspeed))\n"
)
FLAGGED = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}'


@pytest.mark.parametrize(
    ("launch", "load", "expected"),
    [
        ("python chat.py --deepspeed ds.json", "accelerator = Accelerator()\naccelerator.prepare(model)\n", []),
        ("deepspeed chat.py --deepspeed ds.json", "accelerator = Accelerator()\naccelerator.prepare(model)\n", []),
        ("accelerate launch --multi_gpu chat.py --deepspeed ds.json", "accelerator = Accelerator()\naccelerator.prepare(model)\n", []),
        ("accelerate launch --config_file ddp.yaml chat.py --deepspeed ds.json", "Accelerator().prepare(model)\n", []),
        (
            "accelerate launch chat.py --deepspeed ds.json",
            "plugin = DeepSpeedPlugin(hf_ds_config=args.deepspeed)\nAccelerator(deepspeed_plugin=plugin).prepare(model)\n",
            ["DS910"],
        ),
        (
            "accelerate launch --use_deepspeed --deepspeed_config_file ds.json chat.py --deepspeed ds.json",
            "Accelerator().prepare(model)\n",
            ["DS910"],
        ),
        ("deepspeed chat.py --deepspeed zero2.json", "engine = deepspeed.initialize(model=model)[0]\n", []),
        ("deepspeed chat.py --deepspeed_config zero2.json", "engine = deepspeed.initialize(args=args, model=model)[0]\n", ["DS654"]),
        ("deepspeed chat.py --deepspeed zero2.json", "engine = deepspeed.initialize(model=model, config=args.deepspeed)[0]\n", ["DS654"]),
        ("deepspeed chat.py --deepspeed zero2.json", "engine = deepspeed.initialize(model=model, config=settings)[0]\n", ["DS654"]),
    ],
)
def test_a_file_that_only_the_program_reads_is_not_its_loaders(folder: Folder, launch: str, load: str, expected: list[str]) -> None:
    folder.write({"chat.py": CHAT + load, "ds.json": FLAGGED, "run.sh": f"{launch}\n"})
    folder.write(
        {"zero2.json": FLAGGED[:-1] + ', "zero_optimization": {"stage": 2}}', "ddp.yaml": "distributed_type: MULTI_GPU\nnum_processes: 4\n"}
    )
    assert [code for code, *_ in folder.found("run.sh") if code in ("DS910", "DS654", "DS902")] == expected


OWN_CLASS = (
    "import json\nfrom dataclasses import dataclass, field\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n\n\n"
    "@dataclass\nclass Chat%s:\n    model_name_or_path: str = 'm'\n    device: str = 'gpu'\n%s\n\n"
    "class Tuner:\n    def tune(self, model, args):\n        Trainer(model, args).train()\n\n\n(args,) = HfArgumentParser((Chat,)).parse_args_into_dataclasses()\n"
)
CHATS = OWN_CLASS % ("", "    deepspeed: str = None\n") + "settings = json.load(open(args.deepspeed))\nprint(settings)\n"


@pytest.mark.parametrize(
    ("program", "flags", "expected"),
    [
        (CHATS, "--device cpu", []),
        (CHATS, "--device cpu --learning_rate 1e-4", ["DS910"]),  # refused by its parser, or of another class
        (CHATS + "Tuner().tune(model, TrainingArguments('out', deepspeed=args.deepspeed))\n", "--device cpu", ["DS910"]),
        (OWN_CLASS % ("(TrainingArguments)", "") + "Tuner().tune(model, args)\n", "--device cpu", ["DS910"]),
    ],
)
def test_a_flag_of_a_class_that_is_not_the_trainers_is_read_by_the_program(
    folder: Folder, program: str, flags: str, expected: list[str]
) -> None:
    folder.write({"chat.py": program, "ds.json": FLAGGED, "run.sh": f"python chat.py --deepspeed ds.json --model_name_or_path m {flags}\n"})
    assert [code for code, *_ in folder.found("run.sh") if code == "DS910"] == expected


def test_a_pointer_of_git_lfs_is_no_mistake_of_syntax(folder: Folder) -> None:
    folder.write({"ds_config.json": "version https://git-lfs.github.com/spec/v1\noid sha256:4cac19622fc3ada9\nsize 1160\n"})
    (found,) = folder.diagnostics("ds_config.json")
    assert (found.code, found.help) == ("DS001", "Run git lfs pull.")
