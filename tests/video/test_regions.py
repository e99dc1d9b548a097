"""Boxes as people write them."""

from __future__ import annotations

import numpy as np
import pytest

from escounts.errors import EscountsError
from escounts.video.regions import Region, region


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("40,30,320,200", Region(40, 30, 320, 200)),
        (" 40, 30,320 ,200.5", Region(40, 30, 320, 200.5)),
        ("25%,0%,50%,100%", Region(25, 0, 50, 100, percent=True)),
        ((40, 30, 320, 200), Region(40, 30, 320, 200)),
        (np.array([40, 30, 320, 200]), Region(40, 30, 320, 200)),
        (Region(1, 2, 30, 40), Region(1, 2, 30, 40)),
    ],
)
def test_ways_to_write_a_box(given: object, meant: Region) -> None:
    assert region("region", given) == meant
    assert region("region", str(meant)) == meant


@pytest.mark.parametrize(
    "wrong",
    ["", "40,30,320", "40,30,320,200,5", "40,30%,320,200", "a,b,c,d", "-4,0,20,20", "0,0,0,20", "60%,0%,50%,100%",
     (40, 30, 320), (0, 0, -1, 20), (0, 0, float("nan"), 20), 7, None, b"1,2,3,4", [1, 2, 3, "4"], {}],
)  # fmt: skip
def test_wrong_boxes_are_one_sentence(wrong: object) -> None:
    with pytest.raises(EscountsError, match=r"region is .*; it takes x,y,width,height in pixels") as caught:
        region("region", wrong)
    assert "\n" not in str(caught.value)
