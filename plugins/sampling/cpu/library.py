"""The source of the sampler's library."""

from pathlib import Path

SOURCE = Path(__file__).with_name("sampler.cpp")
