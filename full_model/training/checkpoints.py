"""Checkpoints: one safetensors file with tensors and a checksummed state, written atomically.

The file's header carries one entry, a JSON object {"checksum", "state"} whose state is itself JSON:
format and version, step, settings, and the SHA-256 of every tensor. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from flowsim.errors import InputError
from flowsim.records.netcdf import write_atomically

FORMAT, VERSION = "full_model checkpoint", 1
_ENTRY = "full_model"
_HEADER_LIMIT = 16 * 2**20


def save_checkpoint(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors and a JSON-able state; a crash leaves the old file or the new one, whole."""
    plain = {
        name: tensors[name].detach().cpu().clone(memory_format=torch.contiguous_format)
        for name in sorted(tensors)
    }
    state = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": {name: _digest(tensor) for name, tensor in plain.items()},
        **state,
    }
    text = json.dumps(state, sort_keys=True)
    entry = json.dumps({"checksum": hashlib.sha256(text.encode()).hexdigest(), "state": text})
    content = save(plain, metadata={_ENTRY: entry})
    write_atomically(path, lambda name: name.write_bytes(content))


def check_checkpoint(path: Path | None, resume: bool, overwrite: bool) -> None:
    """InputError if no checkpoint can or may be kept at the path; to ask before computing."""
    if path is None:
        if resume:
            raise InputError("to resume, name the checkpoint")
        return
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"{path} is a folder or lies in none")
    if os.path.lexists(path) and not (resume or overwrite):
        raise InputError(
            f"{path} exists: give --resume to continue it, --overwrite to start afresh, or "
            "another name"
        )


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors (on the CPU), by name, and the state of a checkpoint.

    InputError if it is missing, truncated, damaged, of something else, or made to do harm.
    """
    if not path.is_file():
        raise InputError(f"there is no checkpoint at {path}")
    try:
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        if not 0 < header <= min(_HEADER_LIMIT, path.stat().st_size):
            raise ValueError("its header is out of bounds")
        with safe_open(path, framework="pt", device="cpu") as file:
            entry = json.loads((file.metadata() or {})[_ENTRY])
            text = entry["state"]
            if hashlib.sha256(text.encode()).hexdigest() != entry["checksum"]:
                raise ValueError("its state does not match its checksum")
            state = json.loads(text)
            if not isinstance(state, dict) or state.get("format") != FORMAT:
                raise ValueError("its state is of another format")
            if state.get("version") != VERSION:
                raise ValueError(f"it has version {state.get('version')!r}, not {VERSION}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if state["sha256"] != {name: _digest(tensor) for name, tensor in tensors.items()}:
            raise ValueError("its tensors do not match their checksums")
    except KeyError as error:
        raise InputError(f"{path} is not a checkpoint of this program: no {error}") from None
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        text = text if len(text) <= 200 else text[:200] + "…"
        raise InputError(f"{path} is not a usable checkpoint: {text}") from None
    except (RecursionError, MemoryError, OverflowError, RuntimeError) as error:
        kind = type(error).__name__
        raise InputError(f"{path} is not a usable checkpoint: {kind} on reading it") from None
    return tensors, state


def _digest(tensor: Tensor) -> str:
    """SHA-256 of a tensor's type, shape and bytes, in hexadecimal digits."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> bytes:
    """A tensor's bytes in row-major order, whatever its strides (an axis of one has any)."""
    return tensor.numpy().tobytes()


def refuse_other_settings(path: Path, wanted: dict[str, Any], stored: Any) -> None:
    """InputError, with the first differences, unless the stored settings are those wanted."""
    if not isinstance(stored, dict):
        raise InputError(f"{path} is not a usable checkpoint: it holds no settings")
    new, old = _flat(wanted), _flat(stored)
    differences = [
        f"{name} is {old.get(name)!r} there and {new.get(name)!r} here"
        for name in sorted(new.keys() | old.keys())
        if new.get(name) != old.get(name)
    ]
    if differences:
        shown = "; ".join(differences[:6]) + ("; …" if len(differences) > 6 else "")
        raise InputError(f"{path} was made with other settings: {shown}")


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings: values by the names on the way to them, joined by dots."""
    entries: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            entries |= _flat(value, f"{prefix}{name}.")
        else:
            entries[prefix + str(name)] = value
    return entries


def fingerprint(weights: dict[str, Tensor]) -> str:
    """A short hash of the starting weights' bytes, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(_bytes(weights[name].detach().cpu()))
    return digest.hexdigest()[:16]
