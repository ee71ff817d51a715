"""Whisper: an encoder of sound, and a decoder of text with cross attention."""

from __future__ import annotations

from dataclasses import replace

from dslint.memory.reader import ModelReader, copies, linear, norm
from dslint.memory.shapes import Block, BlockStep, Model, Weight


def whisper(r: ModelReader) -> Model:
    """Whisper with its head tied to the embedding of text. Its encoder always has `max_source_positions` positions."""
    hidden, vocabulary, sounds = r.size("d_model"), r.size("vocab_size"), r.size("max_source_positions")
    kept, dropout = copies(r.get("activation_function", "gelu")), bool(r.get("dropout", 0.0))

    def attention(at: str) -> list[Weight]:
        return [
            *linear(f"{at}.k_proj", hidden, hidden, BlockStep.INTO_ATTENTION),
            *linear(f"{at}.v_proj", hidden, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.q_proj", hidden, hidden, BlockStep.INTO_ATTENTION, bias=True),
            *linear(f"{at}.out_proj", hidden, hidden, BlockStep.OUT_OF_ATTENTION, bias=True),
        ]

    def block(side: str, index: int) -> Block:
        at, decodes = f"model.{side}.layers.{index}", side == "decoder"
        inner, heads = r.size(f"{side}_ffn_dim"), r.parts(hidden, f"{side}_attention_heads")
        weights = [*attention(f"{at}.self_attn"), *norm(f"{at}.self_attn_layer_norm", hidden)]
        if decodes:
            weights += [*attention(f"{at}.encoder_attn"), *norm(f"{at}.encoder_attn_layer_norm", hidden, BlockStep.INTO_ATTENTION)]
        weights += [
            *linear(f"{at}.fc1", inner, hidden, BlockStep.INTO_FEED, bias=True),
            *linear(f"{at}.fc2", hidden, inner, BlockStep.OUT_OF_FEED, bias=True),
            *norm(f"{at}.final_layer_norm", hidden, BlockStep.BEFORE_FEED),
        ]
        return Block(
            tuple(weights),
            hidden,
            heads,
            hidden,
            hidden,
            inner,
            norms=3 if decodes else 2,
            copies=kept,
            dropout=dropout,
            cross=decodes,
            tokens=None if decodes else sounds,
        )

    encoder = [block("encoder", index) for index in range(r.size("encoder_layers"))]
    decoder = [block("decoder", index) for index in range(r.size("decoder_layers"))]
    first = (
        Weight("model.encoder.conv1.weight", (hidden, r.size("num_mel_bins"), 3)),
        Weight("model.encoder.conv1.bias", (hidden,)),
        Weight("model.encoder.conv2.weight", (hidden, hidden, 3)),
        Weight("model.encoder.conv2.bias", (hidden,)),
        Weight("model.encoder.embed_positions.weight", (sounds, hidden), trained=False),
    )
    positions = r.size("max_target_positions")
    between = (
        *norm("model.encoder.layer_norm", hidden),
        Weight("model.decoder.embed_tokens.weight", (vocabulary, hidden)),
        Weight("model.decoder.embed_positions.weight", (positions, hidden)),
    )
    encoder[-1] = replace(encoder[-1], weights=(*encoder[-1].weights, *between))
    last = tuple(norm("model.decoder.layer_norm", hidden))
    blocks = (*encoder, *decoder)
    return Model(r.name, r.family, first, blocks, last, hidden, vocabulary, tied=True, positions=positions, full_loss=False)
