"""Log-probabilities in the two forms of OpenAI's API."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..runtime.outputs import Logprob
from ..runtime.tokenizer import Tokenizer

_LEAST = -9999.0
"""Stands for minus infinity, which JSON lacks; as in OpenAI's API."""

Entries = Sequence[Mapping[int, Logprob] | None]
"""For each token its own log-probability and the likeliest ones; None for the first of a prompt."""


def chat_logprobs(tokenizer: Tokenizer, token_ids: Sequence[int], entries: Entries, most: int) -> dict[str, Any]:
    """`choices[].logprobs` of a chat: each token with its bytes and the `most` likeliest."""

    def shown(token: int, entry: Logprob) -> dict[str, Any]:
        data = tokenizer.piece(token)[1] or entry.decoded_token.encode("utf-8", "replace")
        return {"token": entry.decoded_token, "logprob": max(entry.logprob, _LEAST), "bytes": list(data)}

    content = [
        shown(token, entry[token]) | {"top_logprobs": [shown(other, found) for other, found in _likeliest(entry, most)]}
        for token, entry in zip(token_ids, entries, strict=True)
        if entry is not None
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokenizer: Tokenizer, token_ids: Sequence[int], entries: Entries, offset: int
) -> dict[str, Any]:
    """`choices[].logprobs` of a completion; `offset` is where the text of the first token begins."""
    texts = [
        tokenizer.decode_token(token) if entry is None else entry[token].decoded_token
        for token, entry in zip(token_ids, entries, strict=True)
    ]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": texts,
        "token_logprobs": [
            None if entry is None else max(entry[token].logprob, _LEAST)
            for token, entry in zip(token_ids, entries, strict=True)
        ],
        "top_logprobs": [None if entry is None else _by_text(entry) for entry in entries],
        "text_offset": offsets,
    }


def prompt_logprobs(entries: Entries) -> list[dict[str, Any] | None]:
    """vLLM's `prompt_logprobs`: for each token of a prompt, entries by token id."""

    def shown(found: Logprob) -> dict[str, Any]:
        return {
            "logprob": max(found.logprob, _LEAST),
            "rank": found.rank,
            "decoded_token": found.decoded_token,
        }

    return [
        None if entry is None else {str(token): shown(found) for token, found in entry.items()} for entry in entries
    ]


def _by_text(entry: Mapping[int, Logprob]) -> dict[str, float]:
    """Of tokens that read the same, the likeliest."""
    texts: dict[str, float] = {}
    for found in sorted(entry.values(), key=lambda found: found.rank):
        texts.setdefault(found.decoded_token, max(found.logprob, _LEAST))
    return texts


def _likeliest(entry: Mapping[int, Logprob], most: int) -> list[tuple[int, Logprob]]:
    return sorted((item for item in entry.items() if item[1].rank <= most), key=lambda item: item[1].rank)
