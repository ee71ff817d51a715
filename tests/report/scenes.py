"""Results to write: each scene is a run of the linter as it could have been, made by hand so that no rule has a say in it."""

from __future__ import annotations

from io import StringIO

from dslint.config.context import Context
from dslint.diagnostics import Applicability, Diagnostic, Edit, Effect, Fix, Phase, Place, Range, Related, Severity
from dslint.facts import Facts, Integration
from dslint.lint.results import FileResult, Results, Skipped, Suppressed, SuppressedBy
from dslint.report import write
from dslint.rule import Rule
from dslint.source.parse import parse
from dslint.source.tree import Document


def place(document: Document, quoted: str, after: str = "") -> Range:
    """Where a piece of a document's text stands: the first after some other piece."""
    start = document.text.index(quoted, document.text.index(after))
    return Range(Place(*document.position(start)), Place(*document.position(start + len(quoted))))


def found(path: str, code: str, name: str, effect: Effect, message: str, **more: object) -> Diagnostic:
    """A diagnostic with the severity of its effect."""
    severity = more.pop("severity", effect.severity)
    more["certain"] = severity.rank >= effect.severity.rank  # type: ignore[attr-defined]
    return Diagnostic(path, code, name, severity, effect, more.pop("phase", None), message, **more)  # type: ignore[arg-type]


def written(results: Results, output_format: str, *, color: bool = False, width: int = 80) -> str:
    """The results in a format."""
    out = StringIO()
    write(results, output_format, out, color=color, width=width)
    return out.getvalue()


CONFIG = """\
{
  "train_batch_size": 32,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 2,

  "zero_optimization": {
    "stage": 2,
    "overlap_comm": true,
    "reduce_bucket_size": 5e8,
    "offload_param": {
      "device": "cpu",
      "pin_memory": true,
      "buffer_size": "1e8"
    }
  },
  "fp16": {"enabled": "auto", "initial_scale_power": 32}
}
"""


def findings() -> Results:
    """Every severity, effect in words, related places, a fix, an address, a defect of dslint, and facts that are not known."""
    path, document = "configs/ds_zero2.json", parse(CONFIG)
    diagnostics = (
        found(
            path,
            "DS000",
            "internal-error",
            Effect.ADVICE,
            "rule DS999 (not-a-rule) failed on this file: KeyError: 'x' (line 64 of resolved). The other rules were asked as usual.",
            severity=Severity.ERROR,
            help="This is a defect of dslint. Please report it.",
            pointer="",
        ),
        found(
            path,
            "DS201",
            "batch-size-product",
            Effect.CRASH,
            "train_batch_size is 32, but micro batch x accumulation steps x world size is 4 x 2 x 8 = 64; "
            "DeepSpeed raises an AssertionError.",
            phase=Phase.PARSE,
            help="Write 64, or leave train_batch_size out: DeepSpeed computes it.",
            pointer="/train_batch_size",
            range=place(document, '"train_batch_size": 32'),
            related=(
                Related(
                    path, "a part of the product", "/train_micro_batch_size_per_gpu", place(document, '"train_micro_batch_size_per_gpu": 4')
                ),
                Related(path, "a part of the product", "/gradient_accumulation_steps", place(document, '"gradient_accumulation_steps": 2')),
                Related("launch.sh", "the world size is given here"),
            ),
        ),
        found(
            path,
            "DS501",
            "offload-param-below-stage-3",
            Effect.IGNORED,
            'offload_param to "cpu" does nothing at ZeRO stage 2: the parameters stay on the GPU, whole, on every rank.',
            help='Set "stage": 3 to offload parameters, or remove the block; at stages 1 and 2 offload_optimizer is what saves memory.',
            pointer="/zero_optimization/offload_param",
            range=place(document, '"offload_param"'),
            related=(Related(path, "the stage is set here", "/zero_optimization/stage", place(document, '"stage": 2')),),
            url="https://example.org/rules/DS501",
        ),
        found(
            path,
            "DS104",
            "wrong-type",
            Effect.CRASH,
            'zero_optimization.offload_param.buffer_size is the string "1e8"; DeepSpeed expects a whole number.',
            phase=Phase.PARSE,
            severity=Severity.WARNING,
            help="Write it without quotes.",
            pointer="/zero_optimization/offload_param/buffer_size",
            range=place(document, '"1e8"'),
            fix=Fix(
                "write 100000000", Applicability.SAFE, (Edit(document.text.index('"1e8"'), document.text.index('"1e8"') + 5, "100000000"),)
            ),
        ),
        found(
            path,
            "DS302",
            "initial-scale-power-too-high",
            Effect.SLOW,
            "initial_scale_power 32 starts at a loss scale of 4294967296; at least 17 steps are skipped.",
            pointer="/fp16/initial_scale_power",
            range=place(document, '"initial_scale_power": 32'),
        ),
    )
    evidence = '"fp16.enabled" is "auto", which only the Hugging Face Trainer replaces'
    context = Context(Facts(8)).inferring(evidence, integration=Integration.TRANSFORMERS)
    skipped = (Skipped("DS711", "model"), Skipped("DS712", "model"), Skipped("DS512", "host_memory"))
    return Results(Context(Facts(world_size=8)), (FileResult(path, "ds_config", document, diagnostics, skipped, context=context),))


def files() -> Results:
    """A file that is fine, one that is broken over several lines, two that must agree, a template, one that cannot be read."""
    fine = FileResult("a.json", "ds_config", parse('{"train_batch_size": 8}'))
    broken_text = '{\n\t"train_batch_size": 8\n\t"fp16" {\n\t\t"enabled": true\n\t}\n}'
    broken = parse(broken_text)
    syntax = found(
        "b.json",
        "DS001",
        "syntax-error",
        Effect.CRASH,
        'expected ":" after the key "fp16", found "{".',
        phase=Phase.LOAD,
        pointer="",
        range=place(broken, '"fp16" {\n\t\t"enabled": true\n\t}'),
    )
    yaml, ours = parse('{"mixed_precision": "bf16"}'), parse('{"fp16": {"enabled": true}}')
    agree = found(
        "ds.json",
        "DS911",
        "precision-differs",
        Effect.SILENT,
        "fp16 is on here and bf16 in accelerate.yaml.",
        pointer="/fp16/enabled",
        range=place(ours, '"enabled": true'),
        related=(
            Related("accelerate.yaml", "and here it is bf16", "/mixed_precision", place(yaml, '"mixed_precision": "bf16"')),
            Related("gone.yaml", "nobody has read this one", None, Range(Place(3, 1, 20), Place(3, 5, 24))),
        ),
    )
    return Results(
        Context(),
        (
            fine,
            FileResult("accelerate.yaml", "accelerate", yaml),
            FileResult("b.json", "ds_config", broken, (syntax,), (Skipped("DS201", "world_size"),)),
            FileResult("ds.json", "ds_config", ours, (agree,)),
            FileResult("t.json", "template", parse("{}"), note="a template: ${LR} stands where a value goes. Lint the file that it makes."),
            FileResult("x.json", "unreadable", error="cannot be opened: Permission denied"),
        ),
    )


def minified() -> Results:
    """A whole config in one line of 5,000 characters, with places at its beginning, in its middle, at its end, and all over it."""
    text = '{"stage":0,' + ",".join(f'"key_{number}":{number}' for number in range(330)) + ',"last":1}'
    document = parse(text)

    def at(quoted: str, *related: Related) -> Diagnostic:
        return found(
            "min.json",
            "DS103",
            "unknown-key-ignored",
            Effect.IGNORED,
            f"about {quoted[:20]}.",
            pointer="/x",
            range=place(document, quoted),
            related=related,
        )

    far = Related("min.json", "it has to do with this one, which stands far from it", None, place(document, '"key_200":200'))
    near = Related("min.json", "and this one is near", None, place(document, '"key_151":151'))
    return Results(
        Context(),
        (FileResult("min.json", "ds_config", document, (at('"stage":0'), at('"key_150":150', near, far), at('"last":1'), at(text))),),
    )


def hostile() -> Results:
    """Terminal commands, direction marks, wide and combining characters, tabs and lone surrogates: in the text, the path and the words."""
    path = "evil\x1b[31m\n::error::x\u202e.json"
    text = '{\r\n\t"\x1b]0;title\x07":\t1, "名前": "模型", "é": 2,\u00a0\r\n\t"e\u0301": [3], \u202e"x": "\ud800", "⚠": 4}'
    document = parse(text)

    def at(quoted: str, message: str) -> Diagnostic:
        return found(path, "DS103", "unknown-key-ignored", Effect.IGNORED, message, pointer="/a", range=place(document, quoted))

    diagnostics = (
        at('"\x1b]0;title\x07"', 'the key "\x1b]0;title\x07" is not known,\nand a second line\r\n::set-env name=X::y'),
        at('"模型"', "模型" * 50),
        at("2", "after an accent"),
        at("\u00a0", "a blank that is none"),
        at("\u0301", "an accent of its own"),
        at("[3]", "after a combining mark"),
        at("\ud800", "half a character: \ud800"),
        at("4", "after everything"),
    )
    return Results(Context(), (FileResult(path, "ds_config", document, diagnostics, note="a note\x1b[2J"),))


def clean() -> Results:
    """Nothing found, and everything known."""
    return Results(
        Context(Facts(8)),
        (FileResult("a.json", "ds_config", parse('{"train_batch_size": 8}')), FileResult("b.json", "ds_config", parse("{}"))),
    )


def nothing_judged() -> Results:
    """A file that is no training config."""
    return Results(
        Context(),
        (
            FileResult(
                "inference.json", "inference", parse("{}"), note="a config for deepspeed.init_inference; dslint judges training configs."
            ),
        ),
    )


RULES = (
    Rule(
        "DS501",
        "offload-param-below-stage-3",
        Effect.IGNORED,
        None,
        lambda config: (),
        "`offload_param` is given, but the ZeRO stage is below 3.\n\nParameters are only\npartitioned at stage 3.\n\n    indented: 1",
        references=("deepspeed/runtime/zero/config.py", "https://www.deepspeed.ai/docs/config-json/"),
    ),
    Rule("DS201", "batch-size-product", Effect.CRASH, Phase.PARSE, lambda config: (), "The batch sizes do not fit each other."),
    Rule("DS999", "never-found", Effect.ADVICE, None, lambda config: (), "Nothing of it is in the report."),
)


def suppressed() -> Results:
    """Findings that somebody wants not to see, by each of the means, beside one that is seen; and the rules that were asked."""
    document = parse('{\n  // dslint: ignore DS501\n  "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}\n}')

    def offload(path: str, message: str) -> Diagnostic:
        at = place(document, '"offload_param"')
        return found(path, "DS501", "offload-param-below-stage-3", Effect.IGNORED, message, pointer="/a", range=at)

    product = found("a.json", "DS201", "batch-size-product", Effect.CRASH, "4 x 2 is not 32.", phase=Phase.PARSE, pointer="/b")
    return Results(
        Context(),
        (
            FileResult(
                "a.json",
                "ds_config",
                document,
                (offload("a.json", "this one is seen."),),
                suppressed=(
                    Suppressed(
                        offload("a.json", "there is a comment."), SuppressedBy.COMMENT, "tried on the cluster, see [here](http://x)"
                    ),
                    Suppressed(product, SuppressedBy.BASELINE),
                ),
            ),
            FileResult(
                "b.json",
                "ds_config",
                document,
                suppressed=(Suppressed(offload("b.json", "not in examples."), SuppressedBy.SETTINGS, "an example"),),
            ),
        ),
        RULES,
    )


SCENES = {scene.__name__: scene for scene in (findings, files, minified, hostile, clean, nothing_judged, suppressed)}
