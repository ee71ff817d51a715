"""`dslint.guard` as a callback of the Hugging Face Trainer and of Lightning.

    trainer = Trainer(model, args, callbacks=[dslint.callbacks.for_trainer()])
    trainer = lightning.Trainer(strategy=DeepSpeedStrategy(...), callbacks=[dslint.callbacks.for_lightning()])

Both check before the framework calls `deepspeed.initialize`. The frameworks are imported when a callback is made.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dslint.api.guarding import guard


def for_trainer(**given: Any) -> Any:
    """A callback of the Hugging Face Trainer, which checks the training arguments and their config when the Trainer is made.

    Args:
        given: the arguments of `dslint.guard`: `warn=True` to raise nothing, facts and settings.

    Raises:
        ImportError: transformers is not installed.
    """
    base: Any = import_module("transformers").TrainerCallback

    class Guard(base):  # type: ignore[misc] # transformers need not be installed where types are checked
        """Calls `dslint.guard` once; a training without DeepSpeed is left alone."""

        checked = False

        def on_init_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:  # noqa: ARG002 - the Trainer's words
            self._check(args, model)

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:  # noqa: ARG002 - the same
            self._check(args, model)  # of a callback that was added to an existing Trainer

        def _check(self, args: Any, model: Any) -> None:
            if not self.checked and getattr(args, "deepspeed", None) is not None:
                self.checked = True
                guard(args, **{"model": model, **given})

    return Guard()


def for_lightning(**given: Any) -> Any:
    """A callback of Lightning, which checks the config of a `DeepSpeedStrategy` before the strategy starts the engine.

    Args:
        given: the arguments of `dslint.guard`: `warn=True` to raise nothing, facts and settings.

    Raises:
        ImportError: Lightning is not installed.
    """
    try:
        base: Any = import_module("lightning.pytorch").Callback
    except ModuleNotFoundError:
        base = import_module("pytorch_lightning").Callback

    class Guard(base):  # type: ignore[misc] # Lightning need not be installed where types are checked
        """Calls `dslint.guard`; a strategy without a DeepSpeed config is left alone."""

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - Lightning's words
            config = getattr(trainer.strategy, "config", None)
            if isinstance(config, dict) and stage == "fit":
                guard(config, **{"integration": "lightning", "world_size": trainer.world_size, **given})

    return Guard()
