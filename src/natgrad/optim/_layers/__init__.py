"""One kind of layer per file: how its rows and errors are read."""
