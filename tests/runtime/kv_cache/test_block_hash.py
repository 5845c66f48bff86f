"""Hashes of blocks: the chain as it is defined, and that everything a block depends on is in it."""

from array import array
from hashlib import sha256

from enginesmith.runtime.kv_cache.block_hash import BlockHasher

MODEL = sha256(b"a model").digest()
TOKENS = array("i", [5, 6, 7, 8, 9, 10])


def hashes(tokens: array, salt: str | None = None, model: bytes = MODEL, long_rope_after: int | None = None) -> list:
    hasher, made = BlockHasher(model, 2, long_rope_after), []
    hasher.hash(len(tokens) // 2 - 1, made, tokens, salt)
    return made


def test_the_chain():
    def block(*tokens: int) -> bytes:
        return b"".join(token.to_bytes(4, "little") for token in tokens)

    root = sha256(MODEL + b"\0" + ":Grüße".encode()).digest()
    first = sha256(root + block(5, 6)).digest()
    second = sha256(first + block(7, 8)).digest()
    made: list[bytes] = []
    hasher = BlockHasher(MODEL, 2)
    assert hasher.hash(0, made, TOKENS, "Grüße") == first
    assert hasher.hash(1, made, TOKENS, "Grüße") == second
    assert hasher.hash(0, made, TOKENS, "Grüße") == first
    assert made == [first, second]


def test_all_that_a_block_depends_on_changes_every_hash_from_there_on():
    plain = hashes(TOKENS)
    assert len(set(plain)) == 3
    others = [
        hashes(TOKENS, salt=""),
        hashes(TOKENS, salt="a"),
        hashes(TOKENS, salt="\ud800"),
        hashes(TOKENS, model=sha256(b"another").digest()),
        hashes(TOKENS, long_rope_after=5),
        hashes(array("i", [4, *TOKENS[1:]])),
    ]
    everything = [*plain, *(value for other in others for value in other)]
    assert len(set(everything)) == len(everything)
    assert hashes(TOKENS, long_rope_after=6) == plain  # of so many tokens it takes the short set
    later = hashes(array("i", [*TOKENS[:3], 0, *TOKENS[4:]]))
    assert later[0] == plain[0]
    assert not set(later[1:]) & set(plain)
