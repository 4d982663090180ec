"""Settings: checked one by one, written and read back unchanged."""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from sparsepath.errors import BadInput
from sparsepath.lab.choices import PARTITIONS, PENALTIES
from sparsepath.lab.models import NETWORKS
from sparsepath.lab.settings import Settings, from_mapping, read, toml

OTHER = {
    "data": "folder/mnist é",
    "network": "nin",
    "checkpoint": 'my "best".safetensors',
    "penalty": "mcp",
    "blocks": "tiles(2, 4)",
    "layers": "conv1, fc*",
    "mu_min": 1e-7,
    "mu_max": 1.0,
    "guard": 0.5,
    "device": "cuda:1",
}


def other(option):
    """A value of this setting that is not its default."""
    if option.name in OTHER:
        return OTHER[option.name]
    if isinstance(option.default, bool):
        return not option.default
    return option.default / 2 if isinstance(option.default, float) else option.default + 1


ALL_OTHER = {option.name: other(option) for option in fields(Settings)}


@pytest.mark.parametrize("values", [{}, ALL_OTHER], ids=["defaults", "all different"])
def test_settings_survive_their_file(tmp_path, values):
    settings = from_mapping(values, "test")
    path = tmp_path / "settings.toml"
    path.write_text(toml(settings), encoding="utf-8")
    assert from_mapping(read(path)[0], "test") == settings


def test_the_file_says_what_every_setting_means():
    written = toml(Settings())
    for option in fields(Settings):
        assert f"{option.name} = " in written
        assert option.metadata["says"] in written


def test_every_setting_counts_in_the_name():
    pairs = {"mu_min": {"mu_max": 1.0}, "mu_max": {"mu_min": 1e-9}}
    names = {Settings().name}
    for name, value in ALL_OTHER.items():
        names.add(replace(Settings(), **{name: value}, **pairs.get(name, {})).name)
    assert len(names) == 1 + len(ALL_OTHER)


def test_the_name_says_what_the_run_is():
    assert Settings(data="some/cifar.npz", network="nin").name.startswith("cifar-nin-l0-")


def test_equal_settings_have_equal_names():
    assert Settings(rho=1).name == Settings(rho=1.0).name


@pytest.mark.parametrize("option", fields(Settings), ids=lambda option: option.name)
def test_a_wrong_type_is_refused_by_name(option):
    for wrong in ([1], {"a": 1}, "text" if not isinstance(other(option), str) else 3):
        with pytest.raises(BadInput, match=option.name):
            from_mapping({option.name: wrong}, "test")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rho", 0),
        ("rho", -1.0),
        ("rho", float("nan")),
        ("rho", float("inf")),
        ("rho", True),
        ("mu_min", -1e-3),
        ("guard", 1.5),
        ("momentum", 1.1),
        ("points", 0),
        ("points", 2.0),
        ("seed", -1),
        ("data", ""),
        ("restart", 1),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(BadInput, match=name):
        from_mapping({name: value}, "test")


def test_an_unknown_key_suggests_the_near_one(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("dense_epoch = 3")
    with pytest.raises(
        BadInput, match=r"mine.toml' has no setting 'dense_epoch'; .*'dense_epochs'"
    ):
        read(path)


def test_an_unknown_key_far_from_all_lists_them():
    with pytest.raises(BadInput, match=r"no setting 'zzz'; known are data, network"):
        from_mapping({"zzz": 1}, "The file")


@pytest.mark.parametrize("content", [b"rho = ", b"\xff\xfe", b"rho = 1\nrho = 2"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"mine\.toml' cannot be read"):
        read(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"none\.toml' cannot be read"):
        read(tmp_path / "none.toml")


def test_half_a_range_is_refused():
    with pytest.raises(BadInput, match="both mu_min and mu_max"):
        Settings(mu_min=1e-3)


def test_a_falling_range_is_refused():
    with pytest.raises(BadInput, match=r"mu_min = 0.1 must lie below mu_max = 0.1"):
        Settings(mu_min=0.1, mu_max=0.1)


def test_differences_name_both_values():
    assert Settings(seed=1).differences(Settings(seed=2)) == "seed = 2 instead of 1"
    assert Settings().differences(Settings()) == ""


@pytest.mark.parametrize(
    ("name", "table"), [("network", NETWORKS), ("penalty", PENALTIES), ("blocks", PARTITIONS)]
)
def test_the_help_names_every_choice(name, table):
    (option,) = (option for option in fields(Settings) if option.name == name)
    assert all(choice in option.metadata["says"] for choice in table)


def test_settings_are_plain_json():
    assert json.loads(json.dumps(asdict(Settings()))) == asdict(Settings())


def test_a_file_may_name_folders_and_what_to_start_from(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('out = "here"\ntensorboard = "there"\nfrom = "dense.safetensors"\nseed = 3\n')
    values, places = read(path)
    assert places == {"out": Path("here"), "tensorboard": Path("there")}
    settings = from_mapping(values, "test")
    assert (settings.checkpoint, settings.seed) == ("dense.safetensors", 3)
    path.write_text("out = 3\n")
    with pytest.raises(BadInput, match="out must be a text, not 3"):
        read(path)
