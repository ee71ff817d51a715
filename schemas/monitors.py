"""The monitors: `tensorboard`, `wandb`, `csv_monitor` and `comet` record loss, learning rate and loss scale at rank 0."""

from __future__ import annotations

from typing import Annotated, ClassVar

from dslint.schemas.base import PydanticSection
from dslint.schemas.marks import Since


class Tensorboard(PydanticSection):
    """Event files for TensorBoard. Needs the package `tensorboard`."""

    enabled: bool = False
    """Write event files."""

    output_path: str = ""
    """The folder to write to. Empty: a folder in the home directory, chosen by DeepSpeed."""

    job_name: str = "DeepSpeedJobName"
    """The subfolder for this job."""


class Wandb(PydanticSection):
    """A run on Weights & Biases. Needs the package `wandb` and a login on the node of rank 0."""

    enabled: bool = False
    """Record a run."""

    group: str | None = None
    """The group that the run is shown in."""

    team: str | None = None
    """The team (entity) that the run belongs to."""

    project: str = "deepspeed"
    """The project that the run belongs to."""


class CsvMonitor(PydanticSection):
    """A CSV file for each recorded value."""

    enabled: bool = False
    """Write CSV files."""

    output_path: str = ""
    """The folder to write to. Empty: a folder in the home directory, chosen by DeepSpeed."""

    job_name: str = "DeepSpeedJobName"
    """The subfolder for this job."""


class Comet(PydanticSection):
    """An experiment on Comet. Needs the package `comet_ml` and a login on the node of rank 0."""

    forbids_since: ClassVar[str] = "0.14.3"

    enabled: Annotated[bool, Since("0.14.3")] = False
    """Record an experiment."""

    samples_log_interval: Annotated[int, Since("0.14.3")] = 100
    """Samples between two records of the loss."""

    project: Annotated[str | None, Since("0.14.3")] = None
    """The project that the experiment belongs to."""

    workspace: Annotated[str | None, Since("0.14.3")] = None
    """The workspace that the experiment belongs to."""

    api_key: Annotated[str | None, Since("0.14.3")] = None
    """The key to log in with. Keep it in the environment rather than in a shared file."""

    experiment_name: Annotated[str | None, Since("0.14.3")] = None
    """The name that the experiment is shown under."""

    experiment_key: Annotated[str | None, Since("0.14.3")] = None
    """The key of an experiment to continue, or of a new one: 32 to 50 letters and digits."""

    online: Annotated[bool | None, Since("0.14.3")] = None
    """Send records as they are made (true) or keep them on disk (false). Default: the configuration of Comet."""

    mode: Annotated[str | None, Since("0.14.3")] = None
    """What to do with `experiment_key`: "get" continues, "create" starts a new one, "get_or_create" does either."""
