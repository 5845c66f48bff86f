"""English text that every Python installation holds, in two parts: one to calibrate with, one to evaluate on.

It is the language reference that `help()` shows, from `pydoc_data.topics`. It differs a little between Python's
versions, so figures from it name the version (`TOPICS`).
"""

import platform
import re
from collections.abc import Iterator
from functools import cache

TOPICS = f"pydoc topics of Python {platform.python_version()}"


def calibration_text() -> str:
    """The part to calibrate with, about 185,000 characters. The same in every run of one Python version."""
    return _parts()[0]


def evaluation_text() -> str:
    """The part to evaluate on, as long; it shares no paragraph with `calibration_text`."""
    return _parts()[1]


@cache
def _parts() -> tuple[str, str]:
    """Topics, from the longest, go to the part that is shorter so far.

    Long topics quote short ones whole, so a paragraph stays only where it comes first.
    """
    from pydoc_data.topics import topics

    parts: tuple[dict[str, str], dict[str, str]] = ({}, {})
    sizes = [0, 0]
    seen: set[str] = set()
    for name in sorted(topics, key=lambda name: (-len(topics[name]), name)):
        text = "\n\n".join(_new_paragraphs(topics[name], seen))
        if 2 * len(text) > len(topics[name]):  # less of a topic makes no sense
            shorter = sizes.index(min(sizes))
            parts[shorter][name] = text
            sizes[shorter] += len(text)
    calibration, evaluation = ("\n\n".join(part[name] for name in sorted(part)) + "\n" for part in parts)
    return calibration, evaluation


def _new_paragraphs(text: str, seen: set[str]) -> Iterator[str]:
    """Paragraphs whose words are not in `seen` yet, to which they are added. Where a topic is quoted, only the words
    stay: paragraphs are indented, broken and underlined in other ways.
    """
    for paragraph in text.strip().split("\n\n"):
        words = " ".join(re.findall(r"\w+", paragraph))
        if words and words not in seen:
            seen.add(words)
            yield paragraph
