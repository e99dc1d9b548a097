"""/docs: every request of the API, offline and without inline code."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from serving import Client

from escounts.serve.app import api_page

VOID = {"meta", "link"}


class Balanced(HTMLParser):
    """Fails where a tag is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_request_is_on_the_page(client: Client) -> None:
    answer = client.get("/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = answer.text
    described = client.get("/api/openapi.json").json()
    for path, operations in described["paths"].items():
        for method in operations:
            assert page.count(f"<code>{method.upper()} {path}</code>") == 1
    assert "<code>CountRequest</code>" in page
    assert "The request came too slowly." in page


def test_it_loads_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/docs").text
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert loaded
    assert all(address.startswith("/") and not address.startswith("//") for address in loaded)
    assert client.get("/css/api.css").headers["content-type"].startswith("text/css")
    assert not re.search(r"<script|<style|\sstyle=|\son\w+=", page)
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []


def test_what_the_description_says_is_escaped() -> None:
    operation = {"description": "<b> & more", "responses": {"200": {"description": "<i>"}}}
    page = api_page({"info": {"description": "<u>"}, "paths": {"/<x>": {"get": operation}}})
    assert "<code>GET /&lt;x&gt;</code> &lt;b&gt; &amp; more" in page
    assert "<i>" not in page
    assert "<u>" not in page
