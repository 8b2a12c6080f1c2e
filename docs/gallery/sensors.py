"""Sixty sensors over two weeks, with outages of hours and days, and intervals for the gaps."""

import matplotlib.pyplot as plt
import numpy as np
from _picture import options, save

import natgrad as ng

arguments = options(steps=3000)
rng = np.random.default_rng(0)
hours = np.arange(14 * 24)
warm = np.cumsum(rng.normal(size=hours.size)) / 8  # the weather, common to all
day, late = np.sin(2 * np.pi * hours / 24), np.cos(2 * np.pi * hours / 24)
level, size, shift = 15 + 2 * rng.normal(size=60), 3 + rng.random(60), rng.normal(size=60)
truth = level[:, None] + np.outer(0.5 + rng.random(60), warm) + np.outer(size, day)
truth += np.outer(shift, late)
measured = truth + 0.3 * rng.normal(size=truth.shape)

seen = np.ones(truth.shape, dtype=bool)
for _ in range(400):  # outages
    sensor, start = rng.integers(60), rng.integers(hours.size)
    seen[sensor, start : start + int(rng.exponential(30))] = False
rows, columns = np.nonzero(seen)
found = ng.complete(
    rows,
    columns,
    measured[seen],
    clip=False,
    depths=(2,),
    scales=(1e-1, 1e-3),
    max_evaluations=max(10, arguments.steps),
)
i, j = np.nonzero(~seen)
low, high = found.interval(i, j)
inside = np.mean((low <= measured[~seen]) & (measured[~seen] <= high))
error = np.sqrt(np.mean((found.predict(i, j) - truth[~seen]) ** 2))
print(found)
print(f"{(~seen).mean():.0%} missing; error {error:.3f} against the truth, noise 0.3")
print(f"{inside:.0%} of the missing measurements lie in their interval of 90 %")

sensor = int((~seen).sum(1).argmax())
guess = np.array([found.predict(sensor, int(hour)) for hour in hours])
low, high = found.interval([sensor] * hours.size, hours)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.2), width_ratios=(1, 1.4))
left.imshow(np.where(seen, measured, np.nan), aspect="auto", cmap="viridis")
left.set(title="measurements, with outages", xlabel="hour", ylabel="sensor")
right.fill_between(hours, low, high, color="#D55E00", alpha=0.2, label="90 % interval")
right.plot(hours, guess, color="#D55E00", linewidth=1, label="completed")
right.plot(
    hours, np.where(seen[sensor], measured[sensor], np.nan), color="#2072B2", label="measured"
)
right.plot(hours, truth[sensor], color="black", linestyle=":", linewidth=1, label="truth")
right.set(title=f"sensor {sensor}", xlabel="hour", ylabel="degrees")
right.legend(fontsize=8, ncols=2)
save(figure, arguments.out / "sensors.png")
