"""[KMH21] Figure 1: gradient descent depends on the parametrization, natural gradients do not."""
