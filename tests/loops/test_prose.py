"""What an agent wrote, as HTML that can only be read."""

import pytest

from loops.prose import RENDERED, render


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        '<div hx-get="/logout/" hx-trigger="load">x</div>',
        '<a href="javascript:alert(1)">x</a>',
        "<style>body{display:none}</style>",
        '<form action="/"><input></form>',
        '<svg onload="alert(1)"></svg>',
    ],
)
def test_raw_html_is_shown_and_not_obeyed(hostile):
    html = render(hostile)
    assert hostile[:4] not in html and "&lt;" in html


@pytest.mark.parametrize(
    "target",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "/logout/",
        "../admin/",
        "//evil.example/x",
        "?a=b",
        "#main",
    ],
)
def test_a_link_that_is_no_plain_address_leads_nowhere(target):
    assert "href" not in render(f"[press here]({target})")


def test_a_link_opens_nothing_of_ours():
    html = render("[site](https://example.com/a) <https://example.org>")
    assert html.count('rel="noopener noreferrer nofollow"') == 2 and 'href="https://example.com/a"' in html


def test_no_image_is_fetched():
    html = render("![chart](https://evil.example/pixel.png) ![a][b]\n\n[b]: https://evil.example/2.png")
    assert "<img" not in html


def test_plain_text_keeps_its_lines():
    assert render("one\ntwo").replace("\n", "") == "<p>one<br>two</p>"


def test_headings_stand_below_those_of_the_page():
    html = render("## Two\n\n#### Four\n\n##### Five\n\n###### Six")
    assert [
        f"<h{level}>{name}</h{level}>" in html for level, name in ((4, "Two"), (5, "Four"), (6, "Five"), (6, "Six"))
    ] == [True] * 4


def test_the_usual_markdown_is_rendered():
    html = render("**b** `c`\n\n- one\n\n3. three\n\n| a |\n|---|\n| 1 |\n\n```sh\nls <x>\n```\n")
    for piece in ("<strong>b</strong>", "<code>c</code>", "<li>", '<ol start="3">', "<td>1</td>", "ls &lt;x&gt;"):
        assert piece in html


def test_a_huge_response_is_cut_before_it_is_read():
    assert len(render("word " * RENDERED)) < 2 * RENDERED
    assert render("> " * RENDERED)  # deep nesting is bounded
