"""[KMH21] figures, one folder each: config, cells, claims, draw."""
