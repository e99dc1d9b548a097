"""`escounts serve` as it is typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from serving import Client, Command, get

from escounts.cli.serve import default_data
from escounts.errors import EscountsError


def escounts(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from escounts.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_prints_its_address_serves_and_stops_on_ctrl_c(tmp_path: Path, clips: dict[int, Path]) -> None:
    server = Command(tmp_path / "data", "--max-upload", "64k")
    with Client(server.address) as client:
        assert "<title>escounts</title>" in client.get("/").text
        refused = client.post("/api/videos", content=bytes(70_000), headers={"Content-Type": "video/mp4"})
        assert refused.status_code == 413
        with client.stream("GET", "/api/events"):  # an open page must not hold up the end
            second = escounts("serve", "--port", "0", "--data", str(tmp_path / "data"))
            assert second.returncode == 2
            assert "in use by another server" in second.stderr
            port = server.address.rstrip("/").rsplit(":", 1)[1]
            taken = escounts("serve", "--port", port, "--data", str(tmp_path / "other"))
            assert (taken.returncode, "cannot listen" in taken.stderr) == (2, True)
            assert "Traceback" not in taken.stderr
            code, output = server.interrupt()
    assert code == 0
    assert "stopped" in output
    assert "Traceback" not in output


def test_elsewhere_than_on_loopback_a_token_is_made_up(tmp_path: Path) -> None:
    server = Command(tmp_path, "--host", "0.0.0.0")
    address, _, token = server.address.partition("#token=")
    port = address.rstrip("/").rsplit(":", 1)[1]
    try:
        assert len(token) >= 20
        assert get(f"http://127.0.0.1:{port}/api/videos").status_code == 401
        headers = {"Authorization": f"Bearer {token}"}
        assert get(f"http://127.0.0.1:{port}/api/videos", headers=headers).status_code == 200
    finally:
        server.interrupt()


def test_without_a_home_directory_a_folder_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(EscountsError, match="--data"):
        default_data()


def test_after_make_demo_the_page_can_be_served() -> None:
    """What `make demo` installs holds what the page needs, not only what the sample does."""
    recipe = (Path(__file__).resolve().parents[2] / "Makefile").read_text().split("$(VENV)/.demo:")[1].splitlines()[1]
    assert recipe.split("'.[")[1].split("]'")[0] == "app"
    assert 'app = ["escounts[plot,serve]"]' in (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
