"""Methods of a project's Trainer against those of a release of transformers."""

from __future__ import annotations

import itertools

import pytest

from dslint.facts import Release
from dslint.rules.helpers.trainer_methods import METHODS, Misfit, misfits
from dslint.source.tree import Document

_IMPORT = "from transformers import Trainer\n"
_MAKE = "trainer = Own(model)\n"


def _found(release: Release, **files: str) -> list[Misfit]:
    documents = {f"{name}.py": Document(text, None, language="python") for name, text in files.items()}
    return list(misfits(documents, release))


def _own(*methods: str, base: str = "Trainer") -> str:
    return f"class Own({base}):\n" + "".join(f"    def {one}\n" for one in methods)


_PARAMETERS = (
    "self, model, inputs",
    "self, model, inputs, return_outputs=False",
    "self, model, inputs, return_outputs=False, num_items_in_batch=None",
    "self, model, inputs, *, num_items_in_batch",
    "self, model, inputs, **kwargs",
    "self, *args",
    "self, *args, **kwargs",
    "self, model, inputs, extra, another",
    "self, model, /, inputs, num_items_in_batch=None",
    "self",
)


@pytest.mark.parametrize(("name", "parameters"), list(itertools.product(METHODS, _PARAMETERS)))
def test_errors_are_those_of_python(name: str, parameters: str) -> None:
    for method in METHODS[name]:
        found = _found(method.since, train=_IMPORT + _own(f"{name}({parameters}): pass") + _MAKE)
        space: dict[str, type] = {"Trainer": object}
        exec(_own(f"{name}({parameters}): pass"), space)
        values = dict.fromkeys([one.strip().partition("=")[0] for one in method.call.split(",") if one])
        try:
            eval(f"Own().{name}({method.call})", {**space, **values})
            expected = []
        except TypeError as error:
            expected = [str(error)]
        assert [one.error for one in found] == expected


_OLD_LOSS = "compute_loss(self, model, inputs, return_outputs=False): return model(**inputs)"


@pytest.mark.parametrize(
    "files",
    [
        {"train": "import transformers\n" + _own(_OLD_LOSS, base="transformers.Trainer") + _MAKE},
        {"train": "from transformers import Trainer as Base\n" + _own(_OLD_LOSS, base="Base") + _MAKE},
        {"train": "from transformers.trainer import Trainer\n" + _own(_OLD_LOSS) + _MAKE},
        {"train": "from transformers import Seq2SeqTrainer\n" + _own(_OLD_LOSS, base="Seq2SeqTrainer") + _MAKE},
        {"train": "from trl import SFTTrainer\n" + _own(_OLD_LOSS, base="SFTTrainer") + _MAKE},
        {"train": _IMPORT + _own(_OLD_LOSS, base="Mixin, Trainer") + _MAKE},
        {"trainer": _IMPORT + _own(_OLD_LOSS), "train": "from trainer import Own\ntrainer = Own(model)\n"},
        {"trainer": _IMPORT + _own(_OLD_LOSS), "train": "from trainer import Own\nclass More(Own):\n    pass\nmore = More(model)\n"},
        {"trainer": _IMPORT + _own(_OLD_LOSS), "other": "import trainer\nclass MoreTrainer(trainer.Own):\n    x = 1\nMoreTrainer(model)\n"},
    ],
)
def test_a_trainer_is_found_however_it_is_written(files: dict[str, str]) -> None:
    found = _found(Release(4, 46, 0), **files)
    assert [(one.owner, one.method, one.since, one.before) for one in found] == [("Own", "compute_loss", Release(4, 46, 0), True)]
    assert not _found(Release(4, 45, 2), **files)


@pytest.mark.parametrize(
    "program",
    [
        _IMPORT + _own(_OLD_LOSS),  # nothing makes one
        "from trainers import Trainer\n" + _own(_OLD_LOSS) + _MAKE,
        "from lightning import Trainer\n" + _own(_OLD_LOSS) + _MAKE,
        _IMPORT + _own(_OLD_LOSS, "training_step(self, model, inputs, count=None): return self.compute_loss(model, inputs)") + _MAKE,
        _IMPORT + _own(_OLD_LOSS, "_inner_training_loop(self, **kwargs): pass") + _MAKE,
        _IMPORT + _own(_OLD_LOSS).replace("    def", "    @adapted\n    def") + _MAKE,
        _IMPORT + _own(_OLD_LOSS) + "class More(Own):\n    def compute_loss(self, *args, **kwargs): pass\ntrainer = More(model)\n",
        _IMPORT + "if old:\n    " + _own(_OLD_LOSS).replace("\n", "\n    ") + "\n" + _MAKE,
    ],
)
def test_what_the_trainer_does_not_call_is_no_misfit(program: str) -> None:
    assert not _found(Release(4, 57, 0), train=program)


@pytest.mark.parametrize(
    ("method", "release", "errors"),
    [
        ("log(self, logs, *rest): super().log(logs, *rest)", Release(4, 45, 0), []),
        (
            "log(self, logs, start_time=None): super().log(logs, start_time)",
            Release(4, 46, 3),
            ["Trainer.log() takes 2 positional arguments but 3 were given"],
        ),
        (
            "log(self, logs, start_time=None): Trainer.log(self, logs, start_time)",
            Release(4, 46, 3),
            ["Trainer.log() takes 2 positional arguments but 3 were given"],
        ),
        ("log(self, logs, start_time=None): super(Own, self).log(logs, start_time)", Release(4, 47, 0), []),
        (
            """log(self, logs, start_time=None):
        if version >= (4, 47):
            super().log(logs, start_time)
        else:
            super().log(logs)""",
            Release(4, 46, 3),
            [],
        ),
        (
            "_save_checkpoint(self, model, trial, metrics=None): super()._save_checkpoint(model, trial, metrics=metrics)",
            Release(4, 47, 0),
            ["Trainer._save_checkpoint() got an unexpected keyword argument 'metrics'"],
        ),
        ("_save_checkpoint(self, model, trial, metrics=None): super()._save_checkpoint(model, trial, metrics)", Release(4, 46, 3), []),
        (
            "save_model(self, output_dir=None): self.model.save_pretrained(output_dir)",
            Release(4, 40, 0),
            ["Own.save_model() got an unexpected keyword argument '_internal_call'"],
        ),
    ],
)
def test_calls_of_the_class_above(method: str, release: Release, errors: list[str]) -> None:
    assert [one.error for one in _found(release, train=_IMPORT + _own(method) + _MAKE)] == errors
