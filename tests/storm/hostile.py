"""Crafted files, with good checksums where there are any: refused in one line, soon and in little
memory, or taken without harm. No code of theirs is run."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import struct
import warnings
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from sibe.storage import checkpoint
from storm.case import Case, FailedCase, Outcome, Result, check_ending, reason
from storm.fingerprint import fingerprint
from storm.specimens import NEWEST, Specimens, same_config
from storm.warm_process import Ended, run

_SENTINEL = "ran"
_SECONDS = 60.0  # for a command that takes one or two on a free machine
Chance = random.Random


def cases(specimens: Specimens) -> list[Case]:
    """Return so many crafted files of each kind."""
    makers: list[tuple[str, int, Callable[[Path, Chance], Result]]] = [
        ("config of a run", 40, partial(_run_config, specimens)),
        ("config of an export", 35, partial(_export_config, specimens)),
        ("checkpoint header", 25, partial(_header, specimens)),
        ("checkpoint state", 30, partial(_state, specimens)),
        ("checkpoint pickle", 4, partial(_pickle, specimens)),
        ("episode", 15, partial(_episode, specimens)),
        ("safetensors", 35, partial(_safetensors, specimens)),
        ("manifest", 35, partial(_manifest, specimens)),
        ("csv", 40, partial(_csv, specimens)),
        ("clip", 35, partial(_clip, specimens)),
    ]
    return [
        Case("hostile", kind, f"hostile/{kind.replace(' ', '-')}/{number}", do)
        for kind, number_of_kind, do in makers
        for number in range(number_of_kind)
    ]


# --- values -------------------------------------------------------------------------------------


def _deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 4096, 10**9, 2**31, 2**63, 10**30, -(10**18)),
    *(0.0, -0.5, 1e-300, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "x", "x" * 100_000, "../../../etc/passwd", "/dev/zero", "evil_module:Evil-v0", "nan"),
    *(
        "\x1b[31mred\x1b]0;title\x07",
        "<script>alert(1)</script>",
        "a\nb",
        "\u202egnp.exe",
        "💥",
        "\0",
    ),
    *([], {}, [[]], [1, "x", None], {"a": {"b": {}}}, {"__class__": "os.system"}, _deep(60)),
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to everything inside of nested dicts and lists."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in inside:
        found.append((*path, key))
        if isinstance(item, (dict, list)):
            found += _places(item, (*path, key))
    return found


def _twist(value: Any, chance: Chance, values: tuple[Any, ...] = _VALUES) -> tuple[Any, str]:
    """Change one to three places of nested dicts and lists; return it and what was done."""
    done = []
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        place = chance.choice(_places(value))
        inner = value
        for key in place[:-1]:
            inner = inner[key]
        name = "/".join(map(str, place))
        how = chance.random()
        if how < 0.15:
            del inner[place[-1]]
            done.append(f"without {name}")
        elif how < 0.25 and isinstance(inner, dict):
            inner["surprise"] = chance.choice(values)
            done.append(f"surprise beside {name}")
        else:
            inner[place[-1]] = chance.choice(values)
            done.append(f"{name} = {str(inner[place[-1]])[:40]!r}")
        if not value:
            break
    return value, ", ".join(done)


def _twist_text(text: bytes, chance: Chance) -> tuple[bytes, str]:
    """Change text as no program writes it."""
    start = chance.randrange(len(text))
    kinds: dict[str, bytes] = {
        "deep": b"[" * 100_000,
        "deep object": b'{"a":' * 5000 + b"1" + b"}" * 5000,
        "not UTF-8": text[:start] + b"\xff\xfe" + text[start:],
        "NUL": text[:start] + b"\0" + text[start:],
        "byte order mark": b"\xef\xbb\xbf" + text,
        "UTF-16": text.decode().encode("utf-16"),
        "a number": b"1" * 10_000,
        "a string": b'"' + b"x" * 1_000_000 + b'"',
        "null": b"null",
        "cut": text[:start],
        "half a surrogate": text.replace(b'"', b'"\\ud800', 1),
    }
    name = chance.choice(list(kinds))
    return kinds[name], name


def _judge(ended: Ended, note: str, taken: Callable[[], Outcome]) -> Result:
    """Return what a crafted file came to; ``taken`` says what it is that it was not refused."""
    try:
        check_ending(ended)
        if ended.code == 2:
            return Result(Outcome.REFUSED, f"{note}: {reason(ended)}")
        return Result(taken(), note)
    except FailedCase as failed:
        raise FailedCase(f"{note}: {failed}") from None


# --- configs ------------------------------------------------------------------------------------


def _write_twisted(path: Path, chance: Chance) -> str:
    if chance.random() < 0.2:
        text, note = _twist_text(path.read_bytes(), chance)
        path.write_bytes(text)
    else:
        values = json.loads(path.read_text())
        values.pop("sha256", None)  # as an older version wrote it: a checksum would find anything
        values, note = _twist(values, chance)
        path.write_text(json.dumps(values))
    return note


def _run_config(specimens: Specimens, work: Path, chance: Chance) -> Result:
    folder = specimens.copy(specimens.killed, work / "run")
    note = _write_twisted(folder / "config.json", chance)
    ended = run(("train", "--resume", folder), work, timeout=_SECONDS)

    def taken() -> Outcome:
        if fingerprint(folder) == specimens.fingerprint:
            return Outcome.IDENTICAL
        if "note: config.json asks for" in ended.out:
            return Outcome.SAID
        raise FailedCase("another config was taken without a word")

    return _judge(ended, note, taken)


def _export_config(specimens: Specimens, work: Path, chance: Chance) -> Result:
    folder = specimens.copy(specimens.export, work / "export")
    note = _write_twisted(folder / "config.json", chance)
    ended = run(specimens.eval_line(folder), work, timeout=_SECONDS)

    def taken() -> Outcome:
        if "was changed after the export" in ended.out:
            return Outcome.SAID
        if ended.out == specimens.played.out and same_config(folder, specimens.export):
            return Outcome.IDENTICAL
        raise FailedCase(f"another config was taken without a word: {ended.out!r}")

    return _judge(ended, note, taken)


# --- checkpoints and episodes -------------------------------------------------------------------


def _resumed(specimens: Specimens, folder: Path, work: Path, note: str) -> Result:
    ended = run(("train", "--resume", folder), work, timeout=_SECONDS)

    def taken() -> Outcome:
        if fingerprint(folder) == specimens.fingerprint:
            return Outcome.REPAIRED if "is damaged" in ended.out else Outcome.IDENTICAL
        if "not end with the same numbers" in ended.out:
            return Outcome.SAID
        raise FailedCase("the run ended differently without a word")

    result = _judge(ended, note, taken)
    if (work / _SENTINEL).exists():
        raise FailedCase(f"{note}: code of the file was run")
    return result


def _header(specimens: Specimens, work: Path, chance: Chance) -> Result:
    folder = specimens.copy(specimens.killed, work / "run")
    path = folder / "checkpoint" / NEWEST
    line, _, payload = path.read_bytes().partition(b"\n")
    magic, _, text = line.split(b" ", 2)
    if chance.random() < 0.25:
        text, note = _twist_text(text, chance)
        text = text.replace(b"\n", b" ")
    else:
        values, note = _twist(json.loads(text), chance)
        text = json.dumps(values).encode()
    text += b"\n"
    checksum = hashlib.sha256(text).hexdigest().encode()
    path.write_bytes(b" ".join((magic, checksum, text)) + payload)
    return _resumed(specimens, folder, work, note)


def _state(specimens: Specimens, work: Path, chance: Chance) -> Result:
    folder = specimens.copy(specimens.killed, work / "run")
    found = checkpoint.load_newest(folder / "checkpoint", map_location="cpu", report=print)
    assert found is not None
    tensors = (
        *(torch.tensor(float("nan")), torch.zeros(0), torch.zeros(3), torch.zeros(1).long()),
        *(torch.zeros(1).expand(10**9), torch.full((32, 32), float("inf"))),
    )
    plain = tuple(v for v in _VALUES if v is None or isinstance(v, (int, float, str, list, dict)))
    state, note = _twist(found[1], chance, (*tensors, *plain))
    checkpoint.save(folder / "checkpoint", found[0], state, needs=[0, 1])
    return _resumed(specimens, folder, work, note)


class _Evil:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def _pickle(specimens: Specimens, work: Path, chance: Chance) -> Result:
    folder = specimens.copy(specimens.killed, work / "run")
    evil, buffer = _Evil(work / _SENTINEL), io.BytesIO()
    if chance.random() < 0.5:
        torch.save({"agent": evil}, buffer)
    else:
        pickle.dump(evil, buffer)
    payload = buffer.getvalue()
    header = {
        "env_step": 2000,
        "bytes": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
        "needs": [0, 1],
    }
    text = json.dumps(header).encode() + b"\n"
    head = b" ".join((b"sibe-checkpoint-1", hashlib.sha256(text).hexdigest().encode(), text))
    (folder / "checkpoint" / NEWEST).write_bytes(head + payload)
    return _resumed(specimens, folder, work, "a pickle")


def _episode(specimens: Specimens, work: Path, chance: Chance) -> Result:
    folder = specimens.copy(specimens.killed, work / "run")
    path = folder / "replay" / f"episode_{chance.randrange(2):06d}.npz"
    with np.load(path) as archive:
        arrays: dict[str, Any] = dict(archive)
    name = chance.choice(list(arrays))
    changes: dict[str, Callable[[Any], Any]] = {
        "objects": lambda array: np.array([_Evil(work / _SENTINEL)], dtype=object),
        "nan": lambda array: np.full(array.shape, np.nan, np.float32),
        "empty": lambda array: array[:0],
        "shorter": lambda array: array[:-1],
        "one number": lambda array: array.reshape(-1)[0],
        "float64": lambda array: array.astype(np.float64),
        "wider": lambda array: np.concatenate([array, array], axis=-1),
        "infinite": lambda array: np.full_like(array, np.inf) if array.dtype.kind == "f" else array,
    }
    how = chance.choice([*changes, "compressed", "huge shape", "without"])
    if how in changes:
        arrays[name] = changes[how](arrays[name])
    elif how == "without":
        del arrays[name]
    if how == "compressed":
        np.savez_compressed(path, **arrays)
    else:
        np.savez(path, **arrays)
    if how == "huge shape":
        head = io.BytesIO()
        shape = {"descr": "|u1", "fortran_order": False, "shape": (10**12, 32, 32, 3)}
        np.lib.format.write_array_header_1_0(head, shape)
        with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive_:
            warnings.simplefilter("ignore")  # of two members of one name
            archive_.writestr(f"{name}.npy", head.getvalue())
    return _resumed(specimens, folder, work, f"{path.name}: {name} {how}")


# --- exports, banks, logs -----------------------------------------------------------------------


def _safetensors(specimens: Specimens, work: Path, chance: Chance) -> Result:
    folder = specimens.copy(specimens.export, work / "export")
    path = folder / "model.safetensors"
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header, tensors = json.loads(data[8 : 8 + size]), data[8 + size :]
    kind = chance.choice(("header", "header", "metadata", "metadata", "length", "text"))
    length, note = None, kind
    if kind == "header":
        header, note = _twist(header, chance)
    elif kind == "metadata":
        about = json.loads(header["__metadata__"]["sibe"])
        del about["sha256"]  # as an older version wrote it
        about, note = _twist(about, chance)
        header["__metadata__"]["sibe"] = json.dumps(about)
    text = json.dumps(header).encode()
    if kind == "text":
        text, note = _twist_text(text, chance)
    elif kind == "length":
        length = chance.choice((0, 1, size - 1, size + 1, 2**32, 2**63, 2**64 - 1))
        note = f"length {length}"
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + tensors)
    ended = run(specimens.eval_line(folder), work, timeout=_SECONDS)

    def taken() -> Outcome:
        if ended.out == specimens.played.out:
            return Outcome.IDENTICAL
        if kind == "metadata":
            return Outcome.ACCEPTED
        raise FailedCase(f"it plays differently without a word: {ended.out!r}")

    return _judge(ended, note, taken)


def _manifest(specimens: Specimens, work: Path, chance: Chance) -> Result:
    folder = specimens.copy(specimens.bank, work / "bank")
    note = _write_twisted(folder / "manifest.json", chance)
    ended = run(("videos", "list", folder), work, timeout=_SECONDS)
    return _judge(ended, note, lambda: Outcome.ACCEPTED)


def _csv(specimens: Specimens, work: Path, chance: Chance) -> Result:
    """Published results, which come without checkpoints that could tell what they were."""
    runs = specimens.copy(specimens.run.parent, work / "runs")
    folder = runs / specimens.run.name
    for path in (folder / "checkpoint").iterdir():
        path.unlink()
    path = folder / chance.choice(("eval.csv", "eval_episodes.csv", "train.csv"))
    rows = [line.split(",") for line in path.read_text().splitlines()]
    words: tuple[str, ...] = (
        "nan",
        "inf",
        "-inf",
        "1e308",
        "-1e308",
        "1e400",
        "",
        "x",
        "٣",
        "0x10",
        "1_0",
        " 1 ",
    )
    words += ("-1", "9" * 400, '"1"', "<script>", "=1+1", "\x1b[2J", "1e-320", "3000.5", "\0")
    note = path.name
    for _ in range(chance.choice((1, 1, 2, 5))):
        row, column = chance.randrange(len(rows)), chance.randrange(len(rows[0]))
        how = chance.choice(("word", "word", "word", "word", "drop", "double", "extra", "swap"))
        if how == "word":
            rows[row][column % len(rows[row])] = word = chance.choice(words)
            note += f", row {row} column {column}: {word[:20]!r}"
        elif how == "drop" and len(rows[row]) > 1:
            del rows[row][column % len(rows[row])]
        elif how == "double":
            rows.insert(row, list(rows[row]))
        elif how == "extra":
            rows[row] += ["1"] * chance.choice((1, 100_000))
        elif how == "swap":
            rows.reverse()
    text = "\n".join(map(",".join, rows)) + "\n"
    data = text.encode()
    if chance.random() < 0.2:
        data, how = _twist_text(data, chance)
        note += f", {how}"
    path.write_bytes(data)
    ended = run(specimens.report_line(runs, work / "report"), work, timeout=_SECONDS)
    left_out = "left out" in ended.out
    result = _judge(ended, note, lambda: Outcome.SAID if left_out else Outcome.ACCEPTED)
    for name in ("report.html", "table.md"):
        made = work / "report" / name
        if made.exists() and "<script>alert" in made.read_text():
            raise FailedCase(f"{note}: {name} holds a script of the file's")
    return result


def _clip(specimens: Specimens, work: Path, chance: Chance) -> Result:
    folder = specimens.copy(specimens.videos, work / "videos")
    video = (folder / "a.mp4").read_bytes()
    name = chance.choice(("z.mp4", "z.avi", "z.gif", "z.webm", "a\x1b[31m.mp4", "<b>.mp4"))
    path = folder / name
    how = chance.choice(
        ("flips", "flips", "flips", "cut", "garbage", "fifo", "playlist", "picture", "bomb", "link")
    )
    if how == "flips":
        data = bytearray(video)
        for _ in range(chance.choice((1, 10, 300))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
    elif how == "cut":
        path.write_bytes(video[: chance.randrange(len(video))])
    elif how == "garbage":
        path.write_bytes(chance.randbytes(chance.choice((0, 1, 100, 100_000))))
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "playlist":
        path.write_text("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\nhttp://127.0.0.1:9/x.ts\n")
    elif how == "picture":
        for number in range(3):
            png = io.BytesIO()
            Image.new("RGB", (40, 30), (number, 9, 9)).save(png, format="png")
            data = bytearray(png.getvalue())
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            (folder / f"{number}.png").write_bytes(data)
    elif how == "bomb":
        png = io.BytesIO()
        Image.new("L", (8, 8)).save(png, format="png")
        data = bytearray(png.getvalue())
        data[16:24] = struct.pack(">II", 60_000, 60_000)
        for number in range(2):
            (folder / f"{number}.png").write_bytes(data)
    elif how == "link":
        path.symlink_to(chance.choice(("/dev/zero", "/dev/stdin", name, "/proc/self/mem")))
    line = ("videos", "prepare", folder, "--out", work / "bank", "--size", "32")
    ended = run(line, work, timeout=_SECONDS)
    says = "skipped" in ended.out or "can be read" in ended.out
    return _judge(ended, f"{name} {how}", lambda: Outcome.SAID if says else Outcome.ACCEPTED)
