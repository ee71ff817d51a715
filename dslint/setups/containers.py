"""Containers that have only the shared memory which docker and Kubernetes give by default: 64 MiB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import basename

from dslint.evaluate.shell.pieces import ShellSource
from dslint.job.arguments import SourcedValue
from dslint.setups.command_words import CommandWord
from dslint.setups.job_ranks import container_gpus
from dslint.source.ranges import range_of
from dslint.source.tree import Mapping, Member

_ENGINES = ("docker", "nvidia-docker", "podman")

_SAYS_MORE = re.compile(r"shm|\bipc\b|tmpfs", re.IGNORECASE)
"""What a file says that gives a container more shared memory, or that of its machine: `--shm-size`, `--ipc=host`, a volume at /dev/shm."""

_ONE_GPU = re.compile(r"(--gpus[= ])?(1|[\"']*device=\d+[\"']*)")


def of_command(words: Sequence[CommandWord], text: str) -> SourcedValue | None:
    """The words `docker run` before a program, in a script with this text. None where a word is not known, or the container has one GPU."""
    names = [basename(word.text or "") for word in words]
    start = next((index for index, name in enumerate(names) if name in _ENGINES), None)
    if start is None or _SAYS_MORE.search(text):
        return None
    inside = words[start + 1 :]
    run = next((index for index, word in enumerate(inside) if not (word.text or "-").startswith("-")), None)
    if run is None or inside[run].text != "run":
        return None
    options = inside[run + 1 :]
    if any(word.text is None and word.loose for word in options) or any(_is_one_gpu(one, after) for one, after in _pairs(options)):
        return None
    first = words[start]
    return SourcedValue(f"{names[start]} run", "docker run", f"{names[start]} run", first.path, first.range)


def _pairs(words: Sequence[CommandWord]) -> list[tuple[str, str]]:
    texts = [word.text or "" for word in words]
    return list(zip(texts, [*texts[1:], ""], strict=True))


def _is_one_gpu(option: str, after: str) -> bool:
    return _ONE_GPU.fullmatch(f"{option} {after}" if option == "--gpus" else option) is not None and option.startswith("--gpus")


def of_service(node: Mapping, around: tuple[Mapping, ...], source: ShellSource) -> SourcedValue | None:
    """The image of a service of docker compose, or of a container of Kubernetes with several GPUs."""
    root, image = around[0], node.get("image") or node.get("build")
    if image is None or _SAYS_MORE.search(source.document.text):
        return None
    gpus = container_gpus(node, source)
    of_kubernetes = root.get("apiVersion") is not None and gpus is not None and isinstance(gpus.value, int) and gpus.value > 1
    return _place(image, source) if of_kubernetes or root.get("services") is not None else None


def _place(member: Member, source: ShellSource) -> SourcedValue:
    return SourcedValue("container", member.key.value, "container", source.shown, range_of(source.document, member.span))
