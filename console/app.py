"""The console's URLs: each page asks the offset service anew. Those that change something are in `console.move_pages`."""

# Without `annotations` of the future: FastAPI reads those of functions that are made within others.
from collections.abc import Callable, Collection
from functools import partial
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from console import explaining, groups, lists, overviews, partitions, regions, routes
from console.drill_pages import add_drills
from console.drilling import Drills
from console.explaining import PictureQuestion
from console.files import Look, Sections, add_files, add_section_files, file_answer
from console.forms import SealedForm
from console.listing import Listing, link
from console.lists import Asked
from console.metrics import METRICS, ConsoleMetrics, Counted
from console.move_pages import add_moves
from console.moving import Acts
from console.partitions import PartitionQuestion
from console.people import Entrance, OpenEntrance, Person, Role, Seal
from console.reads import Reads
from console.sign_in_pages import add_sign_in, refusal_of, sign_in_again
from console.signing_in import SignInDoor
from console.web import Guard, PageFaces, SignsIn, static_answer
from parallax.adapters.http.bodies import BoundedBodies
from parallax.adapters.http.connection import shown_in
from parallax.adapters.http.metrics import metrics_page
from parallax.domain.rights import Right
from parallax.errors import ParallaxError
from parallax.identity.door import Door
from parallax.picture.svg import draw
from parallax.picture.table import to_csv, to_document
from parallax.runtime.deadline import wall_clock_ms

NAVIGATION = (
    ("/", "Overview"),
    ("/groups", "Groups"),
    ("/routes", "Routes"),
    ("/moves", "Moves"),
    ("/drills", "Drills"),
    ("/primaries", "Primaries"),
    ("/sync-problems", "Sync problems"),
    ("/regions", "Regions"),
    ("/configuration", "Configuration"),
)
_BODY_BYTES, _BODY_WITHIN_S = 65_536, 10.0
"""Of a form."""
_LONGEST = 1_000
"""Letters of a name in a URL: Kafka's topics have 249 at most, and nobody's groups have more."""

_LONGEST_OFFSET = 32

Name = Annotated[str, Query(max_length=_LONGEST)]
Text = Annotated[str, Query(max_length=4 * _LONGEST)]
Offset = Annotated[str, Query(max_length=_LONGEST_OFFSET)]
Seen = Annotated[str | None, Query(max_length=64)]


class Asks(Reads, Acts, Drills, Protocol):
    """What the console asks an offset service."""

    def showing(self, token: str) -> "Asks":
        """The same in somebody's name, whose token that is."""
        ...


def create_app(
    asks: Asks,
    *,
    region: str,
    hosts: Collection[str],
    door: Entrance | None = None,
    proxied: Collection[str] = (),
    metrics_door: Door | None = None,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> ASGIApp:
    """The application.

    Args:
        asks: asks the offset service.
        region: the region that the console belongs to; empty: none.
        hosts: the names by which it may be asked for.
        door: tells who comes; None: nobody is asked, and everybody may look and nothing else.
        proxied: those of the names under which a proxy shows it.
        metrics_door: who may read the metrics where people sign in, which Prometheus can't; None: anybody.
        now_ms: the wall clock.
    """
    reads: Reads = asks
    app = FastAPI(title="Parallax console", openapi_url=None, docs_url=None, redoc_url=None)
    forms, able = SealedForm(Seal(), proxied), partial(regions.able, reads)
    signs_in = door if isinstance(door, SignInDoor) else None
    faces = PageFaces(
        {"navigation": NAVIGATION, "region": region},
        None if signs_in is None else SignsIn(forms.seal_of, sign_in_again(app)),
    )
    app.add_exception_handler(ParallaxError, faces.failed)
    app.add_exception_handler(RequestValidationError, faces.mistaken)
    app.add_exception_handler(HTTPException, faces.missing)
    app.add_exception_handler(Exception, faces.broken)
    _add_overview(app, faces, reads, now_ms)
    _add_group(app, faces, reads, now_ms)
    _add_explain(app, faces, reads)
    _add_partition(app, faces, reads)
    _add_route(app, faces, reads, now_ms)
    for path, title, listing in (
        ("/groups", "Groups", lists.groups),
        ("/routes", "Routes", lists.replication),
        ("/moves", "Moves", lists.moves),
        ("/drills", "Drills", lists.drills),
        ("/primaries", "Primaries", regions.primaries),
        ("/sync-problems", "Sync problems", lists.sync_problems),
        ("/configuration", "Configuration", lists.configuration),
    ):
        _add_list(app, faces, path, title, _asking(listing, reads, now_ms))

    def acting(person: Person) -> Asks:
        return asks if person.token is None else asks.showing(person.token())

    add_moves(app, faces, asks, acting, able, forms)
    add_drills(app, faces, asks, acting, able, forms)
    if signs_in is not None:
        add_sign_in(app, faces, signs_in, forms)
    _add_list(app, faces, "/regions", "Regions", lambda: partial(regions.regions, reads))
    app.get("/static/{name}", response_model=None)(static_answer)
    app.get("/healthz", response_model=None)(lambda: Response("ok\n", media_type="text/plain"))
    counts = ConsoleMetrics()

    @app.get(METRICS, response_model=None)
    def prometheus(request: Request) -> Response:
        if signs_in is not None and metrics_door is not None:
            metrics_door.let_in("console", METRICS, lambda: shown_in(request.scope), (Right.READ, None))
        kind, page = metrics_page(counts.registry)
        return Response(page, media_type=kind)

    bounded = BoundedBodies(Counted(app, counts), most_bytes=_BODY_BYTES, within_s=_BODY_WITHIN_S)
    if signs_in is None:
        return Guard(bounded, hosts, door or OpenEntrance("viewer"))
    unasked = signs_in.unasked
    return Guard(
        bounded,
        hosts,
        signs_in,
        refusal=refusal_of(faces),
        unasked=lambda path: path == METRICS or unasked(path),
    )


def _add_overview(app: FastAPI, faces: PageFaces, reads: Reads, now_ms: Callable[[], int]) -> None:
    @app.get("/", response_model=None)
    def overview(request: Request, seen: Seen = None) -> Response:
        return faces.shared(
            request,
            "overview.html",
            "Overview",
            seen,
            lambda: {"overview": overviews.overview(reads, now_ms())},
        )


def _asking(
    listing: Callable[[Reads, Asked], Listing], reads: Reads, now_ms: Callable[[], int]
) -> Callable[..., Look]:
    def asked(
        prefix: Text = "",
        after: Text = "",
        group: Text = "",
        state: Text = "",
        sort: Text = "",
        route: Text = "",
    ) -> Look:
        return lambda: listing(reads, Asked(prefix, after, group, state, sort, route, now_ms()))

    return asked


def _add_group(app: FastAPI, faces: PageFaces, reads: Reads, now_ms: Callable[[], int]) -> None:
    @app.get("/group", response_model=None)
    def group(request: Request, name: Name, seen: Seen = None) -> Response:
        person: Person = request.state.person  # the guard has asked
        return faces.shared(
            request,
            "group.html",
            name,
            seen,
            lambda: {"group": groups.look(reads, name, now_ms())},
            moves=person.may(Role.OPERATOR, name),
        )

    def sections(name: Name) -> Sections:
        return lambda: groups.look(reads, name, now_ms()).sections

    add_section_files(app, "/group", sections)


def _add_route(app: FastAPI, faces: PageFaces, reads: Reads, now_ms: Callable[[], int]) -> None:
    """A route's partitions, below how it is."""
    asking = _asking(lists.partitions, reads, now_ms)
    listed = Depends(asking)

    @app.get("/route", response_model=None)
    def page(request: Request, route: Text = "", look: Look = listed, seen: Seen = None) -> Response:
        return faces.shared(
            request,
            "route.html",
            f"Route {route}" if route else "Partitions of a route",
            seen,
            lambda: {"head": routes.head(reads, route), "listing": look()},
        )

    add_files(app, "/route", asking)


def _add_partition(app: FastAPI, faces: PageFaces, reads: Reads) -> None:
    @app.get("/partition", response_model=None)
    def partition(
        request: Request,
        route: Name,
        topic: Name,
        partition: Annotated[int, Query(ge=0, lt=2**31)],
        start: Offset = "",
        source: Offset = "",
        target: Offset = "",
        seen: Seen = None,
    ) -> Response:
        question = PartitionQuestion(route, topic, partition, start, source, target)
        return faces.shared(
            request,
            "partition.html",
            f"{topic}-{partition} of {route}",
            seen,
            lambda: {"view": partitions.look(reads, question)},
        )

    def sections(
        route: Name, topic: Name, partition: Annotated[int, Query(ge=0, lt=2**31)], start: Offset = ""
    ) -> Sections:
        return lambda: partitions.look(reads, PartitionQuestion(route, topic, partition, start)).sections

    add_section_files(app, "/partition", sections)


def _add_explain(app: FastAPI, faces: PageFaces, reads: Reads) -> None:
    def question(
        group: Name,
        topic: Name,
        to: Name,
        partition: Annotated[int, Query(ge=0, lt=2**31)],
        origin: Annotated[str, Query(alias="from", max_length=_LONGEST)] = "",
        window: Annotated[str, Query(alias="range", max_length=_LONGEST)] = "",
        next_offset: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
    ) -> PictureQuestion:
        return PictureQuestion(group, topic, partition, to, origin, window, next_offset)

    asked = Depends(question)

    @app.get("/explain", response_model=None)
    def explain(request: Request, question: PictureQuestion = asked, seen: Seen = None) -> Response:
        def look() -> dict[str, Any]:
            picture = explaining.ask(reads, question)
            return {
                "question": question,
                "picture": picture,
                "drawing": Markup(draw(picture, styled=False)),  # noqa: S704 - names within are escaped
                "sources": explaining.sources(picture),
                "table": explaining.table(picture),
                "ways": explaining.ways(picture, question),
                "back": link("/group", name=question.group),
            }

        return faces.shared(request, "explain.html", f"Why {question.group} resumes there", seen, look)

    @app.get("/explain.svg", response_model=None)
    def svg(question: PictureQuestion = asked) -> Response:
        return file_answer(draw(explaining.ask(reads, question)), "image/svg+xml", "answer.svg")

    @app.get("/explain.csv", response_model=None)
    def table(question: PictureQuestion = asked) -> Response:
        return file_answer(to_csv(explaining.ask(reads, question)), "text/csv", "answer.csv")

    @app.get("/explain.json", response_model=None)
    def document(question: PictureQuestion = asked) -> Response:
        return JSONResponse(to_document(explaining.ask(reads, question)))


def _add_list(app: FastAPI, faces: PageFaces, path: str, title: str, listing: Callable[..., Look]) -> None:
    """A list as a page, and as files."""
    listed = Depends(listing)

    @app.get(path, response_model=None)
    def page(request: Request, look: Look = listed, seen: Seen = None) -> Response:
        return faces.shared(request, "list.html", title, seen, lambda: {"listing": look()})

    add_files(app, path, listing)
