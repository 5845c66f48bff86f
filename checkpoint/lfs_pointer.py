"""What stands in a repository cloned without Git LFS where a large file should: a short text that points at it.

Format: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md.
"""

from pathlib import Path

PREFIX_BYTES = 64  # as many first bytes of a file as the question needs
_FIRST_LINES = (b"version https://git-lfs.github.com/spec/v1", b"version https://hawser.github.com/spec/v1")


def is_lfs_pointer(first_bytes: bytes) -> bool:
    """Whether a file that begins with these bytes is a Git LFS pointer."""
    return first_bytes.startswith(_FIRST_LINES)


def lfs_pointer_message(path: Path) -> str:
    """What an error says of a file that is one."""
    return (
        f"{path}: a Git LFS pointer, a text of a few lines in place of the file itself, which was not downloaded. "
        "Run `git lfs pull` in that repository, or download the file again."
    )
