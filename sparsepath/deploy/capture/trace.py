"""From the nodes that a trace recorded, with their changes in place, to those of a graph."""

import operator
from collections import OrderedDict
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from sparsepath.deploy.capture import translate_functions as translate_functions  # fills the table
from sparsepath.deploy.capture.aliases import Aliases
from sparsepath.deploy.capture.dice import Dice
from sparsepath.deploy.capture.lengths import Lengths, Size, computed
from sparsepath.deploy.capture.naming import Names
from sparsepath.deploy.capture.norm_layers import is_plain, normed
from sparsepath.deploy.capture.own_arrays import OwnArrays
from sparsepath.deploy.capture.picking import picked, unsqueezed
from sparsepath.deploy.capture.pieces import Places, check_counted, extreme, one_of, pieces
from sparsepath.deploy.capture.recorded import (
    WHY,
    Method,
    Part,
    Shape,
    asked,
    in_any_order,
    is_open,
    length_of,
    line_of,
    out_of_place,
    part_of,
    place_of,
    shape_of,
    spoken,
)
from sparsepath.deploy.capture.reshapes import BY_LENGTHS
from sparsepath.deploy.capture.translate import Draft, Length, Same, Unknown, as_value, translated
from sparsepath.deploy.graph.copies import copied
from sparsepath.deploy.graph.graph import Attribute, Call, Graph, Node, Value, mapped, with_idle


class Translator:
    """Turns the nodes of a trace, one after the other, into those of a graph."""

    def __init__(self, model: nn.Module, reasons: dict[str, str], *, untouched: nn.Module) -> None:
        """`reasons` says why modules were not traced into; `untouched` has them as they start."""
        self.model = model
        self.names = Names(model)
        self.reasons = reasons
        self.untouched = untouched
        self.nodes: list[Node] = []
        # What is known of each recorded node: a value to come, or an array or number already.
        self.known: dict[fx.Node, Any] = {}
        self.aliases = Aliases()
        self.numbers: set[str] = set()
        # What certainly is one tensor: what torch runs may give several.
        self.images: set[Value] = set()
        self.lengths = Lengths()
        self.arrays = OwnArrays(self.names)
        # What gives back its input as it is, with the value's name.
        self.idle: list[tuple[str, str]] = []

    def graph(self, traced: fx.Graph, axes: tuple[int, ...] = ()) -> Graph:
        """The whole trace as a graph of inputs that have so many axes."""
        inputs: list[str] = []
        output: Any = None
        for node in traced.nodes:
            if node.op == "placeholder":
                inputs.append(self.names.free(str(node.target)))
                self.known[node] = Value(inputs[-1])
                self.images.add(Value(inputs[-1]))
                if axes:
                    told = axes[len(inputs) - 1]
                    self.lengths.given(Value(inputs[-1]), told, told)
            elif node.op == "get_attr":
                self.known[node] = self.arrays.named(str(node.target))
            elif node.op == "output":
                output = mapped(self._filled(node.args[0]), self._as_value)
            else:
                try:
                    self._call(node, list(traced.nodes))
                except Unknown as unknown:
                    raise Unknown(f"{unknown}{line_of(node)}") from unknown
        return Graph(tuple(inputs), with_idle(self.nodes, self.idle), output)

    def _filled(self, structure: Any) -> Any:
        return mapped(
            structure, lambda leaf: self.known[leaf] if isinstance(leaf, fx.Node) else leaf
        )

    def _as_value(self, leaf: Any) -> Any:
        """An array, a length or a shape as the value of a node of its own."""
        if isinstance(leaf, Tensor):
            title = self.names.title(leaf, "constant")
            learned: dict[str, Attribute] = {"learned": True} if title.learned else {}
            made = Draft("constant", (), learned, {"value": leaf})
            return self._add(made, title.path or title.name)
        return self._measured(leaf)

    def _measured(self, leaf: Any, why: str = "it gives a length") -> Any:
        """A length or a shape as a value, with the reason why whoever reads it needs one."""
        if isinstance(leaf, Length):
            value = self._add(Call(length_of, (leaf.value, leaf.axis), {}, why), "length")
        elif isinstance(leaf, Size):
            parts = mapped(leaf.arguments, lambda part: self._measured(part, why))
            value = self._add(Call(leaf.function, parts, {}, why), "length")
        elif isinstance(leaf, Shape):
            value = self._add(Call(shape_of, (leaf.value,), {}, why), "shape")
        elif isinstance(leaf, Part):
            value = self._add(Call(part_of, (leaf.value, leaf.start), {}, why), "shape")
        else:
            return leaf
        self.numbers.add(value.name)
        return value

    def _call(self, node: fx.Node, order: list[fx.Node]) -> None:
        arguments, keywords = self._filled(tuple(node.args)), self._filled(dict(node.kwargs))
        target, changes = out_of_place(node.target, keywords)
        if changes and isinstance(arguments[0], (tuple, list)):
            raise Unknown("it changes several tensors at once")
        changes = changes and self._is_tensor(arguments[0])
        if changes and isinstance(arguments[0], Tensor):
            raise Unknown("it changes its own weights as it runs")
        answer = asked(target, arguments, keywords) or computed(target, arguments)
        cut = pieces(self.lengths, target, arguments, keywords)
        check_counted(node, cut)
        if cut is not None:
            self.known[node] = tuple(self._added(piece, node) for piece in cut)
        elif target in (operator.getitem, getattr) and isinstance(arguments[0], tuple):
            self.known[node] = self._settled(one_of(*arguments), node)
        elif _parted(node) and (most := extreme(target, arguments, keywords)) is not None:
            self.known[node] = (self._added(most, node), Places(target, arguments, keywords))
        elif answer is not None:
            self.lengths.heard(answer)
            self.known[node] = answer
        elif _packs(target):
            self.known[node] = target(*arguments, **keywords)
        elif node.op != "call_module" and not is_open((arguments, keywords)):
            self.known[node] = self._computed(target, arguments, keywords, place_of(node))
        else:
            made = self._made(node, target, arguments, keywords, changes)
            value = self._added(made, node)
            if changes and value != arguments[0]:
                later = set(order[order.index(node) + 1 :])
                self.aliases.redirect(self.known, cast(fx.Node, node.args[0]), value, later)
            self.known[node] = value

    def _computed(
        self, target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], place: str
    ) -> Any:
        """Weights computed from weights: the same at every run, unless they are drawn."""
        with Dice() as dice:
            result = Method(target)(*arguments, **keywords)
        if not dice.drawn:
            return result
        return self._add(
            Call(Method(target), arguments, keywords, "it draws random numbers"), place
        )

    def _is_tensor(self, x: Any) -> bool:
        return isinstance(x, Tensor) or (isinstance(x, Value) and x.name not in self.numbers)

    def _made(
        self,
        node: fx.Node,
        target: Any,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        changes: bool,
    ) -> Draft | Same | Call:
        """The operation that a recorded node means, else a call that torch is to run."""
        try:
            if node.op == "call_module":
                return self._module(str(node.target), arguments, keywords)
            if target is operator.getitem and arguments[0] in self.images:
                return picked(self.lengths, *arguments)
            if target in BY_LENGTHS:
                return BY_LENGTHS[target](self.lengths, arguments, keywords)
            if target is torch.stack:
                return self._stacked(node, *arguments, **keywords)
            values = [x for x in arguments if isinstance(x, Value)]
            if values and all(x.name in self.numbers for x in values):
                raise Unknown("it computes with lengths alone")
            try:
                return translated(target, arguments, keywords)
            except Unknown:
                if not any(isinstance(x, Tensor) for x in arguments):
                    raise
                return translated(target, tuple(map(self._as_value, arguments)), keywords)
        except Unknown as unknown:
            own_why = f"{node.meta.get(WHY, unknown)}{line_of(node)}"
            why = self.reasons.get(str(node.target), own_why)
        arguments, keywords = mapped((arguments, keywords), lambda leaf: self._measured(leaf, why))
        if node.op == "call_module":
            return Call(self._whole.get_submodule(str(node.target)), arguments, keywords, why)
        if isinstance(target, type):  # a record of the user's, with what it holds by name
            return Call(target, arguments, keywords, why)
        own = node.target if changes else in_any_order(target, arguments, keywords)
        return Call(Method(own, changes), arguments, keywords, why)

    def _stacked(self, node: fx.Node, tensors: Any, dim: int = 0) -> Draft:
        if not isinstance(tensors, tuple | list):
            raise Unknown("it stacks what another call gives")
        parts = [unsqueezed(self.lengths, as_value(x), dim) for x in tensors]
        values = tuple(self._add(part, place_of(node)) for part in parts)
        return Draft("cat", values, {"dim": dim})

    def _settled(self, x: Any, node: fx.Node) -> Any:
        """Places as a value of their own: hardly anybody asks for them."""
        if isinstance(x, tuple):
            return tuple(self._settled(part, node) for part in x)
        if not isinstance(x, Places) or not node.users:
            return x
        why = "it tells places"
        both = self._add(Call(Method(x.target), x.arguments, x.keywords, why), place_of(node))
        return self._add(Call(operator.getitem, (both, 1), {}, why), place_of(node))

    @cached_property
    def _whole(self) -> nn.Module:
        """One copy for all modules that stay whole, so that they share what they shared."""
        return copied(self.untouched)

    def _module(
        self, path: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Draft | Same:
        module = self.model.get_submodule(path)
        if not is_plain(module) or path in self.reasons or keywords:
            raise Unknown("sparsepath does not know this kind of module")
        return normed(module, self.arrays.own, self.lengths, *arguments)

    def _added(self, made: Draft | Same | Call, node: fx.Node) -> Value:
        if not isinstance(made, Same):
            return self._add(made, place_of(node))
        place = place_of(node)
        own = place == "" or place.endswith(".")
        self.idle.append(
            (self.names.free(f"{place}{spoken(node.target)}" if own else place), made.value.name)
        )
        return made.value

    def _add(self, made: Draft | Call, place: str) -> Value:
        """A new node; in a user's own module, whose place ends in a dot, the operation names it."""
        own = place == "" or place.endswith(".")
        if isinstance(made, Call):
            name = self.names.free(f"{place}{spoken(made.function)}" if own else place)
            names = tuple(value.name for value in made.values)
            call, arrays = self.arrays.lifted(made)
            self._append(Node(name, "torch", names, arrays=arrays, call=call))
            if names and self.numbers.issuperset(names):
                self.numbers.add(name)
            return Value(name)
        inputs = made.inputs
        while made.then is not None:
            inputs = (self._node(made, f"{place}{'' if own else '.'}{made.op}", inputs),)
            made = made.then
        return self._node(made, self.names.of(made, place), inputs)

    def _node(self, draft: Draft, path: str, inputs: tuple[Value, ...]) -> Value:
        name = self.names.free(path)
        names = tuple(value.name for value in inputs)
        attributes = dict(draft.attributes)
        if self.names.fixed(draft):
            attributes["learned"] = False
        self._append(Node(name, draft.op, names, attributes, draft.arrays))
        self.images.add(Value(name))
        return Value(name)

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        self.lengths.learn(node)
        self.aliases.learn(node)


def _parted(node: fx.Node) -> bool:
    """Whether all that becomes of what a call gives is that one of several is taken."""
    return all(user.target in (operator.getitem, getattr) for user in node.users)


def _packs(target: Any) -> bool:
    """Whether a call only makes a container of what it is given."""
    named = isinstance(target, type) and issubclass(target, tuple) and hasattr(target, "_fields")
    return named or target is OrderedDict
