"""Steps that a program takes only after several batches or backward passes."""

from __future__ import annotations

import re

from dslint.facts import Release
from dslint.job.events import Event

REPLACES_SINCE = Release(0, 17, 6)
"""The first release in which, at stages 1 and 2, the last backward pass of a step replaces what earlier ones left. 0.10.3, 0.13.3, 0.15.2, 0.16.9,
0.17.0, 0.17.2 and 0.17.4 add it up; 0.17.6, 0.18.4, 0.18.9, 0.19.0 and 0.19.8 were read, and the last was run: of the gradients (1, 0) and
(0, 1) the step takes (0, 1), and at stages 0 and 3 both."""

TELLS_BOUNDARY = re.compile(
    r"set_gradient_accumulation_boundary|\.gradient_accumulation_steps\(\)|no_sync\(|coalesce_grad_reduction|set_train_batch_size"
)
"""The program tells the engine how many passes a step has, or asks it."""


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
