"""A plugin outside the package: the soft cap of gemma2's logits, c tanh(x / c), as one operation."""
