"""DS9: releases of the libraries around DeepSpeed that train wrongly, or fail, with DeepSpeed."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Release
from dslint.job.arguments import SourcedValue
from dslint.job.events import Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.defects_in_programs import PROGRAM_DEFECTS
from dslint.rules.helpers.defects_of_libraries import LIBRARY_DEFECTS
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.framework_limits import SOURCE, crossed_limits
from dslint.rules.helpers.library_pairs import PAIRS

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_STAGE_3 = _STAGE_2.replace('"stage": 2', '"stage": 3, "stage3_gather_16bit_weights_on_model_save": true')
_AUTO = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}'
_ACCUMULATING = _STAGE_2.replace('"gradient_accumulation_steps": 1', '"gradient_accumulation_steps": 8')
_WITH_OPTIMIZER = (
    '{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_optimization": {"stage": 2}}'
)
_OFFLOADED = _STAGE_2.replace('"stage": 2', '"stage": 2, "offload_optimizer": {"device": "cpu"}')
_AXOLOTL = (
    "base_model: m\ndatasets: [{path: d, type: alpaca}]\nmicro_batch_size: 4\ngradient_accumulation_steps: 1\nlearning_rate: 1e-4\n"
    "optimizer: adamw_bnb_8bit\ndeepspeed: ds_config.json\n"
)
_MACHINES = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\nmain_process_ip: 10.0.0.1\n"
    "main_process_port: 29500\ndeepspeed_config:\n  deepspeed_config_file: ds_config.json\n  deepspeed_multinode_launcher: pdsh\n"
    "  deepspeed_hostfile: hosts\n"
)
_SWIFT = "model: m\ntuner_type: lora\ndeepspeed: ds_config.json\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\noutput_dir: o\n"
_PREPARED = (
    "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
    "schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)\n"
    "model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)\n"
)
_TRAINER = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json", gradient_accumulation_steps=8)\n'
    'trainer = Trainer(AutoModelForCausalLM.from_pretrained("m"), arguments)\n'
)
_RESIZING = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\n'
    'model = AutoModelForCausalLM.from_pretrained("m")\nmodel.resize_token_embeddings(32001)\n'
    "trainer = Trainer(model, arguments)\n"
)
_ADAPTER = (
    "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\n'
    'model = get_peft_model(AutoModelForCausalLM.from_pretrained("m"), LoraConfig(r=8, modules_to_save=["head"]))\n'
    "trainer = Trainer(model, arguments)\n"
)
_CLASSIFIER = (
    "from peft import LoraConfig, TaskType, get_peft_model\nfrom transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\n'
    'model = get_peft_model(AutoModelForSequenceClassification.from_pretrained("m"), LoraConfig(task_type=%s))\ntrainer = Trainer(model, arguments)\n'
)
_PLAIN_ADAPTER = _ADAPTER.replace(', modules_to_save=["head"]', "")

_FACTORY = (
    "stage: sft\nmodel_name_or_path: m\ndataset: d\nper_device_train_batch_size: 2\nlearning_rate: 1e-4\ndo_train: true\noutput_dir: out\n"
    "deepspeed: ds_config.json\n"
)
_RESUMING = "finetuning_type: lora\nresume_from_checkpoint: out/checkpoint-100\n"
_REWARDED = (
    "from trl import GRPOConfig, GRPOTrainer\n"
    "trainer = GRPOTrainer(model='m', reward_funcs='r', args=GRPOConfig('out', deepspeed='ds_config.json'))\n"
)
_PPO = (
    "from transformers import AutoModelForCausalLM, HfArgumentParser\nfrom trl import PPOConfig, PPOTrainer\n"
    "arguments = HfArgumentParser(PPOConfig).parse_args_into_dataclasses()[0]\n"
    'model, value = AutoModelForCausalLM.from_pretrained("m"), AutoModelForCausalLM.from_pretrained("v")\n'
    "trainer = PPOTrainer(args=arguments, model=model, value_model=value, train_dataset=data)\n"
)
_DPO = (
    "from transformers import AutoModelForCausalLM\nfrom trl import DPOConfig, DPOTrainer\n"
    'arguments = DPOConfig("out", deepspeed="ds_config.json")\n'
    'trainer = DPOTrainer(AutoModelForCausalLM.from_pretrained("m"), args=arguments)\n'
)
_ACCELERATOR_LATE = (
    "from accelerate import Accelerator\nfrom transformers import TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\naccelerator = Accelerator(log_with="wandb")\n'
)
_TRAINER_FIRST = (
    "from accelerate import Accelerator\nfrom transformers import Trainer, TrainingArguments\n"
    'arguments = TrainingArguments("out", deepspeed="ds_config.json")\ntrainer = Trainer(model, arguments)\ntrainer.train()\n'
    "accelerator = Accelerator()\n"
)
_LITTLE_MEMORY = (
    "import deepspeed\nfrom transformers import AutoModelForCausalLM\nfrom transformers.integrations import HfDeepSpeedConfig\n"
    'kept = HfDeepSpeedConfig("ds_config.json")\nmodel = AutoModelForCausalLM.from_pretrained("m", low_cpu_mem_usage=True)\n'
    'engine, *_ = deepspeed.initialize(model=model, config="ds_config.json")\n'
)
_QUANTIZED = (
    "import deepspeed\nimport torch\nfrom transformers import AutoModelForCausalLM\n"
    'model = AutoModelForCausalLM.from_pretrained("m", load_in_4bit=True)\n'
    "optimizer = torch.optim.AdamW(model.parameters())\n"
    'engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config="ds_config.json")\n'
)

_ENGINE = 'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
_EXPERTS = (
    "import deepspeed\nimport torch\nfrom deepspeed.moe.layer import MoE\nnet = MoE(64, torch.nn.Linear(64, 64), num_experts=8, ep_size=2, k=%d)\n"
    + _ENGINE
)
_ATTENDS = (
    "import deepspeed\nfrom deepspeed.sequence.layer import DistributedAttention\nattention = DistributedAttention(local, group)\n"
    + _ENGINE
)
_TILES = (
    "import deepspeed\nfrom deepspeed.runtime.sequence_parallel.ulysses_sp import TiledMLP\nx = TiledMLP.apply(forward, mlp, x, 4, [])\n"
    + _ENGINE
)
_PIPELINE = (
    "import deepspeed\nfrom deepspeed.pipe import PipelineModule\nnet = PipelineModule(layers=layers, num_stages=4)\n"
    + _ENGINE
    + "loss = engine.train_batch(iterator)\n"
)

_LOADS = (
    "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "engine.load_checkpoint('out'%s)\n"
)
_ON_TWO = "printf 'work1 slots=8\\nwork2 slots=8\\n' > hosts\ndeepspeed --hostfile hosts %s train.py --deepspeed_config ds_config.json\n"
_PLAIN = trained('"zero_optimization": {"stage": 2}')
_AUTOCAST = (
    "import deepspeed\nimport torch\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "casts = {'deepspeed': torch.cuda.amp.autocast(enabled=%s, dtype=dtype), 'ddp': torch.cuda.amp.autocast()}\nautocast = casts['deepspeed']\n"
    "with autocast:\n    loss = engine(batch)\n"
)


@rule(
    "DS986",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(*dict.fromkeys(one.source for one in (*LIBRARY_DEFECTS, *PROGRAM_DEFECTS, *PAIRS)), SOURCE),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    deepspeed="0.14.0",
    program=_TRAINER,
    integration="transformers",
    pins={"torch": Release(2, 4, 0)},
    message="deepspeed 0.14.0: it imports private names that torch 2.4 and later do not have, so `import deepspeed` raises ImportError \"cannot import name ... from 'torch.distributed.elastic.agent.server.api'\".",
)
@bad(
    _OFFLOADED,
    at=("optimizer",),
    training=_AXOLOTL,
    pins={"accelerate": Release(1, 2, 1)},
    message="accelerate 1.2.1: with an offloaded optimizer it replaces the AdamW of bitsandbytes, and may raise AttributeError \"'AdamW' object has no attribute 'optim_bits'\" before that (train.yaml:6).",
)
@bad(
    _STAGE_2,
    at="",
    program=_PPO,
    integration="accelerate",
    pins={"accelerate": Release(1, 0, 1)},
    message='accelerate 1.0.1: an Accelerator that is made after TrainingArguments or PartialState expects one before it, and may raise ValueError "Please make sure to properly initialize your accelerator via `accelerator = Accelerator()`" (train.py:5).',
)
@bad(
    _STAGE_2,
    at="",
    program=_ACCELERATOR_LATE,
    integration="transformers",
    pins={"accelerate": Release(1, 8, 1)},
    message='accelerate 1.8.1: an Accelerator that is made after TrainingArguments or PartialState expects one before it, and may raise ValueError "Please make sure to properly initialize your accelerator via `accelerator = Accelerator()`" (train.py:4).',
)
@bad(
    _STAGE_2,
    at="",
    program=_PLAIN_ADAPTER,
    integration="transformers",
    pins={"transformers": Release(4, 57, 6), "torch": Release(2, 10, 0)},
    message='transformers 4.57.6 with torch 2.10.0: the Trainer makes the schedule for two groups of weights, and no weight of the adapter is in the group without decay, which DeepSpeed removes: the first step of the schedule raises ValueError "zip() argument 2 is longer than argument 1".',
)
@bad(
    _AUTO,
    at="",
    deepspeed="0.16.9",
    training=_FACTORY + "finetuning_type: lora\n",
    pins={"llamafactory": Release(0, 9, 4), "torch": Release(2, 10, 0)},
    message='transformers 4.57.1 (the newest that LLaMA-Factory 0.9.4 allows) with torch 2.10.0: the Trainer makes the schedule for two groups of weights, and no weight of the adapter is in the group without decay, which DeepSpeed removes: the first step of the schedule may raise ValueError "zip() argument 2 is longer than argument 1".',
)
@good(
    _AUTO,
    deepspeed="0.16.9",
    training=_FACTORY + "finetuning_type: lora\n",
    pins={"llamafactory": Release(0, 9, 5), "torch": Release(2, 10, 0)},
)
@good(
    _AUTO,
    deepspeed="0.16.9",
    training=_FACTORY + "finetuning_type: full\n",
    pins={"llamafactory": Release(0, 9, 4), "torch": Release(2, 10, 0)},
)
@good(_AUTO, training=_FACTORY + "finetuning_type: lora\n", pins={"torch": Release(2, 10, 0)})
@bad(
    _AUTO,
    at="",
    deepspeed="0.17.2",
    training=_FACTORY,
    pins={"llamafactory": Release(0, 9, 3)},
    message='LLaMA-Factory 0.9.3 refuses deepspeed 0.17.2: it raises ImportError "deepspeed>=0.10.0,<=0.16.9 is required for a normal functioning of this module".',
)
@bad(
    _AUTO,
    at="",
    training=_FACTORY,
    pins={"llamafactory": Release(0, 9, 1), "transformers": Release(4, 48, 3)},
    message='LLaMA-Factory 0.9.1 refuses transformers 4.48.3: it may raise ImportError "transformers>=4.41.2,<=4.46.1 is required for a normal functioning of this module".',
)
@bad(
    _STAGE_3,
    at="",
    deepspeed="0.12.6",
    training=_FACTORY,
    pins={"llamafactory": Release(0, 7, 1)},
    message='LLaMA-Factory 0.7.1 refuses deepspeed 0.12.6: it raises ImportError "deepspeed>=0.13.0 is required for a normal functioning of this module".',
)
@bad(
    _STAGE_3,
    at="",
    deepspeed="0.12.6",
    training=_FACTORY,
    model={"model_type": "mixtral", "hidden_size": 64},
    pins={"llamafactory": Release(0, 6, 0)},
    message='LLaMA-Factory 0.6.0 refuses deepspeed 0.12.6: it raises ImportError "deepspeed>=0.13.0 is required for a normal functioning of this module".',
)
@bad(
    _AUTO,
    at="",
    training=_FACTORY.replace("stage: sft", "stage: ppo\nreward_model: r"),
    pins={"llamafactory": Release(0, 9, 5), "trl": Release(0, 24, 0)},
    message='LLaMA-Factory 0.9.5 refuses trl 0.24.0: it raises ImportError "trl>=0.8.6,<=0.9.6 is required for a normal functioning of this module".',
)
@good(_AUTO, training=_FACTORY, pins={"llamafactory": Release(0, 9, 5), "trl": Release(0, 24, 0)})
@good(_AUTO, deepspeed="0.17.2", training=_FACTORY, pins={"llamafactory": Release(0, 9, 5)})
@good(_AUTO, deepspeed="0.16.9", training=_FACTORY, pins={"llamafactory": Release(0, 9, 3)})
@good(
    _STAGE_2,
    program=_PLAIN_ADAPTER,
    integration="transformers",
    pins={"transformers": Release(5, 1, 0), "torch": Release(2, 10, 0)},
)
@good(
    _STAGE_2,
    program=_PLAIN_ADAPTER,
    integration="transformers",
    pins={"transformers": Release(4, 57, 6), "torch": Release(2, 9, 1)},
)
@good(
    _STAGE_2,
    program=_ADAPTER,
    integration="transformers",
    pins={"transformers": Release(4, 57, 6), "torch": Release(2, 10, 0)},
)
@good(
    _WITH_OPTIMIZER,
    program=_PLAIN_ADAPTER,
    integration="transformers",
    pins={"transformers": Release(4, 57, 6), "torch": Release(2, 10, 0)},
)
@good(_STAGE_2, program=_PPO, integration="accelerate", pins={"accelerate": Release(1, 9, 0)})
@good(
    _STAGE_2,
    program=_TRAINER_FIRST,
    integration="transformers",
    pins={"accelerate": Release(1, 8, 1)},
)
@good(
    _STAGE_2,
    program=_ACCELERATOR_LATE.replace("accelerator =", "first = Accelerator(deepspeed_plugin=plugin)\naccelerator ="),
    integration="transformers",
    pins={"accelerate": Release(1, 8, 1)},
)
@good(_STAGE_2, program=_PPO.replace("value_model", "ref_model"), integration="accelerate", pins={"accelerate": Release(1, 0, 1)})
@good(
    _STAGE_2,
    program=_ACCELERATOR_LATE.replace('arguments = TrainingArguments("out", deepspeed="ds_config.json")\n', ""),
    integration="accelerate",
    pins={"accelerate": Release(1, 8, 1)},
)
@bad(
    _AUTO,
    at="",
    training=_FACTORY,
    pins={"transformers": Release(4, 36, 0)},
    world_size=2,
    message="transformers 4.36.0: each rank renames the folder tmp-checkpoint-... of a checkpoint, and all but the first one may raise FileNotFoundError.",
)
@good(_AUTO, training=_FACTORY, pins={"transformers": Release(4, 36, 0)}, world_size=1)
@good(_AUTO, training=_FACTORY, pins={"transformers": Release(4, 36, 2)}, world_size=2)
@good(_AUTO, training=_FACTORY + "save_strategy: 'no'\n", pins={"transformers": Release(4, 36, 0)}, world_size=2)
@bad(
    _AUTO,
    at=("resume_from_checkpoint",),
    training=_FACTORY + _RESUMING,
    pins={"transformers": Release(4, 37, 2)},
    message='transformers 4.37.2: the Trainer saves the checkpoints of an adapter without the frozen weights, and requires all weights when it loads one: it may raise RuntimeError "Missing key(s) in state_dict" (train.yaml:10).',
)
@good(_AUTO, training=_FACTORY + _RESUMING, pins={"transformers": Release(4, 38, 0)})
@good(_AUTO, training=_FACTORY + _RESUMING.replace("lora", "full"), pins={"transformers": Release(4, 37, 2)})
@good(_OFFLOADED, training=_AXOLOTL, pins={"accelerate": Release(1, 3, 0)})
@good(_STAGE_2, training=_AXOLOTL, pins={"accelerate": Release(1, 2, 1)})
@good(_STAGE_3, deepspeed="0.14.4", program=_TRAINER, integration="transformers", pins={"torch": Release(2, 4, 0)})
@good(_STAGE_3, deepspeed="0.14.0", program=_TRAINER, integration="transformers", pins={"torch": Release(2, 3, 1)})
@good(_STAGE_3, deepspeed="0.12.6", program=_TRAINER, integration="transformers")
@bad(
    _STAGE_2,
    at="",
    program=_PREPARED,
    integration="accelerate",
    pins={"accelerate": Release(0, 23, 0)},
    world_size=8,
    message="accelerate 0.23.0: a schedule of torch advances once per step, where other releases advance it once for each rank, so a learning rate that is planned for the batches of all ranks changes too slowly (train.py:5).",
)
@bad(
    _STAGE_3,
    at="",
    program='from accelerate import Accelerator\naccelerator = Accelerator()\naccelerator.save_model(model, "out")\n',
    integration="accelerate",
    pins={"accelerate": Release(0, 33, 0)},
    world_size=8,
    message="accelerate 0.33.0: save_model at ZeRO stage 3 may raise AttributeError \"'NoneType' object has no attribute 'items'\" on every rank but the first, which alone gets the weights (train.py:3).",
)
@bad(
    _ACCUMULATING,
    at="gradient_accumulation_steps",
    program=_TRAINER,
    integration="transformers",
    pins={"transformers": Release(4, 48, 3)},
    message="transformers 4.48.3: where the Trainer averages the loss over the accumulation itself, DeepSpeed divides it by gradient_accumulation_steps again, and gradients, their norm and what clipping sees are too small.",
)
@bad(
    _STAGE_3,
    at="",
    program=_ADAPTER,
    integration="transformers",
    pins={"peft": Release(0, 7, 1)},
    message="peft 0.7.1: PEFT copies the modules of modules_to_save (for the tasks SEQ_CLS and TOKEN_CLS the head, too) while ZeRO stage 3 keeps their weights divided: the copies are empty, and the forward pass may raise AssertionError about ZeroParamStatus.AVAILABLE (train.py:4).",
)
@good(
    _ACCUMULATING,
    program="from transformers import Trainer\nclass OwnTrainer(Trainer):\n    def training_step(self, model, inputs, count=None):\n        return 0\n"
    + _TRAINER.replace("Trainer(", "OwnTrainer("),
    integration="transformers",
    pins={"transformers": Release(4, 48, 3)},
)
@good(
    _ACCUMULATING,
    program="from unittest import mock\nfrom own import training_step\nmock.patch('transformers.trainer.Trainer.training_step', new=training_step).start()\n"
    + _TRAINER,
    integration="transformers",
    pins={"transformers": Release(4, 46, 1)},
)
@good(
    _STAGE_3,
    program="from own import options\n" + _ADAPTER.replace('["head"]', "options.lora_modules_to_save"),
    integration="transformers",
    pins={"peft": Release(0, 7, 1)},
)
@bad(
    _WITH_OPTIMIZER,
    at="optimizer",
    training=_SWIFT,
    pins={"ms-swift": Release(4, 6, 0)},
    message="ms-swift 4.6.0: with an optimizer section, and transformers 5, its create_optimizer may raise AttributeError \"'DummyOptim' object has no attribute 'param_groups'\".",
)
@bad(
    _STAGE_3,
    at="",
    program=_RESIZING,
    integration="transformers",
    pins={"transformers": Release(4, 33, 0)},
    message="transformers 4.33.0: at ZeRO stage 3 resize_token_embeddings reads the size of an embedding that is divided, and makes the output layer (up to 4.33.1) or vocab_size (4.33.2) 0, so the forward pass may raise (train.py:4).",
)
@bad(
    _STAGE_3,
    at="",
    program=_RESIZING,
    integration="transformers",
    pins={"transformers": Release(4, 43, 1)},
    message="transformers 4.43.1: at ZeRO stage 3 resize_token_embeddings replaces the embedding without gathering it, and the training may raise about its shape (train.py:4).",
)
@bad(
    _STAGE_3,
    at="",
    program=_TRAINER.replace('"m")', '"m", ignore_mismatched_sizes=True)'),
    integration="transformers",
    pins={"transformers": Release(4, 43, 4)},
    message="transformers 4.43.4: with ignore_mismatched_sizes=True, from_pretrained compares the checkpoint with weights that ZeRO stage 3 has divided, which have the size 0, and drops every weight of the checkpoint: the training starts from random weights (train.py:3).",
)
@bad(
    _STAGE_3,
    at="",
    program=_REWARDED,
    integration="transformers",
    pins={"trl": Release(0, 16, 1)},
    message="trl 0.16.1: at ZeRO stage 3 GRPOTrainer gives a reward model no engine, which gathers its weights: its forward pass may raise RuntimeError about weights of the shape [0] (train.py:2).",
)
@bad(
    _PLAIN,
    at="",
    program=_EXPERTS % 4,
    integration="deepspeed",
    deepspeed="0.16.9",
    message="deepspeed 0.16.9: with k above 2, the gate of MoE chooses the tokens of an expert by their logits, and drops those with a negative one: few of the k experts of a token may be used (train.py:4).",
)
@bad(
    _PLAIN,
    at="",
    program=_EXPERTS % 1,
    integration="deepspeed",
    deepspeed="0.14.5",
    message="deepspeed 0.14.5: ZeRO stages 1 and 2 divide the gradients of experts by the ranks that share an expert, and not by all: they are ep_size times too large (train.py:4).",
)
@bad(
    _PLAIN,
    at="",
    program=_ATTENDS,
    integration="deepspeed",
    deepspeed="0.13.5",
    message="deepspeed 0.13.5: DistributedAttention puts the heads of its output in a wrong order: the model does not converge (train.py:3).",
)
@bad(
    _PLAIN,
    at="",
    program=_ATTENDS,
    integration="deepspeed",
    deepspeed="0.14.4",
    message="deepspeed 0.14.4: DistributedAttention mixes up the samples of a micro batch of more than one (train.py:3).",
)
@bad(
    _PLAIN,
    at="",
    program=_TILES,
    integration="deepspeed",
    deepspeed="0.17.1",
    message="deepspeed 0.17.1: its tiled computations give gradients to other positions if the micro batch has more than one sample (train.py:3).",
)
@bad(
    trained('"gradient_accumulation_steps": 8, "zero_optimization": {"stage": 1}'),
    at="",
    program=_PIPELINE,
    integration="deepspeed",
    deepspeed="0.19.0",
    message="deepspeed 0.19.0: each stage of a pipeline divides the gradients by the gradient accumulation steps again: those of all stages but the last are too small (train.py:3).",
)
@bad(
    _STAGE_3,
    at="zero_optimization.stage",
    program=_TRAINER,
    integration="transformers",
    deepspeed="0.18.7",
    pins={"torch": Release(2, 10, 0)},
    message="deepspeed 0.18.7: with torch 2.10 and later, ZeRO stage 3 may copy gradients before the backward pass has written them, and weights become NaN.",
)
@bad(
    _STAGE_3,
    at="",
    program=_LOADS % ', tag="best", load_optimizer_states=False',
    integration="deepspeed",
    deepspeed="0.19.8",
    message="deepspeed 0.19.8: at ZeRO stage 3, load_checkpoint without the states of the optimizer may load the weights of another checkpoint: it reads those of the tag in the file latest, not of the tag that is given (train.py:3).",
)
@good(_STAGE_3, program=_LOADS % ', tag="best"', integration="deepspeed", deepspeed="0.19.8")
@good(_STAGE_3, program=_LOADS % ", load_optimizer_states=False", integration="deepspeed", deepspeed="0.19.8")
@good(_PLAIN, program=_LOADS % ', tag="best", load_optimizer_states=False', integration="deepspeed", deepspeed="0.19.8")
@bad(
    trained('"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}'),
    at="bf16.enabled",
    program=_PIPELINE,
    integration="deepspeed",
    deepspeed="0.11.2",
    message="deepspeed 0.11.2: a pipeline in bf16 at ZeRO stage 1 sums its gradients in bf16, in an optimizer that pipelines do not support: the first step may raise AttributeError \"'DeepSpeedZeroOptimizer' object has no attribute 'clear_lp_grads'\", and from 0.11.2 on AssertionError \"allreduce_gradients() is not valid when bfloat+pipeline_parallelism is enabled\".",
)
@good(
    trained('"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1}'),
    program=_PIPELINE,
    integration="deepspeed",
    deepspeed="0.11.2",
)
@good(
    trained('"fp16": {"enabled": true}, "zero_optimization": {"stage": 1}'), program=_PIPELINE, integration="deepspeed", deepspeed="0.11.2"
)
@bad(
    _STAGE_2,
    at="",
    launch=_ON_TWO % "--launcher openmpi",
    integration="deepspeed",
    deepspeed="0.17.6",
    message='deepspeed 0.17.6: the launcher looks for the variables of mpirun before it starts mpirun, and may raise OSError "MPI environment variables are not set" (run.sh:2).',
)
@bad(
    _STAGE_2,
    at="",
    launch=_ON_TWO % "--ssh_port 2222",
    integration="deepspeed",
    deepspeed="0.13.5",
    message="deepspeed 0.13.5: with --ssh_port the launcher raises KeyError 'PDSH_SSH_ARGS_APPEND' unless that variable is set (run.sh:2).",
)
@bad(
    _STAGE_2,
    at="",
    launch=_ON_TWO % "--no_ssh --node_rank 0 --master_addr work1",
    integration="deepspeed",
    deepspeed="0.14.0",
    message='deepspeed 0.14.0: the launcher has no --no_ssh yet, and may raise "unrecognized arguments" (run.sh:2).',
)
@bad(
    _STAGE_2,
    at="",
    launch=_ON_TWO % "--enable_each_rank_log logs",
    integration="deepspeed",
    deepspeed="0.16.0",
    message="deepspeed 0.16.0: the launcher does not pass --enable_each_rank_log on to other machines, so no rank writes a log (run.sh:2).",
)
@good(_STAGE_2, launch=_ON_TWO % "--launcher openmpi", integration="deepspeed", deepspeed="0.18.4")
@good(_STAGE_2, launch=_ON_TWO % "--ssh_port 2222", integration="deepspeed", deepspeed="0.14.1")
@good(_STAGE_2, launch=_ON_TWO % "--no_ssh --node_rank 0 --master_addr work1", integration="deepspeed", deepspeed="0.14.5")
@good(
    _STAGE_2, launch="deepspeed --ssh_port 2222 train.py --deepspeed_config ds_config.json\n", integration="deepspeed", deepspeed="0.12.3"
)
@good(_PLAIN, program=_EXPERTS % 2, integration="deepspeed", deepspeed="0.16.9")
@good(_PLAIN, program=_EXPERTS % 4, integration="deepspeed", deepspeed="0.19.0")
@good(_PLAIN, program=_ATTENDS, integration="deepspeed", deepspeed="0.14.5")
@good(_PLAIN, program=_TILES, integration="deepspeed", deepspeed="0.17.3")
@good(
    trained('"gradient_accumulation_steps": 8, "zero_optimization": {"stage": 1}'),
    program=_PIPELINE,
    integration="deepspeed",
    deepspeed="0.19.3",
)
@good(_STAGE_3, program=_TRAINER, integration="transformers", deepspeed="0.18.8", pins={"torch": Release(2, 10, 0)})
@good(_STAGE_3, program=_REWARDED, integration="transformers", pins={"trl": Release(0, 17, 0)})
@bad(
    _STAGE_2,
    at="main_process_port",
    accelerate="compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\nmain_process_port: 0\n"
    "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    pins={"accelerate": Release(1, 6, 0)},
    message="accelerate 1.6.0: it passes the port 0 on instead of a free one, so the ranks wait for each other at port 0 until they time out (accelerate.yaml:5).",
)
@good(
    _STAGE_2,
    accelerate="compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\nmain_process_port: 0\n"
    "deepspeed_config:\n  deepspeed_config_file: ds_config.json\n",
    pins={"accelerate": Release(1, 7, 0)},
)
@bad(
    _STAGE_2,
    at="main_process_ip",
    accelerate=_MACHINES,
    pins={"accelerate": Release(0, 25, 0)},
    message="accelerate 0.25.0: it does not pass main_process_ip on to the launcher of DeepSpeed, which takes the first address of the first machine in the hostfile: where the other machines cannot reach that one, the ranks wait for each other until they time out (accelerate.yaml:5).",
)
@good(_STAGE_2, accelerate=_MACHINES, pins={"accelerate": Release(0, 29, 0)})
@good(_STAGE_2, accelerate=_MACHINES.replace("num_machines: 2", "num_machines: 1"), pins={"accelerate": Release(0, 25, 0)})
@good(_STAGE_2, accelerate=_MACHINES.replace("pdsh", "standard"), pins={"accelerate": Release(0, 25, 0)})
@good(_STAGE_2, accelerate=_MACHINES.replace("main_process_ip: 10.0.0.1\n", ""), pins={"accelerate": Release(0, 25, 0)})
@good(
    _STAGE_2,
    accelerate=_MACHINES,
    launch="accelerate launch --config_file accelerate.yaml --deepspeed_multinode_launcher standard train.py\n",
    pins={"accelerate": Release(0, 25, 0)},
)
@bad(
    _STAGE_2,
    at=("deepspeed_config", "deepspeed_hostfile"),
    accelerate=_MACHINES.replace("main_process_ip: 10.0.0.1\nmain_process_port: 29500\n", ""),
    launch="accelerate launch --config_file accelerate.yaml train.py\n",
    pins={"accelerate": Release(1, 6, 0)},
    message="accelerate 1.6.0: without main_process_port it starts the launcher of DeepSpeed with --master_port None, which ends with \"argument --master_port: invalid int value: 'None'\" (accelerate.yaml:8).",
)
@good(
    _STAGE_2,
    accelerate=_MACHINES.replace("main_process_port: 29500\n", ""),
    launch="accelerate launch --config_file accelerate.yaml train.py\n",
    pins={"accelerate": Release(1, 7, 0)},
)
@good(
    _STAGE_2,
    accelerate=_MACHINES.replace("main_process_port: 29500\n", ""),
    launch="accelerate launch --config_file accelerate.yaml --main_process_port 29500 train.py\n",
    pins={"accelerate": Release(1, 6, 0)},
)
@bad(
    _STAGE_3,
    at="",
    program=_ADAPTER,
    integration="transformers",
    pins={"peft": Release(0, 15, 0)},
    message="peft 0.15.0: PEFT saves the modules of modules_to_save by themselves, without the gathered weights of ZeRO stage 3: they are empty in the adapter (train.py:4).",
)
@bad(
    _STAGE_3,
    at="",
    program=_LITTLE_MEMORY,
    integration="deepspeed",
    pins={"transformers": Release(4, 40, 0)},
    message='transformers 4.40.0: from_pretrained may raise "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`" at ZeRO stage 3 (train.py:5).',
)
@good(
    _STAGE_3,
    program=_LITTLE_MEMORY,
    integration="deepspeed",
    pins={"transformers": Release(4, 51, 3)},
)
@bad(
    _STAGE_3,
    at="",
    program=_ADAPTER,
    integration="transformers",
    deepspeed="0.17.6",
    message="deepspeed 0.17.6: ZeRO stage 3 takes a hook of the module inside PEFT's wrapper of modules_to_save for one of the wrapper, and the forward pass may raise AttributeError \"'Linear' object has no attribute 'ds_grads_remaining'\" (train.py:4).",
)
@bad(
    _STAGE_2,
    at="",
    program=_QUANTIZED,
    integration="deepspeed",
    pins={"transformers": Release(4, 31, 0)},
    message='transformers 4.31.0: deepspeed.initialize moves the model to the GPU of the rank, and this release refuses that for a model in 4 or 8 bits: it may raise ValueError "`.to` is not supported for `4-bit` or `8-bit` models" (train.py:6).',
)
@good(_STAGE_2, program=_QUANTIZED, integration="deepspeed", pins={"transformers": Release(4, 50, 0)})
@bad(
    _STAGE_2,
    at="",
    program=_TRAINER,
    integration="transformers",
    pins={"transformers": Release(4, 46, 0), "accelerate": Release(0, 24, 1)},
    message='transformers 4.46.0 with accelerate 0.24.1: the Trainer raises ImportError "Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`".',
)
@bad(
    _STAGE_2,
    at="",
    program=_TRAINER,
    integration="transformers",
    pins={"transformers": Release(4, 37, 2), "accelerate": Release(1, 0, 1)},
    message="transformers 4.37.2 with accelerate 1.0.1: the Trainer raises TypeError \"Accelerator.__init__() got an unexpected keyword argument 'dispatch_batches'\".",
)
@bad(
    _STAGE_2,
    at="",
    program=_TRAINER,
    integration="transformers",
    pins={"transformers": Release(4, 40, 0), "peft": Release(0, 14, 0)},
    message="peft 0.14.0 with transformers 4.40.0: the Trainer imports PEFT, which raises ImportError \"cannot import name 'EncoderDecoderCache' from 'transformers'\".",
)
@bad(
    _STAGE_2,
    at="",
    program=_TRAINER,
    integration="transformers",
    pins={"transformers": Release(4, 52, 3), "accelerate": Release(1, 2, 1)},
    message="transformers 4.52.3 with accelerate 1.2.1: the Trainer raises TypeError \"Accelerator.unwrap_model() got an unexpected keyword argument 'keep_torch_compile'\".",
)
@bad(
    _STAGE_2,
    at="",
    program=_DPO,
    integration="transformers",
    pins={"transformers": Release(4, 47, 0), "trl": Release(0, 12, 1)},
    message='trl 0.12.1 with transformers 4.47.0: the trainer raises TypeError "log() takes 2 positional arguments but 3 were given" when it logs first.',
)
@bad(
    _STAGE_2,
    at="",
    program=_DPO,
    integration="transformers",
    pins={"transformers": Release(4, 46, 3), "trl": Release(0, 11, 4)},
    message="trl 0.11.4 with transformers 4.46.3: transformers has a get_batch_samples since 4.46, and calls that of the trainer in its place: the first step raises AttributeError \"'generator' object has no attribute 'generate'\", or from 4.50 on TypeError \"get_batch_samples() takes 3 positional arguments but 4 were given\".",
)
@good(_STAGE_2, program=_DPO, integration="transformers", pins={"transformers": Release(4, 47, 0), "trl": Release(0, 13, 0)})
@good(
    _STAGE_2,
    program=_DPO.replace("= DPOTrainer(", "= Mine(").replace("arguments =", "class Mine(DPOTrainer):\n    pass\narguments ="),
    integration="transformers",
    pins={"transformers": Release(4, 47, 0), "trl": Release(0, 12, 1)},
)
@bad(
    _STAGE_2,
    at="",
    launch="deepspeed --num_gpus 8 train.py --deepspeed_config ds_config.json\n",
    deepspeed="0.12.6",
    pins={"numpy": Release(2, 0, 0)},
    message="deepspeed 0.12.6 with numpy 2.0.0: the launcher raises ImportError \"cannot import name 'BUFSIZE' from 'numpy'\".",
)
@good(
    _STAGE_2,
    program=_TRAINER,
    integration="transformers",
    pins={"transformers": Release(4, 46, 0), "accelerate": Release(0, 26, 0), "peft": Release(0, 14, 0)},
)
@good(
    _STAGE_3,
    launch="torchrun --nproc_per_node 8 train.py --deepspeed_config ds_config.json\n",
    deepspeed="0.12.6",
    pins={"numpy": Release(2, 0, 0)},
)
@good(_STAGE_3, program=_ADAPTER, integration="transformers", deepspeed="0.19.3")
@good(_STAGE_3, program=_ADAPTER, integration="transformers", deepspeed="0.16.4")
@good(_STAGE_3, program=_RESIZING, integration="transformers", pins={"transformers": Release(4, 43, 2)})
@good(
    _STAGE_3,
    program="import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--resize', action='store_true')\n"
    + _RESIZING.replace("model.resize", "if parser.parse_args().resize:\n    model.resize"),
    integration="transformers",
    pins={"transformers": Release(4, 43, 1)},
)
@bad(
    _PLAIN,
    at="",
    deepspeed="0.17.5",
    program=_AUTOCAST % "dtype is not None",
    integration="deepspeed",
    message='deepspeed 0.17.5: the engine is called inside torch.autocast, and this release may raise AssertionError "torch.autocast is enabled outside DeepSpeed, but not in the DeepSpeed config" (train.py:7).',
)
@good(_PLAIN, deepspeed="0.17.6", program=_AUTOCAST % "True", integration="deepspeed")
@good(_PLAIN, deepspeed="0.17.1", program=_AUTOCAST % "True", integration="deepspeed")
@good(_PLAIN, deepspeed="0.17.5", program=_AUTOCAST % "False", integration="deepspeed")
@good(
    _PLAIN,
    deepspeed="0.17.5",
    program=(_AUTOCAST % "True").replace("    loss = engine(batch)", "    pass\nloss = engine(batch)"),
    integration="deepspeed",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "torch_autocast": {"enabled": true, "dtype": "bfloat16"}, "zero_optimization": {"stage": 2}}',
    deepspeed="0.17.5",
    program=_AUTOCAST % "True",
    integration="deepspeed",
)
@good(_STAGE_2, program=_RESIZING, integration="transformers", pins={"transformers": Release(4, 43, 1)})
@good(_STAGE_3, program=_ADAPTER, integration="transformers", pins={"peft": Release(0, 15, 1)})
@good(_WITH_OPTIMIZER, training=_SWIFT, pins={"ms-swift": Release(4, 0, 0)})
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', training=_SWIFT, pins={"ms-swift": Release(4, 6, 0)})
@good(_STAGE_2, program=_PREPARED, integration="accelerate", pins={"accelerate": Release(0, 26, 0)}, world_size=8)
@good(_STAGE_2, program=_PREPARED, integration="accelerate", world_size=8)
@good(_ACCUMULATING, program=_TRAINER, integration="transformers", pins={"transformers": Release(4, 49, 0)})
@good(_STAGE_2, program=_TRAINER, integration="transformers", pins={"transformers": Release(4, 48, 3)})
@bad(
    _STAGE_3,
    at="",
    program=_CLASSIFIER % "TaskType.SEQ_CLS",
    integration="transformers",
    pins={"peft": Release(0, 4, 0)},
    message="peft 0.4.0: PEFT copies the modules of modules_to_save (for the tasks SEQ_CLS and TOKEN_CLS the head, too) while ZeRO stage 3 keeps their weights divided: the copies are empty, and the forward pass may raise AssertionError about ZeroParamStatus.AVAILABLE (train.py:4).",
)
@good(_STAGE_3, program=_CLASSIFIER % "TaskType.CAUSAL_LM", integration="transformers", pins={"peft": Release(0, 4, 0)})
@good(_STAGE_2, program=_CLASSIFIER % "TaskType.SEQ_CLS", integration="transformers", pins={"peft": Release(0, 4, 0)})
@good(_STAGE_3, program=_CLASSIFIER % "TaskType.SEQ_CLS", integration="transformers", pins={"peft": Release(0, 9, 0)})
@good(_STAGE_3, program=_ADAPTER, integration="transformers", pins={"peft": Release(0, 9, 0)})
@good(_STAGE_2, program=_ADAPTER, integration="transformers", pins={"peft": Release(0, 7, 1)})
def defect_of_library(config: Config) -> Iterator[Finding]:
    """A release of DeepSpeed, transformers, Accelerate, PEFT, TRL or ms-swift has a defect that this training runs into.

    The names that DeepSpeed up to 0.14.3 imports and torch from 2.4 on does not have, the schedule of Accelerate 0.23 to 0.25 that
    advances once per step, the address and the port that Accelerate does not hand on to the launcher of DeepSpeed (before 0.29 and before 1.7), the `Accelerator` that Accelerate 1.0 to 1.8 does not make after `TrainingArguments` or `PartialState` (as TRL's
    trainers for PPO and RLOO do), `save_model` at ZeRO stage 3 before Accelerate 1.1, the loss that transformers 4.46 to 4.48 scale wrongly with
    gradient accumulation, adapters of PEFT that read weights which stage 3 has divided (`modules_to_save` before 0.9 and in 0.15.0,
    `trainable_token_indices` before 0.16, `target_parameters` before 0.21), the bitsandbytes optimizers that Accelerate 1.2 replaces, the
    resized embeddings and mismatched sizes of some releases of transformers at stage 3, its quantized models that `deepspeed.initialize`
    may not move before 4.45, modules_to_save at stage 3 of DeepSpeed 0.16.5 to 0.19.2, an engine inside torch.autocast for DeepSpeed 0.17.2 to 0.17.5, the frozen reference model of TRL's GRPOTrainer
    before 0.19, the optimizer section that ms-swift 4.5 and 4.6 do not expect, the checkpoints that transformers 4.36.0 renames on each rank, and those
    of adapters that 4.37 does not load, and copies of the Trainer of transformers before 4.30, whose
    `deepspeed_init` has another argument. Of DeepSpeed's own: the gate of its experts with k above 2 (0.15.0 to 0.18.9), the gradients of experts
    (0.13.1 to 0.15.3) and of pipelines (0.18.3 to 0.19.2), the sequence parallel attention (0.12.4 to 0.14.4), and stage 3 with torch 2.10 (up to 0.18.7).

    Two libraries may not fit each other: the Trainer requires an Accelerate that is not too old (1.3 from transformers 4.52 on), and before 4.40
    one before 1.0; the trainers of TRL before 0.12, 0.13 and 0.17 replace methods as an older transformers has them; PEFT imports
    names that older transformers and Accelerate, and transformers 5, do not have; DeepSpeed's launcher before 0.14.4 does not start with
    numpy 2, and DeepSpeed before 0.16 does not resume with torch 2.6. For an adapter the Trainer before 5.1 makes a schedule that does not step
    with torch 2.10. LLaMA-Factory refuses releases that it has not been tried with.

    dslint reports it only for a release that the project pins exactly, or that is given: `--package transformers==4.48.3`. Of a
    transformers that is not pinned, it compares the newest one that the requirements or LLaMA-Factory allow, and says "may".

    Use another release.
    """
    if config.setup is None:
        return
    for pair in PAIRS:
        releases = pair.releases(config)
        if releases is not None:
            limit = f" (the newest that {releases.limit} allows)" if releases.limit else ""
            yield Finding(
                "",
                f"{pair.package} {str(releases.one).removesuffix('.0') if limit else releases.one}{limit} with {pair.other} {releases.other}: {pair.error}.",
                help=pair.advice,
                effect=Effect.CRASH,
                phase=pair.phase,
                step=LoadStep.END,
                certain=not limit,
            )
    for crossed in crossed_limits(config):
        yield Finding(
            "",
            f"{crossed.name} refuses {crossed.package} {crossed.release}: it {'may raise' if crossed.can_be_disabled else 'raises'} ImportError "
            f'"{crossed.package}{crossed.required} is required for a normal functioning of this module".',
            help=f"Install {crossed.package}{crossed.required}"
            + (", or set DISABLE_VERSION_CHECK=1 to try it all the same." if crossed.can_be_disabled else "."),
            effect=Effect.CRASH,
            phase=Phase.LOAD,
            certain=not crossed.can_be_disabled,
            step=LoadStep.REFUSALS if crossed.package == "deepspeed" else LoadStep.LAUNCHER,
        )
    for defect in (*LIBRARY_DEFECTS, *PROGRAM_DEFECTS):
        release = defect.release(config)
        found = defect.shows(config) if release is not None else None
        if found is None:
            continue
        at = found.at if isinstance(found, Event) else found if isinstance(found, SourcedValue) else None
        yield Finding(
            "" if at is not None else str(found),
            f"{defect.package} {release}: {defect.outcome}{f' ({at.where})' if at is not None else ''}.",
            help=defect.advice,
            effect=defect.effect,
            phase=defect.phase,
            elsewhere=at.related("") if at is not None else None,
            step=LoadStep.END,
            certain=bool(defect.certain_with) and config.context.pinned(defect.certain_with) is not None,
        )
