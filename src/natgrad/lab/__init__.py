"""The laboratory: from a config to a figure, its numbers and a page. It contains no mathematics.

In the order of a run:

1. `experiment` defines a figure: configs by preset, a computation, claims, a drawing.
   `registry` finds it by name.
2. `cell` is one unit of work: a pure function of a config.
3. `sweep` runs cells on an engine of `engines` (this process, other processes, a Dask cluster),
   reuses stored results, and collects `failures`.
4. `arrays` holds what the figure needs, by name and axis.
5. `claim` compares computed numbers with the bounds of statements.
6. `figures` gives all drawings one look.
7. `report` gathers the results of all runs in one HTML page.

Private: `_run` performs these steps, `_store` keeps their files, `_progress` shows their progress,
`_environment` records where they ran, and `_formats` formats numbers for readers.
"""

__all__: list[str] = []  # import the modules themselves
