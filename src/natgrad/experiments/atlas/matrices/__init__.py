"""Several classes and networks: Muon, Shampoo, two layers and ReLUs."""
