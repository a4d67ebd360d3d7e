"""The entries of the page on citing, against CITATION.cff."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_entries_are_those_of_the_file():
    cff = (ROOT / "CITATION.cff").read_text()
    page = " ".join((ROOT / "docs" / "cite.md").read_text().split())
    software, *papers = re.split(r"^  - type: article$", cff, flags=re.M)
    (title,) = re.findall(r'^title: "(.*)"', software, flags=re.M)
    (version,) = re.findall(r"^version: (.*)$", software, flags=re.M)
    assert f"title = {{{title}}}" in page and f"version = {{{version}}}" in page
    for paper in papers:
        url = re.search(r'url: "(.*)"', paper)[1]
        (entry,) = [entry for entry in page.split("@article") if f"{{{url}}}" in entry]
        for pattern in (r'title: "(.*)"', r"year: (\d+)"):
            assert f"{{{re.search(pattern, paper)[1]}}}" in entry
        names = re.findall(r"family-names: ([^,]+), given-names: ([^}]+)}", paper)
        assert " and ".join(f"{family}, {given}" for family, given in names) in entry
