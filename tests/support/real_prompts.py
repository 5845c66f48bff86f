"""Twenty prompts of many kinds: facts, code, conversations, other scripts, one character, several hundred tokens."""

_CHAT = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


def chat(question: str) -> str:
    return f"{_CHAT}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


REAL_PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea, there lived",
    "Water boils at a hundred degrees because",
    "1, 1, 2, 3, 5, 8, 13,",
    "Q: What is 17 + 25?\nA:",
    "A",
    "   \n\n\t",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "#include <stdio.h>\n\nint main(int argc, char **argv) {\n",
    "SELECT name, count(*) FROM orders WHERE",
    '{"name": "Ada", "born": 1815, "languages": [',
    "<html>\n<head><title>",
    "La capitale de l'Espagne est",
    "Die Würde des Menschen ist unantastbar. Sie",
    "日本の首都は東京です。フランスの首都は",
    "Emoji: 🙂🙃🚀🙂🙃🚀🙂🙃🚀🙂🙃",
    chat("What is the capital of France, and what is it known for?"),
    chat("Write a haiku about rain."),
    "The quick brown fox jumps over the lazy dog. " * 25 + "The quick",
    "Numbers in words and digits: " + ", ".join(f"{n} times {n} is {n * n}" for n in range(30)),
]
