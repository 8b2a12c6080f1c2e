"""[KMH21] Figure 1: EGD depends on the parametrization, NGD does not."""
