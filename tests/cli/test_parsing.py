"""What is wrong with a line is found without reading what tyro prints."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest
import tyro

from sibe.catalogue.presets import preset_config
from sibe.cli import parsing
from sibe.cli.main import COMMANDS, Train
from sibe.cli.parsing import Group, options, parse
from sibe.cli.train import train_type
from sibe.errors import UserError


def commands(group: Group, prog: str = "sibe") -> dict[str, Any]:
    """Return every command by the words that name it."""
    found: dict[str, Any] = {}
    for name, kind in group.commands.items():
        if isinstance(kind, Group):
            found |= commands(kind, f"{prog} {name}")
        elif kind is Train:
            found[f"{prog} train"] = train_type(preset_config("debug"))
        else:
            found[f"{prog} {name}"] = kind
    return found


@pytest.mark.parametrize("prog", commands(COMMANDS))
def test_the_flags_are_those_of_tyro(prog: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind = commands(COMMANDS)[prog]
    with pytest.raises(SystemExit):
        parse(kind, ["--help"], prog=prog)
    shown = set(re.findall(r"--[a-z][\w.-]*\w", capsys.readouterr().out))
    flags = {option.name for option in options(kind) if not option.positional}
    assert list(options(kind)) and flags <= shown


@pytest.fixture
def silent_tyro(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tyro.cli

    def silent(*args: Any, **kwargs: Any) -> Any:
        with contextlib.redirect_stderr(io.StringIO()):
            return real(*args, **kwargs)

    monkeypatch.setattr(tyro, "cli", silent)


@pytest.mark.usefixtures("silent_tyro")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("taks", "unknown command 'taks'; did you mean tasks? (there are train, eval, "),
        ("videos", "sibe videos needs a command: prepare, list"),
        ("videos prepare", "missing: FOLDER, --out (see sibe videos prepare --help)"),
        ("export --episodes 5 runs/a", "missing: --out (see sibe export --help)"),
        ("tasks --pictur x", "unknown option --pictur; did you mean --picture? (see sibe tasks"),
        ("suite list --jbos=2", "unknown option --jbos; did you mean --jobs? (see sibe suite list"),
        ("tasks --size big", "--size must be a whole number, not 'big' (see sibe tasks --help)"),
        ("tasks --size=big", "--size must be a whole number, not 'big' (see sibe tasks --help)"),
        ("report a --out b --at soon", "--at must be a whole number, not 'soon' (see sibe report"),
        ("report a --out b --at 1.5e0", "--at must be a whole number, not '1.5e0' (see sibe repo"),
        ("tasks --size 1e-2", "--size must be a whole number, not '1e-2' (see sibe tasks --help)"),
        ("ladder --errors 0.1 x", "--errors must be numbers, not '0.1 x' (see sibe ladder --help)"),
        ("suite run smoke --engine fog", "--engine must be one of local, ray, not 'fog' (see sibe"),
        ("tasks --picture", "--picture needs a value (see sibe tasks --help)"),
        ("tasks walker", "unexpected 'walker' (see sibe tasks --help)"),
        ("bench --quick 3", "unexpected '3' (see sibe bench --help)"),
        ("eval run --episodes 3 other", "unexpected 'other' (see sibe eval --help)"),
    ],
)
def test_what_is_wrong_is_said_in_our_words(line: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as error:
        parse(COMMANDS, line.split())
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("silent_tyro")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--sibe.alpah 1", "unknown option --sibe.alpah; did you mean --sibe.alpha?"),
        ("--alpha 1", "unknown option --alpha; did you mean --sibe.alpha?"),
        ("--lr 1", "unknown option --lr; did you mean --encoder.lr, --sac.lr, --sibe.lr?"),
        ("--env_steps x", "--env-steps must be a whole number, not 'x'"),
        ("--encoder.strides 2 x", "--encoder.strides must be whole numbers, not '2 x'"),
    ],
)
def test_flags_of_the_config_are_known(line: str, message: str) -> None:
    kind = train_type(preset_config("debug"))
    with pytest.raises(UserError, match=re.escape(f"{message} (see sibe train --help)")):
        parse(kind, line.split(), prog="sibe train")


def test_whole_numbers_may_be_written_with_an_exponent() -> None:
    kind = train_type(preset_config("debug"))
    line = "--env-steps 1e6 --eval_every=2.5E+3 --encoder.strides 2e0 1 --camera 1e0 --sac.lr 1e-3"
    command = parse(kind, line.split(), prog="sibe train")
    assert (command.schedule.env_steps, command.schedule.eval_every) == (1_000_000, 2500)
    assert command.encoder.strides == (2, 1) and command.env.camera == 1
    assert command.sac.lr == 1e-3
    listed = parse(COMMANDS, ["suite", "list", "smoke", "--seeds", "1e0", "2", "--methods", "1e3"])
    assert listed.part.seeds == (1, 2) and listed.part.methods == ("1e3",)


def test_a_refusal_that_is_not_understood_keeps_the_words_of_tyro(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parsing, "_mistake", lambda kind, args: None)
    with pytest.raises(UserError, match=r"--size.*'big'.*see sibe tasks --help") as error:
        parse(COMMANDS, ["tasks", "--size", "big"])
    assert not re.search(r"[\n─-╿]", str(error.value))
