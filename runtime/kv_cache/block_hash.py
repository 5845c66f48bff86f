"""Names for the content of blocks, so that sequences that begin alike share them."""

from array import array
from hashlib import sha256


class BlockHasher:
    """Hashes all that the keys and values of a full block depend on: SHA-256 over the hash of the block before and the
    block's tokens, and first over the model (its SHA-256), which rotary frequencies the sequence takes, and its salt.
    """

    def __init__(self, model: bytes, block_size: int, long_rope_after: int | None = None) -> None:
        self._model = model
        self._block_size = block_size
        self._long_rope_after = long_rope_after

    def hash(self, number: int, hashes: list[bytes], token_ids: array, salt: str | None) -> bytes:
        """The hash of block `number` of a sequence. Those of its first blocks are kept in `hashes`."""
        while number >= len(hashes):
            start = len(hashes) * self._block_size
            content = sha256(hashes[-1] if hashes else self._root(len(token_ids), salt))
            content.update(token_ids[start : start + self._block_size])
            hashes.append(content.digest())
        return hashes[number]

    def _root(self, num_tokens: int, salt: str | None) -> bytes:
        is_long = self._long_rope_after is not None and num_tokens > self._long_rope_after
        salted = b"" if salt is None else b":" + salt.encode(errors="surrogatepass")
        return sha256(self._model + bytes([is_long]) + salted).digest()
