"""Any `torch.nn.Module`, exactly, through torch.func."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor
from torch.func import functional_call, jacrev, jvp, vjp, vmap
from torch.nn import Module, UninitializedParameter
from torch.nn.attention import SDPBackend, sdpa_kernel

from natgrad._checks import integer
from natgrad._named import options
from natgrad.errors import DtypeError, ModuleError, ShapeError
from natgrad.parametrizations._arguments import check_leaves, check_match
from natgrad.parametrizations._guard import first_line
from natgrad.parametrizations._linear_taps import covers, tap_linear_layers
from natgrad.parametrizations.base import Design, Linearization, Parametrization, unflatten

__all__ = ["Network"]

Dict = dict[str, Tensor]


@options
class Network(Parametrization[Dict]):
    """A module as a function of its parameters: the dict that `torch.func.functional_call` takes.

    Outputs are `module(x)`, with any shape `(n, …)`. Parameters that the dict leaves out, and
    buffers, keep the module's own values. Layers, for `LayerShares`, are the submodules that own
    parameters, in the module's order. `fisher_over=None` means the batch's own inputs.

    Args:
        module: Deterministic, and leaving its buffers alone: put BatchNorm and Dropout in
            evaluation mode.
        memory: Bytes a chunk of Jacobian rows may take. The kernel of n outputs is assembled from
            chunks of rows, so that no more than three chunks live at once.

    Raises:
        ModuleError: If the module has no parameters.

    Example:
        >>> module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
        >>> network = Network(module)
        >>> network.predict(network.init(), torch.zeros(5, 3)).shape
        torch.Size([5, 4])
    """

    def __init__(self, module: Module, *, memory: int = 2**27) -> None:
        if not isinstance(module, Module):
            raise DtypeError(f"Network takes a torch.nn.Module, not a {type(module).__name__}.")
        if not any(True for _ in module.parameters()):
            raise ModuleError(
                f"{type(module).__name__} has no parameters, so there is nothing to train."
            )
        if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
            raise ModuleError(
                "the module has lazy parameters without a shape; run it on a batch first."
            )
        self.module = module
        self.memory = integer(memory, "memory", low=1)
        self._sizes: dict[torch.Size, int] = {}  # number of outputs by shape of the inputs

    def __repr__(self) -> str:
        """Return the constructor call, the module by its class."""
        return f"Network({type(self.module).__name__})"

    def init(self) -> Dict:
        """Return a copy of the module's trainable parameters, by name."""
        return {
            name: p.detach().clone()
            for name, p in self.module.named_parameters()
            if p.requires_grad
        } or self._nothing_trainable()

    def _nothing_trainable(self) -> Dict:
        raise ModuleError(
            f"every parameter of {type(self.module).__name__} is frozen; set requires_grad on "
            "those that should move, or pass a dict of them."
        )

    def check(self, params: Dict) -> None:
        """Raise unless params maps some of the module's parameter names to their shapes."""
        if not isinstance(params, dict) or not params:
            raise DtypeError(
                "Network takes a non-empty dict of parameters, as Network.init() returns, but got "
                f"a {type(params).__name__}."
            )
        check_leaves(list(params.values()), "parameters")
        own = dict(self.module.named_parameters())
        for name, p in params.items():
            if name not in own:
                raise ShapeError(
                    f"the module has no parameter {name!r}; it has {', '.join(sorted(own))}."
                )
            if p.shape != own[name].shape:
                raise ShapeError(
                    f"parameter {name!r} must have shape {tuple(own[name].shape)}, but has "
                    f"{tuple(p.shape)}."
                )

    def check_inputs(self, params: Dict, x: Tensor) -> None:
        """Raise unless the module maps x to one row of outputs per sample, as a pure function."""
        if x.is_floating_point():
            check_match(x, next(iter(params.values())))
        buffers = {name: b.clone() for name, b in self.module.named_buffers()}
        if torch.is_inference_mode_enabled():
            raise ModuleError(
                "directions cannot be computed under torch.inference_mode(), which forbids "
                "derivatives; use torch.no_grad() or nothing."
            )
        try:
            with torch.no_grad(), _differentiable_attention():
                first, second = (
                    functional_call(self.module, {**params, **buffers}, (x,)) for _ in range(2)
                )
        except Exception as error:  # whatever a user's forward may raise
            raise ModuleError(
                f"the module cannot be run on inputs of shape {tuple(x.shape)} and dtype "
                f"{x.dtype}: {first_line(error)}"
            ) from error
        if not isinstance(first, Tensor):
            raise ModuleError(
                f"the module must return one tensor, but returns a {type(first).__name__}; wrap it."
            )
        like = next(iter(params.values()))
        if first.dtype != like.dtype:
            raise ModuleError(
                f"the module's outputs have dtype {first.dtype}, but its parameters {like.dtype}; "
                "let forward keep the dtype."
            )
        for name, b in self.module.named_buffers():
            if not torch.equal(b, buffers[name]):
                raise ModuleError(
                    f"forward changes the buffer {name!r}, so the outputs of a sample depend on "
                    "the rest of the batch (BatchNorm in training mode?). Call module.eval() first."
                )
        if not torch.equal(first.nan_to_num(), second.nan_to_num()):
            raise ModuleError(
                "two forward passes on the same inputs differ (Dropout in training mode?). Call "
                "module.eval() first."
            )
        if first.ndim == 0 or len(first) != len(x):
            raise ModuleError(
                f"the module must return one row of outputs per sample, but maps {tuple(x.shape)} "
                f"to {tuple(first.shape)}."
            )

    def predict(self, params: Dict, x: Tensor) -> Tensor:
        """Return module(x) at these parameters."""
        return self._predict(params, x)

    def _predict(self, params: Dict, x: Tensor) -> Tensor:
        with _differentiable_attention():
            return cast(Tensor, functional_call(self.module, params, (x,)))

    def jvp(self, params: Dict, x: Tensor, v: Dict) -> Tensor:
        """Return J v by one forward-mode pass, or by two reverse ones where that is missing."""
        try:
            return cast(Tensor, jvp(lambda p: self._predict(p, x), (params,), (v,))[1])
        except (NotImplementedError, RuntimeError):
            outputs, pull = self._pullback(params, x)
            # Jᵀu is linear in u, so its own transpose is J.
            push = vjp(lambda u: pull(u)[0], torch.zeros_like(outputs))[1]
            return cast(Tensor, push(v)[0])

    def vjp(self, params: Dict, x: Tensor, u: Tensor) -> Dict:
        """Return Jᵀ u by one reverse-mode pass."""
        outputs, pull = self._pullback(params, x)
        return cast(Dict, pull(u.reshape(outputs.shape))[0])

    def _pullback(self, params: Dict, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Any]]:
        """Return the outputs and u ↦ (Jᵀu,)."""
        try:
            pulled = vjp(lambda p: self._predict(p, x), params)
        except RuntimeError as error:
            raise ModuleError(
                f"the module cannot be differentiated: {first_line(error)}"
            ) from error
        return pulled[0], pulled[1]

    def layers(self, params: Dict) -> int:
        """Return the number of submodules that own parameters."""
        return len(self._owners(params))

    def restrict(self, v: Dict, layer: int) -> Dict:
        """Return v with every layer but one set to zero."""
        kept = self._layer_names(v, layer)
        return {name: t if name in kept else torch.zeros_like(t) for name, t in v.items()}

    def prefers_gram(self, params: Dict, x: Tensor) -> bool:
        """Return whether there are fewer outputs than parameters, N < P.

        The kernel costs N² P + N³ operations and N² numbers, the rows N P² + P³ and N P. With more
        outputs than parameters the kernel is singular besides.
        """
        if x.shape not in self._sizes:  # it decides about cost only
            with torch.no_grad():
                self._sizes[x.shape] = self._predict(params, x).numel()
        return self._sizes[x.shape] < sum(t.numel() for t in params.values())

    def design(self, params: Dict, x: Tensor, layer: int | None = None) -> Design:
        """Return the dense Jacobian, `(n, k, p)`; n k p numbers of memory."""
        names = self._layer_names(params, layer)
        rows = torch.cat([rows for rows in self._row_chunks(params, x, names)])
        return self._as_design(params, names, rows)

    def _as_design(self, params: Dict, names: list[str], matrix: Tensor) -> Design:
        """Return rows `(n, k, p)` of the named parameters as a design."""
        chosen = {name: params[name] for name in names}

        def expand(z: Tensor) -> Dict:
            part = unflatten(z, chosen)
            return {name: part.get(name, torch.zeros_like(t)) for name, t in params.items()}

        return Design(matrix, expand, lambda g: torch.cat([g[name].reshape(-1) for name in names]))

    def gram(self, params: Dict, x: Tensor, other: Tensor, layer: int | None = None) -> Tensor:
        """Return J(x) J(other)ᵀ, `(n, k, m, k)`.

        Linear layers contribute products of their inputs' and errors' inner products; all other
        parameters chunks of Jacobian rows, recomputed as needed.
        """
        names = self._layer_names(params, layer)
        left = tap_linear_layers(self.module, params, names, x)
        right = left if other is x else tap_linear_layers(self.module, params, names, other)
        shared = [name for name in left if name in right]
        total = [left[name].gram(right[name]) for name in shared]
        tapped = {name for owner in shared for name in left[owner].names}
        rest = [name for name in names if name not in tapped]
        if rest:
            total.append(self._row_gram(params, x, other, rest))
        return torch.stack(total).sum(0)

    def linearized(self, params: Dict, x: Tensor, layer: int | None = None) -> Linearization | None:
        """Return the Jacobian through linear layers' inputs and errors, if they own all of it."""
        names = self._layer_names(params, layer)
        if not covers(self.module, names):
            return None
        taps = list(tap_linear_layers(self.module, params, names, x).values())
        if {name for tap in taps for name in tap.names} != set(names):
            return None

        def pull(u: Tensor) -> Dict:
            parts = {name: g for tap in taps for name, g in tap.pull(u).items()}
            return {name: parts.get(name, torch.zeros_like(t)) for name, t in params.items()}

        def design() -> Design:
            rows = {name: r for tap in taps for name, r in tap.rows().items()}
            return self._as_design(params, names, torch.cat([rows[name] for name in names], 2))

        return Linearization(
            gram=lambda: _sum(tap.gram(tap) for tap in taps),
            push=lambda v: _sum(tap.push(v) for tap in taps),
            pull=pull,
            design=design,
        )

    def _row_gram(self, params: Dict, x: Tensor, other: Tensor, names: list[str]) -> Tensor:
        """Return J(x) J(other)ᵀ of the named parameters from chunks of rows."""
        if other is x:
            return self._own_gram(params, x, names)
        blocks = [
            torch.cat(
                [
                    torch.einsum("nkp,mjp->nkmj", a, b)
                    for b in self._row_chunks(params, other, names)
                ],
                dim=2,
            )
            for a in self._row_chunks(params, x, names)
        ]
        return torch.cat(blocks)

    def _own_gram(self, params: Dict, x: Tensor, names: list[str]) -> Tensor:
        """Return J(x) J(x)ᵀ, computing each off-diagonal block once."""
        out: Tensor | None = None
        start = 0
        for a in self._row_chunks(params, x, names):
            n, k, p = a.shape
            out = a.new_empty(len(x), k, len(x), k) if out is None else out
            flat = a.reshape(n * k, p)
            stop = start + n
            out[start:stop, :, start:stop] = (flat @ flat.mT).reshape(n, k, n, k)
            low = 0
            for b in self._row_chunks(params, x[:start], names) if start else ():
                m = len(b)
                block = (flat @ b.reshape(m * k, p).mT).reshape(n, k, m, k)
                out[start:stop, :, low : low + m] = block
                out[low : low + m, :, start:stop] = block.permute(2, 3, 0, 1)
                low += m
            start = stop
        assert out is not None
        return out

    def _layer_names(self, params: Dict, layer: int | None) -> list[str]:
        if layer is None:
            return list(params)
        owner = self._owners(params)[layer]
        return [name for name in params if name.rpartition(".")[0] == owner]

    def _row_chunks(self, params: Dict, x: Tensor, names: list[str]) -> Any:
        """Yield Jacobian rows `(chunk, k, p)` of successive data."""
        with torch.no_grad():
            outputs = self._predict(params, x)
        k = outputs[0].numel()
        p = sum(params[name].numel() for name in names)
        size = max(1, self.memory // (k * p * outputs.element_size()))
        chosen = {name: params[name] for name in names}
        rest = {name: t for name, t in params.items() if name not in chosen}
        rows = self._sample_jacobian(chosen, rest, x, outputs)
        if rows is None:  # samples interact: rows of the batch as a whole
            yield self._batch_jacobian(chosen, rest, x, k)
            return
        for start in range(0, len(x), size):
            yield rows(x[start : start + size])

    def _sample_jacobian(
        self, chosen: Dict, rest: Dict, x: Tensor, outputs: Tensor
    ) -> Callable[[Tensor], Tensor] | None:
        """Return a function for the Jacobian sample by sample, or None if samples interact."""

        def single(p: Dict, sample: Tensor) -> Tensor:
            return self._predict({**rest, **p}, sample[None]).reshape(-1)

        # One direction along which every parameter moves tells whether samples interact.
        probe = {name: torch.cos(_count(t)) for name, t in chosen.items()}
        together = self.jvp({**rest, **chosen}, x, {**_zeros(rest), **probe})
        try:
            alone = vmap(lambda sample: jvp(lambda p: single(p, sample), (chosen,), (probe,))[1])(x)
        except Exception:  # vmap refuses control flow that depends on data, in-place writes, …
            return None
        together = together.reshape(alone.shape)
        tolerance = 1e4 * torch.finfo(outputs.dtype).eps * together.abs().max().clamp(min=1)
        if not bool(((alone - together).abs() <= tolerance).all()):
            return None
        jacobian = vmap(jacrev(single), in_dims=(None, 0))

        def rows(data: Tensor) -> Tensor:
            parts = jacobian(chosen, data)
            return torch.cat([parts[name].flatten(2) for name in chosen], dim=2)

        return rows

    def _batch_jacobian(self, chosen: Dict, rest: Dict, x: Tensor, k: int) -> Tensor:
        parts = jacrev(lambda p: self._predict({**rest, **p}, x).reshape(len(x), k))(chosen)
        return torch.cat([parts[name].flatten(2) for name in chosen], dim=2)

    def _owners(self, params: Dict) -> list[str]:
        """Return the submodules that own some of the parameters, in the module's order."""
        ordered = (name for name, _ in self.module.named_parameters() if name in params)
        return list(dict.fromkeys(name.rpartition(".")[0] for name in ordered))


@contextmanager
def _differentiable_attention() -> Iterator[None]:
    """Take attention by plain operations; its fused kernels lack forward derivatives."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _count(t: Tensor) -> Tensor:
    return torch.arange(t.numel(), dtype=t.dtype, device=t.device).reshape(t.shape)


def _sum(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum(0)


def _zeros(params: Dict) -> Dict:
    return {name: torch.zeros_like(t) for name, t in params.items()}
