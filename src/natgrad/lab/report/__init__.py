"""All runs of a folder as one HTML page that needs no network."""

from natgrad.lab.report.page import write_report

__all__ = ["write_report"]
