"""The Fisher, layer by layer: factors, inverses, blocks."""
