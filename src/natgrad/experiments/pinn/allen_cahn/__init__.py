"""Allen–Cahn: fixed points alias, drawn points do not."""
