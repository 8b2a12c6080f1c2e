"""The problems of the papers, and tables of your own.

- `separable`: classes that a hyperplane separates, [KMH21] Figures 2, 4 and 6.
- `completion`: low-rank matrices with some entries observed, [KMH21] Figures 3 and 5.
- `teachers`: regression on random deep linear networks, [BLH18] Figure 1A–C.
- `mnist`: handwritten digits, [BLH18] Figure 1D.
- `tables`: CSV and Parquet files with a column of labels.
- `triples`: tables of (row, column, value).
"""

from natgrad.data import completion, mnist, separable, tables, teachers, triples

__all__ = ["completion", "mnist", "separable", "tables", "teachers", "triples"]
