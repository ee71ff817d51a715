"""A config that a program builds from the flags of its launch: `--zero_stage 3 --offload`, `accelerate launch --use_deepspeed`.

Only what a flag says is in such a config; its places are those of the flags.
"""

from __future__ import annotations

from collections.abc import Mapping as Table
from typing import Any

from dslint.evaluate.shell.written import in_script
from dslint.job.arguments import SourcedValue, as_read
from dslint.source.tree import Document, Key, Mapping, Member, Path, Scalar, Span
from dslint.source.unknown import UNKNOWN


class Built:
    """A config under construction. A value from another file has the place of the launch."""

    def __init__(self, document: Document, shown: str, at: SourcedValue) -> None:
        self.whole = document
        self.shown = shown
        self.at = self._span(at, Span(0, 0))
        self.root = Mapping(self.at, [])

    def _span(self, given: SourcedValue, otherwise: Span) -> Span:
        if given.path != self.shown or given.range is None:
            return otherwise
        return Span(given.range.start.offset, given.range.end.offset)

    def put(self, path: Path, given: SourcedValue, kind: str = "", *, value: Any = None, style: str = "yaml") -> None:
        """Write the value of a flag at a path; `kind` is an argument of the Trainer that is read alike, `style` that of the scalar."""
        span = self._span(given, self.at)
        read = value if value is not None else as_read(kind, given.value)
        if isinstance(read, str) and read.lower() in ("true", "false"):
            read = read.lower() == "true"
        here = self.root
        for step in path[:-1]:
            inner = here.get(str(step))
            if inner is None:
                inner = Member(Key(span, str(step), str(step)), Mapping(span, []))
                here.members.append(inner)
            assert isinstance(inner.value, Mapping)
            here = inner.value
        raw = (given.raw or given.name) if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        here.members.append(
            Member(Key(span, str(path[-1]), str(path[-1])), Scalar(span, read if read is not None else UNKNOWN, raw, style))
        )

    def leave_out(self, key: str, given: SourcedValue) -> None:
        """Say that the program does not write a key, which DeepSpeed reads as null; the place is that of a flag for a key beside it."""
        span = self._span(given, self.at)
        self.root.members.append(Member(Key(span, key, key), Scalar(span, None, "null", "yaml")))

    def precision(self, flags: Table[str, SourcedValue]) -> None:
        """Switch a precision on as `--bf16` or `--dtype bf16` says."""
        for dtype in ("bf16", "fp16"):
            switch = flags.get(dtype) or flags.get("dtype")
            if switch is not None and (switch.value is True or switch.value == dtype):
                self.put((dtype, "enabled"), switch, value=True)

    def document(self, *, may_have_more: bool = False) -> Document:
        """The config, with its places in the script; with `may_have_more` if the program writes keys that no flag names."""
        for node in (self.root, *(member.value for member in self.root.members)):
            if isinstance(node, Mapping):
                node.may_have_more = may_have_more
        return in_script(self.whole, self.root)
