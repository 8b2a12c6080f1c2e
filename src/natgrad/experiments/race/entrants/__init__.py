"""The contestants: how each trains a network, and where its settings are drawn from."""
