"""Help pages with the options in groups, each with an example."""

from __future__ import annotations

import click

from dslint.record import Record


class Group(Record):
    """A group of options: a title, an example, and the long names of the options."""

    title: str
    example: str
    options: tuple[str, ...]


class GroupedCommand(click.Command):
    """A command that lists its options in groups. An option that is in no group stands in the last one."""

    groups: tuple[Group, ...] = ()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group."""
        left = {max(param.opts, key=len): param for param in self.get_params(ctx) if isinstance(param, click.Option)}
        for group in self.groups:
            records = [left.pop(name).get_help_record(ctx) for name in group.options if name in left]
            if group is self.groups[-1]:
                records += [param.get_help_record(ctx) for param in left.values()]
            with formatter.section(group.title):
                formatter.write_text(f"{ctx.find_root().info_name or 'dslint'} {ctx.info_name} {group.example}")
                formatter.write_dl([record for record in records if record])
