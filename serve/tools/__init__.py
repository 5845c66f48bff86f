"""Calls of tools: what requests say of them, and how models write them."""
