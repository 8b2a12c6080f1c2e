"""
Depth without the magic, in ten cells
=====================================

Deep networks find sparse solutions. Is that a property of the network, or of
gradient descent? In *Depth without the magic*, Kerekes, Mészáros and Huszár
replace gradient descent by natural gradient descent, and most of the effect of
depth disappears. Ten cells show why, and what is left.
"""

# %%
# **1.** The data: 60 samples with 100 features, of which only the first 5 matter.

import matplotlib.pyplot as plt
import torch

import natgrad as ng

torch.manual_seed(0)
x = torch.randn(60, 100, dtype=torch.float64)
truth = torch.zeros(100, dtype=torch.float64)
truth[:5] = 1
y = torch.sign(x @ truth)

# %%
# **2.** The model: β = w₁ ⊙ … ⊙ w_L, trained by gradient flow (EGD) or natural
# gradient flow (NGD).


def train(direction, depth, until):
    network = ng.Diagonal(depth)
    start = network.init_free(100, scale=0.3)
    path = ng.integrate(
        direction, ng.Bernoulli(), network, start, (x, y), until=until
    )
    return network.hypothesis(path.final)


# %%
# **3.** Train each at depth 1, 2 and 3.

depths = (1, 2, 3)
egd = [train(ng.euclidean, depth, until=1e4) for depth in depths]
ngd = [train(ng.natural, depth, until=100) for depth in depths]

# %%
# **4.** Accuracy on new Gaussian samples has a closed form. Depth helps EGD a
# lot, and NGD less.

accuracy = {
    "EGD": [float(ng.diagnostics.gaussian_accuracy(beta, truth)) for beta in egd],
    "NGD": [float(ng.diagnostics.gaussian_accuracy(beta, truth)) for beta in ngd],
}
for name, values in accuracy.items():
    print(name, [f"{value:.1%}" for value in values])

# %%
# **5.** The coefficients: deep EGD sets most of the wrong ones to zero.

figure, rows = plt.subplots(2, 3, figsize=(8, 4), sharex=True)
for row, name, found in zip(rows, ("EGD", "NGD"), (egd, ngd), strict=True):
    for axes, depth, beta in zip(row, depths, found, strict=True):
        axes.plot(beta / beta.abs().max(), ".", markersize=4)
        axes.axvspan(-0.5, 4.5, color="tab:green", alpha=0.2)
        axes.set(title=f"{name}, depth {depth}", ylim=(-1.1, 1.1))
figure.tight_layout()
plt.show()

# %%
# **6.** What NGD does is simple. On the training samples its logits follow one
# formula at every depth and in every network (Theorem 4): each of them is y
# log(2eᵗ − 1).

t = 100.0
predicted = y * (t + torch.log(torch.tensor(2.0) - torch.exp(torch.tensor(-t))))
error = max(float((x @ beta - predicted).abs().max() / t) for beta in ngd)
print(f"largest deviation from the formula: {error:.1e} of the logits")

# %%
# **7.** So NGD makes all training logits equal: it interpolates the labels. At
# depth 1 the result is the shortest least-squares solution (Theorem 3).

shortest = torch.linalg.lstsq(x, y, driver="gelsd").solution
print(f"cosine at depth 1: {float(ng.diagnostics.cosine(ngd[0], shortest)):.9f}")

# %%
# **8.** Many coefficients interpolate the same labels, and the theorems do not
# say which of them NGD picks. Deep NGD picks the shortest solution in the ℓ1
# norm, which is sparse. This is not in the paper; the findings on this site have
# the proof.

sparse = ng.limits.basis_pursuit(x, y).solution
cosines = [float(ng.diagnostics.cosine(beta, sparse)) for beta in ngd]
print("cosine with the ℓ1 interpolant:", [f"{value:.3f}" for value in cosines])

# %%
# **9.** Deep EGD finds large *margins*, deep NGD *equal* margins. That is why one
# ignores samples that are easy, and the other does not.

figure, axes = plt.subplots(figsize=(6, 3))
for name, beta in (("EGD, depth 3", egd[2]), ("NGD, depth 3", ngd[2])):
    margins = y * (x @ beta)
    axes.plot((margins / margins.min()).sort().values, label=name)
axes.set(
    title="Margins of the training samples",
    xlabel="sample, sorted",
    ylabel="margin / smallest",
)
axes.legend()
figure.tight_layout()
plt.show()

# %%
# **10.** In one sentence: gradient descent prefers sparse solutions because of
# depth, and natural gradient descent removes this preference from the training
# samples, but not from the coefficients. The lines below check this page as it is.
# Delete them when you change it.

assert accuracy["EGD"][2] > accuracy["EGD"][0] + 0.1
assert error < 1e-5
assert cosines[2] > 0.99 > cosines[0]
