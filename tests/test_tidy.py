"""The house rules as a test: import directions and banned calls. The allow-lists may only shrink."""

import ast
import inspect
import itertools
import re
import tomllib
from functools import lru_cache
from pathlib import Path

import pytest
from tools import workspace

import roquette

ROOT = Path(__file__).resolve().parent.parent
SRC = workspace.PRODUCT

# Room -> rooms it may import (shared contract; `errors` and the own room are always allowed).
CONTRACT: dict[str, set[str]] = {
    "base": set(),
    "message": {"base"},
    "wire": {"base", "message"},
    "store": {"base", "message"},
    "filter": {"base", "message"},
    "replication": {"base", "message"},
    "remoting": {"base", "wire", "replication"},
    "access": {"base", "message", "wire", "remoting"},
    "nameserver": {"base", "message", "wire", "replication", "remoting", "access"},
    "broker": {"base", "message", "wire", "store", "filter", "replication", "remoting", "access"},
    "client": {"base", "message", "wire", "filter", "remoting"},
    "proxy": {"base", "message", "wire", "filter", "remoting", "access", "client"},
    "admin": {"base", "message", "wire", "replication", "remoting", "access", "client"},
    "spark": {"base", "message", "wire", "remoting", "client", "admin", "store"},
    "pipelines": {"base", "message", "remoting", "client", "admin", "spark"},
    "cli": {"base", "message", "access", "client", "admin", "store"},
    "console": {"base", "message", "wire", "access", "client", "admin", "remoting"},
    "apps": {
        "base",
        "message",
        "wire",
        "store",
        "replication",
        "remoting",
        "access",
        "nameserver",
        "broker",
        "client",
        "admin",
        "proxy",
        "cli",
        "console",
        "pipelines",
    },
    "testing": {
        "apps",
        "base",
        "message",
        "wire",
        "store",
        "remoting",
        "access",
        "nameserver",
        "broker",
        "client",
        "admin",
    },
    "sync": {"client", "admin"},
    "__init__": {"base", "client", "message", "sync", "admin"},
}

# Folder of `broker` -> folders of it that it may import beside itself; "" has the broker that binds features. All others
# are features: what one needs of another is a value, a function or a protocol of the floor, handed to it in `apps/features.py`.
BROKER: dict[str, set[str]] = {
    "floor": set(),
    "": {"floor"},
    "group": {"floor", "", "replication"},  # runs brokers, of one role after the other
}
FEATURE = {"floor"}
# Folder of the store -> folders of it that it may import; `top`: what is in none.
STRUCTURES = {"log", "queues", "index", "timer"}
STORE_LAYERS: dict[str, set[str]] = {
    "format": set(),
    **{structure: {"format"} for structure in STRUCTURES},
    "audit": {"format"} | STRUCTURES,
    "upkeep": {"format", "audit"} | STRUCTURES,
    "top": {"format", "audit", "upkeep"} | STRUCTURES,
    "offline": {"format", "audit", "top"} | STRUCTURES,
}

# (file, banned thing): why it is right there. Only these.
ALLOWED: dict[tuple[str, str], str] = {
    ("base/clock.py", "time.time_ns"): "the one reader of wall time",
    ("base/yaml_text.py", "import yaml"): "files of operators: bounded, and no tags",
    ("base/entropy.py", "random.Random"): "the one source of random numbers",
    ("base/entropy.py", "os.urandom"): "secrets come from the system alone",
    ("base/files.py", "open"): "the one door to files",
    ("base/descriptors.py", "open"): "the system's bound of maps, before there is a door",
    ("base/form.py", "open"): "our own sources, while the first of them is imported",
    ("base/lifecycle.py", "create_task"): "tasks get their owner here",
    (
        "base/executor.py",
        "except Exception",
    ): "the boundary of a thread: the error goes to who waits",
    ("base/executor.py", "except BaseException"): "the same, whatever ends a coroutine",
    (
        "roquette_spark/pipelines/rows/registry_rows.py",
        "except BaseException",
    ): "a panic of Rust within ptars is no Exception; all others go on",
    ("base/executor.py", "create_task"): "its owner is the thread that waits for it",
    ("console/look.py", "create_task"): "who asks waits for it; what it raises they get",
    ("console/app.py", "create_task"): "ended by the stream, or the server, that began it",
    ("apps/console.py", "create_task"): "ended and waited for at the end of its block",
    ("apps/dev.py", "create_task"): "ended and waited for before the servers stop",
    ("base/lifecycle.py", "except Exception"): "supervision: the task goes on",
    ("broker/floor/set_aside.py", "except Exception"): "an entry that fails stops none behind it",
    (
        "broker/timers/delay_levels.py",
        "except Exception",
    ): "an entry that fails stops none behind it",
    ("proxy/service.py", "except Exception"): "a defect of one call ends no server",
    ("broker/timers/delivery.py", "except Exception"): "an entry that fails stops none behind it",
    ("broker/pop/revive.py", "except Exception"): "an entry that fails stops none behind it",
    (
        "broker/transactions/feature.py",
        "except Exception",
    ): "an entry that fails stops none behind it",
    ("client/pipeline.py", "except Exception"): "the boundary to the application's selector",
    ("client/handler.py", "except Exception"): "the boundary to the application's handler",
    ("client/consumer_options.py", "except Exception"): "the boundary to the application's encoder",
    ("client/app/values.py", "except Exception"): "the boundary to the application's decoders",
    (
        "client/under_way.py",
        "except Exception",
    ): "the boundary to the application's interceptors",
    ("client/events.py", "except Exception"): "the boundary to the application's listeners",
    ("client/push_consumer.py", "except Exception"): "the boundary to the application's on_revoke",
    ("client/offset_store.py", "except Exception"): "the boundary to the application's store",
    ("client/requests.py", "except Exception"): "the boundary to the application's server",
    ("client/transactions.py", "except Exception"): "the boundary to the application's check",
    ("client/reader.py", "except Exception"): "the boundary to the application's listener",
    ("remoting/dispatcher.py", "except Exception"): "the boundary between a processor and the wire",
    ("wire/header_codec.py", "exec"): "header encoders are generated from our own Structs",
}


def modules() -> list[Path]:
    """Ours: what protoc makes is not."""
    return sorted(
        path
        for source in workspace.SOURCES.values()
        for path in source.rglob("*.py")
        if not path.stem.endswith("_pb2")
    )


def name_of(path: Path) -> str:
    """`client/client.py` of the product; of other packages with the package's name."""
    if path.is_relative_to(SRC):
        return path.relative_to(SRC).as_posix()
    return next(
        path.relative_to(source).as_posix()
        for source in workspace.SOURCES.values()
        if path.is_relative_to(source)
    )


@lru_cache(maxsize=1000)  # every module is looked at by every test
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@lru_cache(maxsize=1000)
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path)))


def room_of(path: Path) -> str:
    name = module_name(path)
    return "__init__" if name == "roquette" else room_of_module(name)


def room_of_module(name: str) -> str:
    """`client` of `roquette.client.client`; the other packages are the rooms `spark`, `pipelines` and `testing`."""
    package, _, rest = name.partition(".")
    if package == "roquette":
        return rest.split(".")[0]
    if package == "roquette_testing":
        return "testing"
    return "pipelines" if rest.split(".")[0] == "pipelines" else "spark"


def imported(path: Path) -> list[tuple[str, int]]:
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.append((node.module or "", node.lineno))
    return found


def test_imports_point_downwards() -> None:
    wrong = []
    for path in modules():
        room = room_of(path)
        if room == "errors":
            continue
        allowed = CONTRACT[room] | {room, "errors"}
        for name, line in imported(path):
            if name.startswith(("roquette.", "roquette_")):
                target = room_of_module(name)
                if target not in allowed:
                    wrong.append(f"{path.relative_to(ROOT)}:{line} {room} may not import {target}")
    assert not wrong, "\n".join(wrong)


def test_folders_of_a_room_import_each_other_one_way_only() -> None:
    folders = {module_name(path): Path(name_of(path)).parent for path in modules()}
    arrows = {
        (Path(name_of(path)).parent.as_posix(), folders[name].as_posix())
        for path in modules()
        for name in imports_of_ours(path, set(folders))
        if room_of_module(name) == room_of(path)
    }
    both = {(one, other) for one, other in arrows if one < other and (other, one) in arrows}
    assert len(arrows) > 100
    assert not both


def test_a_feature_of_the_broker_imports_the_floor_and_no_other_feature() -> None:
    names = {module_name(path): path for path in modules() if room_of(path) == "broker"}
    arrows = [
        (part_of_broker(path), part_of_broker(names[target]), f"{name} imports {target}")
        for name, path in names.items()
        for target in imports_of_ours(path, set(names))
    ]
    wrong = [
        words for part, target, words in arrows if target not in BROKER.get(part, FEATURE) | {part}
    ]
    assert not wrong, "\n".join(sorted(wrong))
    assert len({part for part, _, _ in arrows}) >= 12


def part_of_broker(path: Path) -> str:
    return (*Path(name_of(path)).parts[1:-1], "")[0]


def test_the_store_is_built_in_layers() -> None:
    """Formats know nothing of what uses them, structures not each other, and nobody knows the toolkit."""
    wrong, folders = [], set()
    for path in modules():
        if not name_of(path).startswith("store/"):
            continue
        folder = store_folder(module_name(path))
        folders.add(folder)
        allowed = STORE_LAYERS[folder] | {folder}
        for name, line in imported(path):
            target = store_folder(name) if name.startswith("roquette.store.") else folder
            if target not in allowed:
                wrong.append(
                    f"{name_of(path)}:{line} {folder} of the store may not import {target}"
                )
    assert folders == set(STORE_LAYERS)
    assert not wrong, "\n".join(wrong)


def store_folder(module: str) -> str:
    """`log` of `roquette.store.log.commit_log`; `top` of what is in no folder."""
    parts = module.split(".")[2:]
    return parts[0] if parts and (SRC / "store" / parts[0]).is_dir() else "top"


def test_nobody_imports_the_composition_roots() -> None:
    for path in modules():
        if room_of(path) not in ("apps", "testing"):
            assert "roquette.apps" not in path.read_text(), path


def banned_in(path: Path) -> list[tuple[str, int]]:
    found = []
    source = path.read_text()
    for node in nodes(path):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in (
                "time.time",
                "time.time_ns",
                "datetime.now",
                "datetime.datetime.now",
                "open",
                "print",
                "exec",
                "eval",
                "uuid.uuid4",
                "os.urandom",
                "time.sleep",
            ):
                found.append((name, node.lineno))
            if (name.startswith("random.") and "\nimport random" in source) or name == "i64":
                found.append((name, node.lineno))
            if name.endswith((".create_task", "ensure_future")) or name == "create_task":
                found.append(("create_task", node.lineno))
        elif (
            isinstance(node, ast.ExceptHandler)
            and node.type is not None
            and ast.unparse(node.type) in ("Exception", "BaseException")
        ):
            found.append((f"except {ast.unparse(node.type)}", node.lineno))
        elif isinstance(node, ast.ExceptHandler) and node.type is None:
            found.append(("bare except", node.lineno))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
            for name in names:
                if name.split(".")[0] in ("pickle", "yaml", "subprocess") and room_of(path) in (
                    "nameserver",
                    "broker",
                    "access",
                    "remoting",
                    "store",
                    "wire",
                    "message",
                    "base",
                ):
                    found.append((f"import {name}", node.lineno))
    return found


def test_clock_files_network_and_randomness_come_from_outside() -> None:
    wrong = []
    for path in modules():
        relative = name_of(path)
        room = room_of(path)
        for thing, line in banned_in(path):
            if (relative, thing) in ALLOWED:
                continue
            if thing == "print" and room in ("apps", "cli"):
                continue
            if room in ("spark", "pipelines", "testing") and thing in (
                "except Exception",
                "create_task",
                "time.time",
                "time.sleep",
                "open",
                "random.Random",
            ):
                continue
            wrong.append(f"{relative}:{line} {thing}")
    assert not wrong, "\n".join(wrong)


PURE = ("message", "wire", "store", "filter", "replication")


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_know_no_sockets_threads_or_event_loops(room: str) -> None:
    for path in sorted((SRC / room).rglob("*.py")):
        for name, line in imported(path):
            assert name.split(".")[0] not in ("asyncio", "threading", "selectors", "concurrent"), (
                f"{path}:{line} imports {name}"
            )


SOCKETS = ("remoting", "roquette_spark/workers/connection.py")


def test_only_remoting_opens_sockets() -> None:
    for path in modules():
        relative = name_of(path)
        if not relative.startswith(SOCKETS):
            names = [name for name, _ in imported(path)]
            assert "socket" not in names, f"{relative} imports socket"


LOGGERS = {"log", "_log", "noise", "_noise", "logger"}
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
TEMPLATES_OF_OURS = {("base/logs.py", "message")}
NEVER_EMPTY = {("broker/floor/deletions.py", "gone")}  # it begins with the topic that is deleted


def log_calls(tree: ast.AST) -> list[ast.Call]:
    """Calls of a logger, or of the brake before one."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = getattr(owner, "id", getattr(owner, "attr", ""))
            if name in LOGGERS and node.func.attr in LEVELS:
                found.append(node)
    return found


@pytest.mark.promise(
    "Security", "no value of a peer makes a line, or a sequence for a terminal, in a log"
)
def test_log_lines_are_templates_whose_values_are_arguments() -> None:
    """What a peer says is a value: `LineFormatter` quotes values, and nothing else."""
    found, calls = [], 0
    for path in modules():
        name = name_of(path)
        assigned = [node for node in nodes(path) if isinstance(node, ast.Assign)]
        for call in log_calls(parsed(path)):
            calls += 1
            owner = call.func.value  # type: ignore[attr-defined]
            direct = getattr(owner, "id", "") == "log"
            template = call.args[0]
            if not direct and isinstance(template, ast.JoinedStr | ast.Name | ast.Attribute):
                rest = [part for part in call.args[1:2] if not isinstance(part, ast.Starred)]
                template = (rest or [template])[0]  # a brake's first argument is its key
            if isinstance(template, ast.Constant) and isinstance(template.value, str):
                continue
            word = getattr(template, "id", "")
            values = [a.value for a in assigned if getattr(a.targets[0], "id", "") == word]
            if values and all(isinstance(value, ast.Constant) for value in values):
                continue
            if (name, word) not in TEMPLATES_OF_OURS:
                found.append(f"{name}:{call.lineno}")
    assert not found, f"put what varies into arguments: {found}"
    assert calls > 150


def test_no_log_line_speaks_of_an_empty_set() -> None:
    """A joined list in a log line stands under an `if` that asks whether there is anything to tell of."""
    found = []
    for path in modules():
        tree = parsed(path)
        parents = {child: node for node in nodes(path) for child in ast.iter_child_nodes(node)}
        for call in log_calls(tree):
            joined = {
                part.args[0].id
                for argument in call.args
                for part in ast.walk(argument)
                if isinstance(part, ast.Call)
                and isinstance(part.func, ast.Attribute)
                and part.func.attr == "join"
                and isinstance(part.args[0], ast.Name)
            }
            node: ast.AST = call
            while node in parents and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                node = parents[node]
                if isinstance(node, ast.If):
                    joined -= {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
            file = name_of(path)
            joined -= {name for where, name in NEVER_EMPTY if where == file}
            found += [f"{file}:{call.lineno} {name}" for name in joined]
    assert not found, found


def test_no_module_is_named_for_nothing() -> None:
    for path in modules():
        assert not re.search(r"(^|_)(utils?|helpers?|common|misc|manager|impl)(_|$)", path.stem), (
            path
        )
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                assert not re.search(r"^(Default|Abstract)|(Impl|Manager|Helper)$", node.name), (
                    f"{path}: {node.name}"
                )


def test_every_module_says_what_it_is() -> None:
    for path in modules():
        assert ast.get_docstring(parsed(path)), f"{path} has no docstring"


def described(text: str, section: str) -> set[str]:
    """The names that a section of a docstring explains: `Args:` or `Attributes:`."""
    lines = inspect.cleandoc(text).splitlines()
    if f"{section}:" not in lines:
        return set()
    rows = itertools.takewhile(
        lambda line: not line or line[0] == " ", lines[lines.index(f"{section}:") + 1 :]
    )
    heads = [line.partition(":")[0] for line in rows if re.match(r" {4}[\w`*][\w`*, ]*:", line)]
    return {word.strip("`* ") for head in heads for word in head.split(",")}


def taken(node: ast.AST) -> set[str] | None:
    """The parameters of a function, or of a class: its constructor's, or its fields; None: it has neither."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        given = node.args
        rest = [each for each in (given.vararg, given.kwarg) if each is not None]
        return {each.arg for each in (*parameters(given), *rest)}
    assert isinstance(node, ast.ClassDef)
    fields = {
        getattr(each.target, "id", "") for each in node.body if isinstance(each, ast.AnnAssign)
    }
    makes = [taken(each) or set() for each in node.body if getattr(each, "name", "") == "__init__"]
    return fields.union(*makes) or None


def test_what_is_described_as_a_parameter_is_one() -> None:
    wrong, seen = [], 0
    for path in modules():
        for node in nodes(path):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            names = described(ast.get_docstring(node) or "", "Args")
            known = taken(node)
            seen += len(names)
            if known is not None and (more := names - known):
                wrong.append(f"{name_of(path)}:{node.lineno} {node.name}: {sorted(more)}")
    assert not wrong, "\n".join(wrong)
    assert seen > 400


def parameters(of: ast.arguments) -> list[ast.arg]:
    return [*of.posonlyargs, *of.args, *of.kwonlyargs]


def imports_of_ours(path: Path, names: set[str]) -> set[str]:
    """Modules of ours that a module imports: anywhere in it, for its types only, too."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module or "")
    return (found & names) - {module_name(path)}


def module_name(path: Path) -> str:
    name = name_of(path) if not path.is_relative_to(SRC) else f"roquette/{name_of(path)}"
    return name.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {module_name(path) for path in modules()}
    imports = {module_name(path): imports_of_ours(path, names) for path in modules()}
    assert not [name for name in imports if name in reached(name, imports)]


def reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    """What a module imports, and what that imports, and so on."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        news = imports[ahead.pop()] - found
        found |= news
        ahead += news
    return found


PATHS = re.compile(
    r"`((?:packages|tests|tools|benchmarks|docs|examples)/[\w./-]*|[\w/-]+/[\w-]+\.py)`"
)
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_in_documents_exist(document: Path) -> None:
    """`broker/floor/tables/topics.py` is meant from packages/roquette/src/roquette on; a hidden file is one that a build leaves there."""
    if document.name == "CHANGELOG.md":
        return  # it tells of what was
    named = PATHS.findall(document.read_text())
    missing = [
        name
        for name in named
        if not any((folder / name).exists() for folder in (ROOT, SRC, *workspace.SOURCES.values()))
        and "/." not in name
    ]
    assert not missing, f"{document.relative_to(ROOT)} names {missing}"


LINKS = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_of_documents_lead_somewhere(document: Path) -> None:
    """To a file or folder that is there, and to a heading of it."""
    wrong = []
    for name, anchor in LINKS.findall(document.read_text()):
        target = document.parent / name if name else document
        heads = [] if target.is_dir() else re.findall(r"(?m)^#+ (.*)$", _text_of(target))
        anchors = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
        if not target.exists() or (anchor and anchor not in anchors):
            wrong.append(f"{name}#{anchor}")
    assert not wrong, f"{document.relative_to(ROOT)} links to {wrong}"


def _text_of(path: Path) -> str:
    return path.read_text() if path.suffix == ".md" and path.exists() else ""


def test_decisions_have_numbers_of_their_own() -> None:
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = [file.read_text().split(".")[0] for file in files]
    assert titles == [f"# {number}" for number in range(1, len(files) + 1)]
    assert [int(file.name[:4]) for file in files] == list(range(1, len(files) + 1))


def test_every_option_of_a_server_has_a_sentence() -> None:
    seen, wrong = 0, []
    for path in (path for path in modules() if room_of(path) in ("broker", "store", "nameserver")):
        for node in nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("option", "live"):
                given = {k.arg: k.value for k in node.keywords}
                text = given.get("help") if len(node.args) < 2 else node.args[1]
                seen += 1
                if not isinstance(text, ast.Constant) or not str(text.value).endswith("."):
                    wrong.append(f"{name_of(path)}:{node.lineno}")
    assert not wrong, f"no sentence: {wrong}"
    assert seen > 150


def test_compiled_modules_exist() -> None:
    for module in workspace.project_of("roquette")["tool"]["roquette"]["compiled"]:
        path = workspace.SOURCES["roquette"] / (module.replace(".", "/") + ".py")
        assert path.is_file(), module


def test_the_licence_is_part_of_what_is_built() -> None:
    for package in workspace.PACKAGES:
        names = workspace.project_of(package)["project"]["license-files"]
        assert names == ["LICENSE", "NOTICE"], package
        for name in names:
            there = workspace.FOLDERS[package] / name
            assert there.read_bytes() == (ROOT / name).read_bytes(), there


def test_what_builds_the_product_is_part_of_its_sources() -> None:
    """Who builds a wheel from the published sources has nothing else: setuptools adds no backend by itself."""
    folder = workspace.FOLDERS["roquette"]
    build = tomllib.loads((folder / "pyproject.toml").read_text())["build-system"]
    backend = f"{build['build-backend']}.py"
    assert build["backend-path"] == ["."] and (folder / backend).is_file()
    assert f"include {backend}" in (folder / "MANIFEST.in").read_text().splitlines()


def test_the_packages_are_of_one_version() -> None:
    """And want each other in just that one; the compiler that is pinned for wheels is the workspace's mypy."""
    projects = {name: workspace.project_of(name)["project"] for name in workspace.PACKAGES}
    version = projects["roquette"]["version"]
    assert version == roquette.__version__
    for project in projects.values():
        assert project["version"] == version
        extras = project.get("optional-dependencies", {}).values()
        wanted = [*project.get("dependencies", []), *(word for extra in extras for word in extra)]
        for word in wanted:
            if word.startswith("roquette"):
                assert word.endswith(f"=={version}"), word
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert workspace.project_of("roquette")["tool"]["roquette"]["compiler"] in groups["dev"]


def test_nothing_names_a_machine_or_a_registry() -> None:
    words = re.compile(r"/work/|/root/|repo1?\.maven\.org|pypi\.org|files\.pythonhosted|\.library/")
    for path in [
        *(path for source in workspace.SOURCES.values() for path in source.rglob("*.py")),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "Makefile",
    ]:
        match = words.search(path.read_text())
        assert match is None, f"{path} names {match and match.group()}"
