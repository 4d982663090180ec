"""The page for those who hear it, use keys, need contrast, or want nothing to move."""

import pytest
from browser import choose, heard, load, made, prefer, slide, text
from records import point, record, walked

pytest.importorskip("plotly", reason="plotly is not installed")
pytest.importorskip("selenium", reason="selenium is not installed")

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Two runs compared, one of them unfinished and one with a point that has collapsed."""
    whole = walked(4)
    whole["points"][3] |= {"validation": 0.2, "test": 0.1}
    empty = record(points=[], chosen=None, finished=False, name="empty")
    place = tmp_path_factory.mktemp("access")
    return made(place, whole, {**walked(3, seed=1), "name": "second"}, empty)


@pytest.fixture
def page(chromium, pages):
    prefer(chromium, "light")
    load(chromium, pages)
    yield chromium
    chromium.execute_script("sessionStorage.clear(); localStorage.clear()")


LIVE = "[aria-live], [role=status], [role=alert], [role=log], output"


def test_one_pick_is_one_sentence_in_one_place(page):
    assert page.execute_script(f"return document.querySelectorAll('{LIVE}').length") == 1
    assert text(page, "#said") == ""  # a page that opens does not interrupt
    page.execute_script(
        "window.spoken = []; const said = document.getElementById('said');"
        "new MutationObserver(() => spoken.push(said.textContent))"
        ".observe(said, { childList: true, characterData: true, subtree: true })"
    )
    page.execute_script(  # as fast as a hand drags
        "const slider = document.getElementById('point');"
        "for (const n of [2, 3]) { slider.value = n; slider.dispatchEvent(new Event('input')); }"
    )
    said = heard(page, "Point 3 of my-run: ")
    assert said.endswith("zero blocks, 96.00 % in validation, 95.50 % in the test.")
    slide(page, "#floor", 96.5)
    floor = heard(page, "Sparsest with at least 96.50 %: point 2 of second")
    assert floor == text(page, "#best")
    assert page.execute_script("return spoken") == [said, floor]


def test_an_image_holds_nothing_but_the_drawing(page):
    inside = "return [...document.querySelectorAll('[role=img]')]"
    held = f"{inside}.flatMap((e) => [...e.querySelectorAll('p, button, a, [tabindex]')]).length"
    assert page.execute_script(f"{inside}.length") == 4  # curve, bars, residuals, runs
    assert page.execute_script(held) == 0
    buttons = "return [...document.querySelectorAll('.modebar-btn')]"
    unheard = ".filter((e) => e.closest('[role=img], [aria-hidden=true]') || !e.ariaLabel).length"
    assert page.execute_script(f"{buttons}.length") > 0
    assert page.execute_script(buttons + unheard) == 0


def label(page, plot):
    script = "return document.querySelector(`#${arguments[0]} [role=img]`)?.ariaLabel ?? null"
    return page.execute_script(script, plot)


def visible(page, selector):
    return page.execute_script(
        "return document.querySelector(arguments[0]).checkVisibility()", selector
    )


def test_what_a_figure_says_follows_what_it_shows(page):
    assert "my-run over zero blocks (%), 4 points" in label(page, "curve")
    choose(page, "#across", "macs_speedup")
    assert "over times fewer MACs" in label(page, "curve")
    slide(page, "#point", 2)
    assert "point 2 marked" in label(page, "bars")
    assert label(page, "runs").startswith("test accuracy")
    choose(page, "#split", "validation")
    assert label(page, "runs").startswith("validation accuracy")
    choose(page, "#run", "2")
    for plot in ("curve", "bars", "residuals"):
        assert label(page, plot) is None
        assert not visible(page, f"#{plot}")
        assert visible(page, f"#{plot}-instead")
        assert text(page, f"#{plot}-instead").endswith("yet.")
    assert not visible(page, "#curve-cut")
    choose(page, "#run", "1")
    assert "second over times fewer MACs, 3 points" in label(page, "curve")
    assert not visible(page, "#curve-instead")


# Every text against the nearest background behind it, with what makes either translucent.
CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function rgba(colour) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}
const over = (top, below) => [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3]));
function light([r, g, b]) {
  const linear = (x) => (x / 255 <= 0.04045 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
}
function backdrop(found) {
  const layers = [];
  for (let e = found; e; e = e.parentElement) {
    layers.push(rgba(getComputedStyle(e).backgroundColor));
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
}
function opacity(found) {
  let all = 1;
  for (let e = found; e; e = e.parentElement) all *= Number(getComputedStyle(e).opacity);
  return all;
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), weak = [];
let count = 0;
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const e = node.parentElement;
  if (!node.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName)) continue;
  if (!e.checkVisibility() || e.closest(":disabled")) continue;
  const style = getComputedStyle(e), svg = e instanceof SVGElement, behind = backdrop(e);
  const ink = rgba(svg ? style.fill : style.color);
  ink[3] *= opacity(e) * (svg ? Number(style.fillOpacity) : 1);
  const [a, b] = [light(over(ink, behind)), light(behind)];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  count += 1;
  if (ratio < 4.5) weak.push(`${ratio.toFixed(2)} ${e.tagName} ${node.data.trim().slice(0, 40)}`);
}
return [count, weak];
"""
SERIES = CONTRAST.split("const walker")[0] + (
    "const name = (n) => getComputedStyle(document.documentElement).getPropertyValue(n);"
    "const paper = light(rgba(name('--paper')));"
    "return ['--c0', '--c1', '--c2', '--c3', '--c4', '--c5', '--soft', '--accent']"
    ".map((n) => light(rgba(name(n)))).map((l) => (Math.max(l, paper) + 0.05)"
    " / (Math.min(l, paper) + 0.05))"
)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(page, pages, theme):
    prefer(page, theme)
    load(page, pages)
    page.execute_script("for (const e of document.querySelectorAll('details')) e.open = true")
    count, weak = page.execute_script(CONTRAST)
    assert count > 150
    assert weak == []
    assert min(page.execute_script(SERIES)) >= 3  # of lines and marks


FOCUSABLE = "a[href], button, input, select, summary, [tabindex]"
DESCRIBE = "const of = (e) => e && [e.tagName, e.id, e.ariaLabel, e.textContent.slice(0, 30)];"


def test_keys_reach_everything_in_order_and_show_where_they_are(page):
    every = (
        f"{DESCRIBE} return [...document.querySelectorAll('{FOCUSABLE}')]"
        ".filter((e) => e.checkVisibility() && !e.disabled).map(of)"
    )
    wanted = page.execute_script(every)
    page.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    reached, unseen = [], []
    for _ in wanted:
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.append(page.execute_script(f"{DESCRIBE} return of(document.activeElement)"))
        ring = page.execute_script(
            "const s = getComputedStyle(document.activeElement);"
            "return s.outlineStyle === 'none' ? 0 : parseFloat(s.outlineWidth)"
        )
        if ring < 2:
            unseen.append(reached[-1])
    assert reached == wanted
    assert unseen == []


def test_nothing_glides_for_those_who_want_no_motion(page):
    glides = "return getComputedStyle(document.documentElement).scrollBehavior"
    for wish, behaviour in (("reduce", "auto"), ("no-preference", "smooth")):
        features = [{"name": "prefers-reduced-motion", "value": wish}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        assert page.execute_script(glides) == behaviour


def test_what_lies_off_the_figure_is_one_key_away(page):
    low = "return document.getElementById('curve')._fullLayout.yaxis.range[0]"
    assert page.execute_script(low) > 20
    assert text(page, "#curve-cut span") == "2 accuracies below 83 % lie off the figure."
    button = page.find_element("css selector", "#curve-cut button")
    button.send_keys(Keys.ENTER)
    assert page.execute_script(low) < 10
    assert text(page, "#curve-cut") == (
        "All accuracies are shown, down to 10.00 %. Show the upper part"
    )
    button.send_keys(Keys.ENTER)
    assert page.execute_script(low) > 20
    page.find_element("css selector", "#runs-cut button").send_keys(Keys.ENTER)
    runs = "return document.getElementById('runs')._fullLayout.yaxis.range[0]"
    assert page.execute_script(runs) < 10
    assert page.execute_script(low) > 20


def test_of_points_that_look_alike_the_sparser_is_taken(page, tmp_path):
    """97.604 and 97.596 % are both 97.60 %; of equally sparse points the more accurate one."""
    rows = ((0.5, 0.97604), (0.6, 0.97596), (0.6, 0.976049), (0.7, 0.9))
    points = [point(n, zero=z, validation=v, test=v) for n, (z, v) in enumerate(rows)]
    load(page, made(tmp_path, record(points=points, chosen=0)))
    slide(page, "#floor", 97.6)
    assert text(page, "#best").startswith("Sparsest with at least 97.60 %: point 2, ")
    points[1] |= {"validation": 0.9758}
    load(page, made(tmp_path, record(points=points, chosen=0)))
    slide(page, "#floor", 97.5)
    assert text(page, "#best").startswith("Sparsest with at least 97.50 %: point 3, ")


def test_the_slider_says_where_it_stands_and_where_it_ends(page, tmp_path):
    whole = walked(3)
    whole["dense"]["validation"] = 0.97  # its floor of 96 % lies below every point but the last
    whole["points"][2] |= {"validation": 0.1}
    whole["points"][1] |= {"validation": 0.985}
    load(page, made(tmp_path, whole))
    assert text(page, "#floor-said") == "96.00 % in validation"
    value = "return document.getElementById('floor').value"
    assert float(page.execute_script(value)) == 96
    slide(page, "#floor", 0)
    assert float(page.execute_script(value)) == 83.5
    said = "83.50 % in validation (the slider ends here; 1 point has less)"
    assert text(page, "#floor-said") == said
    spoken = "return document.getElementById('floor').getAttribute('aria-valuetext')"
    assert page.execute_script(spoken) == said
