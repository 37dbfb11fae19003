"""Folders that cannot be written are refused by name, before any work."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_run import dmfvi_command


@pytest.mark.parametrize("command", ["init FILE", "issue DIR --node 0 --host a --out FILE"])
def test_keys_are_not_written_into_a_file(command: str, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    file = tmp_path / "file"
    file.write_text("")
    words = command.replace("FILE", str(file)).replace("DIR", str(tmp_path)).split()
    said = dmfvi_command("keys", *words)
    assert said.code == 1
    assert f"{file} is a file: give a directory" in said.err


def test_a_node_names_a_folder_that_is_a_file(tmp_path: Path) -> None:
    pytest.importorskip("zenoh")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,5\n")
    (tmp_path / "n.toml").write_text(
        '[node]\nid = 0\nlisten = "127.0.0.1:17999"\ndata = "a.csv"\nout = "a.csv"\n'
        '[peers]\n1 = "127.0.0.1:17998"\n[model]\nn_components = 1\n'
    )
    said = dmfvi_command("node", "--config", tmp_path / "n.toml", "--insecure")
    assert said.code == 1
    assert "a.csv in [node] is a file: give a directory" in said.err
