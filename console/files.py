"""Lists of pages as files: CSV and JSON, at the page's own path with their ending."""

# Without `annotations` of the future: FastAPI reads those of functions that are made within others.
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import Depends, FastAPI, Query
from fastapi.responses import JSONResponse
from starlette.responses import Response

from console.groups import GroupSection, section_named
from console.listing import Listing

Look = Callable[[], Listing]
Sections = Callable[[], Sequence[GroupSection]]


def file_answer(text: str, kind: str, name: str) -> Response:
    """A text as a file of that name."""
    return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def add_files(app: FastAPI, path: str, listing: Callable[..., Look]) -> None:
    """A list as files.

    Args:
        app: to which.
        path: of its page.
        listing: reads the page's parameters, and looks.
    """
    listed = Depends(listing)

    @app.get(f"{path}.csv", response_model=None)
    def as_csv(look: Look = listed) -> Response:
        return file_answer(look().to_csv(), "text/csv", f"{path[1:]}.csv")

    @app.get(f"{path}.json", response_model=None)
    def as_json(look: Look = listed) -> Response:
        return JSONResponse(look().to_document())


def add_section_files(app: FastAPI, path: str, sections: Callable[..., Sections]) -> None:
    """The lists of a page with several: all of them as JSON, each by its heading as CSV; arguments as of `add_files`."""
    listed = Depends(sections)

    @app.get(f"{path}.csv", response_model=None)
    def as_csv(section: Annotated[str, Query(max_length=1_000)], look: Sections = listed) -> Response:
        return file_answer(section_named(look(), section).to_csv(), "text/csv", f"{path[1:]}.csv")

    @app.get(f"{path}.json", response_model=None)
    def as_json(look: Sections = listed) -> Response:
        return JSONResponse([section.to_document() for section in look()])
