"""
Completing a matrix
===================

You have a table with gaps, such as ratings of films. ``complete`` fills them in
with a deep product of matrices, and tells you how well it does on entries that it
has not seen.
"""

# %%
# A table of 40 users and 30 films. There are two kinds of films, each user likes
# each kind more or less, and the ratings are noisy. Half of them are missing.

import matplotlib.pyplot as plt
import numpy as np

import natgrad as ng

generator = np.random.default_rng(0)
taste = generator.normal(size=(40, 2)) @ generator.normal(size=(2, 30))
ratings = taste + 0.3 * generator.normal(size=taste.shape)
seen = generator.random((40, 30)) < 0.5
users, films = np.nonzero(seen)

# %%
# Give the observed entries as rows, columns and values. Labels may be anything.
# ``clip=False`` because these values have no natural range; ratings from 1 to 5
# have one.

found = ng.complete(
    [f"user {i}" for i in users],
    [f"film {j}" for j in films],
    ratings[seen],
    clip=False,
    depths=(2, 3),
    scales=(1e-3,),
)
print(found)

# %%
# Some entries were set aside before the fit. Their error compares the methods:

for method, value in found.test_error.items():
    print(f"{method:25} {value:.3f}")

# %%
# We know the missing entries here, because we made them up. Compare.

filled = np.array(
    [
        found.predict([f"user {i}"] * 30, [f"film {j}" for j in range(30)])
        for i in range(40)
    ]
)
figure, panels = plt.subplots(1, 3, figsize=(9, 4))
pictures = (
    ("observed", np.where(seen, ratings, np.nan)),
    ("completed", filled),
    ("truth", taste),
)
for axes, (title, values) in zip(panels, pictures, strict=True):
    axes.imshow(values, vmin=-3, vmax=3, cmap="coolwarm")
    axes.set(title=title, xlabel="film")
panels[0].set(ylabel="user")
figure.tight_layout()
plt.show()

missing = float(np.sqrt(np.mean((filled - taste)[~seen] ** 2)))
size = taste[~seen].std()
print(f"error on the missing entries {missing:.3f}; their size {size:.3f}")

# %%
# Ask for single predictions, or for the best films that a user has not rated.

print(found.predict("user 0", "film 1"), found.top("user 0", k=3))

# %%
# If your entries are in a file, one per line, run ``natgrad complete
# ratings.csv`` from the command line instead. It writes the completed matrix, a
# picture and a report.
#
# The line below checks this page as it is. Delete it when you change something.

assert missing < 0.2 * size
