"""Users' losses as likelihoods: torch's criteria, custom losses, and lists of them."""
