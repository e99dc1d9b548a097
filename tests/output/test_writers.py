"""Every format says what the result says, and is written whole or not at all."""

from __future__ import annotations

import csv
import errno
import json
import re
import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from matplotlib.figure import Figure
from movies import bouncing, write_movie

from escounts.errors import OutputError
from escounts.output import FORMATS
from escounts.output.json import from_dict, to_dict
from escounts.output.mp4 import Badge
from escounts.output.png import ORANGE, draw, frames_at, jpeg, telling_times
from escounts.output.text import clock, cues, describe, headline, timestamp
from escounts.results import CountResult, DensityMap, ExemplarSpan, Hypothesis, Repetition, Track
from escounts.video.files import Video


@pytest.fixture
def result() -> CountResult:
    values = np.full(40, 0.1, np.float32)
    return CountResult(
        video="clips/<squats> & co.mp4",
        model="spectral",
        count=4,
        raw_count=4.0,
        repetitions=tuple(Repetition(i * 1.0, i * 1.0 + 1.0, 0.9) for i in range(4)),
        density=DensityMap(values, 0.0, 0.1, "rate"),
        confidence=0.83,
        unsure=False,
        duration=4.0,
        range=(0.0, 4.0),
        exemplars=(ExemplarSpan(1.0, 2.0), ExemplarSpan(0.5, 1.5, "ref.mp4")),
        timings={"encode": 0.2, "count": 0.01, "total": 0.21},
        details={"evidence": 0.7},
    )


@pytest.fixture
def nothing(result: CountResult) -> CountResult:
    density = DensityMap(np.zeros(40, np.float32), 0.0, 0.1, "rate")
    return replace(result, count=0, raw_count=0.0, repetitions=(), density=density, confidence=0.2, unsure=True)


@pytest.fixture(scope="module")
def movie(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_movie(tmp_path_factory.mktemp("writers") / "movie.mp4", bouncing(4, 4.0, size=(160, 120)))


def test_every_writer_has_an_ending() -> None:
    assert set(FORMATS) == {"text", "json", "csv", "srt", "png", "mp4", "html", "heat.png"}


def test_json_round_trip(result: CountResult, tmp_path: Path) -> None:
    FORMATS["json"].write(result, tmp_path / "r.json", video=None)
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["count"] == 4 and data["confidence"] == 0.83 and len(data["repetitions"]) == 4
    assert sum(data["density"]["values"]) == pytest.approx(4.0)
    back = from_dict(data)
    assert np.allclose(back.density.values, result.density.values)
    assert replace(back, density=result.density) == result
    assert to_dict(back) == data


def test_json_of_another_version_is_refused(result: CountResult) -> None:
    with pytest.raises(OutputError, match=r"version '2\.0'; this escounts reads escounts.result 1"):
        from_dict(to_dict(result) | {"version": "2.0"})
    assert from_dict(to_dict(result) | {"version": "1.7"}).count == 4


def test_csv_has_a_row_a_repetition(result: CountResult, nothing: CountResult, tmp_path: Path) -> None:
    FORMATS["csv"].write(result, tmp_path / "r.csv", video=None)
    rows = list(csv.DictReader((tmp_path / "r.csv").open(newline="")))
    assert [row["repetition"] for row in rows] == ["1", "2", "3", "4"]
    assert float(rows[2]["start_s"]) == 2.0 and rows[0]["video"] == result.video and rows[0]["count"] == "4"
    FORMATS["csv"].write(nothing, tmp_path / "n.csv", video=None)
    rows = list(csv.DictReader((tmp_path / "n.csv").open(newline="")))
    assert len(rows) == 1 and rows[0]["count"] == "0" and rows[0]["start_s"] == ""


def test_subtitles_count_along(result: CountResult, nothing: CountResult, tmp_path: Path) -> None:
    assert cues(result) == [(0.0, 1.0, "0"), (1.0, 2.0, "1"), (2.0, 3.0, "2"), (3.0, 3.5, "3"), (3.5, 4.0, "4")]
    assert cues(nothing) == [(0.0, 4.0, "0")]
    FORMATS["srt"].write(result, tmp_path / "r.srt", video=None)
    text = (tmp_path / "r.srt").read_text()
    assert text.startswith("1\n00:00:00,000 --> 00:00:01,000\n0\n\n2\n")
    assert timestamp(3723.0456) == "01:02:03,046"


def test_text_says_how_many_when_and_how_sure(result: CountResult, nothing: CountResult) -> None:
    text = describe(result, width=40)
    assert "4 repetitions, confidence 0.83 (model spectral, 0.2 s)" in text
    alternating = replace(result, unit="cycle", hypotheses=(Hypothesis(4, "cycle", 0.6), Hypothesis(8, "side", 0.4)))
    assert "4 repetitions (8 if left and right each count), confidence" in headline(alternating)
    unlikely = replace(alternating, hypotheses=(Hypothesis(4, "cycle", 0.96), Hypothesis(8, "side", 0.04)))
    assert "4 repetitions, confidence" in headline(unlikely), "a unit that is hardly possible is not spoken of"
    other_way = replace(alternating, unit="side", count=8)
    assert "8 repetitions (4 if left and right count as one)" in headline(other_way)
    assert "0:02.0 – 0:03.0" in text and max(map(len, text.splitlines()[1:4])) <= 42
    assert "no repetitions" in describe(nothing) and "not sure" in describe(nothing)
    many = replace(result, repetitions=result.repetitions * 10, count=40)
    assert "29 more" in describe(many, most=12)
    assert clock(3723.04) == "1:02:03.0" and clock(59.96) == "1:00.0"


def test_html_is_one_file_and_safe(result: CountResult, movie: Path, tmp_path: Path) -> None:
    FORMATS["html"].write(result, tmp_path / "r.html", video=movie)
    text = (tmp_path / "r.html").read_text()
    assert "<squats>" not in text and "&lt;squats&gt; &amp; co.mp4" in text
    assert not re.search(r"(src|href)=\"(?!data:)", text) and "http" not in text.replace("http-equiv", "")
    assert text.count("<tr>") == 5 and text.count("data:image/jpeg;base64,") == 4
    assert text.count('<rect class="span"') == 4


def test_html_and_png_say_what_their_axes_are(result: CountResult, nothing: CountResult, tmp_path: Path) -> None:
    words = ["time (minutes:seconds)", "repetitions per second", "count so far"]
    FORMATS["html"].write(result, tmp_path / "r.html", video=None)
    shown = re.findall(r'<text class="(\w+).*?>(.*?)</text>', (tmp_path / "r.html").read_text())
    assert [text for kind, text in shown if kind == "title"] == words
    numbers = [text for kind, text in shown if kind == "tick"]
    most = float(result.density.values.max()) / result.density.step
    assert numbers[:5] == ["0:00.0", "0:01.0", "0:02.0", "0:03.0", "0:04.0"], "the seconds along it"
    assert numbers[5:] == ["0", f"{most / 2:.2g}", f"{most:.2g}", "0", "2", "4"], "the rate, and the count"
    rate, count = draw(Figure(), result, None).axes
    assert [rate.get_xlabel(), rate.get_ylabel(), count.get_ylabel()] == words
    FORMATS["html"].write(nothing, tmp_path / "none.html", video=None)
    assert "nan" not in (tmp_path / "none.html").read_text()


def test_a_model_that_cannot_say_how_sure_it_is_says_so_once(result: CountResult, tmp_path: Path) -> None:
    agreeing = replace(result, confidence_kind="agreement", unsure=True, unsure_below=None)
    FORMATS["html"].write(agreeing, tmp_path / "r.html", video=None)
    texts = [headline(agreeing), (tmp_path / "r.html").read_text()]
    texts.append(" ".join(text.get_text() for text in draw(Figure(), agreeing, None).texts))
    for text in texts:
        assert text.count("agreement 0.83") == text.count("not a probability") == 1 and "not sure" not in text
    unsure = replace(result, unsure=True)
    assert "confidence 0.83, not sure: look at it" in headline(unsure) and "probability" not in headline(unsure)


def test_why_an_answer_is_not_sure_stands_in_text_picture_and_report(result: CountResult, tmp_path: Path) -> None:
    why = "the views disagree: 4.0 and 9.0"
    unsure = replace(result, unsure=True, reasons=(why,))
    assert f"\n  why: {why}\n" in describe(unsure)
    FORMATS["html"].write(unsure, tmp_path / "r.html", video=None)
    assert f"<dt>Not sure because</dt><dd>{why}</dd>" in (tmp_path / "r.html").read_text()
    assert why in [text.get_text() for text in draw(Figure(), unsure, None).texts]
    assert from_dict(to_dict(unsure)).reasons == (why,)
    assert why not in describe(unsure.corrected([(0.0, 1.0)])), "a person has answered"


@pytest.mark.parametrize("kind", ["html", "png"])
def test_pictures_are_optional_and_zero_is_fine(nothing: CountResult, movie: Path, tmp_path: Path, kind: str) -> None:
    FORMATS[kind].write(nothing, tmp_path / "without", video=None)
    FORMATS[kind].write(nothing, tmp_path / "with", video=movie)
    assert (tmp_path / "with").stat().st_size > (tmp_path / "without").stat().st_size > 1000


@pytest.mark.parametrize(
    "name", ["a$\\frac$b.mp4", "nl\nx\x1b[31m.mp4", "深蹲.mp4"], ids=["formula", "controls", "script"]
)
def test_a_name_is_text_in_a_picture(name: str, result: CountResult, tmp_path: Path) -> None:
    """Not a formula that cannot be set, and no warning on the terminal of a sign that the font does not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FORMATS["png"].write(replace(result, video=name), tmp_path / "r.png")
    assert (tmp_path / "r.png").stat().st_size > 1000


def test_png_shows_the_frames_of_the_repetitions(result: CountResult, movie: Path, tmp_path: Path) -> None:
    FORMATS["png"].write(result, tmp_path / "r.png", video=movie)
    picture = next(Video(_twice(tmp_path / "r.png", tmp_path / "pair")).frames()).image
    assert picture.shape == (600, 1500, 3)
    orange = (np.abs(picture.astype(int) - (217, 119, 43)).sum(axis=2) < 30).sum()
    yellow = (np.abs(picture.astype(int) - (240, 200, 60)).sum(axis=2) < 60).sum()
    assert orange > 500, "the running count is drawn"
    assert yellow > 500, "the block of the video is in the strip of frames"


def test_counted_mp4_shows_the_number(result: CountResult, movie: Path, tmp_path: Path) -> None:
    FORMATS["mp4"].write(result, tmp_path / "r.mp4", video=movie)
    counted = list(Video(tmp_path / "r.mp4").frames(rate=10))
    plain = list(Video(movie).frames(rate=10))
    assert len(counted) == len(plain) == 40
    assert counted[0].image.shape == plain[0].image.shape
    corner = [frame.image[8:24, 8:24].astype(int) for frame in counted]
    same, next_number = np.abs(corner[12] - corner[16]).mean(), np.abs(corner[12] - corner[22]).mean()
    assert next_number > 3 * same + 1, "the number changes when a repetition ends"
    below = [np.abs(c.image[60:].astype(int) - p.image[60:]).mean() for c, p in zip(counted, plain, strict=True)]
    assert max(below) < 6, "the rest of the picture stays"


def badge_numbers(path: Path, *, highest: int) -> list[int]:
    """The number in the corner of every frame, told by comparing with drawn badges."""
    frames = [frame.image for frame in Video(path).frames()]
    height, width = frames[0].shape[:2]
    badge, drawn = Badge(height), {}
    for number in range(highest + 1):
        drawn[number] = np.zeros((height, width, 3), np.uint8)
        badge.draw(drawn[number], number, 0.0)
    corner = (slice(6, 24), slice(6, 24))  # without the bar below
    return [
        min(drawn, key=lambda n: float(np.abs(drawn[n][corner].astype(int) - image[corner].astype(int)).mean()))
        for image in frames
    ]


@pytest.mark.parametrize("rate", [30, 2])
def test_the_last_frame_the_last_subtitle_and_the_stair_show_the_final_count(
    result: CountResult, tmp_path: Path, rate: int
) -> None:
    """The last repetition ends with the video, as in most videos of exercises."""
    movie = write_movie(tmp_path / "m.mp4", bouncing(4, 4.0, rate=rate, size=(160, 120)), rate=rate)
    FORMATS["mp4"].write(result, tmp_path / "r.mp4", video=movie)
    numbers = badge_numbers(tmp_path / "r.mp4", highest=4)
    assert numbers[-1] == 4 and numbers[0] == 0 and numbers == sorted(numbers)
    if rate == 30:
        assert numbers.count(4) == pytest.approx(15, abs=1), "for half a second"
    FORMATS["srt"].write(result, tmp_path / "r.srt", video=None)
    seen = [block.split("\n") for block in (tmp_path / "r.srt").read_text().split("\n\n")]
    begin = re.match(r"00:00:0(\d),(\d+) -->", seen[-1][1])
    assert seen[-1][2].strip() == "4" and begin and int(begin[1]) + int(begin[2]) / 1000 <= 3.5
    figure = draw(Figure(), result, None)
    stair = next(line for axes in figure.axes for line in axes.lines if line.get_color() == ORANGE)
    at, steps = stair.get_xdata(), stair.get_ydata()
    assert steps[-1] == 4 and steps[-2] == 4 and at[-1] > at[-2], "the last step has a tread"
    assert stair.axes.get_xlim()[1] == pytest.approx(at[-1]) and stair.axes.get_ylim()[1] > 4


def test_a_short_last_repetition_is_not_counted_before_its_middle(result: CountResult) -> None:
    fast = replace(result, repetitions=tuple(Repetition(i / 5, (i + 1) / 5) for i in range(20)), count=20)
    assert fast.counting_times[-2:] == pytest.approx([3.8, 3.9])
    early = replace(result, range=(0.0, 10.0))
    assert early.counting_times == [1.0, 2.0, 3.0, 4.0]


def with_sound(path: Path, pictures: Path, codec: str, seconds: float = 4.0) -> Path:
    """The same pictures with a tone that is loud in the last second only."""
    with av.open(str(pictures)) as source, av.open(str(path), "w") as target:
        video = target.add_stream_from_template(source.streams.video[0])
        audio = target.add_stream(codec, rate=48000)
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = video
                target.mux(packet)
        time = np.arange(round(seconds * 48000)) / 48000
        wave = np.sin(2 * np.pi * 440 * time) * np.where(time > seconds - 1, 0.8, 0.01)
        assert isinstance(audio, av.AudioStream)
        size = audio.codec_context.frame_size or 1024
        for first in range(0, len(wave) - size, size):
            samples = (wave[None, first : first + size] * 32000).astype(np.int16)
            frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48000, first, Fraction(1, 48000)
            target.mux(audio.encode(frame))
        target.mux(audio.encode(None))
    return path


def loudness(path: Path) -> list[float]:
    """Mean level of every half second."""
    with av.open(str(path)) as container:
        parts = [frame.to_ndarray().astype(float).mean(axis=0) for frame in container.decode(audio=0)]
        level = 32000.0 if container.streams.audio[0].format.name.startswith("s16") else 1.0
    wave = np.abs(np.concatenate(parts)) / level
    return [float(half.mean()) for half in np.array_split(wave, max(1, round(len(wave) / 24000)))]


@pytest.mark.parametrize(
    ("codec", "ending"), [("aac", "mp4"), ("libmp3lame", "mkv"), ("aac", "ts"), ("libopus", "mkv")]
)
def test_the_counted_mp4_keeps_the_sound(
    result: CountResult, movie: Path, tmp_path: Path, codec: str, ending: str
) -> None:
    heard = with_sound(tmp_path / f"heard.{ending}", movie, codec)
    FORMATS["mp4"].write(result, tmp_path / "r.mp4", video=heard)
    levels = loudness(tmp_path / "r.mp4")
    assert len(levels) == 8 and max(levels[:5]) < 0.05 and min(levels[-2:]) > 0.2, levels
    assert badge_numbers(tmp_path / "r.mp4", highest=4)[-1] == 4
    last_second = replace(result, range=(3.0, 4.0), repetitions=result.repetitions[3:], count=1)
    FORMATS["mp4"].write(last_second, tmp_path / "part.mp4", video=heard)
    assert min(loudness(tmp_path / "part.mp4")) > 0.2, "the sound of the counted part"


def test_sound_that_an_mp4_does_not_take_is_left_out(result: CountResult, movie: Path, tmp_path: Path) -> None:
    heard = with_sound(tmp_path / "heard.mkv", movie, "pcm_u8")
    FORMATS["mp4"].write(result, tmp_path / "r.mp4", video=heard)
    with av.open(str(tmp_path / "r.mp4")) as container:
        assert not container.streams.audio and container.streams.video[0].frames == 120


def test_mp4_needs_the_video(result: CountResult, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="needs the video"):
        FORMATS["mp4"].write(result, tmp_path / "r.mp4", video=None)


def test_pictures(result: CountResult, movie: Path) -> None:
    assert telling_times(result) == [0.5, 1.5, 2.5, 3.5] and len(telling_times(result, most=3)) == 3
    one_left_out = replace(result, repetitions=result.repetitions[:3], left_out=result.repetitions[3:])
    assert telling_times(one_left_out) == telling_times(result), "what was not counted is shown, too"
    images = frames_at(movie, [0.5, 3.99, 99.0], height=60)
    assert [image.shape for image in images] == [(60, 80, 3)] * 3
    assert jpeg(images[0])[:2] == b"\xff\xd8"


def test_a_report_says_which_frames_were_not_counted(result: CountResult, movie: Path, tmp_path: Path) -> None:
    one_left_out = replace(result, repetitions=result.repetitions[:3], left_out=result.repetitions[3:])
    FORMATS["html"].write(one_left_out, tmp_path / "r.html", video=movie)
    assert (tmp_path / "r.html").read_text(encoding="utf-8").count(", not counted</figcaption>") == 1
    drawn = draw(Figure(), one_left_out, movie)
    assert [axes.images[0].get_alpha() for axes in drawn.axes if axes.images] == [1.0] * 3 + [0.4]


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_no_space_left_leaves_nothing_behind(
    result: CountResult, movie: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when the finished file is to be put in its place; the old file stays."""
    target = tmp_path / f"result{FORMATS[kind].suffix}"
    target.write_text("older result")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OutputError, match=r"result.*cannot be written: No space left on device"):
        FORMATS[kind].write(result, target, video=movie)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    assert target.read_text() == "older result"


def _twice(picture: Path, folder: Path) -> Path:
    """A folder of the picture, twice: a video of it."""
    folder.mkdir()
    for name in ("1.png", "2.png"):
        (folder / name).write_bytes(picture.read_bytes())
    return folder


def test_advice_is_something_not_done_yet(result: CountResult, nothing: CountResult) -> None:
    shown = replace(result, unsure=True)
    assert "not sure: look at it (" in headline(shown), "an exemplar was given already"
    assert "mark one with --exemplar" in headline(replace(shown, exemplars=()))
    assert "--assume-repeats" in headline(replace(nothing, exemplars=()))
    assert "confidence 0.89, not sure" in headline(replace(shown, confidence=0.8964)), "0.90 would be sure"
    track = Track("0,0,40,60", 4, None, 0.5, True, shown.repetitions)
    assert "count a place alone with --region (" in headline(replace(shown, exemplars=(), tracks=(track, track)))
    cycles = replace(shown, exemplars=(), unit="cycle")
    for p, advised in ((0.02, False), (0.3, True)):
        both = (Hypothesis(4, "cycle", 1 - p), Hypothesis(8, "side", p))
        assert ("--unit side" in headline(replace(cycles, hypotheses=both))) is advised


SAID = [(0.2, 1.0), (1.0, 2.1), (2.1, 3.4)]


def test_a_corrected_result_is_the_persons_with_the_models_beside_it(result: CountResult) -> None:
    corrected = result.corrected(SAID)
    assert (corrected.count, corrected.phase, corrected.unsure) == (3, "corrected", False)
    assert [(r.start, r.end, r.score) for r in corrected.repetitions] == [(a, b, None) for a, b in SAID]
    assert corrected.machine is not None
    assert (corrected.machine.count, corrected.machine.confidence) == (4, 0.83)
    again = corrected.corrected([*SAID, (3.4, 4.5)])
    assert again.machine == corrected.machine, "the model's count, not that of the first correction"
    assert (again.range, again.duration) == ((0.0, 4.5), 4.5), "real frames past a header's end"
    assert result.corrected([]).count == 0


def test_every_format_of_a_corrected_result_says_so(result: CountResult, movie: Path, tmp_path: Path) -> None:
    corrected = result.corrected(SAID)
    texts = {}
    for name in ("text", "json", "csv", "srt", "html"):
        path = tmp_path / f"r{FORMATS[name].suffix}"
        FORMATS[name].write(corrected, path, video=None)
        texts[name] = path.read_text()
    data = json.loads(texts["json"])
    assert (data["count"], data["corrected"], data["confidence"]) == (3, True, None)
    assert data["machine"] == {"count": 4, "confidence": 0.83, "unsure": False}
    assert to_dict(from_dict(data)) == data
    rows = list(csv.DictReader(texts["csv"].splitlines()))
    assert {(r["count"], r["confidence"], r["corrected"], r["machine_count"]) for r in rows} == {
        ("3", "", "yes", "4")
    }
    assert "3 repetitions, corrected by hand, the model counted 4" in texts["text"]
    assert texts["srt"].rstrip().endswith("3\ncorrected by hand, the model counted 4")
    assert "corrected by hand, the model counted 4" in texts["html"]
    for text in texts.values():
        assert "0.83" not in text.replace('"confidence": 0.83', "")
        assert "83%" not in text
    figure = draw(Figure(), corrected, None)
    assert any("the model counted 4" in text.get_text() for text in figure.texts)
    plain, noted = Badge(240)._box(3), Badge(240, note="corrected · model 4")._box(3)
    assert noted.shape[0] > plain.shape[0]


def test_a_result_that_nobody_corrected_says_that(result: CountResult, tmp_path: Path) -> None:
    assert (to_dict(result)["corrected"], to_dict(result)["machine"]) == (False, None)
    FORMATS["csv"].write(result, tmp_path / "r.csv", video=None)
    assert next(csv.DictReader((tmp_path / "r.csv").open(newline="")))["corrected"] == "no"


def test_subtitles_lie_in_the_video_and_outlast_every_repetition(result: CountResult) -> None:
    to_the_end = cues(result)
    part = cues(replace(result, duration=9.0))
    for shown, last in ((to_the_end, result.duration), (part, 9.0)):
        assert max(end for _, end, _ in shown) <= last
        for number, repetition in enumerate(result.repetitions, 1):
            assert next(end for _, end, text in shown if text == str(number)) >= repetition.end
    assert part[-1] == (4.0, 4.5, "4"), "the video goes on: the last number comes when its repetition is complete"


def test_drawing_the_video_says_how_far_it_is(result: CountResult, movie: Path, tmp_path: Path) -> None:
    told: list[float] = []
    FORMATS["mp4"].write(result, tmp_path / "m.mp4", video=movie, progress=lambda done, of: told.append(done / of))
    assert len(told) > 20 and told == sorted(told) and told[0] < 0.1 and told[-1] > 0.9
