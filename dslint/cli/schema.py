"""`dslint schema`: the JSON Schema of the config for editors, and the changes between two releases."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from dslint.cli.options import SettingType, color_option, terminal_width, wants_color
from dslint.errors import UserError
from dslint.facts import NEWEST, Integration, Release, Upgrade
from dslint.fixes.atomic_write import write_whole
from dslint.settings.table import SETTINGS

RELEASE = SettingType(SETTINGS["deepspeed"])


@click.command(name="schema", short_help="Print a JSON Schema of the config for editors.")
@click.option(
    "--integration",
    type=click.Choice([i.value for i in Integration]),
    help='The library that loads the config; allows "auto" for the keys that it fills.',
)
@click.option("--deepspeed", type=RELEASE, help=f"The DeepSpeed release.  [default: {NEWEST}]")
@click.option("--diff", nargs=2, type=RELEASE, metavar="OLD NEW", help="Print what changed between two releases instead.")
@click.option("--settings", is_flag=True, help="Print the schema of dslint.toml and [tool.dslint] instead.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write to this file instead of standard output.")
@color_option
def command(
    integration: str | None,
    deepspeed: Any,
    diff: tuple[Any, Any] | None,
    settings: bool,  # noqa: FBT001 - click passes it by name
    output: str | None,
    color: str,
) -> None:
    """Print a JSON Schema (2020-12) of the config for completion, hover and validation in editors.

    The schema is stricter than DeepSpeed: it rejects unknown top-level keys, which DeepSpeed silently ignores.
    """
    if any(isinstance(release, Upgrade) for release in (deepspeed, *(diff or ()))):
        raise click.UsageError("a schema is for one release; `dslint schema --diff OLD NEW` prints the changes between two")
    if diff:
        text = _changes(*diff, color=output is None and wants_color(color, sys.stdout))
    else:
        text = json.dumps(_schema(integration, deepspeed or NEWEST, settings=settings), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False, color=True)
        return
    try:
        write_whole(output, text)
    except OSError as error:
        raise UserError(f"cannot write {output}: {error.strerror or error}") from None


def _schema(integration: str | None, release: Release, *, settings: bool) -> dict[str, Any]:
    if settings:
        from dslint.settings.table import json_schema as settings_schema

        return settings_schema()
    from dslint.schemas.export import json_schema  # imports the models, and with them pydantic

    return json_schema(integration, release)


def _changes(old: Release, new: Release, *, color: bool) -> str:
    from dslint.report import changes_page
    from dslint.report.style import Style
    from dslint.schemas.changes import changes

    if old >= new:
        raise click.UsageError(f"--diff requires the older release first: --diff {new} {old}")
    return changes_page.text(changes(old, new), Style(color=color, width=terminal_width(60))) + "\n"
