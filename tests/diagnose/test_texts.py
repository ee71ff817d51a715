"""The table of known texts, and the search for them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from dslint.diagnose import template
from dslint.diagnose.texts import CAUSE, FOLLOW_UP, MOST_VALUES, NOISE, KnownText, entries, filled, match, match_line, ranked, rows
from dslint.registry.rules import all_rules
from tests.cases import table
from tests.docs.test_language import AVOIDED
from tests.growth import assert_linear
from tests.judges.logs import FILLED

WORDINGS = [(entry, text) for entry in entries() for text in entry.texts]


def example(text: str) -> tuple[str, dict[str, str]]:
    """A line with the text, and the values of its places."""
    parts = template.parse(text)
    line = "".join(part if isinstance(part, str) else FILLED[part.kind] for part in parts)
    return f"[rank3]: SomeError: {line}", {part.name: FILLED[part.kind] for part in parts if not isinstance(part, str) and part.name}


@pytest.mark.slow
@table("entry", entries(), ids=lambda entry: entry.id)
def test_an_entry_is_complete_and_each_wording_leads_to_it(entry: KnownText) -> None:
    for text in entry.texts:
        line, values = example(text)
        assert match_line(line, [f"{part}x.py" for part in entry.where]) == (entry, values)
        first = template.parse(text)[0]
        assert isinstance(first, str) or first.kind != "text"  # a text that begins anywhere cannot be searched in linear time
    assert CAUSE <= entry.rank <= NOISE
    assert set(entry.rules) <= {rule.code for rule in all_rules()}
    assert entry.sources
    for text in entry.texts:
        (found,) = match([example(text)[0]], entry.where)
        for sentence in (found.cause, found.advice):
            assert not re.search(r"[\[\]]|\?|  | [.,:](?=\s|$)", sentence), sentence
            assert sentence.endswith(".")
            assert not [pattern for pattern in AVOIDED if re.search(pattern, sentence, re.IGNORECASE)]


def test_a_wording_wins_over_a_general_one_that_begins_with_its_exception() -> None:
    """The name of the exception makes a general wording longer, such as "AttributeError: module '{}' has no attribute '{}'"."""
    for entry, text in WORDINGS:
        line = example(text)[0].removeprefix("[rank3]: SomeError: ")
        if "has no attribute" in line and not line.startswith("AttributeError"):
            hit = match_line(f"AttributeError: {line}", [f"{part}x.py" for part in entry.where])
            assert hit is not None
            assert hit[0].id == entry.id, line


def test_ids_are_unique() -> None:
    ids = [entry.id for entry in entries()]
    assert len(ids) == len(set(ids))


def test_a_cause_and_its_advice_are_written_once() -> None:
    written = [(row["cause"], row["advice"]) for row in rows() if "same_as" not in row]
    assert len(written) == len(set(written))


def test_the_numbers_of_a_message_are_in_its_cause() -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 2 has a total capacity of 79.15 GiB of which"
        " 512.75 MiB is free. Process 7 has 414.00 MiB memory in use. Including non-PyTorch memory, this process has 78.10 GiB memory in"
        " use. Of the allocated memory 71.20 GiB is allocated by PyTorch, and 4.50 GiB is reserved by PyTorch but unallocated. If"
        " reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    (found,) = match([line])
    assert found.entry.id == "gpu-out-of-memory"
    assert found.values["process"] == "78.10 GiB"
    assert all(number in found.cause for number in ("3.91 GiB", "GPU 2", "512.75 MiB of 79.15 GiB", "71.20 GiB", "4.50 GiB"))


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: No slot 2 specified on host work1",
        "ValueError: No slot \N{LEFT SINGLE QUOTATION MARK}2\N{RIGHT SINGLE QUOTATION MARK} specified on host `work1`",
        "worker-3: [rank1]:  ValueError:  No slot '2'  specified on host 'work1'\r",
        "ValueError: no Slot '2' Specified on host 'work1'",
    ],
)
def test_quotes_prefixes_spaces_and_capitals_do_not_matter(line: str) -> None:
    (found,) = match([line])
    assert (found.entry.id, found.values) == ("include-slot-missing", {"slot": "2", "host": "work1"})


def test_a_line_with_a_cause_and_what_follows_from_it_tells_the_cause() -> None:
    line = "[rank1]:[E ProcessGroupNCCL.cpp:915] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: device-side assert triggered"
    (found,) = match([line])
    assert found.entry.id == "kernel-check-failed"


def test_a_component_that_open_mpi_skips_is_no_module_of_the_job() -> None:
    log = (
        "[n1:1] pmix_mca_base_component_repository_open: unable to open mca_gds_ds21: /e/libmca.so.1: undefined symbol: pmix_unpack (ignored)",
        "*** An error occurred in MPI_Init_thread",
    )
    assert [one.entry.id for one in ranked(match(log))] == ["mpi-init-failed", "mpi-component-ignored"]


def test_a_number_at_the_end_is_a_whole_number() -> None:
    assert [found.entry.id for found in match(["exits with return code = -9", "exits with return code = -91"])] == [
        "launcher-exit-sigkill",
        "launcher-exit",
    ]


def test_a_cause_is_ranked_before_what_follows_from_it() -> None:
    lines = [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "RuntimeError: CUDA error: invalid device ordinal",
        "Exception ignored in atexit callback: <function close at 0x7f>",
    ]
    assert [found.entry.rank for found in match(lines)] == [FOLLOW_UP, CAUSE, NOISE]
    assert [found.line_number for found in ranked(match(lines))] == [2, 1, 3]


def test_the_error_of_an_ignored_traceback_does_not_count() -> None:
    lines = [
        "Exception ignored in: <function Engine.__del__ at 0x7f>",
        "Traceback (most recent call last):",
        '  File "engine.py", line 3, in __del__',
        "RuntimeError: CUDA error: invalid device ordinal",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ]
    assert [found.entry.id for found in match(lines)] == ["atexit-traceback", "illegal-memory-access"]


def test_what_every_rank_prints_is_one_match() -> None:
    lines = [f"[rank{rank}]: RuntimeError: CUDA error: invalid device ordinal" for rank in range(64)]
    assert [found.line_number for found in match(lines)] == [1]
    steps = [
        f"OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2**power}, reducing to {2 ** (power - 1)}" for power in range(90, 1, -1)
    ]
    assert len(match(steps)) == MOST_VALUES


@pytest.mark.parametrize(
    "line", ["", "everything went well", "step 7 loss 2.5 memory 70 GiB", "\N{GRINNING FACE}", "\x00\udcff", "not a CUDA device"]
)
def test_ordinary_lines_match_nothing(line: str) -> None:
    assert match([line]) == []


def _noise(words: list[str]) -> Callable[[int], Callable[[], object]]:
    def make(lines: int) -> Callable[[], object]:
        choice = random.Random(7)
        text = [" ".join(choice.choices(words, k=12)) for _ in range(lines)]
        return lambda: match(text)

    return make


@pytest.mark.parametrize("kind", ["words of the texts", "one long line", "the start of a text again and again"])
def test_the_time_is_linear_in_the_text(kind: str) -> None:
    if kind == "words of the texts":
        assert_linear(_noise(" ".join(text for _, text in WORDINGS).split()), 500)
    elif kind == "one long line":
        words = " ".join(example(text)[0] for _, text in WORDINGS[::7])
        assert_linear(lambda size: lambda: match([(words + " out of memory. Tried to allocate") * size]), 2, 4)
    else:
        assert_linear(lambda size: lambda: match(["Tried to allocate 2 GiB (GPU 0; 1 GiB total capacity; " * size]), 300)


def test_a_template_names_its_places() -> None:
    assert template.parse("a {{b}} {x:int} c{}") == ["a {b} ", template.Blank("x", "int"), " c", template.Blank("", "text")]
    with pytest.raises(ValueError, match="unknown kind"):
        template.parse("{x:float}")
    with pytest.raises(ValueError, match="literal word"):
        template.whole_words(template.parse("{x:int}"))


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("MemoryError", "host-allocator-out-of-memory"),
        ("    MemoryError: Unable to allocate", "host-allocator-out-of-memory"),
        ("rank 3: MemoryError", "host-allocator-out-of-memory"),
        ("E   MemoryError", "host-allocator-out-of-memory"),
        ("  what():  std::bad_alloc", "host-allocator-out-of-memory"),
        ('{"exception": "MemoryError"}', "host-allocator-out-of-memory"),
        ("(pid=3) torch.cuda.OutOfMemoryError", "gpu-out-of-memory"),
        ("step 3 failed with CUDA out of memory", "gpu-out-of-memory"),
        ("Exception: handling the request: CUDA out of memory", "gpu-out-of-memory"),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "rendezvous-without-all"),
        ("If you get MemoryError, lower --workers", None),
        ("Catching MemoryError when the cache overflows: off", None),
        ("note: MemoryError is handled by the loader", None),
        ("retry_on = ['MemoryError', 'RuntimeError']", None),
        ("    except torch.cuda.OutOfMemoryError:", None),
        ("Loaded handler for std::bad_alloc in cache.so", None),
        ("If you see CUDA out of memory, use --batch-size 1", None),
        ("expandable segments prevent CUDA out of memory", None),
        ("no OOM error so far", None),
    ],
)
def test_the_name_of_an_error_is_a_report_only_where_it_was_raised(line: str, entry: str | None) -> None:
    """Programs name errors in advice, in settings and in what they say of themselves."""
    hit = match_line(line)
    assert (hit[0].id if hit else None) == entry


@pytest.mark.parametrize(
    ("said", "entry"),
    [
        ("'Seq2SeqTrainer' object has no attribute 'accelerator'", "trainer-older-than-accelerate"),
        ("'PPOv2Trainer' object has no attribute 'deepspeed'", "trainer-without-engine"),
        ("'Net' object has no attribute 'accelerator'", "attribute-missing"),
        ("'Trainers' object has no attribute 'deepspeed'", "attribute-missing"),
        ("'PeftArguments' object has no attribute 'deepspeed_plugin'", "arguments-without-plugin"),
        ("'Accelerator' object has no attribute 'deepspeed_plugin'", "accelerator-not-initialized"),
        ("'HfDeepSpeedConfig' object has no attribute 'trainer_config_finalize'", "trainer-config-of-accelerate"),
        ("'HfTrainerDeepSpeedConfig' object has no attribute 'is_zero3'", "hf-config-without-deepspeed"),
    ],
)
def test_an_attribute_that_a_release_lacks_is_looked_up_by_the_class(said: str, entry: str) -> None:
    for line in (said, f"AttributeError: {said}"):
        hit = match_line(line)
        assert (hit[0].id if hit else None) == entry


@pytest.mark.parametrize(
    ("held", "entry"), [("optimizer param", "parameter-not-in-optimizer"), ("frozen Parameter containing:", "frozen-parameter-unknown")]
)
def test_a_frozen_parameter_without_a_name_is_no_matter_of_the_optimizer(held: str, entry: str) -> None:
    (found,) = match([f"ValueError: failed to find {held} in named params"])
    assert found.entry.id == entry
    assert ("ptimizer" in found.cause + found.advice) is (entry == "parameter-not-in-optimizer")


OWN = "/home/a/proj/train.py:run"


@table(
    "line, library, entry, elsewhere",
    [
        ("binascii.Error: Incorrect padding", "deepspeed/runtime/config.py:__init__", "config-not-base64", None),
        ("binascii.Error: Invalid base64-encoded string: number of data characters (13) cannot be 1 more than a multiple of 4", "deepspeed/runtime/config.py:__init__", "config-not-base64", None),
        ("ValueError: Please make sure to properly initialize your accelerator via `accelerator = Accelerator()` before using any functionality", "accelerate/accelerator.py:__init__", "second-accelerator-without-first", "accelerator-after-state"),
        ("RuntimeError: Trying to create tensor with negative dimension -686245457367107674: [-686245457367107674]", "torch/distributed/distributed_c10d.py:broadcast_object_list", "size-of-another-collective", None),
        ("ModuleNotFoundError: No module named 'mpi4py'", "deepspeed/comm/comm.py:mpi_discovery", "mpi-discovery-without-mpi", "module-not-found"),
        ("TypeError: f() argument after ** must be a mapping, not list", "deepspeed/runtime/config.py:x", "section-not-an-object-here", None),
        ("AttributeError: 'list' object has no attribute 'keys'", "deepspeed/runtime/config.py:x", "section-not-an-object-here", "attribute-missing"),
        ("AttributeError: 'NoneType' object has no attribute 'copy'", "deepspeed/runtime/zero/stage3.py:x", "checkpoint-without-state", "attribute-missing"),
        ("KeyError: 'optimizer_state_dict'", "deepspeed/runtime/zero/stage3.py:x", "checkpoint-state-of-other-stage", "key-missing"),
        ("KeyError: 'optimizer'", "accelerate/checkpointing.py:x", "optimizer-state-without-groups", "key-missing"),
        ("KeyError: 'loss'", "transformers/trainer.py:compute_loss", "no-loss-among-outputs", "key-missing"),
        ("ValueError: Directory './data' doesn't exist", "ckpt/zero_to_fp32.py:x", "zero-to-fp32-folder", None),
        ("TypeError: '>' not supported between instances of 'NoneType' and 'float'", "deepspeed/autotuning/x.py:x", "autotuning-compares-no-result", "types-of-operands"),
        ("AttributeError: 'Net' object has no attribute 'config'", "transformers/deepspeed.py:trainer_config_finalize", "auto-without-model-config", "attribute-missing"),
        ("TypeError: unsupported operand type(s) for *: 'float' and 'NoneType'", "deepspeed/runtime/hybrid_engine.py:eval", "hybrid-engine-before-generation", "types-of-operands"),
        ("AttributeError: __fields__", "pydantic/_internal/_model_construction.py:__getattr__", "pydantic-2-with-old-deepspeed", None),
        ("KeyError: 'fp16'", "accelerate/accelerator.py:mixed_precision", "accelerate-config-without-precision", "key-missing"),
        ("AssertionError: Train batch size: 0 has to be greater than 0", "megatron/neox_arguments/arguments.py:x", "neox-batch-of-no-gpu", "batch-size-zero"),
        ("AttributeError: 'Pipe' object has no attribute 'children'", "deepspeed/module_inject/x.py:x", "inference-of-no-module", "attribute-missing"),
        ("IndexError: map::at", "deepspeed/ops/sparse_attention/matmul.py:x", "triton-sparse-attention-kernel", None),
        ("AttributeError: 'T' object has no attribute 'optimizer'", "trl/models/utils.py:remove_hooks", "generation-unwrapped-model", "attribute-missing"),
        ("RuntimeError: Error in worker process: bad image", "deepspeed/runtime/zenflow/x.py:x", "optimizer-worker-died", None),
        ("ValueError: zip() argument 2 is longer than argument 1", "torch/optim/lr_scheduler.py:x", "scheduler-groups-differ", None),
        ("ModuleNotFoundError: No module named 'quantizer'", "deepspeed/ops/op_builder/builder.py:load", "op-without-its-library", "module-not-found"),
        ("OSError: [Errno 98] Address already in use", "torch/distributed/rendezvous.py:x", "port-in-use-of-ranks", None),
        ("OSError: [Errno 98] Address already in use", "python3.10/socketserver.py:server_bind", "address-in-use", None),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", "urllib3/response.py:read", "download-connection-lost", "tcpstore-gone"),
        ("requests.exceptions.ConnectionError: no", "huggingface_hub/file_download.py:x", "model-request-failed", "web-request-failed"),
        ("IndexError: tuple index out of range", "torch/distributed/nn/functional.py:backward", "gather-in-smaller-group", "fewer-dimensions"),
        ("NameError: name 'null' is not defined", "proj/train.ipynb:<module>", "notebook-as-program", "name-not-defined"),
        ("FileNotFoundError: Unable to find '/data/a.json'", "site-packages/datasets/load.py:x", "dataset-file-missing", None),
        ("FileNotFoundError: Unable to find '/data/a.json'", "proj/datasets/load.py:x", None, None),
        ("ValueError: Config name is missing.", "site-packages/datasets/builder.py:x", "dataset-configuration-missing", None),
        ("ValueError: BuilderConfig 'a' not found. Available: ['b']", "site-packages/datasets/builder.py:x", "dataset-configuration-unknown", None),
        ("ValueError: Unknown split \"a\". Should be one of ['b'].", "site-packages/datasets/arrow_reader.py:x", "dataset-split-unknown", None),
        ("IndexError: Invalid key: 2 is out of bounds for size 0", "site-packages/datasets/formatting/formatting.py:x", "dataset-without-rows", None),
        ("IndexError: Invalid key: 9 is out of bounds for size 7", "site-packages/datasets/formatting/formatting.py:x", None, None),
        ("RuntimeError: Trying to resize storage that is not resizable", "torch/utils/data/_utils/collate.py:x", "collate-sizes-in-worker", None),
        ("TypeError: object of type 'Stream' has no len()", "torch/utils/data/sampler.py:x", "dataset-without-length", "value-without-length"),
        ("KeyError: 'qwen2'", "transformers/models/auto/configuration_auto.py:__getitem__", "model-type-unknown", "key-missing"),
        ("NameError: name 'dist' is not defined", "deepspeed/utils/distributed.py:mpi_discovery", "name-not-defined-by-deepspeed", "name-not-defined"),
        ("AttributeError: Can't get attribute 'A' on <module '__main__' from 'train.py'>", "torch/serialization.py:find_class", "pickled-class-missing", None),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "deepspeed/ops/transformer/inference/x.py:forward", "illegal-access-of-inference-kernel", "illegal-memory-access"),
        ("RuntimeError: The size of tensor a (0) must match the size of tensor b (12) at non-singleton dimension 0", "deepspeed/runtime/zero/stage3.py:step", "empty-tensor-in-step", "empty-tensor"),
        ("AttributeError: 'NoneType' object has no attribute 'set_moe'", "deepspeed/runtime/hybrid_engine.py:x", "hybrid-engine-injection", "inference-injection-unsupported"),
        ("KeyError: 'chosen'", "trl/trainer/dpo_trainer.py:tokenize_row", "preference-columns-missing", "key-missing"),
        ("TypeError: num_workers must be an integer, not bool", OWN, None, None),
        ("TypeError: type object argument after ** must be a mapping, not bool", "deepspeed/runtime/config.py:x", "section-not-an-object-here", None),
        ("OSError: [Errno 98] Address already in use", "/env/lib/python3.10/site-packages/ray/_private/node.py:x", "address-in-use", None),
        ("OSError: [Errno 98] Address already in use", "/home/a/array/serve.py:x", None, None),
        ("RuntimeError: CUDA error: out of memory", "deepspeed/accelerator/cuda_accelerator.py:pin_memory", "pinning-out-of-memory", "cuda-error-out-of-memory"),
        ("RuntimeError: CUDA error: out of memory", "torch/utils/data/_utils/pin_memory.py:pin_memory", "cuda-error-out-of-memory", "cuda-error-out-of-memory"),
        ("ValueError: fp16.loss_scale_window must be an integer, not bool", OWN, "loss-scale-values", "loss-scale-values"),
        ("TypeError: deepspeed.runtime.zero.config.DeepSpeedZeroConfig() argument after ** must be a mapping, not bool", OWN, "section-not-an-object", "section-not-an-object"),
    ],
)  # fmt: skip
def test_what_any_code_may_say_counts_only_in_its_library(line: str, library: str, entry: str | None, elsewhere: str | None) -> None:
    for place, expected in ((library, entry), (OWN, elsewhere)):
        hit = match_line(line, [OWN, place])
        assert (hit[0].id if hit else None) == expected


@table(
    "line, entry",
    [
        ("KeyError: 'gptj'", "model-type-missing"),
        ("KeyError: 'gptj_layers'", "key-missing"),
        ("TypeError: A.forward() missing 2 required positional arguments: 'a' and 'b'", "unexpected-argument"),
        ("TypeError: step() takes from 2 to 3 positional arguments but 4 were given", "unexpected-argument"),
        ("TypeError: forward() got multiple values for argument 'mask'", "argument-given-twice"),
        ("TypeError: unsupported operand type(s) for *: 'NoneType' and 'float'", "types-of-operands"),
        ("TypeError: '<' not supported between instances of 'float' and 'str'", "types-of-operands"),
        ("TypeError: 'Tensor' object is not callable", "value-not-callable"),
        ("TypeError: 'NoneType' object is not callable", "is-not-iterable"),
        ("UnboundLocalError: local variable 'loss' referenced before assignment", "local-name-not-set"),
        ("AttributeError: 'DeepSpeedZeRoOffload' object has no attribute 'checkpoint_event_prologue'", "zero3-without-optimizer"),
        ("AttributeError: 'DeepSpeedZeRoOffload' object has no attribute 'backward'", "zero-requires-optimizer"),
        ("SyntaxError: invalid syntax", "program-does-not-parse"),
        ("Fatal Python error: Segmentation fault", "segmentation-fault"),
        ("Fatal Python error: init_import_site: Failed to import the site module", "interpreter-stopped"),
        ("/bin/sh: 1: ninja: not found", "ninja-missing"),
        ("ninja: build stopped: subcommand failed.", "ninja-follow-up"),
        ("malloc(): unaligned tcache chunk detected", "segmentation-fault"),
        ("ValueError: unexpected save model: <class 'deepspeed.runtime.engine.DeepSpeedEngine'>", "save-hook-of-diffusers"),
        ("mpirun noticed that process rank 3 with PID 71 on node n2 exited on signal 9 (Killed).", "mpirun-rank-signal"),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL", "spawned-process-signal"),
        (
            "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 7 params, while rank 0 has inconsistent 8 params.",
            "ddp-parameters-differ",
        ),
    ],
)
def test_what_jobs_print_is_read_as_far_as_it_goes(line: str, entry: str) -> None:
    hit = match_line(line)
    assert hit is not None
    assert hit[0].id == entry


MISMATCH = "size mismatch for layer.weight: copying a param with shape"
CALLED = "subprocess.CalledProcessError: Command"
LISTEN = "RuntimeError: The server socket has failed to listen on any local network address."


@table(
    "line, entry",
    [
        (
            f"{LISTEN} The server socket has failed to bind to [::]:42 (errno: 13 - Permission denied).",
            "port-not-permitted",
        ),
        (
            f"{LISTEN} The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
            "port-in-use",
        ),
        ("OSError: [Errno 113] No route to host", "machine-unreachable"),
        ("urllib3.exceptions.ReadTimeoutError: the socket timeout was reached", None),
        ("RuntimeError: Socket Timeout", "store-timeout"),
        ("requests.exceptions.ConnectionError: HTTPConnectionPool(host='0.0.0.0', port=8000): Max retries exceeded", "local-server-silent"),
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries", "model-download-failed"),
        ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x.org', port=443): Max retries exceeded", "web-request-failed"),
        ("RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1.", "file-of-another-device"),
        ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "system-library-missing"),
        ("ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory", "shared-library-missing"),
        ("AttributeError: module 'numpy' has no attribute 'float'.", "numpy-alias-removed"),
        ("AttributeError: module 'numpy' has no attribute 'bool8'. Did you mean: 'bool'?", "numpy-name-removed"),
        ("wandb.errors.CommError: Run initialization has timed out after 90.0 sec.", "wandb-unreachable"),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=python", "xid-of-a-program"),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", "gpu-hardware-fault"),
        ("git@github.com: Permission denied (publickey).", "git-login-refused"),
        ("root@node-2: Permission denied (publickey,password).", "ssh-login-failed"),
        ("../Loss.cu:94: operator(): block: [0,0,0] Assertion `input_val >= zero && input_val <= one` failed.", "loss-of-probabilities"),
        ("torchrun: error: unrecognized arguments: --deepspeed ds.json", "launcher-refuses-option"),
        ("train.py: error: unrecognized arguments: --deepspeed ds.json", "config-argument-not-defined"),
        ("train.py: error: unrecognized arguments: --local_rank=3", "local-rank-argument"),
        ("train.py: error: unrecognized arguments: --local_rank=3 --deepspeed ds.json", "local-rank-and-config-arguments"),
        ("SignalException: Process 7 got signal: 2", "interrupted-by-a-person"),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15", "terminated-by-signal"),
        ("[Errno 116] Stale file handle", "file-system-fails"),
        ("deepspeed: error: the following arguments are required: user_script, user_args", "launcher-without-program"),
        ("RuntimeError: Rank 1 failed to pass monitoredBarrier in 30000 ms", "rank-late-at-barrier"),
        ("AttributeError: 'Whisper' object has no attribute 'save_checkpoint'", "engine-method-on-model"),
        ("AttributeError: 'Whisper' object has no attribute 'save_pretrained'", "attribute-missing"),
        ("AttributeError: module 'deepspeed' has no attribute 'init_inference'", "deepspeed-shadowed"),
        ("!!!! kernel execution error. (m: 7680, n: 3, k: 2560, error: 13)", "transformer-kernel-failed"),
        ("AttributeError: 'list' object has no attribute 'children'", "attribute-missing"),
        (
            "ValueError: Loading m/mpt-7b requires you to execute the configuration file in that repo on your local machine.",
            "remote-code-not-trusted",
        ),
        ("You can avoid this prompt in future by passing the argument `trust_remote_code=True`.", None),
        (
            r"FileExistsError: [WinError 183] Cannot create a file when that file already exists: '.\\deepspeed\\ops'",
            "windows-setup-copies",
        ),
        (r"FileExistsError: [WinError 183] Cannot create a file when that file already exists: '.\\output\\ops'", None),
        (f"{MISMATCH} torch.Size([2, 32]) from checkpoint, the shape in current model is torch.Size([1]).", "zero3-weight-of-one"),
        (f"{MISMATCH} torch.Size([2]) from checkpoint, the shape in current model is torch.Size([1]).", "checkpoint-shape-mismatch"),
        (f"{MISMATCH} torch.Size([2, 32]) from checkpoint, the shape in current model is torch.Size([16]).", "checkpoint-shape-mismatch"),
        (f"{CALLED} '['deepspeed', 'train.py']' returned non-zero exit status 245.", "launcher-status-245"),
        (f"{CALLED} '['deepspeed', 'train.py']' returned non-zero exit status 247.", "launcher-status-247"),
        (f"{CALLED} '['deepspeed', 'train.py']' returned non-zero exit status 1.", "accelerate-subprocess"),
        (f"{CALLED} '['python', 'deepspeed', 'train.py']' returned non-zero exit status 245.", "accelerate-subprocess"),
        (f"{CALLED} '['deepspeed', '--hostfile', '', 'train.py']' returned non-zero exit status 2.", "launcher-status-2"),
        (f"{CALLED} '['deepspeed', 'train.py']' returned non-zero exit status 21.", "accelerate-subprocess"),
        (
            "RuntimeError: unable to open shared memory object </torch_1> in read-write mode: Too many open files (24)",
            "too-many-open-files",
        ),
        ("RuntimeError: unable to open shared memory object </torch_1> in read-write mode: No space left", "shared-memory-full"),
        (
            "AttributeError: /opt/bitsandbytes/libbitsandbytes_cpu.so: undefined symbol: cquantize_blockwise_fp16_nested",
            "bitsandbytes-broken",
        ),
        ("AttributeError: 'NoneType' object has no attribute 'cquantize_blockwise_fp16_nested'", "bitsandbytes-broken"),
        ("ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12", "cuda-library-shadowed"),
        ("ImportError: /opt/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister", "cuda-library-shadowed"),
        ("ImportError: fused_adam.so: undefined symbol: _ZN3c104cuda20CUDACachingAllocator", "undefined-symbol"),
        ("Could not load library libcudnn_cnn_infer.so.8. Error: libcudnn.so.8: undefined symbol: f", "cudnn-not-loaded"),
        ("RuntimeError: Could not load library libcudnn_cnn_train.so.8", "cudnn-not-loaded"),
        ("Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9}", "cudnn-not-loaded"),
        (
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk cache and outgoing traffic has been disabled.",
            "hub-offline",
        ),
        (
            "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub",
            "model-download-failed",
        ),
        ("HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/api/models/a", "hub-rate-limit"),
        ("requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://api.example.org/a", None),
        ("Exception: data did not match any variant of untagged enum ModelWrapper at line 7 column 3", "tokenizer-file-of-other-release"),
        ("Exception: data did not match any variant of untagged enum Settings at line 7 column 3", None),
        (
            "RuntimeError: shape mismatch: value tensor of shape [4, 2] cannot be broadcast to indexing result of shape [2, 2]",
            "features-and-places-differ",
        ),
        ("RuntimeError: shape mismatch: value tensor of shape [4, 2] cannot be broadcast to indexing result of shape [0]", "empty-tensor"),
        (
            "ValueError: The repository for a/b contains custom code which must be executed to correctly load the dataset.",
            "dataset-script-not-trusted",
        ),
        ("FutureWarning: The repository for a/b contains custom code which must be executed to correctly load the dataset.", None),
        ("slurmstepd: error: execve(): torchrun: No such file or directory", "slurm-execve"),
        ("srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types", "slurm-mpi-type"),
        ("mpirun was unable to launch the specified application as it could not", "mpi-executable"),
        ("mpirun was unable to find the specified executable file, and therefore", "mpi-executable"),
        ("torch.distributed.DistNetworkError: failed to recv, got 0 bytes", "tcpstore-gone"),
        ("ValueError: You passed both a ref_model and a peft_config. For training PEFT adapters", "reference-model-with-adapters"),
        ("OSError: [Errno 7] Argument list too long: '/usr/bin/python'", "argument-list-too-long"),
        ("ValueError: Unsupported nproc_per_node value: four", "nproc-per-node-value"),
        ("ModuleNotFoundError: No module named 'distutils'", "distutils-removed"),
        ("ModuleNotFoundError: No module named 'pkg_resources'", "pkg-resources-missing"),
        ("TypeError: argument of type 'NoneType' is not iterable", "is-not-iterable"),
    ],
)
def test_neighbouring_errors_are_told_apart(line: str, entry: str | None) -> None:
    hit = match_line(line)
    assert (hit[0].id if hit else None) == entry


def test_a_clause_in_brackets_has_a_value() -> None:
    """What stands in square brackets is printed only with the values it names: without any it would always, or never, be printed."""
    for entry in entries():
        for words in (entry.cause, entry.advice):
            clauses = re.findall(r"\[[^\[\]]*\]", words)
            assert all(re.search(r"\{\w+\}", clause) for clause in clauses), (entry.id, clauses)


def test_errors_of_moe_layers_are_told_apart() -> None:
    said = {
        "AssertionError: No. of tokens (batch-size) should be greater than min_capacity. Either set min_capacity to 0 or inrease your batch size.": (
            "fewer tokens than min_capacity"
        ),
        "AssertionError: Unsupported noisy_gate_policy: gumbel": "a policy of its gate",
        "AssertionError: Number of experts (6) should be divisible by expert parallel size (4)": "6 experts cannot be divided by",
    }
    for line, words in said.items():
        hit = match_line(line)
        assert hit is not None
        assert words in filled(hit[0].cause, hit[1])


NUMPY = "ValueError: numpy.dtype size changed, may indicate binary incompatibility."
STORE = (
    "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by "
    "key '0', but store->get('0') got error:"
)


@table(
    "line, entry",
    [
        ("AttributeError: 'Accelerator' object has no attribute 'deepspeed_engine_wrapped'", "accelerate-backward-without-engine"),
        ("AttributeError: 'Accelerator' object has no attribute 'foo'", "accelerator-not-initialized"),
        ("ValueError: No valid checkpoint found in output directory (out)", "no-checkpoint-to-resume-from"),
        ("ValueError: Tried to find /a/b but folder does not exist", "load-state-folder-missing"),
        ("ValueError: Unable to find 'latest' file at out/latest", "zero-to-fp32-without-latest"),
        ("RuntimeError: unable to open file </a/model.bin> in read-only mode: No such file or directory (2)", "checkpoint-file-not-opened"),
        ("OSError: Unable to load weights from pytorch checkpoint file for '/a/model.bin' at", "pickled-weights-not-loaded"),
        ("writer contains invalid value x for data_parallel, expecting one of ['y']", ""),
        (
            f"{MISMATCH} torch.Size([2, 32]) from checkpoint, the shape in current model is torch.Size([0]).",
            "checkpoint-into-divided-model",
        ),
        (f"{MISMATCH} torch.Size([0]) from checkpoint, the shape in current model is torch.Size([2, 32]).", "checkpoint-of-empty-weights"),
        ("ValueError: bf16 mixed precision requires PyTorch >= 1.10 and a supported device.", "accelerate-bf16-unsupported"),
        ("ValueError: fp16 mixed precision requires a GPU (not 'cpu').", "accelerate-fp16-without-gpu"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver-and-library-differ"),
        ("ValueError: Unknown CUDA arch (13.7) or GPU not supported", "unknown-cuda-architecture"),
        ("IndexError: list index out of range arch_list[-1] += '+PTX'", "op-without-visible-gpu"),
        (f"{STORE} Connection reset by peer", "store-of-rank-0-lost"),
        (f"{STORE} wait timeout after 1800000ms, keys: /default_pg/0//cuda//1", "store-wait-timeout"),
        (f"{STORE} Socket Timeout", "store-wait-timeout"),
        ("KeyError: 'PDSH_SSH_ARGS_APPEND'", "pdsh-arguments-unset"),
        ("Error while creating shared memory segment /dev/shm/nccl-LeXlEJ (size 9637888)", "shared-memory-not-allocated"),
        ("AttributeError: module 'deepspeed' has no attribute 'zero'", "deepspeed-shadowed"),
        ("TypeError: __init__() got an unexpected keyword argument 'evaluation_strategy'", "training-arguments-removed"),
        (
            "ImportError: Using the `Trainer` with `PyTorch` requires `accelerate>=0.26.0`: Please run `pip install transformers[torch]`",
            "accelerate-missing-or-old",
        ),
        ("RuntimeError: No executable batch size found, reached zero.", "no-executable-batch-size"),
        (
            "NotImplementedError: You cannot pass in a `deepspeed_plugin` when creating a second `Accelerator`. Please make sure",
            "second-accelerator-with-plugin",
        ),
        ("RuntimeError: The DeepSpeed strategy is only supported on CUDA GPUs but `CPUAccelerator` is used.", "lightning-without-gpu"),
        ("ImportError: PyTorch >= 2.6 requires DeepSpeed >= 0.16.0. Detected DeepSpeed version: 0.15.4.", "lightning-deepspeed-too-old"),
        (f"{NUMPY} Expected 96 from C header, got 88 from PyObject", "numpy-older-than-package"),
        (f"{NUMPY} Expected 88 from C header, got 96 from PyObject", "numpy-incompatible"),
        (f"{NUMPY} Expected 80 from C header, got 96 from PyObject", "numpy-sizes-differ"),
        (
            "ValueError: The checkpoint you are trying to load has model type `qwen3` but Transformers does not recognize this architecture.",
            "architecture-unknown",
        ),
        ("ValueError: Unrecognized configuration class <class 'x.C'> for this kind of AutoModel: AutoModel.", "auto-class-without-model"),
        ("RuntimeError: An issue was found when launching the training: boom", "notebook-function-failed"),
        ("pyarrow.lib.ArrowInvalid: Column 1 named a expected length 1000 but got length 999", "arrow-refuses-table"),
        ("RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same", "dtype-mismatch"),
        (
            "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
            "tensors-on-two-devices",
        ),
        ("RuntimeError: expected scalar type Long but found Int", "indices-of-wrong-type"),
        ("RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'", "operation-without-half"),
        ("RuntimeError: value cannot be converted to type at::Half without overflow: -3.40282e+38", "value-outside-fp16"),
        ("RuntimeError: DataLoader worker (pid(s) 4120, 4121) exited unexpectedly", "dataloader-worker-exited"),
        (
            'RuntimeError: handle_0 INTERNAL ASSERT FAILED at "../c10/cuda/driver_api.cpp":15, please report a bug',
            "driver-library-not-opened",
        ),
        (
            'RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1154, please report a bug',
            "caching-allocator-assert",
        ),
        ('RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../torch/csrc/distributed/c10d/intra_node_comm.cpp":99', ""),
        ("RuntimeError: CUDA error: resource already mapped", "memory-already-mapped"),
        ("ValueError: Type bf16 is not supported.", "bf16-not-supported"),
        ("TypeError: Type list is not supported.", ""),
        ("The fix is expected to be released in March", ""),
        (
            "RuntimeError: {'id': 3, 'status': 'INFLIGHT', 'numel': 8, 'ds_tensor.shape': torch.Size([8])} expected to be released",
            "param-inflight",
        ),
        ("IndexError: pop from an empty deque", "deque-empty"),
        ("RuntimeError: Trying to backward through the graph a second time", "graph-backward-twice"),
        ("AssertionError: must provide optimizer during init in order to use scale", "zero-requires-optimizer"),
        ("AssertionError: It is illegal to call Engine.step() inside no_sync context manager", "no-sync-misused"),
        ("AttributeError: 'DeepSpeedZeroOptimizer_Stage3' object has no attribute 'foo'", "attribute-missing"),
        ("AttributeError: 'BF16_Optimizer' object has no attribute 'foo'", "attribute-missing"),
        ("TypeError: DummyOptim is not an Optimizer", "scheduler-of-other-object"),
        ("TypeError: DeepSpeedZeroOptimizer is not an Optimizer", "torch-scheduler-wrapped"),
        ("TypeError: forward() missing 1 required positional argument: 'input_ids'", "unexpected-argument"),
        ("ValueError: zip() argument 2 is longer than argument 1", ""),
        (
            "RuntimeError: FusedAdam has been updated.  Simply initialize it identically to torch.optim.Adam, and call step() with no arguments",
            "fused-optimizer-called",
        ),
        ("KeyError: 'loss'", "key-missing"),
        ("RuntimeError: \"nll_loss_forward_reduce_cuda_kernel_2d_index\" not implemented for 'Float'", "labels-of-wrong-type"),
        ("RuntimeError: \"nll_loss_out_frame\" not implemented for 'Half'", "operation-without-half"),
        ("AttributeError: 'DeepSpeedEngine' object has no attribute 'disable_adapter'", "engine-attribute"),
        ("AttributeError: 'DistributedDataParallel' object has no attribute 'config'", "ddp-attribute"),
    ],
)
def test_an_error_of_another_cause_has_another_entry(line: str, entry: str) -> None:
    hit = match_line(line)
    assert (hit[0].id if hit else "") == entry


def test_an_error_in_the_backward_pass_is_not_one_of_the_optimizer_step() -> None:
    line = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!"
    for place, entry in (
        ("deepspeed/runtime/zero/stage3.py:backward", "tensors-on-two-devices"),
        ("deepspeed/runtime/zero/stage3.py:unscale_and_clip_grads", "zero-step-on-two-devices"),
    ):
        hit = match_line(line, [f"/env/site-packages/{place}"])
        assert hit
        assert hit[0].id == entry


@pytest.mark.parametrize(
    ("line", "entry", "absent"),
    [
        ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "job-step-aborted", "time was over"),
        ("Host key verification failed.", "ssh-login-failed", "The launcher cannot"),
        (
            "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (1234).",
            "vllm-kv-cache",
            "training",
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "vllm-no-cache", "Lower"),
        ("/usr/bin/ld: cannot find -lc10_cuda", "torch-for-cpu-linked", "this torch is"),
    ],
)
def test_explanations_claim_no_more_than_the_line_proves(line: str, entry: str, absent: str) -> None:
    (found,) = match([line])
    assert found.entry.id == entry
    assert absent not in found.cause + found.advice


@pytest.mark.parametrize(
    ("line", "entry", "absent"),
    [
        (
            "ValueError: 'config' argument expected string or dictionary, got <class 'pathlib.PosixPath'>",
            "inference-config-type",
            "does not exist",
        ),
        ("last enqueued work: 3, last completed work: -1", "nccl-nothing-completed", "at all"),
        ("RuntimeError: Gloo connectFullMesh failed with [/gloo/pair.cc:144] no error", "gloo-not-connected", "usable network interface"),
        (
            "ValueError: Calculated loss must be on the original device: cuda:0 but device in use is cuda:1",
            "loss-on-other-device",
            "optimizer was created",
        ),
        (
            "ValueError: You can't train a model that has been loaded in 8-bit precision on a different device than the one you're training on.",
            "device-map-auto-distributed",
            "fewer processes",
        ),
        ("ImportError: /env/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1", "undefined-symbol", "deepspeed"),
        ("Triton Error [CUDA]: out of memory", "triton-call-failed", "compiled for another GPU"),
    ],
)
def test_a_text_of_several_causes_claims_none(line: str, entry: str, absent: str) -> None:
    found = match([line])
    assert entry in [hit.entry.id for hit in found]
    assert all(absent not in hit.cause + hit.advice for hit in found)


@pytest.mark.parametrize(
    ("line", "file", "expected"),
    [
        ("OSError: [Errno 39] Directory not empty: 'out/tmp-checkpoint-70' -> 'out/checkpoint-70'", "os.py", "renamed-checkpoint-folder"),
        (
            "OSError: [Errno 39] Directory not empty: 'out/tmp-checkpoint-s0yu' -> 'out/checkpoint-7'",
            "os.py",
            "checkpoint-folder-of-each-rank",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: 'a_optim_states.pt'",
            "shutil.py:_rmtree_safe_fd",
            "removed-by-another-process",
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'a_optim_states.pt'", "train.py:load", "checkpoint-files-missing"),
        (
            "AttributeError: module 'sp' has no attribute 'get_model_parallel_rank'",
            "deepspeed/utils/bwc.py:f",
            "mpu-without-tensor-parallelism",
        ),
        ("AssertionError: n_gpu: 4, local_world_size: 3", "/x/swift/utils/env.py:is_mp", "ranks-do-not-divide-gpus"),
    ],
)
def test_one_message_has_the_cause_of_its_place(line: str, file: str, expected: str) -> None:
    """Two ranks that remove or rename one folder fail with the messages of a folder that is incomplete."""
    found = match_line(line, [file])
    assert found is not None
    assert found[0].id == expected
