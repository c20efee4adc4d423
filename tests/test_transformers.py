"""Sparsemax attention in Hugging Face's models: tiny ones, with random parameters; nothing is downloaded."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

import zerotail.torch as zt
from tests import oracle

tf = pytest.importorskip("transformers")

WORDS, LENGTH = 19, 7
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1}
HALVES = {
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}
ENCODERS = {"bert": lambda: tf.BertConfig(**SIZES)}
DECODERS = {
    "llama, grouped heads": lambda: tf.LlamaConfig(**SIZES, num_key_value_heads=2),
    "gpt2": lambda: tf.GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=2, n_head=4, n_positions=32, **IDS),
    "mistral, sliding window": lambda: tf.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=3),
}
BOTH = {
    "t5, position bias": lambda: tf.T5Config(
        vocab_size=WORDS, d_model=16, d_kv=4, d_ff=16, num_layers=2, num_heads=4, **IDS
    ),
    "bart": lambda: tf.BartConfig(
        vocab_size=WORDS, d_model=16, encoder_layers=2, decoder_layers=2, **HALVES, **IDS
    ),
}


@pytest.fixture(autouse=True)
def _registered() -> None:
    zt.register_attention()


def build(config: object, kind: str = "AutoModel", attention: str = "sparsemax") -> torch.nn.Module:
    torch.manual_seed(0)
    model = getattr(tf, kind).from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "norm" not in name:
                parameter.normal_(0, 0.4)
    return model.double()


def words(seed: int = 0, length: int = LENGTH) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).integers(3, WORDS, (2, length)))


def padded(side: str) -> Tensor:
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, 4:] = 0
    return mask if side == "right" else mask.flip(1)


def close(got: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_does_not_see_padding(name):
    """With a mask, other words in the padding change nothing, and no weight is there; without one they do."""
    model = build(ENCODERS[name]())
    ids, mask = words(), padded("right")
    other = torch.where(mask > 0, ids, 3)
    with torch.no_grad():
        out = model(ids, attention_mask=mask, output_attentions=True)
        close(model(other, attention_mask=mask).last_hidden_state[mask > 0], out.last_hidden_state[mask > 0])
        alone = model(ids[1:, :4]).last_hidden_state
        assert not torch.allclose(
            model(other).last_hidden_state[mask > 0], model(ids).last_hidden_state[mask > 0]
        )
    close(out.last_hidden_state[1:, :4], alone)
    for weights in out.attentions:
        assert not weights[1, :, :, 4:].any()
        close(weights.sum(-1), torch.ones(2, 4, LENGTH, dtype=torch.float64))
        assert 0.05 < (weights[0] == 0).double().mean() < 0.95


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_does_not_look_ahead(name):
    """Without a mask, and with one: a later word changes no earlier output."""
    model = build(DECODERS[name](), "AutoModelForCausalLM")
    ids = words()
    changed = ids.clone()
    changed[:, 5] = (ids[:, 5] + 1 - 3) % (WORDS - 3) + 3
    for mask in (None, torch.ones_like(ids), padded("right")):
        with torch.no_grad():
            a, b = (model(x, attention_mask=mask).logits for x in (ids, changed))
        close(a[:, :5], b[:, :5])
        assert not torch.allclose(a[0, 5:], b[0, 5:])


@pytest.mark.parametrize("side", ["left", "right", None])
@pytest.mark.parametrize("name", DECODERS)
def test_a_cached_step_equals_the_full_pass(name, side):
    """A part of the sequence at once, then a word at a time, with padding on either side or none."""
    model = build(DECODERS[name](), "AutoModelForCausalLM")
    ids = words()
    mask = torch.ones_like(ids) if side is None else padded(side)
    position = (mask.cumsum(-1) - 1).clamp_min(0)
    with torch.no_grad():
        whole = model(ids, attention_mask=mask, position_ids=position).logits
        cache, parts = None, []
        for a, b in ((0, 2), (2, 4), (4, 5), (5, 6), (6, 7)):
            out = model(
                ids[:, a:b],
                attention_mask=None if side is None else mask[:, :b],
                position_ids=position[:, a:b],
                past_key_values=cache,
                use_cache=True,
            )
            cache = out.past_key_values
            parts.append(out.logits)
    close(torch.cat(parts, 1)[mask > 0], whole[mask > 0])
    assert whole.isfinite().all()


@pytest.mark.parametrize("name", DECODERS)
def test_padding_on_the_left_changes_nothing(name):
    """The words of a padded sequence get what they get alone."""
    model = build(DECODERS[name](), "AutoModelForCausalLM")
    ids, mask = words(), padded("left")
    position = (mask.cumsum(-1) - 1).clamp_min(0)
    with torch.no_grad():
        together = model(ids, attention_mask=mask, position_ids=position).logits
        close(together[1, 3:], model(ids[1:, 3:]).logits[0])


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", [*DECODERS, *BOTH])
def test_generation_with_a_cache_is_generation_without(name, cache):
    """Greedy words, of decoders and of both halves, with padding."""
    config = (DECODERS | BOTH)[name]()
    model = build(config, "AutoModelForSeq2SeqLM" if name in BOTH else "AutoModelForCausalLM")
    side = "right" if name in BOTH else "left"
    given = {"attention_mask": padded(side), "max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
    if cache == "static":
        given["disable_compile"] = True
    with_cache = model.generate(words(), **given, cache_implementation=cache)
    assert torch.equal(with_cache, model.generate(words(), **given, use_cache=False))


@pytest.mark.parametrize("name", BOTH)
def test_both_halves_with_masks_and_a_cache(name):
    """Padding of the encoder, causality of the decoder, and a cached step that is the full pass."""
    model = build(BOTH[name](), "AutoModelForSeq2SeqLM")
    ids, target, mask = words(), words(1), padded("right")
    changed = torch.where(mask > 0, ids, 3)
    later = target.clone()
    later[:, 5] = (target[:, 5] + 1 - 3) % (WORDS - 3) + 3
    with torch.no_grad():
        whole = model(ids, attention_mask=mask, decoder_input_ids=target, output_attentions=True)
        close(model(changed, attention_mask=mask, decoder_input_ids=target).logits, whole.logits)
        close(model(ids, attention_mask=mask, decoder_input_ids=later).logits[:, :5], whole.logits[:, :5])
        cache, parts = None, []
        for a, b in ((0, 4), (4, 5), (5, 6), (6, 7)):
            out = model(ids, attention_mask=mask, decoder_input_ids=target[:, a:b], past_key_values=cache)
            cache = out.past_key_values
            parts.append(out.logits)
    close(torch.cat(parts, 1), whole.logits)
    for weights in (*whole.encoder_attentions, *whole.cross_attentions):
        assert not weights[1, ..., 4:].any()
    for weights in whole.decoder_attentions:
        assert not weights.triu(1).any()


def test_training_goes_through_it():
    """Gradients reach every parameter of attention, and are those of the function."""
    model = build(DECODERS["llama, grouped heads"](), "AutoModelForCausalLM").train()
    model(words(), attention_mask=padded("right"), labels=words()).loss.backward()
    for name, parameter in model.named_parameters():
        if "self_attn" in name:
            assert parameter.grad.isfinite().all()
            assert parameter.grad.any(), name


def test_a_model_may_be_switched():
    """From softmax and back: the parameters are the same, the results are not."""
    model, ids = build(ENCODERS["bert"](), attention="eager"), words()
    with torch.no_grad():
        soft = model(ids).last_hidden_state
        model.set_attn_implementation("sparsemax")
        sparse = model(ids).last_hidden_state
        close(sparse, build(ENCODERS["bert"]())(ids).last_hidden_state)
        model.set_attn_implementation("eager")
        close(model(ids).last_hidden_state, soft)
    assert not torch.allclose(soft, sparse)


# ---- the function alone -----------------------------------------------------------------------------------


def layer(**options):
    """The function, as a model calls it."""
    from zerotail.torch._transformers import attention_forward

    torch.manual_seed(1)
    rows, cols = options.pop("sizes", (3, 5))
    q, k, v = (
        torch.randn(2, n, size, 4, dtype=torch.float64) for n, size in ((4, rows), (2, cols), (2, cols))
    )
    module = SimpleNamespace(is_causal=options.pop("module_is_causal", True))
    mask = options.pop("attention_mask", None)
    output, weights = attention_forward(module, q, k, v, mask, output_attentions=True, **options)
    z = q @ k.repeat_interleave(2, 1).mT
    return output, weights, z, v.repeat_interleave(2, 1)


def right(z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    p = torch.tensor(oracle.project(z.numpy().reshape(-1, z.shape[-1])).hi.reshape(z.shape))
    p = torch.where(z.isneginf().all(-1, keepdim=True), 0, p)
    return (p @ v).transpose(1, 2), p


def test_without_a_mask_causality_is_obeyed_when_there_are_several_queries():
    """The argument wins over the module; a single query sees all that is cached."""
    future = torch.ones(3, 5, dtype=torch.bool).triu(1)
    for options, causal in (
        ({}, True),
        ({"module_is_causal": False}, False),
        ({"module_is_causal": False, "is_causal": True}, True),
        ({"is_causal": False}, False),
        ({"sizes": (1, 5)}, False),
        ({"sizes": (1, 5), "is_causal": True}, False),
    ):
        output, weights, z, v = layer(**options)
        if causal:
            z = z.masked_fill(future, -torch.inf)
        for x, y in zip((output, weights), right(z / 2, v), strict=True):
            close(x, y)


def test_masks_and_biases_are_added_up():
    """Boolean, added, with the smallest number of the type for -inf, and with a position bias."""
    take = torch.rand(2, 1, 3, 5) < 0.6
    take[0, :, 1] = False
    lowest = torch.finfo(torch.float64).min
    bias = torch.randn(1, 4, 3, 5, dtype=torch.float64)
    minus = torch.where(take, 0.0, -torch.inf).double()
    future = torch.where(torch.ones(3, 5).tril() > 0, 0.0, -torch.inf).double()
    for options, added in (
        ({"attention_mask": take}, minus),
        (
            {"attention_mask": torch.full((2, 1, 3, 5), lowest, dtype=torch.float64).masked_fill(take, 0.25)},
            minus + 0.25,
        ),
        ({"attention_mask": minus}, minus),
        ({"attention_mask": take, "position_bias": bias}, minus + bias),
        ({"attention_mask": minus, "position_bias": bias}, minus + bias),
        ({"position_bias": bias}, future + bias),
        ({"position_bias": bias, "is_causal": False}, bias),
    ):
        output, weights, z, v = layer(**options, scaling=0.7)
        for x, y in zip((output, weights), right(0.7 * z + added, v), strict=True):
            close(x, y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"softcap": 50.0}, r"softcap \(soft-capping\) must be None .*got 50.0"),
        ({"s_aux": torch.zeros(4)}, r"s_aux \(attention sinks\) must be None .*got a Tensor"),
        ({"sinks": torch.zeros(4)}, r"sinks .*must be None"),
        ({"indices": torch.zeros(2)}, r"indices .*must be None"),
        ({"cu_seq_lens_q": torch.zeros(2)}, "packed sequences"),
        ({"cache": object()}, "a paged cache"),
        ({"attention_mask": torch.ones(2, 5)}, r"attention_mask must have 4 dimensions.*\(2, 5\)"),
        ({"attention_mask": torch.ones(2, 1, 3, 4) > 0}, r"attn_mask must broadcast.*\(2, 1, 3, 4\)"),
    ],
)
def test_what_is_not_supported_is_refused(options, words):
    """By the name of the argument, with what it means."""
    with pytest.raises((ValueError, RuntimeError), match=words):
        layer(**options)


@pytest.mark.parametrize("model", ["gemma2", "gpt_oss"])
def test_models_that_need_more_are_refused_when_they_run(model):
    """Soft-capping and sinks are not left out silently."""
    more = {"head_dim": 4, "num_key_value_heads": 2}
    config = {
        "gemma2": lambda: tf.Gemma2Config(**SIZES, **more),
        "gpt_oss": lambda: tf.GptOssConfig(**SIZES, **more, num_local_experts=2),
    }[model]()
    built = tf.AutoModelForCausalLM.from_config(config, attn_implementation="sparsemax").eval()
    with pytest.raises(ValueError, match=r"soft-capping|attention sinks"):
        built(words())
