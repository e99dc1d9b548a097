"""Whole videos: the sample, and labelled videos for datasets."""

from __future__ import annotations

import numpy as np

from escounts.synthetic import sample_video, synthetic_videos


def test_labelled_videos_are_deterministic_and_whole() -> None:
    options = {"size": (32, 40), "seconds": (2.0, 3.0)}
    videos = list(synthetic_videos(4, 5, **options))  # type: ignore[arg-type]
    again = list(synthetic_videos(4, 5, **options))  # type: ignore[arg-type]
    for video, twin in zip(videos, again, strict=True):
        assert video.frames.shape[1:] == (32, 40, 3) and video.frames.dtype == np.uint8
        assert 29 <= len(video.frames) <= 45 and video.action and video.name
        np.testing.assert_array_equal(video.frames, twin.frames)
        for start, end in video.spans:
            assert 0 <= start < end <= len(video.frames) / video.fps + 1e-6
    assert len({video.name for video in videos}) == 4
    other = list(synthetic_videos(4, 6, **options))  # type: ignore[arg-type]
    assert [video.action for video in other] != [video.action for video in videos]


def test_sample_video_squats_where_it_says() -> None:
    video = sample_video(repetitions=2)
    assert len(video.spans) == 2 and video.action == "squat"
    start, end = (round(edge * video.fps) for edge in video.spans[0])
    frames = video.frames.astype(np.int32)
    standing, deep, again = frames[start - 2], frames[(start + end) // 2], frames[end]
    assert np.abs(standing - deep).mean() > 3 * np.abs(standing - again).mean()
