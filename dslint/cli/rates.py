"""Options about the bandwidths of machines, shared by `estimate`, `fit` and `tune`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from dslint.facts.gpus import size
from dslint.speed.hardware import network_rate
from dslint.speed.planned import Rates

Command = TypeVar("Command", bound=Callable[..., Any])


class Rate(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """Bytes per second: `25GB/s`."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return float(value)
        try:
            return float(size(value.strip().removesuffix("/s")))
        except ValueError:
            self.fail(f'"{value}" is not a rate such as 25GB/s', param, ctx)


class NetworkType(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """The bandwidth of a machine: `8x400Gb/s`."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return float(value)
        try:
            return network_rate(value)
        except ValueError:
            self.fail(f'"{value}" is not a bandwidth such as 8x400Gb/s or 25GB/s', param, ctx)


def rate_options(command: Command) -> Command:
    """Add the options about bandwidths to a command, which receives them as the argument `rates`."""

    def with_rates(pcie: float | None, interconnect: float | None, network: float | None, nvme: float | None, **rest: Any) -> Any:
        return command(rates=Rates(link=interconnect, network=network, pcie=pcie, nvme=nvme), **rest)

    with_rates.__doc__ = command.__doc__
    with_rates.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    for add in reversed(_OPTIONS):
        add(with_rates)
    return with_rates  # type: ignore[return-value]


_OPTIONS = (
    click.option(
        "--pcie",
        type=Rate(),
        metavar="RATE",
        help="The bandwidth between GPU and host, as measured.  [default: 80 % of the slot's, or as calibrated]",
    ),
    click.option(
        "--interconnect",
        type=Rate(),
        metavar="RATE",
        help="The bandwidth between the GPUs of a machine, as measured.  [default: 78 % of NVLink's, 35 % of PCIe's]",
    ),
    click.option(
        "--network",
        type=NetworkType(),
        metavar="RATE",
        help="The network of a machine: 8x400Gb/s.  [default: 100Gb/s for each GPU with NVLink, else 100Gb/s]",
    ),
    click.option("--nvme", type=Rate(), metavar="RATE", help="The bandwidth of a machine's NVMe disks.  [default: 6GB/s]"),
)
