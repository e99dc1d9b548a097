"""The numbers that a decision stands on: `CountingRules`, chosen by hand, and `Calibration`, fitted for each model.

Calibration is fitted on videos that the model was not trained on (research/training/calibration.py), never on the
clips that accuracy is reported on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np

from escounts.system.config_codec import from_plain

BASE_RATE = 30.0
"""Frames a second that are read, and of what the network says; every view's rate divides it."""


@dataclass(frozen=True)
class CountingRules:
    """Every constant that decides a count, its unit or its confidence. Shares are 0..1, lengths in seconds."""

    block_seconds: float = 30.0
    """A long video chooses its view anew for every block of this length."""
    sure_enough: float = 0.5
    """Certainty above which slow views need no help from a faster one …"""
    short_period: float = 0.8
    """… unless a repetition takes fewer seconds than this …"""
    nearly_as_sure: float = 0.7
    """… to any view whose certainty is this share of the surest one's."""
    same_count: float = 0.12
    """Two counts that differ by this share of themselves agree to 1 / e; equal ones agree fully."""
    few_cells: float = 6.0
    """A view with fewer cells per repetition than this may take one rhythm for another (aliasing)."""
    seen_twice: float = 1.5
    """A density whose sum is less shows its motion once, and once repeats nothing …"""
    clear_once: float = 0.75
    """… unless a repetition is this probable: it is counted as one then, and never surely. 48 of 48 such answers on
    labelled clips were right (34 of 34 on `train`)."""
    edge_repetitions: float = 1.5
    """Repetitions at either end of a scene in which a fast view's gate is at least as open as the slow views': it
    sees four seconds at a time, there with nothing after (or before) them."""
    video_floor: float = 0.05
    """Weight of a cell whose gate is shut in what the cells say of the whole video."""
    whole_video_rate: float = 12.0
    """Frames per second up to which a view sees enough of a video at once to speak of it as a whole …"""
    seen_cells: float = 3.0
    """… and cells per repetition that it needs to speak at all."""
    tempo_spread: float = 0.35
    """How far a video's repetitions differ in length from the marked one, in log. Settles which unit is meant."""

    rest_counts: float = 0.7
    """Where the end of a video cuts a repetition off, the rest counts from this share of a repetition on."""
    end_slack: float = 0.1
    """Seconds by which a range may miss the end of the video and still be the whole of it: tables round durations."""
    edge_share: float = 0.25
    """An end cuts a repetition off if the motion repeats throughout this last share of a repetition before it."""
    silent: float = 0.1
    """A cell whose rate is below this share of the map's 90th percentile is part of a gap."""

    sides_share: float = 0.5
    """Of the people who count an alternating motion, the share who count sides: public labels do about as often."""
    listed_from: float = 0.01
    """Less probable answers are not listed."""
    live_from: float = 0.05
    """An answer this probable is live: people are told of it, and a count is not sure while another unit is live. A
    motion that alternates with a probability of a tenth has a side this probable."""
    two_units: float = 0.85
    """The most a confidence can be while two units are live."""

    long_exemplar: float = 0.5
    """Share of what is counted above which a mark leaves no room for another like it …"""
    unchecked: float = 0.5
    """… so that a count unlike the one without it is the mark's word alone: as likely right as wrong."""

    look_borders: tuple[tuple[float, float], ...] = ((2.5, 11.0), (5.0, 8.5))
    """Another motion may begin within a scene where the seconds that come after look so different from as many before
    (or, where that is longer, a repetition after and one before) …"""
    look_border_apart: float = 0.5
    """… at least so many repetitions from another such place …"""
    look_even: float = 0.8
    look_camera: float = 9.5
    """… but not where repetitions go on all that time at one pace (a view's least density is this share of its
    largest; 0.86 or more in such clips) and the parts differ by less than look_camera: a camera moves."""
    look_same: float = 5.4
    """Parts of a video whose looks are nearer than this show one motion. Repetitions of one set differ by about 1 in
    each direction; chosen on sets.csv and the labelled pool's validation clips, with the look of `lite`."""
    look_least: float = 0.6
    """Repetitions that a part of a video holds to be taken for another motion."""
    look_unclear: tuple[float, float] = (0.6, 1.15)
    """Shares of look_same between which a part is neither like the mark nor clearly unlike it: not sure."""
    look_side: float = 12.5
    """From another side the marked motion looks at most so different …"""
    look_colours: float = 35.0
    """… and the colours of the whole picture change by less than so many levels of 255, …"""
    look_set_seconds: float = 8.0
    look_set_repetitions: tuple[float, float] = (4.2, 2.2)
    """… in a part of so few repetitions, if a cut leads to it and it is shorter than look_set_seconds, and else:
    another exercise is done more often."""
    just_under: float = 0.01
    """A doubt that makes an answer unsure takes its confidence at least this far below the model's threshold."""
    once_or_never: float = 0.85
    """The most a confidence in "no repetitions" can be where something moves. A motion that happens once looks like
    any other movement: of 68 such answers on labelled clips 85 % held none or one."""
    unanswered_seconds: float = 2.5
    """A stretch this long in which something moves and nothing is counted is judged by itself: the whole is no surer
    than that. At 4 s a clip of three seconds that another one follows was lost without a word; of 37 sure answers on
    86 labelled clips 2.5 s changes none, 2 s two."""
    pictures_wanted: float = 6.0
    """Different pictures per second below which a motion of two repetitions per second, as people bring them, cannot
    be seen (seen_cells pictures each)."""
    too_few_pictures: float = 0.5
    """The most a confidence can be where the pictures are too few: clips cut down to one to three per second were
    wrong more often than right."""

    places_beside: float = 0.42
    """Least gain (0 to 2) by which a line between left and right may make two places of one …"""
    places_above: float = 0.6
    """… and between above and below: a person's arms and legs are above one another."""
    places_clear: float = 0.6
    """With less than this, two places stand only if what is counted in them has two tempos …"""
    places_tempo: float = 0.2
    """… of which one is slower by this share, and with more gain by less. Of 120 clips alone, the halves of the 12 in
    doubt had one tempo but for two; of 46 pairs in doubt 39 had two."""
    places_further: tuple[float, float] = (0.59, 0.64)
    """Gains that a half of the picture takes to be divided again: there are fewer cells in it, and less is alike by
    chance."""
    place_seen: float = 0.5
    """A cell's weight is its motion to this power, of what the model sees …"""
    place_pixels: float = 0.25
    """… and of the pixels."""
    places_together: float = 0.33
    """Share of what moves in a video's first third that moves in the same columns in its last; below it, something
    goes across the picture. Of 350 labelled clips it is 0.31 or less in the three where a person does, and above 0.4
    in all others."""

    exemplar_frames: float = 1.5
    """Frames that an exemplar lasts at least: one picture shows no motion."""
    exemplar_context: float = 8.0
    """Seconds encoded on each side of an exemplar that lies outside the encoded stretch."""
    exemplar_cells: float = 14.0
    """Cells an exemplar should last at the rate that is chosen for it."""
    neighbours: int = 4
    """Repetitions before and after one that it is compared with: in a long video the camera and the light change."""

    peak_reach: float = 0.75
    """In a map of peaks a repetition reaches at most this share of the typical peak distance to either side."""
    inexact: float = 0.2
    """Of a repetition: a sum that is no further from a whole number is taken for a whole number of repetitions."""
    pause_seconds: float = 3.0
    """A rest between two sets lasts longer than this …"""
    pause_repetitions: float = 1.5
    """… and than so many repetitions of usual length: who lifts slowly also waits longer between two lifts."""
    past_the_end: float = 1.0
    """Seconds that a person's repetition may end after the video does: players disagree about where that is."""
    readable: float = 0.5
    """Seconds for which the final number of a running count stays on screen."""

    half_open: tuple[float, float] = (0.25, 0.75)
    """Gates between these say neither that the motion repeats nor that it does not …"""
    half_open_seconds: float = 1.0
    """… and are worth a sentence from this length on."""
    vague: float = 0.5
    """Mean sharpness, where the motion repeats, below which its period is called vague."""
    apart: float = 0.1
    """Two counts disagree that are further apart than this share of the larger one, and than one."""

    shortest_scene: float = 4.0
    """Seconds: in a shorter scene too little comes back, and cuts from one angle to another do not end a set."""
    cut_around: float = 0.5
    """Seconds before and after a change that it is compared with …"""
    cut_still: float = 1.0
    """… unless less than this many levels change there, which a codec does: where new pictures come that slowly, a
    lamp blinks or slides are shown, each would be a cut. It is compared with shortest_scene then."""
    cut_levels: float = 8.0
    """A cut changes pixels by so many levels of 255 on average …"""
    cut_times: float = 2.0
    """… and by so many times what the largest change around it does. 60 clips that were put after themselves change
    by 1 to 14 times as much there (median 3), and within by less than 1.8 times, but for one with key frames that
    pulse."""

    motion_levels: float = 12.0
    """A pixel has changed when it differs by so many levels of 255 …"""
    motion_contrast: float = 0.12
    """… and this part of the picture's own range more."""
    motion_pixels: float = 1 / 1000
    """Share of the pixels that must have changed."""
    motion_reach: float = 1.0
    """Seconds before and after a change that it stands for: a slow motion pauses where it turns."""
    same_rate: float = 0.9
    """A view that has this part of the rate at which new pictures come sees as much as one that has all of it."""
    stream_seen: float = 2.0
    """Live: seconds after which the fast views are chosen even if few pictures were new: a stream may begin still."""

    counted_early: float = 0.1
    """Live: a repetition is counted when all of it but this share is in the estimate …"""
    agree_seconds: float = 0.9
    """… and has been there for so many seconds, in all estimates."""
    trace: float = 0.02
    """Live: less than this share of a repetition lies in a pause."""


RULES = CountingRules()
"""The rules that everything counts by."""

LARGEST = 1e4
"""No number of a calibration is larger: a logit of 40 is certainty."""
FEATURES = ("bias", "certainty", "decided", "agreement", "log_count", "cells", "exemplar", "unit", "doubt")
"""Of an answer: is its count within one of the truth? doubt: what is not certain, times log_count. (A large count
is easily off by more than one where the period is vague, and hardly where it is clear.)"""
CHOICE = ("bias", "certainty", "support", "others", "few_cells")
"""Of one view among several: is it right?"""
REPEATS = ("bias", "certainty", "support", "repeats")
"""Of the view that speaks, and of what the slow views say: is there a repetition at all?"""
ALTERNATES = ("bias", "alternates")
"""Of the view that says so the loudest: does the motion have two opposite sides?"""


@dataclass(frozen=True)
class Calibration:
    """Logistic regression from FEATURES to the probability that the count is within one of the truth.

    weights: of a count. nothing_weights: of the answer "no repetitions", for which little certainty is a good sign.
    choice: the same from CHOICE to the probability that a view is right; the likeliest one speaks.
    gate_bias: added to the gate's logit. Half of what a model sees in training does not repeat; what people bring
    to be counted mostly does, and more so when they mark an exemplar.
    gate_sharpness: what the sum is multiplied by. A gate at 0.8 throughout means "I think so", not "four fifths of it
    repeats": the sharper it is, the less a doubt takes off the count.
    nothing_below: the least that the chosen view's certainty and half of the others' support must come to; under it,
    without an exemplar, the answer is "no repetitions".
    repeats: from REPEATS to the probability that there is a repetition at all, under 0.5 of which the answer is "no
    repetitions" and nothing_below is not asked; alternates: from ALTERNATES to the probability that the motion has
    two sides. Empty for models whose views do not say.
    unsure_below: probability below which an answer is "not sure". 0.6 is only the default; a checkpoint has its own.
    calibrated: fitted for this very model; if not, its confidence is not called a probability.
    """

    weights: tuple[float, ...] = (-3.0, 6.0, 1.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0)
    nothing_weights: tuple[float, ...] = (1.0, -2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    choice: tuple[float, ...] = (0.0, 1.0, 0.0, 0.0, 0.0)
    unsure_below: float = 0.6
    gate_bias: float = 0.0
    gate_sharpness: float = 1.0
    nothing_below: float = 0.0
    calibrated: bool = True
    repeats: tuple[float, ...] = ()
    alternates: tuple[float, ...] = ()

    def to_json(self) -> str:
        """For a checkpoint's metadata."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """The inverse of to_json."""
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError(f"calibration: a mapping is needed, not {type(values).__name__}")
        for name in ("weights", "nothing_weights"):  # features are added at the end; older files know fewer
            if name in values:
                values[name] += [0.0] * (len(FEATURES) - len(values[name]))
        read = from_plain(cls, values, ignore_unknown=True)
        for name, value in asdict(read).items():
            shape = np.shape(getattr(cls, name))
            left_out = {"repeats": len(REPEATS), "alternates": len(ALTERNATES)}
            if name in left_out and value:
                shape = (left_out[name],)
            if np.shape(value) != shape or not (np.abs(value) <= LARGEST).all():  # NaN is not, either
                allowed = f"numbers up to {LARGEST:g} like {getattr(cls, name)} are taken"
                raise ValueError(f"calibration: {name} is {value!r:.80}; {allowed}")
        if not (0 <= read.unsure_below <= 1 and read.gate_sharpness > 0):
            raise ValueError(
                f"calibration: unsure_below is {read.unsure_below}, gate_sharpness {read.gate_sharpness}; "
                "a probability and a number above 0 are taken"
            )
        return read
