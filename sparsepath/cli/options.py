"""Every setting of a run as an option of a command."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from sparsepath.cli.speech import AGAIN, Debug, sentences
from sparsepath.lab.settings import Settings, from_mapping, read

Act = Callable[..., None]
"""A function of settings, the run's folder, and a folder for TensorBoard or None."""


def with_settings(act: Act, *more: inspect.Parameter) -> Callable[..., None]:
    """Make a command of a function of settings and folders: all settings become its options.

    What the function takes `more` becomes options too.
    """

    def command(**given: Any) -> None:
        shared = ("settings", "out", "tensorboard", "debug")
        settings_file, out, board, debug = (given.pop(name) for name in shared)
        own = {parameter.name: given.pop(parameter.name) for parameter in more}
        with sentences(debug, stopped=AGAIN):
            settings, places = _settings(settings_file, given)
            folder = out or places.get("out") or Path("runs", settings.name)
            act(settings, folder, board or places.get("tensorboard"), **own)

    paragraphs = (inspect.getdoc(act) or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    command.__signature__ = inspect.Signature([*more, *_options()])  # type: ignore[attr-defined]
    command.__name__ = act.__name__
    return command


def _settings(file: Path | None, given: Mapping[str, object]) -> tuple[Settings, dict[str, Path]]:
    """The settings file's values, then the options that were given; and the file's own places."""
    values, places = ({}, {}) if file is None else read(file)
    values |= {name: value for name, value in given.items() if value is not None}
    return from_mapping(values, "The command line"), places


def _options() -> Iterator[inspect.Parameter]:
    """Every setting as an option that is None unless given, and what all such commands share."""
    shared = {
        "settings": (Path, "TOML file with any of these settings; options given here come first"),
        "out": (Path, "the run's folder (default: runs/ and a name made from the settings)"),
        "tensorboard": (Path, "also log losses, residuals and points into this folder"),
    }
    for name, (kind, says) in shared.items():
        yield _option(name, kind, typer.Option(f"--{name}", help=says))
    yield inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, annotation=Debug, default=False
    )
    hints = get_type_hints(Settings)
    for setting in fields(Settings):
        kind = (get_args(hints[setting.name]) or (hints[setting.name],))[0]
        flag = "--from" if setting.name == "checkpoint" else f"--{setting.name.replace('_', '-')}"
        info = typer.Option(
            f"{flag}/--no-{flag[2:]}" if kind is bool else flag,
            help=setting.metadata["says"] + _default(setting.default),
            rich_help_panel=setting.metadata["group"],
        )
        yield _option(setting.name, kind, info)


def _default(value: object) -> str:
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return "" if value is None else f" (default: {value})"


def _option(name: str, kind: type, info: object) -> inspect.Parameter:
    annotation = Annotated[kind | None, info]  # type: ignore[valid-type]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None
    )
