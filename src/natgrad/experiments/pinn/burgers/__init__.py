"""Burgers, ν = 0.01/π: fixed points alias, drawn points do not."""
