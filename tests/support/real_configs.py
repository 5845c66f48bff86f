"""How SmolLM2 is built for tests, in every precision. A step takes few tokens, so that long prompts need several."""

from enginesmith import BuildConfig

CONFIGS = {
    "fp32": BuildConfig(dtype="fp32", max_batch_size=8, max_num_tokens=128, max_seq_len=1024, check=False),
    "bf16": BuildConfig(dtype="bf16", max_batch_size=8, max_num_tokens=128, max_seq_len=1024, check=False),
    "int8": BuildConfig(weights="int8", max_batch_size=8, max_num_tokens=128, max_seq_len=1024, check=False),
    "int4": BuildConfig(
        weights="int4", group_size=32, max_batch_size=8, max_num_tokens=128, max_seq_len=1024, check=False
    ),
}
