"""Networks that are refused."""

from __future__ import annotations

import pytest

import tilewright as tw
from tests.frontends.darknet import networks as nets
from tilewright.frontends import from_darknet, read_model


def refused(sections: list[nets.Section], match: str, data: bytes | None = None) -> None:
    text = nets.cfg_text(sections, 8, 8).encode()
    with pytest.raises(tw.UserError, match=match):
        read_model(text, params=nets.weights(sections, 8, 8) if data is None else data)


def test_layers_that_are_missing_are_told_together() -> None:
    refused([("crnn", {}), nets.conv(4), ("gaussian_yolo", {})], r"2 of them[^$]*gaussian_yolo")


def test_weights_that_do_not_fit() -> None:
    data = nets.weights([nets.conv(4)], 8, 8)
    refused([nets.conv(4)], "numbers are left in the file", data[:-4])
    refused([nets.conv(4)], "belong together", data + bytes(4))
    refused([nets.conv(4)], "less than their header", b"1234")


@pytest.mark.parametrize(
    ("section", "match"),
    [
        (nets.conv(4, act="softsing"), "the activation softsing is not known"),
        (nets.conv(4, stride=0), "stride is 0"),
        (nets.conv(4, groups=3), "3 groups of 3 channels and 4 filters"),
        (nets.conv(4, dilation="x"), "a whole number must be there"),
        (nets.conv(4, antialiasing=1), "antialiasing=1 is not supported"),
        (("route", {"layers": 5}), "it reads layer 5"),
        (nets.pool(20, 1, padding=0), "no place for the window"),
        (nets.yolo("7", 2, "1,2"), r"the mask is \[7\]"),
        (nets.yolo("0", 2, "1,2"), "has 3 channels"),
    ],
)
def test_options_that_do_not_fit(section: nets.Section, match: str) -> None:
    text = nets.cfg_text([section], 8, 8).encode()
    with pytest.raises(tw.UserError, match=match) as error:
        from_darknet(text, nets.Numbers(0).data() + bytes(1 << 14))
    assert "at layer 0" in str(error.value)


@pytest.mark.parametrize(
    "text", ["[net]\nheight=3", "[net\n", "[net]\n[conv]\nfilters", "[conv]\n"]
)
def test_texts_that_are_no_networks(text: str) -> None:
    with pytest.raises(tw.UserError):
        from_darknet(text.encode(), nets.Numbers(0).data())
