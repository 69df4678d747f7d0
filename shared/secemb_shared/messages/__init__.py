"""Messages: specifications in canonical form, and binary messages whose lengths follow from them."""

from secemb_shared.messages.codec import (
    Kind,
    Sizes,
    decode_answer,
    decode_keys,
    decode_sum_share,
    decode_update,
    encode_answer,
    encode_keys,
    encode_sum_share,
    encode_update,
    public_keys_digest,
    public_update_digest,
)
from secemb_shared.messages.spec import RoundSpec, TaskSpec

__all__ = [
    "Kind",
    "RoundSpec",
    "Sizes",
    "TaskSpec",
    "decode_answer",
    "decode_keys",
    "decode_sum_share",
    "decode_update",
    "encode_answer",
    "encode_keys",
    "encode_sum_share",
    "encode_update",
    "public_keys_digest",
    "public_update_digest",
]
