"""A line that the report cites states the figure beside it."""

from __future__ import annotations

from dslint.diagnose.summary import rows
from tests.diagnose.logs import diagnosed


def test_the_cited_line_states_the_figure() -> None:
    rates = (10.0, 30.0, 20.0, 50.0, 40.0)
    steps = [f"steps: {step} loss: 2.1 iter time (s): {rate / 10} samples/sec: {rate}" for step, rate in enumerate(rates, 1)]
    told = {row.name: row for row in rows(diagnosed("dist_world_size=1", *steps).job)}
    for name, figure in (("step time", "iter time (s): 3.0"), ("throughput", "samples/sec: 30.0")):
        place = told[name].place
        assert place is not None
        assert figure in ["dist_world_size=1", *steps][place.line - 1], name
