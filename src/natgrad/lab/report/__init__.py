"""All runs of a folder as one HTML page that needs no network."""

from natgrad.lab.report._page import write_report

__all__ = ["write_report"]
