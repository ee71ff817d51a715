"""Steps that a program takes only after several batches."""

from __future__ import annotations

import re

from dslint.job.events import Event


def counted_steps(steps: list[Event], backwards: list[Event]) -> list[str]:
    """For each call of step the condition under which only every n-th batch reaches it, "" if there is none.

    A condition around the backward pass, too, selects the batches that the model gets: with `if step % 5 == 0:` around both, as for the
    generator of a GAN, nothing accumulates.
    """
    around = {(one.at, one.holds) for event in backwards for one in event.conditions}
    return [
        next((one.text for one in event.conditions if one.holds and (one.at, one.holds) not in around and _COUNTS.search(one.text)), "")
        for event in steps
    ]


_COUNTS = re.compile(r"%(?!\s*1\b)[^=]*==\s*0|%(?!\s*1\b)[^=]*==[^=]*-\s*1")
