"""Passes over the traced network: ONNX to ONNX, one pass a file, each counting what it matched."""
