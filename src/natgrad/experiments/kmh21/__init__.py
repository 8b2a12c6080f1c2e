"""[KMH21] figures: one module of cells, one of claims and one picture a figure."""
