"""The console over HTTP: routes from the views, one page of finds, static files, streams, and the server itself."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
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

Form = dict[str, str]


class ConsoleSettings(NamedTuple):
    """How a console serves.

    Attributes:
        contexts: names of the clusters, the first is shown first. hosts: names under which it is known, beside loopback's.
        sign_in: people are users of the cluster. starter: who whoever started it is called.
        proxies: networks of reverse proxies. secure: browsers reach it by TLS.
        certificate, key: files of PEM, "": no TLS here.
    """

    contexts: Sequence[str]
    hosts: Sequence[str] = ()
    read_only: bool = False
    sign_in: bool = False
    starter: str = "on this machine"
    proxies: Sequence[str] = ()
    secure: bool = False
    certificate: str = ""
    key: str = ""


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
        self.people = People(
            list(settings.contexts),
            connect,
            clock,
            changes,
            sign_in=settings.sign_in,
            starter=settings.starter,
        )
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
            Route("/c/{context}/find", self._find),
            Mount("/static", FreshFiles(directory=STATIC)),
        ]
        for module in views:
            for path in getattr(module, "PATHS", ()):
                routes.append(Route("/c/{context}" + path, self._showing(module, path)))
                if hasattr(module, "act") and not self._settings.read_only:
                    acting = self._acting(module, path)
                    routes.append(Route("/c/{context}" + path, acting, methods=["POST"]))
            for path, name in getattr(module, "FILES", {}).items():
                routes.append(
                    Route("/c/{context}" + path, self._giving(getattr(module, name), path))
                )
            if hasattr(module, "stream"):
                routes.append(Route("/c/{context}" + module.STREAM, self._streaming(module)))
        routes.sort(key=lambda route: getattr(route, "path", "").count("{"))
        settings = self._settings
        guard = Middleware(
            PageGuard,
            hosts=LOOPBACK | {host.lower() for host in settings.hosts},
            read_only=settings.read_only,
            proxies=settings.proxies,
            time=lambda: asyncio.get_running_loop().time(),
        )
        small = Middleware(GZipMiddleware, minimum_size=600, compresslevel=5)
        return Starlette(
            routes=routes,
            middleware=[guard, small],
            exception_handlers={404: self._missing, RoquetteError: self._silent},
        )

    async def _ask(self, request: Request, path: str) -> ViewAsk | Response:
        """What a request asks; or where it is sent instead."""
        words = dict(request.path_params)
        context = words.pop("context", "")
        if context not in self.people.contexts:
            return RedirectResponse("/")
        person = self._person(request)
        if person is None:
            back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse(f"/sign-in?to={quote(back, safe='')}", 303)
        return ViewAsk(
            cluster=await self.people.cluster(person, context),
            words=words,
            query={
                name: " ".join(request.query_params.getlist(name)) for name in request.query_params
            },
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
        return f"__Host-{COOKIE}" if self._settings.secure else COOKIE

    def _showing(self, module: ModuleType, path: str) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                ask = await self._ask(request, path)
                if isinstance(ask, Response):
                    return ask
                async with asyncio.timeout(PAGE_S):
                    view = await module.show(ask)
            except RouteNotFound as error:
                view = _trouble("There is no such topic", error, 404)
            except TimeoutError:
                view = _trouble(
                    "It took too long", ConfigError(f"no answer in {PAGE_S:.0f} s"), 504
                )
            except RoquetteError as error:
                context = request.path_params["context"]
                view = _trouble(f"{context} does not answer this", error, 502)
            return self._respond(request, view)

        return answer

    def _acting(self, module: ModuleType, path: str) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                ask = await self._ask(request, path)
                if isinstance(ask, Response):
                    return ask
                address = request.client.host if request.client else ""
                view = await module.act(ask, await _fields(request), address)
            except (RoquetteError, OSError) as error:
                view = _trouble("It was not done", error, 502, again=False)
            if isinstance(view, str):
                return RedirectResponse(view, 303)
            return self._respond(request, view)

        return answer

    def _giving(self, make: Callable[[ViewAsk], Any], path: str) -> Callable[[Request], Any]:
        """Answer with a file: its name and its bytes, by pieces."""

        async def answer(request: Request) -> Response:
            ask = await self._ask(request, path)
            if isinstance(ask, Response):
                return ask
            try:
                name, data = await make(ask)
            except RoquetteError as error:
                return self._respond(request, _trouble("There is no such file", error, 404))
            safe = "".join(
                letter if letter.isalnum() or letter in "-_." else "_" for letter in name
            )
            head = {"content-disposition": f'attachment; filename="{safe}"'}
            return Response(data, media_type="application/octet-stream", headers=head)

        return answer

    def _streaming(self, module: ModuleType) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if self._streams >= MOST_STREAMS:
                return Response(f"{MOST_STREAMS} live tails are open: no more at a time\n", 503)
            ask = await self._ask(request, module.STREAM)
            if isinstance(ask, Response):
                return ask
            head = {"cache-control": "no-store", "x-accel-buffering": "no"}
            events = self._events(module.stream(ask))
            return StreamingResponse(events, media_type="text/event-stream", headers=head)

        return answer

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
        theme = request.cookies.get("theme", "")
        if LIVE in request.headers:
            text = str(main_of(view))
        else:
            person, settings = self._person(request), self._settings
            context = request.path_params.get("context", "")
            around = Around(
                context if context in self.people.contexts else self.people.contexts[0],
                self.people.contexts,
                theme if theme in ("light", "dark") else "",
                person.name if person else "",
                settings.sign_in,
                "read-only" if settings.read_only else "",
            )
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
        return self._respond(request, View(title="Not found", place="-", status=404, body=body))

    async def _silent(self, request: Request, error: Exception) -> Response:
        return self._respond(request, _trouble("The cluster does not answer", error, 502))

    async def _root(self, request: Request) -> Response:
        return RedirectResponse(f"/c/{quote(self.people.contexts[0], safe='')}/")

    async def _icon(self, request: Request) -> Response:
        return RedirectResponse("/static/icon.svg")

    async def _health(self, request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    # finding

    async def _find(self, request: Request) -> Response:
        """Names for the palette: items of a list."""
        ask = await self._ask(request, "/find")
        if isinstance(ask, Response):
            return Response(status_code=401)
        from roquette.console.finding import found

        words = request.query_params.get("q", "").strip()[:255]
        items = [
            (text, "view", ask.url(path))
            for path, text, _ in PLACES
            if words.lower() in text.lower()
        ]
        with suppress(RoquetteError):  # who may not list names still goes to what is typed
            items += await found(ask, words)
        shown = [
            h.li(role="option", id=f"f{at}", aria_selected="false")[
                h.a(href=url, tabindex="-1")[h.span[text], h.small[kind]]
            ]
            for at, (text, kind, url) in enumerate(items[:14])
        ]
        nothing = str(h.li(".none")["Nothing has this name"])
        return HTMLResponse("".join(map(str, shown)) or nothing)

    # people

    async def _sign_in(self, request: Request) -> Response:
        to = request.query_params.get("to", "")
        to = to if to.startswith("/c/") and "\\" not in to else "/"
        why, form = "", await _fields(request) if request.method == "POST" else {}
        if form and self._prove is not None:
            context = form.get("context", "")
            name, address = form.get("name", ""), request.client.host if request.client else ""
            if context not in self.people.contexts:
                context = self.people.contexts[0]
            try:
                signed = await self.people.enter(
                    context, name, form.get("secret", ""), address, self._prove
                )
                why = signed.why
            except RoquetteError as error:
                signed, why = None, str(error)
            self.deeds.audit.note(name[:64], address, context, "sign in", why or "done")
            if signed is not None and signed.key:
                response = RedirectResponse(to, 303)
                response.set_cookie(
                    self._cookie,
                    signed.key,
                    httponly=True,
                    samesite="strict",
                    secure=self._settings.secure,
                    path="/",
                )
                return response
        if not self._settings.sign_in:
            return RedirectResponse("/")
        contexts = [(name, name) for name in self.people.contexts]
        body = h.form(".sign-in", method="post", action=f"/sign-in?to={quote(to, safe='')}")[
            h.h1["Sign in"],
            h.p(".dim")["As a user of the cluster: what you may do there you may do here."],
            parts.trouble("Not signed in", why) if why else None,
            parts.choice("context", "WatchedCluster", contexts, "") if len(contexts) > 1 else None,
            parts.entry("name", "Name", required=True, autocomplete="username", autofocus=True),
            parts.entry(
                "secret", "Secret", type="password", required=True, autocomplete="current-password"
            ),
            h.button(".go", type="submit")["Sign in"],
        ]
        theme = request.cookies.get("theme", "")
        page = bare_page("Sign in", theme if theme in ("light", "dark") else "", body)
        return HTMLResponse(page, 401 if why else 200, {"cache-control": "no-store"})

    async def _sign_out(self, request: Request) -> Response:
        await self.people.leave(request.cookies.get(self._cookie, ""))
        response = RedirectResponse("/sign-in" if self._settings.sign_in else "/", 303)
        response.delete_cookie(self._cookie, path="/", secure=self._settings.secure)
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
            ssl_certfile=settings.certificate or None,
            ssl_keyfile=settings.key or None,
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


def _trouble(title: str, error: Exception, status: int, *, again: bool = True) -> View:
    words = h.p["This page asks again by itself."] if again else None
    body = [h.h1[title], parts.refused(title, error, words)]
    return View(title=title, place="-", body=body, status=status, live_s=3 if again else 0)
