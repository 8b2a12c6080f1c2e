"""The figures of both papers, and the same instruments for your own data."""
