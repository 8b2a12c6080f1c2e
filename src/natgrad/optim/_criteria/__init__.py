"""Losses that people bring, as likelihoods: torch's own, custom ones, several at once."""
