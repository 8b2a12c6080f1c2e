"""Other metrics: K-FAC, diagonal and population Fisher, Wasserstein."""
