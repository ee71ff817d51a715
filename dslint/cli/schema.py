"""`dslint schema`: the JSON Schema of the config, for editors."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dslint.facts import Integration


@click.command(name="schema", short_help="Print a JSON Schema of the config, for editors.")
@click.option(
    "--integration", type=click.Choice([i.value for i in Integration]), help='Who loads the config: "auto" is allowed where it is replaced.'
)
@click.option("--settings", is_flag=True, help="The schema of dslint.toml and [tool.dslint] instead.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="The file to write to, in place of standard output.")
def command(integration: str | None, settings: bool, output: Path | None) -> None:  # noqa: FBT001 - click passes it by name
    """Print a JSON Schema (2020-12) of the config, made from the models: completion, hover and checks in editors.

    It is strict, for an editor's sake: it marks the unknown top-level key that DeepSpeed drops without a word.
    """
    if settings:
        from dslint.settings.table import json_schema as settings_schema

        schema = settings_schema()
    else:
        from dslint.schemas.export import json_schema  # the models come in here, and with them pydantic

        schema = json_schema(integration)
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from None
