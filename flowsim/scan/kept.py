"""Results of a long run, kept one after the other beside its output until it is whole."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from flowsim.errors import InputError
from flowsim.running import Arrays, Keep
from flowsim.scan.store import continues, discard, locked, one_sentence, stopped, write_whole


@contextmanager
def kept(out: Path, settings: dict[str, str], resume: bool, overwrite: bool) -> Iterator[Keep]:
    """Keep the results of a run in ``out``.parts: a line of settings, then a digest for each.

    Inside, a function gives the results one after the other, and takes them from the file as far as
    it goes. Afterwards the file is gone; a run that was stopped leaves it, whole. One whose results
    cannot be computed leaves none.

    Raises:
        InputError: an unfinished run of other settings, or one that is neither to be resumed nor
            replaced; another run on the same output; a full disk.
        Interrupted: Ctrl-C.

    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> out = Path(tempfile.mkdtemp()) / "a.nc"
    >>> with kept(out, {"seed": "0"}, resume=False, overwrite=False) as keep:
    ...     print(keep(lambda: {"x": np.arange(3)})["x"], len(list(out.parent.glob("*.parts"))))
    [0 1 2] 1
    """
    path, head = out.with_name(f"{out.name}.parts"), json.dumps(settings).encode() + b"\n"
    with locked(out):
        resumes = continues(out, path, settings, resume, overwrite, "run")
        found: list[bytes] = []
        if resumes:
            with one_sentence("read", path):
                text = path.read_bytes()[len(head) :]
            while len(text) > 40:  # up to the first entry that is not whole
                data = text[40 : 40 + int.from_bytes(text[32:40], "little")]
                if text[: 40 + len(data)] != _sealed(head, data):
                    break
                found.append(data)
                text = text[40 + len(data) :]
        # without what a killed run left broken at the end
        write_whole(
            path, lambda draft: draft.write_bytes(head + b"".join(_sealed(head, x) for x in found))
        )
        left, empty = iter(found), not found

        def keep(compute: Callable[[], Arrays]) -> Arrays:
            nonlocal empty
            if (data := next(left, None)) is not None:
                with np.load(io.BytesIO(data)) as arrays:
                    return dict(arrays)
            try:
                arrays = compute()
            except InputError:  # which the same settings would meet again
                discard(path)
                raise
            np.savez(buffer := io.BytesIO(), **arrays)  # type: ignore[arg-type]
            with one_sentence("write", path), path.open("ab") as file:
                file.write(_sealed(head, buffer.getvalue()))
                file.flush()
                os.fsync(file.fileno())
            empty = False
            return arrays

        try:
            yield keep
        except KeyboardInterrupt:
            raise stopped(path, empty) from None
        finally:
            if empty:
                discard(path)
        discard(path)


def _sealed(head: bytes, data: bytes) -> bytes:
    """An entry: its digest, its size and its bytes."""
    return hashlib.sha256(head + data).digest() + len(data).to_bytes(8, "little") + data
