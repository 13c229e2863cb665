"""Cases that do not give what ONNX expects, with the reason: the one place where they are listed.

The test fails for a case that should be here and is not, and for one that is here and passes.
"""

from __future__ import annotations

_ROUNDING = (
    "expected values come from a softmax whose every step is rounded to 16 bits; ours is computed "
    "in float32, is nearer to the exact result, and differs in the last bit"
)
_GRADIENT = "Gradient asks for differentiation, which is not supported"

KNOWN_FAILURES: dict[str, str] = {
    "node/test_attention_3d_causal_bf16": _ROUNDING,
    "node/test_attention_3d_causal_bf16_expanded": _ROUNDING,
    "node/test_attention_4d_attn_mask_causal_bf16": _ROUNDING,
    "node/test_attention_4d_attn_mask_causal_bf16_expanded": _ROUNDING,
    "node/test_attention_4d_causal_bf16": _ROUNDING,
    "node/test_attention_4d_causal_bf16_expanded": _ROUNDING,
    "node/test_attention_4d_causal_fp16_expanded": _ROUNDING,
    "node/test_attention_4d_causal_padded_kv_bf16": _ROUNDING,
    "node/test_attention_4d_causal_padded_kv_bf16_expanded": _ROUNDING,
    "node/test_attention_4d_padded_kv_bf16": _ROUNDING,
    "node/test_attention_4d_padded_kv_bf16_expanded": _ROUNDING,
    "simple/test_gradient_of_add": _GRADIENT,
    "simple/test_gradient_of_add_and_mul": _GRADIENT,
}

#: Random numbers: the expected ones are those of another generator, so that only shapes and element
#: types are compared. They count as failures where values are.
RANDOM: frozenset[str] = frozenset(
    {
        "node/test_bernoulli",
        "node/test_bernoulli_double",
        "node/test_bernoulli_double_expanded",
        "node/test_bernoulli_expanded",
        "node/test_bernoulli_seed",
        "node/test_bernoulli_seed_expanded",
        "node/test_training_dropout",
        "node/test_training_dropout_default",
        "node/test_training_dropout_default_mask",
        "node/test_training_dropout_mask",
    }
)
