"""MkDocs hook: the pages and files of the site keep their paths in the repository.

The pages in docs/ link to results, sources and CONTRIBUTING.md by relative paths, as GitHub shows
them; with the same paths in the site, those links work there and MkDocs checks them.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
HOME = "docs/index.md"
PUBLISHED = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/*.*",
    "docs/**/*.*",
    "examples/*.py",
    "results/*/*.*",
    "src/sibe/**/*.py",
    "src/sibe/**/*.c",
)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Replace the files of docs/ by the published ones of the repository; keep the theme's."""
    published = Files([file for file in files if file.src_dir != config.docs_dir])
    for path in sorted(path for pattern in PUBLISHED for path in ROOT.glob(pattern)):
        uri = path.relative_to(ROOT).as_posix()
        file = File(uri, str(ROOT), config.site_dir, config.use_directory_urls)
        if uri == HOME:
            file.dest_uri = "index.html"
        published.append(file)
    return published
