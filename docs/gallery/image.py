"""A photograph with two thirds of its pixels missing, filled in."""

import matplotlib.pyplot as plt
import numpy as np
from _picture import options, save
from sklearn.datasets import load_sample_image

import natgrad as ng

arguments = options(steps=3000)
rng = np.random.default_rng(0)
photo = load_sample_image("china.jpg").mean(2) / 255
photo = photo[:426].reshape(213, 2, 320, 2).mean((1, 3))
seen = rng.random(photo.shape) < 1 / 3

rows, columns = np.nonzero(seen)
found = ng.complete(
    rows,
    columns,
    photo[seen],
    depths=(2,),
    scales=(1e-1, 1e-3),
    max_evaluations=max(10, arguments.steps),
)
# Labels are sorted as text; put rows and columns back in order.
i, j = (np.argsort([int(name) for name in names]) for names in (found.rows, found.columns))
filled = found.matrix[np.ix_(i, j)]
missing = ~seen[np.ix_(np.unique(rows), np.unique(columns))]
error = np.sqrt(np.mean((filled - photo)[missing] ** 2))
print(found)
print(f"root mean squared error {error:.4f} at {missing.sum()} missing pixels")

figure, panels = plt.subplots(1, 3, figsize=(11, 2.9))
for panel, picture, title in zip(
    panels,
    (np.where(seen, photo, np.nan), filled, photo),
    ("one pixel in three", f"filled in, error {error:.3f}", "the photograph"),
    strict=True,
):
    panel.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    panel.set(title=title, xticks=[], yticks=[])
save(figure, arguments.out / "image.png")
