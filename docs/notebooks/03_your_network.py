"""
Your network with NGD
=====================

``NGD`` replaces Adam in one line of a training loop. It needs the criterion, and
no learning rate.
"""

# %%
# A training loop as you know it: a small classifier, mini-batches, any optimizer.

import matplotlib.pyplot as plt
import torch
from torch.nn import Linear, ReLU, Sequential

import natgrad as ng

torch.manual_seed(0)
x = torch.randn(3000, 10)
y = (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0).long()
train, test = slice(0, 2000), slice(2000, 3000)
criterion = torch.nn.CrossEntropyLoss()


def run(make_optimizer, epochs=10):
    torch.manual_seed(1)
    model = Sequential(
        Linear(10, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 3)
    )
    optimizer = make_optimizer(model)
    data = torch.utils.data.TensorDataset(x[train], y[train])
    losses = []
    for _ in range(epochs):
        for inputs, labels in torch.utils.data.DataLoader(
            data, batch_size=250, shuffle=True
        ):
            loss = criterion(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    with torch.no_grad():
        accuracy = float((model(x[test]).argmax(1) == y[test]).float().mean())
    return model, optimizer, losses, accuracy


# %%
# Adam at three learning rates, then NGD with default settings. The loop is the
# same.

runs = {
    f"Adam, rate {rate:g}": run(
        lambda model, rate=rate: torch.optim.Adam(model.parameters(), rate)
    )
    for rate in (1e-3, 3e-3, 1e-2)
}
runs["NGD"] = run(lambda model: ng.NGD(model, criterion))

figure, axes = plt.subplots(figsize=(6, 4))
for name, (_, _, losses, _) in runs.items():
    axes.plot(losses, label=name)
axes.set(title="Training loss", xlabel="step", yscale="log")
axes.legend()
plt.show()

# %%
# Steps of NGD cost more than steps of Adam, so compare seconds on your own
# problem too. The page on the race has such measurements.

for name, (_, _, losses, accuracy) in runs.items():
    print(f"{name:16} last loss {losses[-1]:.4f}   test accuracy {accuracy:.1%}")

# %%
# The optimizer explains its steps, and ``diagnose`` says which layers it covers,
# how well their factors are conditioned, and what they cost.

model, optimizer, losses, _ = runs["NGD"]
for name, value in optimizer.statistics.scalars().items():
    print(f"{name:24} {value:.4g}")

# %%
print(ng.diagnose(model, criterion, x[:250]))

# %%
# Try it on your own model: replace ``model``, ``x`` and ``y``. Standardize the
# inputs first. The line below checks this page as it is. Delete it when you change
# something.

assert losses[-1] < min(run[2][-1] for name, run in runs.items() if name != "NGD")
