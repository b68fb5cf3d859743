"""The console over HTTP: routes from the views, one page of finds, static files, streams, and the server itself."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote

import htpy as h
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from roquette.base.clock import Clock
from roquette.base.lifecycle import Tasks
from roquette.console import parts
from roquette.console.ask import View, ViewAsk
from roquette.console.audit import ActAudit, Sink
from roquette.console.changes import Changes
from roquette.console.finding import found
from roquette.console.guard import LIVE, LOOPBACK, PageGuard
from roquette.console.jobs import Deeds, Jobs
from roquette.console.page import PLACES, Around, bare_page, main_of, page_of
from roquette.console.people import COOKIE, Connect, People, Person
from roquette.errors import ConfigError, RoquetteError, RouteNotFound
from roquette.remoting.address import Listener

log = logging.getLogger("roquette.console")
STATIC: Final = Path(__file__).parent / "static"
MOST_STREAMS: Final = 32
MOST_FORM: Final = 1 << 20
MOST_CONNECTIONS: Final = 200
PAGE_S: Final = 20.0
SAMPLE_S: Final = 2.0
_SECRET: Final = {"type": "password", "autocomplete": "current-password"}

Form = dict[str, str]
Answer = Callable[[Request, ViewAsk, Callable[..., Any]], Awaitable[Response]]
"""How something of a view (its page, its act, its file) becomes an answer."""


class ConsoleSettings(NamedTuple):
    """How a console serves; `roquette console --help` says more of each.

    Attributes:
        contexts: names of the clusters, the first is shown first.
        listen: HOST:PORT. hosts: names under which it is known, beside loopback's.
        sign_in: people are users of the cluster. starter: who whoever started it is called.
        tls_cert, tls_key: files of PEM, "": no TLS here. behind_proxy: networks of reverse proxies.
        audit_log, history: files in which lines are kept, too.
    """

    contexts: Sequence[str] = ()
    listen: str = "127.0.0.1:8082"  # Apache's dashboard has this port
    hosts: Sequence[str] = ()
    read_only: bool = False
    sign_in: bool = False
    starter: str = "on this machine"
    tls_cert: str = ""
    tls_key: str = ""
    behind_proxy: Sequence[str] = ()
    audit_log: str = ""
    history: str = ""


class FreshFiles(StaticFiles):
    """Static files, which browsers ask for again when they changed."""

    def file_response(self, *args: Any, **more: Any) -> Response:
        """With a word about caching."""
        response = super().file_response(*args, **more)
        response.headers["cache-control"] = "no-cache"
        return response


class Console:
    """The application and what lives as long as it: people, jobs, audit.

    Args:
        views: its pages (`views.all_views`).
        connect: makes a client of a context for somebody, who may be whoever started the console.
        prove: says whether a client's credentials are a user's.
        audit, history: where lines are kept, too.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        views: Iterable[ModuleType],
        connect: Connect,
        clock: Clock,
        prove: Callable[[Any], Any] | None = None,
        audit: Sink | None = None,
        history: Sink | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._prove = prove
        self._tasks = Tasks()
        self.ending = asyncio.Event()
        changes = {name: Changes(history) for name in settings.contexts}
        starter = "" if settings.sign_in else settings.starter
        self.people = People(list(settings.contexts), connect, clock, changes, starter)
        self.deeds = Deeds(ActAudit(clock, audit), Jobs(clock, self._tasks))
        self._streams = 0
        self.app = self._build(views)

    async def start(self) -> None:
        """Begin to sample what is looked at."""
        self._tasks.every("console", SAMPLE_S, self.people.sweep)

    async def close(self) -> None:
        """End jobs, sessions and clients."""
        self.ending.set()
        await self._tasks.stop()
        await self.people.close()

    # routes

    def _build(self, views: Iterable[ModuleType]) -> Starlette:
        routes: list[BaseRoute] = [
            Route("/", self._root),
            Route("/healthz", self._health),
            Route("/favicon.ico", self._icon),
            Route("/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            self._route("/find", self._found, found),
            Mount("/static", FreshFiles(directory=STATIC)),
        ]
        for module in views:
            for path in getattr(module, "PATHS", ()):
                routes.append(self._route(path, self._shown, module.show))
                if hasattr(module, "act") and not self._settings.read_only:
                    routes.append(self._route(path, self._done, module.act, "POST"))
            for path, name in getattr(module, "FILES", {}).items():
                routes.append(self._route(path, self._given, getattr(module, name)))
            if hasattr(module, "stream"):
                routes.append(self._route(module.STREAM, self._streamed, module.stream))
        routes.sort(key=lambda route: getattr(route, "path", "").count("{"))
        settings = self._settings
        guard = Middleware(
            PageGuard,
            hosts=LOOPBACK | {host.lower() for host in settings.hosts},
            read_only=settings.read_only,
            proxies=settings.behind_proxy,
            time=lambda: asyncio.get_running_loop().time(),
        )
        small = Middleware(GZipMiddleware, minimum_size=600, compresslevel=5)
        return Starlette(
            routes=routes,
            middleware=[guard, small],
            exception_handlers={404: self._missing},
        )

    def _route(
        self, path: str, answer: Answer, of: Callable[..., Any], method: str = "GET"
    ) -> Route:
        """A path below a cluster's: who asks is known, and what an operation raises is a page."""

        async def endpoint(request: Request) -> Response:
            context, person = request.path_params["context"], self._person(request)
            if context not in self.people.contexts:
                return RedirectResponse("/")
            if person is None and path == "/find":
                return Response(status_code=401)
            if person is None:
                back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(f"/sign-in?to={quote(back, safe='')}", 303)
            try:
                ask = await self._ask(request, person, path)
                return await answer(request, ask, of)
            except (RoquetteError, OSError) as error:
                view = _failure(error, context, method)
            return self._respond(request, view)

        return Route("/c/{context}" + path, endpoint, methods=[method])

    async def _ask(self, request: Request, person: Person, path: str) -> ViewAsk:
        words, query = dict(request.path_params), request.query_params
        return ViewAsk(
            cluster=await self.people.cluster(person, words.pop("context")),
            words=words,
            query={name: " ".join(query.getlist(name)) for name in query},
            person=person.name,
            now_ms=self._clock.now_ms(),
            deeds=self.deeds,
            path=path,
            read_only=self._settings.read_only,
        )

    def _person(self, request: Request) -> Person | None:
        return self.people.person_of(request.cookies.get(self._cookie, ""))

    @property
    def _cookie(self) -> str:
        return f"__Host-{COOKIE}" if bool(self._settings.tls_cert) else COOKIE

    async def _shown(self, request: Request, ask: ViewAsk, show: Callable[..., Any]) -> Response:
        async with asyncio.timeout(PAGE_S):
            view = await show(ask)
        return self._respond(request, view)

    async def _done(self, request: Request, ask: ViewAsk, act: Callable[..., Any]) -> Response:
        address = request.client.host if request.client else ""
        view = await act(ask, await _fields(request), address)
        if isinstance(view, str):
            return RedirectResponse(view, 303)
        return self._respond(request, view)

    async def _given(self, request: Request, ask: ViewAsk, make: Callable[..., Any]) -> Response:
        """A file: its name and its bytes."""
        try:
            name, data = await make(ask)
        except RoquetteError as error:
            wrong = _trouble("There is no such file", error, 404, again=False)
            return self._respond(request, wrong)
        safe = "".join(each if each.isalnum() or each in "-_." else "_" for each in name)
        head = {"content-disposition": f'attachment; filename="{safe}"'}
        return Response(data, media_type="application/octet-stream", headers=head)

    async def _streamed(self, _: Request, ask: ViewAsk, stream: Callable[..., Any]) -> Response:
        if self._streams >= MOST_STREAMS:
            return Response(f"{MOST_STREAMS} live tails are open: no more at a time\n", 503)
        head = {"cache-control": "no-store", "x-accel-buffering": "no"}
        events = self._events(stream(ask))
        return StreamingResponse(events, media_type="text/event-stream", headers=head)

    async def _events(self, pieces: AsyncIterator[str]) -> AsyncIterator[str]:
        """What a view streams, until it ends, its reader goes, or the console ends."""
        self._streams += 1
        over = asyncio.ensure_future(self.ending.wait())
        piece: asyncio.Future[str] | None = None
        try:
            while True:
                piece = asyncio.ensure_future(anext(pieces))
                await asyncio.wait((piece, over), return_when=asyncio.FIRST_COMPLETED)
                if over.done():
                    return
                yield piece.result()
        except StopAsyncIteration:
            return
        except RoquetteError as error:
            yield f"event: trouble\ndata: {' '.join(str(error).split())}\n\n"
        finally:
            over.cancel()
            if piece is not None and not piece.done():  # the reader went: its generator still waits
                piece.cancel()
                await asyncio.wait((piece,))
            await pieces.aclose()  # type: ignore[attr-defined]
            self._streams -= 1

    def _respond(self, request: Request, view: View) -> Response:
        if LIVE in request.headers:
            text = str(main_of(view))
        else:
            person, settings, contexts = self._person(request), self._settings, self.people.contexts
            context = request.path_params.get("context", "")
            context = context if context in contexts else contexts[0]
            who, mode = person.name if person else "", "read-only" if settings.read_only else ""
            around = Around(context, contexts, _theme(request), who, settings.sign_in, mode)
            text = page_of(view, around)
        mark = f'"{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"'
        vary = f"{LIVE}, Cookie, Accept-Encoding"
        head = {"etag": mark, "cache-control": "no-cache, private", "vary": vary}
        if request.headers.get("if-none-match") == mark and view.status == 200:
            return Response(status_code=304, headers=head)
        return HTMLResponse(text, view.status, head)

    async def _missing(self, request: Request, error: Exception) -> Response:
        if self._person(request) is None:
            return RedirectResponse("/sign-in", 303)
        body = [h.h1["Not found"], parts.empty("There is no such page", "Press / to find one.")]
        return self._respond(request, View("Not found", "-", body, status=404))

    async def _root(self, request: Request) -> Response:
        return RedirectResponse(f"/c/{quote(self.people.contexts[0], safe='')}/")

    async def _icon(self, request: Request) -> Response:
        return RedirectResponse("/static/icon.svg")

    async def _health(self, request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def _found(self, _: Request, ask: ViewAsk, find: Callable[..., Any]) -> Response:
        """Names for the palette: items of a list."""
        words = ask.text("q")
        views = ((path, text) for path, text, _ in PLACES if words.lower() in text.lower())
        items = [(text, "view", ask.url(path)) for path, text in views]
        with suppress(RoquetteError):  # who may not list names still goes to what is typed
            items += await find(ask, words)
        items.sort(key=lambda item: item[0] != words)  # what is named so comes first
        shown = [
            h.li(role="option", id=f"f{at}", aria_selected="false")[
                h.a(href=url, tabindex="-1")[h.span[text], h.small[kind]]
            ]
            for at, (text, kind, url) in enumerate(items[:14])
        ]
        return HTMLResponse("".join(map(str, shown)) or str(h.li(".none")["Nothing has this name"]))

    # people

    async def _sign_in(self, request: Request) -> Response:
        to = request.query_params.get("to", "")
        to = to if to.startswith("/c/") and "\\" not in to else "/"
        why, form = "", await _fields(request) if request.method == "POST" else {}
        if form and self._prove is not None:
            name, secret, context = (form.get(key, "") for key in ("name", "secret", "context"))
            address = request.client.host if request.client else ""
            context = context if context in self.people.contexts else self.people.contexts[0]
            key = ""
            try:
                key, why = await self.people.enter(context, name, secret, address, self._prove)
            except RoquetteError as error:
                why = str(error)
            self.deeds.audit.note(name[:64], address, context, "sign in", why or "done")
            if key:
                response = RedirectResponse(to, 303)
                safe = bool(self._settings.tls_cert)
                response.set_cookie(
                    self._cookie, key, httponly=True, samesite="strict", secure=safe, path="/"
                )
                return response
        if not self._settings.sign_in:
            return RedirectResponse("/")
        contexts = [(name, name) for name in self.people.contexts]
        body = h.form(".sign-in", method="post", action=f"/sign-in?to={quote(to, safe='')}")[
            h.h1["Sign in"],
            h.p(".dim")["As a user of the cluster: what you may do there you may do here."],
            parts.trouble("Not signed in", why) if why else None,
            parts.choice("context", "Cluster", contexts, "") if len(contexts) > 1 else None,
            parts.entry("name", "Name", required=True, autocomplete="username", autofocus=True),
            parts.entry("secret", "Secret", required=True, **_SECRET),
            h.button(".go", type="submit")["Sign in"],
        ]
        page = bare_page("Sign in", _theme(request), body)
        return HTMLResponse(page, 401 if why else 200, {"cache-control": "no-store"})

    async def _sign_out(self, request: Request) -> Response:
        await self.people.leave(request.cookies.get(self._cookie, ""))
        response = RedirectResponse("/sign-in" if self._settings.sign_in else "/", 303)
        response.delete_cookie(self._cookie, path="/", secure=bool(self._settings.tls_cert))
        return response

    # the server

    async def serve(self, sockets: Iterable[Listener], stop: asyncio.Event) -> None:
        """Answer on these sockets, which listen already, until `stop` is set."""
        settings = self._settings
        config = uvicorn.Config(
            self.app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=16_384,
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
        )
        server = GuestServer(config)
        await self.start()
        try:
            serving = asyncio.ensure_future(server.serve(sockets=list(sockets)))
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            self.ending.set()  # streams end by themselves: uvicorn would wait for them
            server.should_exit = True
            await serving
        finally:
            await self.close()


class GuestServer(uvicorn.Server):
    """Uvicorn's, without its signal handlers: whoever runs the loop says when it ends."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing."""
        yield


async def _fields(request: Request) -> Form:
    """What a form sent, urlencoded and within a bound; of a name that is there more than once all values, in lines."""
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_FORM:
            raise HTTPException(413)
    found: Form = {}
    for name, value in parse_qsl(
        data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=2_000
    ):
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found


def _theme(request: Request) -> str:
    theme = request.cookies.get("theme", "")
    return theme if theme in ("light", "dark") else ""


def _failure(error: Exception, context: str, method: str) -> View:
    """What a page says of an error."""
    if method == "POST":
        return _trouble("It was not done", error, 502, again=False)
    if isinstance(error, RouteNotFound):
        return _trouble("There is no such topic", error, 404)
    if isinstance(error, TimeoutError):
        return _trouble("It took too long", ConfigError(f"no answer in {PAGE_S:.0f} s"), 504)
    return _trouble(f"{context} does not answer this", error, 502)


def _trouble(title: str, error: Exception, status: int, *, again: bool = True) -> View:
    words = h.p["This page asks again by itself."] if again else None
    body = [h.h1[title], parts.refused(title, error, words)]
    return View(title, "-", body, live_s=3 if again else 0, status=status)
