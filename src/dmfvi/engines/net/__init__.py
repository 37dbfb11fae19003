"""Nodes on a network: one machine a node, over links that may fail."""
