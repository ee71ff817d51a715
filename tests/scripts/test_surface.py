"""The surface of a DeepSpeed source: each way of reading on a small made-up one, and the models beside two real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import surface as program  # noqa: E402
from surface_reading.compare import Difference, compare, not_read  # noqa: E402
from surface_reading.judged import judged  # noqa: E402
from surface_reading.page import field_text  # noqa: E402
from surface_reading.source import Source, Unreadable  # noqa: E402
from surface_reading.surface import Surface, read_surface  # noqa: E402

BASE = {
    "deepspeed/__init__.py": "",
    "deepspeed/runtime/__init__.py": "",
    "deepspeed/runtime/config_utils.py": """
from pydantic import BaseModel, ConfigDict

class DeepSpeedConfigModel(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

def get_scalar_param(param_dict, param_name, param_default_value):
    return param_dict.get(param_name, param_default_value)
""",
    "deepspeed/runtime/lr_schedules.py": """
WARMUP_LR = 'WarmupLR'
LOG = 'log'
VALID_LR_SCHEDULES = [WARMUP_LR]

class WarmupLR(object):
    def __init__(self, optimizer: Optimizer, warmup_num_steps: int = 1000, warmup_type: str = LOG, *, total):
        pass
""",
}
HEAD = """
import copy
import hjson
from pydantic import Field
from .config_utils import DeepSpeedConfigModel, get_scalar_param
from .constants import *
ADAM = 'adam'
DEEPSPEED_OPTIMIZERS = [ADAM, 'lion']
"""
CONFIG = """
class DeepSpeedConfig(object):
    def __init__(self, config, mpu=None):
        self._param_dict = config if isinstance(config, dict) else hjson.load(open(config))
        self._initialize_params(copy.copy(self._param_dict))

    def _initialize_params(self, param_dict):
"""


def source(body: str, *, parse: str = "pass", **files: str) -> Source:
    """A release whose config module has this body, and whose `_initialize_params` has these lines."""
    made = Source("9.9.9")
    for path, text in BASE.items():
        made.add(path, text)
    lines = "".join(f"        {line}\n" for line in parse.splitlines())
    made.add("deepspeed/runtime/config.py", HEAD + body + CONFIG + lines)
    for name, text in files.items():
        made.add("deepspeed/__init__.py" if name == "package" else f"deepspeed/{name.replace('__', '/')}.py", text)
    return made


def read(body: str = "", *, parse: str = "pass", **files: str) -> Surface:
    return read_surface(source(body, parse=parse, **files))


def place(made: Source, text: str) -> str:
    """Where a text stands in the config module."""
    config = made.modules["deepspeed.runtime.config"]
    return f"{config.path}:{config.text[: config.text.index(text)].count(chr(10)) + 1}"


def key(surface: Surface, dotted: str) -> Any:
    return surface.keys[tuple(dotted.split("."))]


def names(surface: Surface) -> set[str]:
    return {".".join(path) for path in surface.keys}


# ---------------------------------------------------------------------- keys that are looked up by hand


@pytest.mark.parametrize(
    "parse",
    [
        "get_scalar_param(param_dict, DUMP, DUMP_DEFAULT)",
        "param_dict.get(DUMP, DUMP_DEFAULT)",
        "x = param_dict\nif DUMP in x.keys():\n    y = x.get('dump_state', False)",
        "for name, default in DEFAULTS.items():\n    get_scalar_param(param_dict, name, default)",
        "[param_dict.get(name, DUMP_DEFAULT) for name in (DUMP,)]",
        "config = DEFAULTS\nfor name, value in param_dict.items():\n    config[name] = value",
        "config = {**DEFAULTS, **param_dict}",
        "config = dict(DEFAULTS)\nconfig.update(param_dict)",
        "take(**param_dict)",
        "from .other import other_read\nother_read(param_dict)",
    ],
)
def test_a_key_that_is_looked_up_is_found_with_its_default(parse: str) -> None:
    surface = read(
        "def take(dump_state=False):\n    pass\n",
        parse=parse,
        runtime__constants="DUMP = 'dump' + '_state'\nDUMP_DEFAULT = not_known\nDUMP_DEFAULT = False\nDEFAULTS = {DUMP: DUMP_DEFAULT}\n",
        runtime__other="from .constants import DUMP\ndef other_read(given):\n    return given.get(DUMP, False)\n",
        runtime__unused="def unused(param_dict):\n    param_dict.get('never_read')\n",
    )
    assert names(surface) == {"dump_state"}
    assert key(surface, "dump_state").defaults == [False]
    assert key(surface, "dump_state").place.startswith("deepspeed/runtime/")


def test_places_are_where_a_helper_is_called_not_where_it_looks() -> None:
    helper = "def get_dump(param_dict):\n\n    x = 1\n    return get_scalar_param(param_dict, 'dump_state', x)\n"
    made = source(helper, parse="get_dump(param_dict)")
    assert key(read_surface(made), "dump_state").place == place(made, "return get_scalar_param")


def test_sections_below_sections_and_names_of_the_writers_own() -> None:
    surface = read(
        parse="metrics = param_dict.get('data', {}).get('metrics')\n"
        "for name in metrics:\n    kind = metrics[name]['kind']\n"
        "for name, metric in metrics.items():\n    metric.get('steps', 10)\n"
        "for each in param_dict['rules']:\n    each['pattern']\n"
    )
    assert names(surface) == {"data", "data.metrics", "data.metrics.*.kind", "data.metrics.*.steps", "rules", "rules[].pattern"}
    assert key(surface, "data.metrics.*.steps").defaults == [10]
    assert surface.forbids[("data",)] is False
    assert surface.dynamic == []


def test_an_object_that_is_handed_a_part_looks_things_up_in_any_method() -> None:
    surface = read(
        parse="self.parts = param_dict.get('parts', {})",
        package="""
from .runtime.config import DeepSpeedConfig
from .runtime.engine import Engine
def initialize(config=None):
    return Engine(config_class=DeepSpeedConfig(config))
""",
        runtime__engine="""
from .scheduler import Scheduler
class Base:
    @property
    def parts(self):
        return self._config.parts
class Engine(Base):
    def __init__(self, config_class):
        super().__init__()
        self._config = config_class
    def later(self):
        return Scheduler(self.parts)
    def unrelated(self, other):
        return other.get('nothing')
""",
        runtime__scheduler="""
class Scheduler:
    def __init__(self, given):
        self.given = given
    def step(self):
        return self.given['in_step']
""",
    )
    assert names(surface) == {"parts", "parts.in_step"}


def test_a_key_whose_presence_raises_is_refused_and_not_read() -> None:
    surface = read(
        "GONE = {'nebula': 'it is gone', 'amp': 'so is it'}\n"
        "def reject(param_dict):\n    for name, message in GONE.items():\n        if name in param_dict:\n            raise ValueError(message)\n",
        parse="reject(param_dict)\nassert 'elasticity' not in param_dict\nif 'fine' in param_dict:\n    self.fine = True",
    )
    assert names(surface) == {"fine"}
    assert set(surface.refused) == {("nebula",), ("amp",), ("elasticity",)}


def test_what_is_written_or_a_value_is_no_key() -> None:
    surface = read(
        parse="param_dict['written'] = 1\nclip = param_dict.get('clip', 1.0)\nclip['inside']\nvars(clip)\n"
        "if '.' in param_dict['pattern']:\n    pass\nfilled = {'mine': param_dict.get('theirs', 2)}\n"
        "for name, value in param_dict.get('section', {}).items():\n    filled[name] = value\n"
    )
    assert names(surface) == {"clip", "pattern", "theirs", "section"}


def test_what_cannot_be_read_is_said_and_not_guessed() -> None:
    surface = read(parse="param_dict[os.environ['KEY']]\nparam_dict.get('home', os.getcwd())\nparam_dict.get('area', torch.float16)")
    assert names(surface) == {"home", "area"}
    said = not_read(surface)
    assert any("which name is looked up in `the config`" in each for each in said)
    assert any("basic_layer.RandomLayerTokenDrop" in each for each in said), "an entry that is gone is said to be"
    made = source("def helper():\n    return 5\n", parse="param_dict.get('steps', [helper()])")
    where = place(made, "param_dict.get('steps'")
    assert f"the default of `steps` ({where})" in not_read(read_surface(made))


# ---------------------------------------------------------------------- pydantic models

ZERO = """
import sys
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Dict, List, Literal, Optional, Union
from pydantic import model_validator

class Stage(int, Enum):
    off = 0
    on = 1

class Device(str, Enum):
    none = "none"
    cpu = "cpu"

class pp_int(int):
    pass

Names = Literal["a", "b"]

class Offload(DeepSpeedConfigModel):
    device: Device = Device.none
    path: Optional[Path] = None

class Zero(DeepSpeedConfigModel):
    stage: Stage = 0
    bucket: int = Field(pp_int(5e8), ge=0, le=sys.maxsize)
    prefetch: "int" = Field(default=1 << 4, gt=0, alias="stage3_prefetch")
    ratio: Union[float, None] = None
    names: Optional[List[Names]] = None
    word: Names = "a"
    offload: Optional[Offload] = None
    offloads: Offload = Field(default_factory=Offload)
    extra: Dict[str, Any] = {}
    listed: list = Field(default_factory=lambda: list(DEFAULTS))
    old: bool = Field(False, json_schema_extra={"deprecated": True, "new_param": "prefetch"})
    older: bool = Field(False, json_schema_extra={"deprecated": True, "new_param": "a or b", "set_new_param": False})
    needed: int
    dtype: torch.dtype = torch.float16
    known: ClassVar[int] = 3

    @model_validator(mode="after")
    def check(self):
        if self.bucket < 5:
            raise ValueError
        return self
"""


def zero(model: str = ZERO) -> Surface:
    return read("DEFAULTS = ['x', 'y']\n" + model, parse="section = param_dict.get('zero', {})\nself.zero = Zero(**section)")


def test_fields_of_a_model_of_pydantic_2() -> None:
    surface = zero()
    said = {
        dotted: (key(surface, dotted).shape.kinds, key(surface, dotted).defaults)
        for dotted in sorted(names(surface))
        if dotted != "zero" and key(surface, dotted).shape.kinds
    }
    offload = {
        f"zero.{section}.{name}": found
        for section in ("offload", "offloads")
        for name, found in (("device", ({"str"}, ["none"])), ("path", ({"str", "null"}, [None])))
    }
    assert said == {
        "zero.stage": ({"int"}, [0]),
        "zero.bucket": ({"int"}, [500_000_000]),
        "zero.stage3_prefetch": ({"int"}, [16]),
        "zero.ratio": ({"float", "null"}, [None]),
        "zero.names": ({"list", "null"}, [None]),
        "zero.word": ({"str"}, ["a"]),
        "zero.offload": ({"section", "null"}, []),
        "zero.offloads": ({"section"}, []),
        "zero.extra": ({"dict"}, [{}]),
        "zero.listed": ({"list"}, [["x", "y"]]),
        "zero.old": ({"bool"}, [False]),
        "zero.older": ({"bool"}, [False]),
        "zero.needed": ({"int"}, []),
        **offload,
    }
    assert key(surface, "zero.stage").shape.choices == (0, 1)
    assert key(surface, "zero.offload.device").shape.choices == ("none", "cpu")
    assert key(surface, "zero.bucket").shape.bounds == {"ge": 0, "le": sys.maxsize}
    assert [check.name for check in key(surface, "zero.bucket").checks] == ["check"]
    assert key(surface, "zero.stage3_prefetch").also == ("prefetch",)
    assert key(surface, "zero.old").deprecated.use == ("zero", "stage3_prefetch")
    assert key(surface, "zero.old").deprecated.mapped
    assert key(surface, "zero.older").deprecated.use is None
    assert key(surface, "zero.needed").required
    assert surface.forbids[("zero",)] is True
    assert surface.forbids[("zero", "offload")] is True
    assert any("the type of `zero.dtype`, `torch.dtype`" in each for each in not_read(surface))


VERSION_1 = """
try:
    from pydantic.v1 import *
except ImportError:
    from pydantic import *

class Old(BaseModel):
    class Config:
        extra = Extra.forbid
        allow_population_by_field_name = True

class Zero(Old):
    count = 8
    path: str = None
    prefetch: int = Field(1, ge=0, alias="stage3_prefetch")
    old: bool = Field(False, deprecated=True, new_param="count", new_param_fn=(lambda x: int(x)))
"""


def test_fields_of_a_model_of_pydantic_1() -> None:
    surface = zero(VERSION_1)
    assert names(surface) == {"zero", "zero.count", "zero.path", "zero.stage3_prefetch", "zero.old"}
    assert (key(surface, "zero.count").shape.kinds, key(surface, "zero.count").defaults) == ({"int"}, [8])
    assert key(surface, "zero.path").shape.kinds == {"str", "null"}
    assert key(surface, "zero.stage3_prefetch").also == ("prefetch",)
    assert key(surface, "zero.old").deprecated.use == ("zero", "count")
    assert surface.forbids[("zero",)] is True


def test_a_model_of_several_sections() -> None:
    surface = read(
        "class Board(DeepSpeedConfigModel):\n    enabled: bool = False\nclass Monitors(DeepSpeedConfigModel):\n    board: Board = {}\n",
        parse="Monitors(**{name: param_dict.get(name, {}) for name in ('board', 'other')})",
    )
    assert names(surface) == {"board", "board.enabled", "other"}
    assert surface.forbids[("board",)] is True


def test_a_model_that_ignores_unknown_keys() -> None:
    loose = zero("class Zero(DeepSpeedConfigModel):\n    model_config = ConfigDict(extra='ignore')\n    stage: int = 0\n")
    assert loose.forbids[("zero",)] is False


def test_optimizers_and_schedules() -> None:
    surface = read()
    assert surface.optimizers == ["adam", "lion"]
    assert {name: each.defaults for name, each in surface.schedules["WarmupLR"].items()} == {
        "warmup_num_steps": [1000],
        "warmup_type": ["log"],
        "total": [],
    }
    assert surface.schedules["WarmupLR"]["total"].required
    bare = source("")
    bare.add("deepspeed/runtime/lr_schedules.py", "VALID_LR_SCHEDULES = find_them()\n")
    assert any("VALID_LR_SCHEDULES is not a list of names" in each for each in not_read(read_surface(bare)))


# ---------------------------------------------------------------------- comparing


def differences(before: str, after: str) -> list[tuple[str, str, str, str, str]]:
    found = compare(zero(before), zero(after))
    return [(each.kind, ".".join(each.path), each.aspect, each.before, each.after) for each in found]


def test_nothing_differs_from_itself() -> None:
    assert differences(ZERO, ZERO) == []


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("    stage: Stage = 0\n", "", [("gone", "zero.stage", "key", "read", "raises")]),
        ("1 << 4", "1 << 5", [("changed", "zero.stage3_prefetch", "default", "16", "32")]),
        ("needed: int", "needed: int = 3", [("changed", "zero.needed", "default", "required", "3")]),
        ("Union[float, None]", "Optional[str]", [("changed", "zero.ratio", "type", "float | null", "null | str")]),
        ('Literal["a", "b"]', 'Literal["a", "c"]', [("changed", "zero.word", "choices", "a, b", "a, c")]),
        ("gt=0,", "ge=1,", [("changed", "zero.stage3_prefetch", "range", "gt 0", "ge 1")]),
        (
            ', "new_param": "prefetch"',
            "",
            [("changed", "zero.old", "deprecation", "deprecated, copied to zero.stage3_prefetch", "deprecated")],
        ),
        ("bucket < 5", "bucket < 6", [("changed", "zero.bucket", "validators")]),
        ('    cpu = "cpu"\n', "", [("changed", f"zero.{each}.device", "choices", "none, cpu", "none") for each in ("offload", "offloads")]),
        (
            'alias="stage3_prefetch"',
            'alias="prefetch_3"',
            [("new", "zero.prefetch_3"), ("gone", "zero.stage3_prefetch"), ("changed", "zero.old")],
        ),
    ],
)
def test_a_change_is_said(old: str, new: str, found: list[tuple[str, ...]]) -> None:
    said = differences(ZERO, ZERO.replace(old, new))
    assert len(said) == len(found)
    assert all(any(row[: len(want)] == want for row in said) for want in found)


def test_what_is_new_is_written_as_a_field() -> None:
    surface = zero()

    def line(dotted: str) -> str:
        return field_text(key(surface, dotted), "9.9.9").partition("  #")[0]

    assert line("zero.bucket") == f'bucket: Annotated[int, Since("9.9.9"), Ge(0), Le({sys.maxsize})] = 500000000'
    assert line("zero.stage3_prefetch") == 'prefetch: Annotated[int, Since("9.9.9"), Gt(0)] = Field(default=16, alias="stage3_prefetch")'
    assert line("zero.word") == "word: Annotated[Literal['a', 'b'], Since(\"9.9.9\")] = 'a'"
    assert line("zero.old") == ('old: Annotated[bool, Since("9.9.9"), Deprecated("9.9.9", use="zero.stage3_prefetch")] = False')
    assert field_text(key(surface, "zero.needed"), "9.9.9").startswith(
        'needed: Annotated[int, Since("9.9.9")]  # deepspeed/runtime/config.py:'
    )


def test_refusals_optimizers_and_schedules_are_compared() -> None:
    refusing = "if 'amp' in param_dict:\n    raise ValueError"
    old, new = read(), read(parse=refusing)
    new.optimizers.remove("lion")
    new.schedules["Flat"] = {}
    new.schedules["WarmupLR"] = dict(new.schedules["WarmupLR"])
    del new.schedules["WarmupLR"]["warmup_type"]
    said = {(each.kind, ".".join(each.path), each.aspect) for each in compare(old, new)}
    assert said == {
        ("changed", "amp", "a key that is not read"),
        ("gone", "optimizer.type", 'the optimizer "lion"'),
        ("new", "scheduler.type", 'the schedule "Flat"'),
        ("gone", "scheduler.params.WarmupLR.warmup_type", "key"),
    }
    read_before = compare(read(parse="param_dict.get('amp')"), new)
    assert [(each.kind, each.after) for each in read_before if each.path == ("amp",)] == [("gone", "raises")]


# ---------------------------------------------------------------------- the program


def written(folder: Path, made: Source, *, sdist: bool = False) -> Path:
    """The source as a folder, or as an sdist."""
    top = folder / f"deepspeed-{made.release}"
    for module in made.modules.values():
        path = top / module.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(module.text, encoding="utf-8")
    (top / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: deepspeed\nVersion: {made.release}\n", encoding="utf-8")
    if not sdist:
        return top
    archive = folder / f"{top.name}.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(top, arcname=top.name)
    return archive


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "surface.py"), *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(SCRIPTS.parent)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_show_reads_folders_and_sdists_alike(tmp_path: Path) -> None:
    made = source("", parse="param_dict.get('dump_state', False)")
    for path in (written(tmp_path, made), written(tmp_path, made, sdist=True)):
        done = run("show", path, "--json")
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)
        assert shown["release"] == "9.9.9"
        assert shown["keys"]["dump_state"]["defaults"] == [False]
    page = run("show", tmp_path / "deepspeed-9.9.9").stdout
    assert f"| `dump_state` |  | False |  | {place(made, 'param_dict.get')} |" in page


def test_compare_two_sources(tmp_path: Path) -> None:
    old = source("", parse="param_dict.get('dump_state', False)\nparam_dict.get('leaves')")
    new = source("", parse="param_dict.get('dump_state', True)\nparam_dict.get('comes', 3)")
    folders = [written(tmp_path / "old", old), written(tmp_path / "new", new)]
    done = run("compare", *folders)
    assert done.returncode == 1, done.stderr
    where = place(new, "param_dict.get('comes'")
    assert f'comes: Annotated[int, Since("9.9.9")] = 3  # {where}' in done.stdout
    assert '- `leaves`: `Until("9.9.9", then="ignored")`' in done.stdout
    assert f"| `dump_state` | default | False | True | {place(new, 'param_dict.get')} |" in done.stdout
    assert run("compare", folders[0], folders[0]).returncode == 0


def test_compare_with_the_models(tmp_path: Path) -> None:
    done = run("compare", written(tmp_path, source("", parse="param_dict.get('dump_state', True)")), "--release", "0.19.8")
    assert done.returncode == 1, done.stderr
    assert "| `dump_state` | default | False | True |" in done.stdout
    assert "- `zero_optimization`: `Until(" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("compare",), ("compare", "nowhere"), ("show", "."), ("compare", "a", "b", "c")])
def test_what_cannot_be_compared_is_a_usage_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "surface.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS.parent)},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_no_archive_and_no_release(tmp_path: Path) -> None:
    broken = tmp_path / "deepspeed.tar.gz"
    broken.write_bytes(b"no archive")
    with pytest.raises(Unreadable, match="archive"):
        Source.open(broken)
    done = run("compare", written(tmp_path, source("")), "--release", "new")
    assert done.returncode == 2
    assert "not a DeepSpeed release" in done.stderr


def test_each_known_difference_has_a_reason() -> None:
    assert len(program.KNOWN) < 10, "it is a table of exceptions, not a place to hide things"
    assert all(len(reason.split()) > 4 for reason in program.KNOWN.values())


# ---------------------------------------------------------------------- real releases


@pytest.fixture(scope="module")
def release_source(request: pytest.FixtureRequest) -> Source:
    """A real release, fetched once and kept."""
    release: str = request.param
    folder = Path(__file__).resolve().parents[2] / "build" / "release_sources"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"deepspeed-{release}.tar.gz"
    if not archive.exists():
        fetch = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            ":all:",
            "--dest",
            str(folder),
            f"deepspeed=={release}",
        ]
        done = subprocess.run(fetch, env={**os.environ, "DS_BUILD_OPS": "0"}, capture_output=True, text=True, check=False, timeout=600)
        if not archive.exists():
            message = f"the source of DeepSpeed {release} could not be fetched: {done.stderr.strip().splitlines()[-1:]}"
            if os.environ.get("REQUIRE_RELEASE_SOURCES") == "1":
                pytest.fail(message)
            pytest.skip(message)
    return Source.open(archive)


def beside_the_models(made: Source) -> list[Difference]:
    assert made.release is not None
    return compare(judged(made.release), read_surface(made))


def said(found: list[Difference]) -> set[tuple[str, str, str]]:
    return {(each.kind, ".".join(each.path), each.aspect) for each in found if not program.is_known(each)}


@pytest.mark.release_sources
@pytest.mark.parametrize("release_source", ["0.19.8"], indirect=True)
def test_the_newest_release_is_what_the_models_say(release_source: Source) -> None:
    found = beside_the_models(release_source)
    assert said(found) == set()
    used = {(".".join(each.path), each.aspect) for each in found}
    assert {*program.KNOWN} <= used, "an entry of KNOWN that excuses nothing has to go"


@pytest.mark.release_sources
@pytest.mark.parametrize("release_source", ["0.14.5"], indirect=True)
def test_an_old_release_is_what_the_models_say_of_it(release_source: Source) -> None:
    # Keys that are gone today, for which the models give null as the default of their time.
    undefaulted = {("changed", name, "default") for name in ("graph_harvesting", "seq_parallel_comm_data_type", "sparse_gradients")}
    assert said(beside_the_models(release_source)) <= undefaulted


MUTATIONS = [
    ("runtime/zero/config.py", "    legacy_stage1: bool = False", "    legacy_stage1: bool = True", ("changed", "zero_optimization.legacy_stage1", "default")),
    ("runtime/zero/config.py", "    legacy_stage1: bool", "    brand_new: int = 3\n    legacy_stage1: bool", ("new", "zero_optimization.brand_new", "key")),
    ("runtime/zero/config.py", "    legacy_stage1: bool = False", "", ("gone", "zero_optimization.legacy_stage1", "key")),
    ("runtime/zero/offload_config.py", 'nvme = "nvme"', 'nvme = "disk"', ("changed", "zero_optimization.offload_param.device", "choices")),
    ("runtime/zero/config.py", "Field(1, ge=0)", "Field(1, ge=1)", ("changed", "zero_optimization.zero_hpz_partition_size", "range")),
    ("runtime/config_utils.py", '        extra="forbid",', "", ("changed", "fp16", "unknown keys")),
    ("runtime/constants.py", "GRADIENT_CLIPPING_DEFAULT = 1.", "GRADIENT_CLIPPING_DEFAULT = 0.", ("changed", "gradient_clipping", "default")),
    ("runtime/config.py", 'param_dict.get("hybrid_engine", {})', 'param_dict.get("fast_engine", {})', ("new", "fast_engine.max_out_tokens", "key")),
    ("runtime/config.py", '    "nebula":\n', '    "steps_per_print":\n', ("gone", "steps_per_print", "key")),
    ("runtime/config.py", '    "nebula":\n', '    "fog":\n', ("changed", "nebula", "a key that is not read")),
    ("runtime/config.py", "LION_OPTIMIZER = 'lion'", "LION_OPTIMIZER = 'tiger'", ("new", "optimizer.type", 'the optimizer "tiger"')),
    ("runtime/lr_schedules.py", "warmup_num_steps: int = 1000", "warmup_num_steps: int = 900", ("changed", "scheduler.params.WarmupLR.warmup_num_steps", "default")),
    (
        "runtime/data_pipeline/constants.py",
        'CURRICULUM_LEARNING_CLUSTER_PATH = "data_cluster_path"',
        'CURRICULUM_LEARNING_CLUSTER_PATH = "clusters"',
        ("new", "data_efficiency.data_sampling.curriculum_learning.clusters", "key"),
    ),
    ("monitor/config.py", '("tensorboard", "wandb", "csv_monitor", "comet")', '("tensorboard", "wandb", "csv_monitor")', ("gone", "comet", "key")),
]  # fmt: skip


@pytest.mark.release_sources
@pytest.mark.parametrize("release_source", ["0.19.8"], indirect=True)
def test_changes_in_a_real_release_are_noticed(release_source: Source) -> None:
    texts = {module.path: module.text for module in release_source.modules.values()}
    for path, old, _, _ in MUTATIONS:
        assert old in texts[f"deepspeed/{path}"], f"{old!r} is not in {path}"
    groups: list[list[int]] = [[]]
    for index, (path, old, _, _) in enumerate(MUTATIONS):
        clash = any(MUTATIONS[other][0] == path and (MUTATIONS[other][1] in old or old in MUTATIONS[other][1]) for other in groups[-1])
        groups += [[]] if clash else []
        groups[-1].append(index)
    for group in groups:
        mutated = dict(texts)
        for index in group:
            path, old, new, _ = MUTATIONS[index]
            mutated[f"deepspeed/{path}"] = mutated[f"deepspeed/{path}"].replace(old, new)
        changed = Source(release_source.release)
        for path, text in mutated.items():
            changed.add(path, text)
        assert {MUTATIONS[index][3] for index in group} <= said(beside_the_models(changed))
