"""Encoder families: BERT, T5, ViT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dslint.memory.reader import ModelReader, copies, linear, norm
from dslint.memory.shapes import Block, BlockStep, Model, Norm, Weight


def _encoder_block(at: str, names: tuple[str, ...], hidden: int, inner: int, *, norms_together: bool = False) -> list[Weight]:
    """A layer of an encoder with all biases; `names` are query, key, value, output, first norm, up, down, second norm."""
    query, key, value, output, one, up, down, two = (f"{at}.{name}" for name in names)
    attention = [weight for name in (query, key, value) for weight in linear(name, hidden, hidden, BlockStep.INTO_ATTENTION, bias=True)]
    attention += linear(output, hidden, hidden, BlockStep.OUT_OF_ATTENTION, bias=True)
    feed = [*linear(up, inner, hidden, BlockStep.INTO_FEED, bias=True), *linear(down, hidden, inner, BlockStep.OUT_OF_FEED, bias=True)]
    if norms_together:
        return [*attention, *norm(one, hidden), *norm(two, hidden, BlockStep.BEFORE_FEED), *feed]
    return [*attention, *norm(one, hidden, BlockStep.OUT_OF_ATTENTION), *feed, *norm(two, hidden, BlockStep.OUT_OF_FEED)]


_BERT_LAYER = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)


def bert(r: ModelReader) -> Model:
    """BERT with the masked-language-model head."""
    hidden, vocabulary = r.size("hidden_size"), r.size("vocab_size")
    at = "bert.embeddings"
    first = (
        Weight(f"{at}.word_embeddings.weight", (vocabulary, hidden), divided=True),
        Weight(f"{at}.position_embeddings.weight", (r.size("max_position_embeddings"), hidden)),
        Weight(f"{at}.token_type_embeddings.weight", (r.size("type_vocab_size"), hidden)),
        *norm(f"{at}.LayerNorm", hidden),
    )
    return _masked(r, first, (), "cls.predictions", _BERT_HEAD)


def roberta(r: ModelReader) -> Model:
    """RoBERTa and XLM-RoBERTa with the masked-language-model head."""
    hidden, vocabulary = r.size("hidden_size"), r.size("vocab_size")
    at = "roberta.embeddings"
    first = (
        Weight(f"{at}.word_embeddings.weight", (vocabulary, hidden), divided=True),
        Weight(f"{at}.token_type_embeddings.weight", (r.size("type_vocab_size"), hidden)),
        *norm(f"{at}.LayerNorm", hidden),
        Weight(f"{at}.position_embeddings.weight", (r.size("max_position_embeddings"), hidden)),
    )
    return _masked(r, first, (), "lm_head", ("roberta.encoder", "dense", "layer_norm"))


def deberta(r: ModelReader) -> Model:
    """DeBERTa V2 and V3 with the masked-language-model head and relative positions."""
    hidden, vocabulary = r.size("hidden_size"), r.size("vocab_size")
    at = "deberta.embeddings"
    first = [Weight(f"{at}.word_embeddings.weight", (vocabulary, hidden), divided=True)]
    if r.get("position_biased_input"):
        first.append(Weight(f"{at}.position_embeddings.weight", (r.size("max_position_embeddings"), hidden)))
    if r.get("type_vocab_size"):
        first.append(Weight(f"{at}.token_type_embeddings.weight", (r.size("type_vocab_size"), hidden)))
    first += norm(f"{at}.LayerNorm", hidden)
    positions = 2 * r.get("position_buckets") if r.get("position_buckets", -1) > 0 else 2 * r.size("max_position_embeddings")
    after = (Weight("deberta.encoder.rel_embeddings.weight", (positions, hidden)), *norm("deberta.encoder.LayerNorm", hidden))
    head = ("deberta.encoder", "transform.dense", "transform.LayerNorm")
    return _masked(r, tuple(first), after, "cls.predictions", head, projections="{}_proj")


_BERT_HEAD = ("bert.encoder", "transform.dense", "transform.LayerNorm")


def _masked(
    r: ModelReader,
    first: tuple[Weight, ...],
    after: tuple[Weight, ...],
    head: str,
    names: tuple[str, str, str],
    *,
    projections: str = "{}",
) -> Model:
    """An encoder with a masked-language-model head. `names` are those of its layers, and of dense layer and norm of the head."""
    hidden, heads, inner = r.size("hidden_size"), r.parts(r.size("hidden_size"), "num_attention_heads"), r.size("intermediate_size")
    vocabulary, (encoder, dense, head_norm) = r.size("vocab_size"), names
    tied = bool(r.get("tie_word_embeddings", True))
    layer = tuple(f"attention.self.{projections.format(name)}" for name in ("query", "key", "value")) + _BERT_LAYER[3:]
    kept, dropout = copies(r.get("hidden_act", "gelu")), bool(r.get("hidden_dropout_prob", 0.1))
    blocks = tuple(
        Block(
            tuple(_encoder_block(f"{encoder}.layer.{i}", layer, hidden, inner)),
            hidden,
            heads,
            hidden,
            hidden,
            inner,
            copies=kept,
            dropout=dropout,
        )
        for i in range(r.size("num_hidden_layers"))
    )
    last = [
        *after,
        Weight(f"{head}.bias", (vocabulary,)),
        *linear(f"{head}.{dense}", hidden, hidden, bias=True),
        *norm(f"{head}.{head_norm}", hidden),
    ]
    if not tied:
        last += linear(f"{head}.decoder", vocabulary, hidden, bias=True)
    positions = r.optional("max_position_embeddings")
    return Model(r.name, r.family, first, blocks, tuple(last), hidden, vocabulary, tied, positions, full_loss=False)


def t5(r: ModelReader) -> Model:
    """T5: an encoder, and a decoder with cross attention. FLAN-T5 and T5 1.1 have a head of their own: `tie_word_embeddings` is false."""
    hidden, head, inner, heads = r.size("d_model"), r.size("d_kv"), r.size("d_ff"), r.size("num_heads")
    layers = r.size("num_layers")
    width, vocabulary = heads * head, r.size("vocab_size")
    gated = str(r.get("feed_forward_proj", "relu")).startswith("gated")
    buckets = r.size("relative_attention_num_buckets")
    dropout = bool(r.get("dropout_rate", 0.1))

    def attention(at: str, *, biased: bool) -> Iterator[Weight]:
        for name in "qkv":
            yield from linear(f"{at}.{name}", width, hidden, BlockStep.INTO_ATTENTION)
        yield from linear(f"{at}.o", hidden, width, BlockStep.OUT_OF_ATTENTION)
        if biased:
            yield Weight(f"{at}.relative_attention_bias.weight", (buckets, heads), BlockStep.INTO_ATTENTION)

    def block(side: str, index: int) -> Block:
        at, decodes = f"{side}.block.{index}.layer", side == "decoder"
        weights = [*attention(f"{at}.0.SelfAttention", biased=index == 0), *norm(f"{at}.0.layer_norm", hidden, bias=False)]
        if decodes:
            weights += [
                *attention(f"{at}.1.EncDecAttention", biased=False),
                *norm(f"{at}.1.layer_norm", hidden, BlockStep.INTO_ATTENTION, bias=False),
            ]
        feed = f"{at}.{2 if decodes else 1}"
        names = ("wi_0", "wi_1") if gated else ("wi",)
        weights += [weight for name in names for weight in linear(f"{feed}.DenseReluDense.{name}", inner, hidden, BlockStep.INTO_FEED)]
        weights += [
            *linear(f"{feed}.DenseReluDense.wo", hidden, inner, BlockStep.OUT_OF_FEED),
            *norm(f"{feed}.layer_norm", hidden, BlockStep.BEFORE_FEED, bias=False),
        ]
        kept = copies("gelu_new" if gated else "relu")
        return Block(
            tuple(weights),
            hidden,
            heads,
            width,
            width,
            inner,
            gated=gated,
            norm=Norm.T5,
            norms=3 if decodes else 2,
            copies=kept,
            dropout=dropout,
            inner_dropout=dropout,
            cross=decodes,
        )

    encoder = [block("encoder", index) for index in range(layers)]
    decoder = [block("decoder", index) for index in range(r.optional("num_decoder_layers") or layers)]
    between = tuple(norm("encoder.final_layer_norm", hidden, bias=False))
    encoder[-1] = _with(encoder[-1], between)
    first = (Weight("shared.weight", (vocabulary, hidden), divided=True),)
    last = [*norm("decoder.final_layer_norm", hidden, bias=False)]
    tied = r.get("tie_word_embeddings", True) is not False
    if not tied:
        last += linear("lm_head", vocabulary, hidden)
    blocks = (*encoder, *decoder)
    return Model(r.name, r.family, first, blocks, tuple(last), hidden, vocabulary, tied, positions=512, norm=Norm.T5, full_loss=False)


def _with(block: Block, more: tuple[Weight, ...]) -> Block:
    return replace(block, weights=(*block.weights, *more))


_VIT_LAYER = (
    "attention.q_proj",
    "attention.k_proj",
    "attention.v_proj",
    "attention.o_proj",
    "layernorm_before",
    "mlp.fc1",
    "mlp.fc2",
    "layernorm_after",
)


def vit(r: ModelReader) -> Model:
    """ViT with a classifier."""
    hidden, heads, inner = r.size("hidden_size"), r.parts(r.size("hidden_size"), "num_attention_heads"), r.size("intermediate_size")
    patch, channels = r.size("patch_size"), r.size("num_channels")
    tokens = (r.size("image_size") // patch) ** 2 + 1
    labels = len(r.get("id2label") or "ab")
    at = "vit.embeddings"
    first = (
        Weight(f"{at}.cls_token", (1, 1, hidden)),
        Weight(f"{at}.position_embeddings", (1, tokens, hidden)),
        Weight(f"{at}.patch_embeddings.projection.weight", (hidden, channels, patch, patch)),
        Weight(f"{at}.patch_embeddings.projection.bias", (hidden,)),
    )
    kept = copies(r.get("hidden_act", "gelu"))
    blocks = tuple(
        Block(
            tuple(_encoder_block(f"vit.layers.{i}", _VIT_LAYER, hidden, inner, norms_together=True)),
            hidden,
            heads,
            hidden,
            hidden,
            inner,
            copies=kept,
        )
        for i in range(r.size("num_hidden_layers"))
    )
    last = (*norm("vit.layernorm", hidden), *linear("classifier", labels, hidden, bias=True))
    return Model(r.name, r.family, first, blocks, last, hidden, 0, tied=False, tokens=tokens)
