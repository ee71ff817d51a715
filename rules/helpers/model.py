"""The model of a run. The memory estimate is imported only when a rule counts weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dslint.rule import CannotJudge

if TYPE_CHECKING:
    from dslint.facts.model_config import ModelConfig
    from dslint.memory.shapes import Model


def counted(model: ModelConfig) -> Model:
    """The weights of a model.

    Raises:
        CannotJudge: the family of the model is not supported, or its config is incomplete.
    """
    from dslint.memory.families import ShapeError, read_shape

    try:
        return read_shape(model.data, model.path)
    except ShapeError as error:
        reason = str(error).partition(";")[0]
        raise CannotJudge(f"{reason}, so its weights cannot be counted: rules about memory find nothing.") from None
