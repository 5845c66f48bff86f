"""What may say, before each token of an output, which tokens may come next."""

from typing import Protocol


class TokenConstraint(Protocol):
    """Holds one output to a form. One thread at a time calls it; what it raises ends that output's request alone."""

    def mask(self) -> int | None:
        """Address of uint32 [ceil(vocab_size / 32)]: bit t % 32 of word t // 32 is set where token t may come next.

        At least one must be. It holds until `accept`; asked again before, it is the same, or raises the same. None: any
        token may.
        """
        ...

    def accept(self, token: int) -> None:
        """The token that came, an end-of-sequence token too."""
        ...
