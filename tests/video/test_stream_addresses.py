"""Addresses that a stream may be watched from: those of cameras and servers open, and none makes FFmpeg read what
nobody named."""

from __future__ import annotations

import http.server
import io
import os
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import av
import av.error
import pytest
from movies import levels, write_movie

from escounts.errors import VideoError
from escounts.video.streams import FrameStream, Gap, find_source

PLAYLIST = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:0\n"
MULTIPART = "multipart/x-mixed-replace; boundary=frame"
FRAMES = 30


class Site:
    """A folder that a server hands out. address: of a file in it. asked: paths that were asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.port = folder, list[str](), 0

    def address(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"

    def playlist(self, name: str, segment: str, *, before: str = "") -> str:
        text = f"{PLAYLIST}{before}#EXTINF:1.0,\n{segment}\n#EXT-X-ENDLIST\n"
        (self.folder / name).write_text(text)
        return self.address(name)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    served = Site(tmp_path / "served")
    served.folder.mkdir()
    pictures = levels(FRAMES)
    write_movie(served.folder / "v.mp4", pictures, rate=30)
    write_movie(served.folder / "v.ts", pictures, rate=30, container_format="mpegts", options={"g": "10"})

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(served.folder))  # type: ignore[arg-type]

        def guess_type(self, path: object) -> str:
            return MULTIPART if str(path).endswith(".mjpg") else super().guess_type(str(path))

        def log_message(self, *_: object) -> None:
            served.asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield served
    server.shutdown()
    server.server_close()


def seen(address: str, most: int = FRAMES) -> int:
    """Frames that come from an address, up to so many."""
    stream = FrameStream(address, size=(16, 16), rate=30.0)
    try:
        frames = (item for item in stream if not isinstance(item, Gap))
        return sum(1 for _, _ in zip(range(most), frames, strict=False))
    finally:
        stream.close()


def motion_jpeg(site: Site) -> str:
    """A camera's page of pictures, each a part of one answer."""
    data = io.BytesIO()
    write_movie(data, levels(FRAMES), rate=30, container_format="mjpeg", codec="mjpeg", pixel_format="yuvj420p")
    pictures = [b"\xff\xd8" + part for part in data.getvalue().split(b"\xff\xd8")[1:]]
    head = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n"
    parts = [head % len(picture) + picture + b"\r\n" for picture in pictures]
    (site.folder / "v.mjpg").write_bytes(b"".join(parts))
    return site.address("v.mjpg")


def streams_within(site: Site) -> str:
    site.playlist("one.m3u8", "v.ts")
    (site.folder / "all.m3u8").write_text("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=100000\none.m3u8\n")
    return site.address("all.m3u8")


@pytest.mark.parametrize(
    "address",
    [
        lambda site: site.address("v.mp4"),
        lambda site: site.address("v.ts"),
        lambda site: site.playlist("live.m3u8", "v.ts"),
        lambda site: site.playlist("live.m3u8", "v.mp4"),
        streams_within,
        motion_jpeg,
    ],
    ids=["mp4", "mpegts", "hls", "hls-mp4", "hls-of-several", "mjpeg"],
)
def test_what_servers_stream_opens(site: Site, address: Callable[[Site], str]) -> None:
    assert seen(address(site), FRAMES - 5) == FRAMES - 5


def test_a_list_of_files_under_a_videos_name_is_not_followed(site: Site) -> None:
    (site.folder / "evil.mp4").write_text("ffconcat version 1.0\nfile v.mp4\n")
    with pytest.raises(VideoError, match=r"evil.mp4: .*a list of other files") as refused:
        seen(site.address("evil.mp4"))
    assert set(site.asked) == {"/evil.mp4"} and "\n" not in str(refused.value)


def test_a_description_of_a_session_makes_no_port_open(site: Site) -> None:
    description = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5999 RTP/AVP 33\n"
    (site.folder / "evil.sdp").write_text(description)
    with pytest.raises(VideoError, match=r"evil.sdp: .*another kind of stream that is not opened"):
        seen(site.address("evil.sdp"))


@pytest.mark.parametrize(
    "how", ["{}", "file:{}", "file://{}", "concat:{}", "subfile,,start,0,end,0,,:{}", "crypto+file:{}", "crypto:{}"]
)
@pytest.mark.parametrize("place", ["segment", "header", "key", "playlist"])
def test_no_live_playlist_reads_a_file_of_this_machine(site: Site, tmp_path: Path, how: str, place: str) -> None:
    trap = Trap(tmp_path / "secret.ts")  # an ending that FFmpeg takes for a part's
    named = how.format(trap.path)
    before = {
        "header": f'#EXT-X-MAP:URI="{named}"\n',
        "key": f'#EXT-X-KEY:METHOD=AES-128,URI="{named}",IV=0x{0:032x}\n',
    }.get(place, "")
    address = site.playlist("evil.m3u8", named if place == "segment" else "v.ts", before=before)
    if place == "playlist":
        (site.folder / "evil.m3u8").write_text(f"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{named}\n")
    with trap, pytest.raises(VideoError):
        find_source(address).opened()
    assert not trap.sprung and "/evil.m3u8" in site.asked


class Trap:
    """A pipe that knows whether anybody has opened it to read: FFmpeg opens files past Python."""

    def __init__(self, path: Path) -> None:
        self.path, self.sprung, self._over = path, False, threading.Event()
        os.mkfifo(path)
        self._thread = threading.Thread(target=self._wait, daemon=True)

    def _wait(self) -> None:
        while not self._over.wait(0.01):
            with suppress(OSError):  # ENXIO: nobody reads
                os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
                self.sprung = True

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_the_trap_knows_who_reads_it(tmp_path: Path) -> None:
    trap = Trap(tmp_path / "secret.ts")
    with trap, pytest.raises(av.error.FFmpegError):
        av.open(f"file:{trap.path}")
    assert trap.sprung


@pytest.fixture
def rtsp(site: Site) -> Iterator[str]:
    """A camera: a transport stream as RTP, within the one connection of RTSP."""
    data = (site.folder / "v.ts").read_bytes()

    class Camera(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline().decode():
                method = line.split()[0]
                asked = dict(part.decode().strip().split(": ", 1) for part in iter(self.rfile.readline, b"\r\n"))
                self.answer(method, asked)
                if method == "PLAY":
                    self.play()
                if method == "TEARDOWN":
                    return

        def answer(self, method: str, asked: dict[str, str]) -> None:
            body = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video 0 RTP/AVP 33\r\na=control:1\r\n"
            more = {
                "OPTIONS": "Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN\r\n",
                "DESCRIBE": f"Content-Type: application/sdp\r\nContent-Length: {len(body)}\r\n",
                "SETUP": "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n",
            }.get(method, "")
            head = f"RTSP/1.0 200 OK\r\nCSeq: {asked['CSeq']}\r\nSession: 1\r\n{more}\r\n"
            self.wfile.write((head + (body if method == "DESCRIBE" else "")).encode())

        def play(self) -> None:
            size = 7 * 188
            for number, place in enumerate(range(0, len(data), size)):
                packet = struct.pack("!BBHII", 0x80, 33, number, 3000 * number, 1) + data[place : place + size]
                self.wfile.write(struct.pack("!cBH", b"$", 0, len(packet)) + packet)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Whoever watches goes when he has seen enough."""

    server = Server(("127.0.0.1", 0), Camera)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"rtsp://127.0.0.1:{server.server_address[1]}/1"
    server.shutdown()
    server.server_close()


def test_a_camera_that_speaks_rtsp_opens(rtsp: str) -> None:
    assert seen(rtsp, FRAMES - 10) == FRAMES - 10


def test_a_stream_over_bare_tcp_opens(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall((site.folder / "v.ts").read_bytes())

        threading.Thread(target=send, daemon=True).start()
        assert seen(f"tcp://127.0.0.1:{server.getsockname()[1]}", FRAMES - 10) == FRAMES - 10


def test_cameras_are_opened_without_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr("escounts.video.streams.av.open", lambda path, **how: given.append((path, how)))
    find_source("/dev/video7").opened()
    assert given[0][1]["format"] == "v4l2" and set(given[0][1]["options"]) == {"max_pixels"}
