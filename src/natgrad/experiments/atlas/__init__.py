"""Which solution each optimizer tends to, with certificates."""
