"""Fixes in setups: in YAML, in Accelerate's block, in Python, and in the configs that they lead to."""

from __future__ import annotations

import pytest

from dslint.config.context import Context
from dslint.fixes.apply import fix
from dslint.lint.document import lint_text
from dslint.lint.results import FileResult
from dslint.rule import Rule
from tests.command import dslint
from tests.setup.beside import CONFIG, context_of
from tests.setup.folder import RULES, Folder

HEAD = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"
GATHERED = "    stage3_gather_16bit_weights_on_model_save: true\n"
AXOLOTL = "base_model: m\nmicro_batch_size: 2\n"
ZERO3 = '"zero_optimization": {"stage": %s, "stage3_gather_16bit_weights_on_model_save": true}'
TEXT = '{"train_batch_size": "auto", "gradient_accumulation_steps": 4, "gradient_clipping": "auto", ' + ZERO3 + "}\n"
PROGRAM = "import deepspeed\n\nds = {\n    'train_micro_batch_size_per_gpu': '4',  # four\n    'fp16': {'loss_scal': flag},\n}\n"
CALL = "deepspeed.initialize(config=ds)\n"

MENDED: dict[str, tuple[dict[str, str], str, list[tuple[str, str]]]] = {
    "inline": (
        {"t.yaml": f"{AXOLOTL}deepspeed:\n  train_batch_size: auto\n  zero_optimization:  # why\n    stage: '3'\n{GATHERED}"},
        "t.yaml",
        [("stage: '3'", "stage: 3")],
    ),
    "block": (
        {
            "a.yaml": f"{HEAD}mixed_precision: no\n"
            "deepspeed_config:\n  zero_stage: 2\n  offload_param_device: cpu  # why\n  zero3_init_flag: true\n"
        },
        "a.yaml",
        [("precision: no", 'precision: "no"')],
    ),
    "exponents": (
        {
            "ds.yaml": "train_batch_size: 8\nzero_optimization:\n  stage: 1\n  reduce_bucket_size: 2e8\nscheduler:\n  type: WarmupLR\n"
            "  params:\n    warmup_min_lr: 6e-5\n"
        },
        "ds.yaml",
        [("2e8", "200000000"), ("6e-5", "6.0e-5")],
    ),
    "python": ({"t.py": PROGRAM + CALL}, "t.py", [("'4'", "4"), ("loss_scal", "loss_scale")]),
    "linked": ({"t.yaml": f"{AXOLOTL}deepspeed: ds.json\n", "ds.json": TEXT % '"3"'}, "ds.json", [('"3"', "3")]),
}


@pytest.mark.parametrize("case", MENDED)
def test_safe_fixes_are_made_where_things_are_written(folder: Folder, case: str) -> None:
    files, name, changes = MENDED[case]
    folder.write(files)
    done = dslint("check", *files, "--fix", "--ignore", "DS8,DS2", cwd=folder.path)
    expected = files[name]
    for before, after in changes:
        expected = expected.replace(before, after)
    for path, text in {**files, name: expected}.items():
        assert (folder.path / path).read_text(encoding="utf-8") == text, done.stderr


def test_what_a_training_disagrees_with_is_mended_in_the_config(folder: Folder) -> None:
    folder.write({"t.yaml": f"{AXOLOTL}gradient_accumulation_steps: 2\ndeepspeed: ds.json\n", "ds.json": TEXT % 3})
    dslint("check", ".", "--unsafe-fixes", cwd=folder.path)
    assert '"gradient_accumulation_steps": "auto"' in (folder.path / "ds.json").read_text(encoding="utf-8")


def test_what_nobody_asked_for_is_left_as_it_is(folder: Folder) -> None:
    files = {"t.yaml": f"{AXOLOTL}deepspeed: ds.json\n", "ds.json": TEXT % '"3"'}
    folder.write(files)
    done = dslint("check", "t.yaml", "--fix", cwd=folder.path)
    assert (folder.path / "ds.json").read_text(encoding="utf-8") == files["ds.json"]
    assert "fix: write the number 3\n" in done.stdout
    assert "--fix" not in done.stdout


@pytest.mark.parametrize("rule", [rule for rule in RULES if any(example.files for example in rule.bad)], ids=lambda rule: rule.code)
def test_every_fix_of_an_example_with_files_mends_it(rule: Rule) -> None:
    for example in (example for example in rule.bad if example.files):
        context = context_of(example)

        def lint(text: str, context: Context = context) -> FileResult:
            result = lint_text(text, CONFIG, context, RULES)
            assert result is not None
            return result._replace(diagnostics=tuple(d for d in result.diagnostics if d.path == CONFIG))

        for diagnostic in lint(example.text).diagnostics:
            if diagnostic.code == rule.code and diagnostic.fix:
                fixed = fix(example.text, lint, {diagnostic.fix.applicability})
                assert diagnostic.code in {d.code for d in fixed.fixed}
                assert (diagnostic.code, diagnostic.pointer) not in {(d.code, d.pointer) for d in fixed.result.diagnostics}
