"""What in a program may leave weights of its model as they are."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from dslint.evaluate.python.sources import Sources
from dslint.evaluate.python.untaken import Untaken
from dslint.job.arguments import SourcedValue
from dslint.job.model import TOWERS
from dslint.source.unknown import UNKNOWN

_FREEZES = re.compile(
    r"requires_grad_\((?!\s*(?:True\s*)?\))|\.requires_grad\s*=(?!=|\s*True\b)|setattr\([^\n]{0,80}requires_grad|\.freeze\w*\("
    r"|freeze_(?<!\wfreeze_)\w+\(|set_requires_grad\(|get_peft_model(?<!\wget_peft_model)\s*\(|\.(?:add|train)_adapter\("
    r"|adapters\.init\((?<!\wadapters\.init\()|P(?<!\wP)(?:refix|rompt)(?:Tuning|Encoder)"
)
"""What leaves weights as they are, or trains others in their place."""
_WORDS = ("requires_grad", "freeze", "peft", "adapter", "Prefix", "Prompt")
_ABOUT_ADAPTERS = re.compile(r"(?i:lora|adapter|peft)")
"""In the name of a module: it freezes weights only where the program uses adapters."""

_BESIDE = re.compile(
    r"(?:^|[._])(?:ref|reference|teacher|ema|vae|text_encoder(?:_?\d)?|reward|lpips|target)(?:_(?:model|net|network|policy))?$",
    re.IGNORECASE,
)
"""What programs call a model that they hold beside the one that they train."""
_TOWER = re.compile(r"(?i:(?:^|[._])(?:(?:vision|visual|image|audio|speech)_(?:tower|model|encoder)|visual)$)")
"""What they call the encoder of images or sound in a model."""


def frozen(sources: Sources, untaken: Untaken) -> SourcedValue | None:
    """What in the program's files may leave weights as they are, but for branches that the flags of the launch do not take, and for models
    beside the one that is trained. Its value is TOWERS if nothing but encoders of images and sound is left.
    """
    of_towers: SourcedValue | None = None
    for index, one in enumerate(sources.all):
        if (index and _ABOUT_ADAPTERS.search(os.path.basename(one.path))) or not any(word in one.text for word in _WORDS):
            continue
        for match, place in untaken.places(_FREEZES, one):
            what = _receiver(one.text, match)
            if _BESIDE.search(what) or (match[0].startswith(".freeze") and _is_no_model(what, one.text)):
                continue
            found = sources.sourced(match[0].strip(), place, UNKNOWN)
            if not _TOWER.search(what):
                return found
            of_towers = of_towers or replace(found, value=TOWERS)
    return of_towers


_NO_MODEL = re.compile(
    r"(?i)(?:^|[._])(?:_?c|cn|cfg\d?|config\w*|conf|args|opts?|options|params|hparams|settings|node|vocab\w*|tokenizer|registry|gc|jit|core)$"
)
"""What programs call objects that have a method `freeze` and no weights: configs of yacs, a vocabulary, the modules gc and torch.jit."""


def _is_no_model(receiver: str, text: str) -> bool:
    """Whether a method `freeze` is that of a config, by its name or because it is made writable again elsewhere, or of a module."""
    return _NO_MODEL.search(receiver) is not None or (bool(receiver) and f"{receiver}.defrost(" in text)


_CHAIN = re.compile(r"[\w.]*$")
_LOOP = r"for\s[^\n]{0,40}\b%s\b[^\n]{0,20}\sin\s+([\w.]+?)\.(?:named_)?parameters\("
_NEAR = 300
"""How many characters before a parameter is frozen the loop over the parameters begins at most."""


def _receiver(text: str, match: re.Match[str]) -> str:
    """The model that is frozen: `vision_tower` of `vision_tower.requires_grad_(False)`, also in a loop over its parameters."""
    before = text[max(0, match.start() - _NEAR) : match.start()]
    named = (_CHAIN.search(before) or match)[0].rstrip(".")
    loops = re.findall(_LOOP % re.escape(named), before) if named.isidentifier() else []
    return str(loops[-1]) if loops else named
