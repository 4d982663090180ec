"""Every option of a run in one frozen record, read from TOML and written as TOML."""

import difflib
import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from sparsepath.errors import BadInput, checked_count, checked_number

Check = Callable[[str, object], object]


def above_zero(name: str, value: object) -> float:
    """A number above zero."""
    return checked_number(name, value)


def zero_or_more(name: str, value: object) -> float:
    """A number of at least zero."""
    return checked_number(name, value, zero=True)


def share(name: str, value: object) -> float:
    """A number from 0 to 1."""
    number = checked_number(name, value, zero=True)
    if number > 1:
        raise BadInput(f"{name} is a share from 0 to 1, not {value!r}.")
    return number


def count(name: str, value: object) -> int:
    """A whole number of at least one."""
    return checked_count(name, value)


def count_or_zero(name: str, value: object) -> int:
    """A whole number of at least zero."""
    return checked_count(name, value, least=0)


def yes_or_no(name: str, value: object) -> bool:
    """A truth value."""
    if not isinstance(value, bool):
        raise BadInput(f"{name} must be true or false, not {value!r} ({type(value).__name__}).")
    return value


def text(name: str, value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise BadInput(f"{name} must be a text, not {value!r} ({type(value).__name__}).")
    return value


def setting(default: Any, check: Check, group: str, says: str) -> Any:
    """One option of a run: its default, what it must be, where it belongs and what it means.

    None as the default means that the option may be left out.
    """
    return field(default=default, metadata={"check": check, "group": group, "says": says})


DATA, TRAINING, PATH, MACHINE = "Data and network", "Training", "Path", "Machine"


@dataclass(frozen=True)
class Settings:
    """All that decides a run's numbers; the defaults are those of the main job."""

    data: str = setting(
        "digits", text, DATA, "digits, or a file or folder: .npz, IDX (MNIST), CIFAR, SVHN"
    )
    network: str = setting(
        "digit-net", text, DATA, "digit-net, nin, low-rank-nin, cnn or low-rank-cnn"
    )
    checkpoint: str | None = setting(
        None, text, DATA, "weights to start the path from, instead of training a dense reference"
    )
    validation: float = setting(
        0.125, share, DATA, "share of the training images set aside for every choice"
    )
    seed: int = setting(0, count_or_zero, DATA, "decides every random choice of the run")

    dense_epochs: int = setting(20, count, TRAINING, "epochs of the dense reference")
    dense_rate: float = setting(
        0.05, above_zero, TRAINING, "peak learning rate of the dense reference"
    )
    path_rate: float = setting(0.01, above_zero, TRAINING, "learning rate of the performance steps")
    finetune_rate: float = setting(
        0.03, above_zero, TRAINING, "first learning rate of each fine-tune, which falls to zero"
    )
    momentum: float = setting(0.9, share, TRAINING, "momentum of SGD")
    decay: float = setting(5e-4, zero_or_more, TRAINING, "weight decay of SGD")
    batch: int = setting(64, count, TRAINING, "images per step")
    shift: int = setting(
        2, count_or_zero, TRAINING, "training images are shifted by up to so many pixels"
    )
    flip: bool = setting(
        False, yes_or_no, TRAINING, "training images are mirrored half of the time"
    )

    penalty: str = setting("l0", text, PATH, "l0, l1, l12, mcp, scad or logsum")
    blocks: str = setting(
        "kernels",
        text,
        PATH,
        "zeroed together: kernels, outputs, inputs, positions, columns, elements, 'tiles(2, 1)'",
    )
    layers: str | None = setting(
        None, text, PATH, "name patterns as in 'conv*, fc1'; the network's usual ones if not given"
    )
    rho: float = setting(0.2, above_zero, PATH, "strength of the pull between W and F")
    points: int = setting(10, count, PATH, "how many mu, evenly spaced in their logarithm")
    mu_min: float | None = setting(
        None, above_zero, PATH, "first mu; found from the block norms if not given"
    )
    mu_max: float | None = setting(
        None, above_zero, PATH, "last mu; found from the block norms if not given"
    )
    first_share: float = setting(
        0.3, share, PATH, "share of the blocks that a found mu_min would zero at once"
    )
    last_share: float = setting(
        0.995, share, PATH, "share of the blocks that a found mu_max would zero at once"
    )
    delta: int = setting(2, count, PATH, "epochs that a performance step gains with every mu")
    nu: int = setting(1, count, PATH, "how many mu gain epochs; from then on they stay")
    xi: int = setting(2, count, PATH, "most ADMM iterations of one mu")
    epsilon: float = setting(
        1e-2, zero_or_more, PATH, "a mu has converged when both residuals are at most this"
    )
    guard: float | None = setting(
        None, share, PATH, "past this share of zero blocks a layer's mean norm caps its threshold"
    )
    restart: bool = setting(False, yes_or_no, PATH, "every mu starts with F = W and Gamma = 0")
    balancing: bool = setting(False, yes_or_no, PATH, "rho follows the relative residuals")
    tolerance: float = setting(
        0.01, share, PATH, "validation accuracy that the chosen point may lose against dense"
    )

    device: str = setting("cpu", text, MACHINE, "cpu, cuda, cuda:1, ...")
    threads: int = setting(
        1, count, MACHINE, "CPU threads; another number rounds, and so ends, differently"
    )

    def __post_init__(self) -> None:
        """Check every value, and store numbers as the type they are declared with."""
        for option in fields(self):
            value = getattr(self, option.name)
            if value is not None or option.default is not None:
                object.__setattr__(self, option.name, _checked(option, value))
        if (self.mu_min is None) != (self.mu_max is None):
            raise BadInput("Give both mu_min and mu_max, or neither to have them found.")
        if self.mu_min is not None and self.mu_max is not None and self.mu_min >= self.mu_max:
            raise BadInput(
                f"mu_min = {self.mu_min:g} must lie below mu_max = {self.mu_max:g}: the path grows."
            )

    @property
    def name(self) -> str:
        """What a run with these settings is called: what it is about, and a digest of all."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:8]
        return f"{Path(self.data).stem}-{self.network}-{self.penalty}-{digest}"

    def differences(self, other: "Settings") -> str:
        """Which settings differ from another's, in words."""
        ours, theirs = asdict(self), asdict(other)
        return ", ".join(
            f"{name} = {theirs[name]!r} instead of {ours[name]!r}"
            for name in ours
            if ours[name] != theirs[name]
        )


def _checked(option: "Field[Any]", value: object) -> object:
    check: Check = option.metadata["check"]
    return check(option.name, value)


def from_mapping(given: Mapping[str, object], source: str) -> Settings:
    """Settings with the given values; an unknown key is refused with the near one."""
    known = [option.name for option in fields(Settings)]
    # The option is called --from, which no Python name can be.
    given = {"checkpoint" if key == "from" else key: value for key, value in given.items()}
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
            raise BadInput(f"{source} has no setting {key!r}; {hint}")
    return Settings(**given)  # type: ignore[arg-type]  # every value is checked there


PLACES = ("out", "tensorboard")
"""Options that say where to write: a settings file may have them, and they decide no number."""


def read(path: Path) -> tuple[dict[str, object], dict[str, Path]]:
    """The values of a settings file, checked as far as each goes alone, and its places."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"The settings file {str(path)!r} cannot be read: {error}.") from error
    places = {name: Path(text(name, given.pop(name))) for name in PLACES if name in given}
    from_mapping(given, f"The settings file {str(path)!r}")
    return given, places


def toml(settings: Settings) -> str:
    """The settings as TOML, each with what it means; one that is left out stands as a comment."""
    lines = ["# The settings of one run, for `sparsepath run --settings FILE`."]
    for group, options in itertools.groupby(fields(settings), lambda o: o.metadata["group"]):
        lines += ["", f"# {group}"]
        lines += [_line(option, getattr(settings, option.name)) for option in options]
    return "\n".join([*lines, ""])


def _line(option: "Field[Any]", value: object) -> str:
    # JSON's numbers, truth values and texts are TOML's too.
    shown = "" if value is None else json.dumps(value, ensure_ascii=False)
    return f"{'# ' if value is None else ''}{option.name} = {shown}  # {option.metadata['says']}"
