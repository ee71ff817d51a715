"""What rules about data efficiency share: its sections, missing settings, and the texts of examples."""

from __future__ import annotations

from dslint.config import Config
from dslint.rules.helpers.examples import MINIMAL
from dslint.source.tree import Mapping

DATA_EFFICIENCY_DOCS = "https://www.deepspeed.ai/docs/config-json/#data-efficiency"
RANDOM_LTD = "data_efficiency.data_routing.random_ltd"
CURRICULUM = "data_efficiency.data_sampling.curriculum_learning"
DYNAMIC_BATCHING = "data_efficiency.data_sampling.dynamic_batching"

SCHEDULE = (
    '"min_value": 128, "max_value": 2048, "schedule_type": "fixed_linear", "schedule_config": {"require_steps": 20000, "seq_per_step": 16}'
)
"""The members of a complete schedule of random layer token drop."""


def random_ltd(members: str) -> str:
    """The text of a config that enables random layer token drop, with these members in its section."""
    return f'{{{MINIMAL}, "data_efficiency": {{"enabled": true, "data_routing": {{"enabled": true, "random_ltd": {{"enabled": true, {members}}}}}}}}}'


def with_schedule(schedule: str, layers: str = '"total_layer_num": 24, "random_ltd_layer_num": 2, "random_ltd_layer_id": [1, 2]') -> str:
    """The text of a config with random layer token drop for these layers, and a schedule with these members."""
    return random_ltd(f'{layers}, "random_ltd_schedule": {{{schedule}}}')


def missing_settings(config: Config, section: str, names: tuple[str, ...]) -> list[str]:
    """The names that a section lacks; empty if it is not an object. A name with a possible misspelling in the section is not missing."""
    if not isinstance(config.node(section), Mapping):
        return []
    keys = {name: f"{section}.{name}" for name in names}
    return [name for name, key in keys.items() if config.lacks(key) and not config.is_meant(key)]
