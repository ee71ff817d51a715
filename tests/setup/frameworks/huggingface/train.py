from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
(args,) = parser.parse_yaml_file("train.yaml")
Trainer(model=None, args=args).train()
