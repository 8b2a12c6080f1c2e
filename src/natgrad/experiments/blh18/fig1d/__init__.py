"""[BLH18] Figure 1D: an autoencoder of MNIST with tanh layers."""
