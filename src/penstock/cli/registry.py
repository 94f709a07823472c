"""`penstock registry`: look into the schema registry of a spec, register schemas, ask whether one would be taken."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import output
from penstock.cli.main import app
from penstock.cli.output import AsJson
from penstock.errors import BadArgument, SchemaMissing

if TYPE_CHECKING:
    from penstock.registry.client.registry import Kind, Mode, Reference, RegisteredSchema, SchemaRegistry

registry = typer.Typer(help="Look into the schema registry, register schemas, check them.")
app.add_typer(registry, name="registry")

File = Annotated[Path, typer.Argument(help="The spec; its `registry` block says where and who.")]
Subject = Annotated[str, typer.Option("--subject", help="The subject; of a topic's values it is TOPIC-value.")]
MaybeSubject = Annotated[str | None, typer.Option("--subject", help="Only this subject.")]
SchemaFile = Annotated[Path, typer.Option("--schema", help="File that holds the schema.")]
Type = Annotated[
    str | None,
    typer.Option("--type", help="avro, protobuf or json. Default: by the file's name (.avsc, .proto, .json)."),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT[:VERSION]",
        help="What an import of NAME means; can be given more than once.",
    ),
]

_KIND_OF_SUFFIX: dict[str, Kind] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


@registry.command()
def ls(file: File, subject: MaybeSubject = None, as_json: AsJson = False) -> None:
    """List the subjects, or the versions of one subject."""
    with _open(file) as client:
        if subject is None:
            rows = [_row(client, name, client.versions(name)) for name in client.subjects()]
        else:
            rows = [_row(client, subject, [version]) for version in client.versions(subject)]
        url = client.url

    def human() -> None:
        if not rows:
            output.say(f"no subjects in {url}")
        for row in rows:
            versions = ",".join(map(str, row["versions"]))
            name = output.clean(row["subject"])
            output.say(f"{name:<40} {row['type']:<9} versions {versions:<12} id {row['id']}")

    output.emit({"registry": url, "subjects": rows}, as_json, human)


@registry.command()
def show(
    file: File,
    subject: MaybeSubject = None,
    version: Annotated[int | None, typer.Option("--version", help="Version of the subject. Default: the last.")] = None,
    schema_id: Annotated[int | None, typer.Option("--id", help="Id of a schema, as records carry it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a schema, by its id or as a version of a subject, with what it refers to."""
    if (subject is None) == (schema_id is None) or (schema_id is not None and version is not None):
        raise BadArgument(
            "a schema is named by --id, or by --subject and perhaps --version",
            next_command=f"penstock registry ls {file}",
        )
    with _open(file) as client:
        where: dict[str, Any] = {}
        if subject is not None:
            found = client.latest(subject) if version is None else client.version(subject, version)
            schema, where = found.schema, {"subject": found.subject, "version": found.version}
        else:
            by_id = client.by_id(schema_id or 0)
            if by_id is None:
                raise SchemaMissing(
                    f"the schema registry has no schema {schema_id}",
                    cause=f"{client.url} does not know the id",
                    next_command=f"penstock registry ls {file}",
                    facts={"id": schema_id},
                )
            schema = by_id
    output.emit({**where, **_as_dict(schema)}, as_json, lambda: _print(schema))


@registry.command()
def register(
    file: File,
    subject: Subject,
    schema: SchemaFile,
    kind: Type = None,
    reference: References = None,
    as_json: AsJson = False,
) -> None:
    """Register a schema as the next version of a subject. One that the subject already has keeps its id."""
    text, of_kind = _schema(schema, kind)
    with _open(file) as client:
        uses = _references(client, reference)
        new = client.id_of(subject, of_kind, text, uses) is None
        schema_id = client.register(subject, of_kind, text, uses)
        version = client.latest(subject).version
    data = {"subject": subject, "id": schema_id, "type": of_kind, "last_version": version, "new": new}
    done = f"registered as version {version}" if new else "it has this schema already"
    output.emit(data, as_json, lambda: output.say(f"{output.clean(subject)}: {done}, id {schema_id}"))


@registry.command()
def check(
    file: File,
    subject: Subject,
    schema: SchemaFile,
    kind: Type = None,
    reference: References = None,
    as_json: AsJson = False,
) -> None:
    """Ask whether a schema could become the next version of a subject. Exits 1 when it could not, and says why."""
    text, of_kind = _schema(schema, kind)
    with _open(file) as client:
        found = client.check(subject, of_kind, text, _references(client, reference))
        mode = client.mode(subject)
    data = {"subject": subject, "compatible": found.compatible, "mode": mode, "reasons": list(found.reasons)}

    def human() -> None:
        is_not = "compatible" if found.compatible else "NOT compatible"
        output.say(f"{schema} is {is_not} with {output.clean(subject)} ({mode})")
        for reason in found.reasons:
            output.say(f"  {output.clean(reason)}")

    output.emit(data, as_json, human)
    if not found.compatible:
        raise typer.Exit(1)


@registry.command()
def mode(
    file: File,
    new: Annotated[
        str | None, typer.Argument(metavar="[MODE]", help="The mode to set, such as FULL_TRANSITIVE.")
    ] = None,
    subject: MaybeSubject = None,
    as_json: AsJson = False,
) -> None:
    """Show or set what new versions must be compatible with: of one subject, or of those with none of their own."""
    with _open(file) as client:
        if new is not None:
            client.set_mode(_mode(new), subject)
        found = client.mode(subject)
    of = output.clean(subject) if subject is not None else "global"
    output.emit({"subject": subject, "mode": found}, as_json, lambda: output.say(f"{of}: {found}"))


def _open(file: Path) -> SchemaRegistry:
    from penstock.registry.client.registry import SchemaRegistry, settings_of
    from penstock.spec.load import load

    return SchemaRegistry(settings_of(load(file)), spec=str(file))


def _row(client: SchemaRegistry, subject: str, versions: list[int]) -> dict[str, Any]:
    last = client.version(subject, versions[-1])
    return {"subject": subject, "versions": versions, "type": last.schema.kind, "id": last.schema.id}


def _as_dict(schema: RegisteredSchema) -> dict[str, Any]:
    used = [{"name": name, **_as_dict(below)} for name, below in schema.references]
    return {"id": schema.id, "type": schema.kind, "schema": schema.text, "references": used}


def _print(schema: RegisteredSchema) -> None:
    output.say(output.clean_lines(schema.text).rstrip("\n"))
    for name, used in schema.references:
        output.say(f"\n# {output.clean(name)} (id {used.id})")
        _print(used)


def _schema(path: Path, kind: str | None) -> tuple[str, Kind]:
    from penstock.registry.client.registry import KINDS

    named = (
        _KIND_OF_SUFFIX.get(path.suffix.lower())
        if kind is None
        else next((k for k in KINDS if k == kind.upper()), None)
    )
    if named is None:
        what = f"the kind of schema in {path} is not known" if kind is None else f"there is no kind of schema '{kind}'"
        raise BadArgument(what, cause="it is avro, protobuf or json", next_command="say it with --type")
    try:
        return path.read_bytes().decode("utf-8-sig"), named
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadArgument(f"{path} cannot be read", cause=cause, next_command=f"ls -l {path}") from error


def _references(client: SchemaRegistry, given: list[str] | None) -> list[Reference]:
    from penstock.registry.client.registry import Reference

    found = []
    for each in given or ():
        name, _, target = each.partition("=")
        subject, colon, number = target.rpartition(":")
        if not (colon and number.isdecimal()):
            subject, number = target, ""
        if not (name and subject):
            raise BadArgument(
                f"'{each}' is not NAME=SUBJECT or NAME=SUBJECT:VERSION",
                next_command="penstock registry ls FILE lists the subjects",
            )
        version = int(number) if number else client.versions(subject)[-1]
        found.append(Reference(name, subject, version))
    return found


def _mode(text: str) -> Mode:
    from penstock.registry.client.registry import MODES

    for known in MODES:
        if known == text.upper():
            return known
    raise BadArgument(
        f"there is no mode '{text}'",
        cause=f"the modes are {', '.join(MODES)}",
        next_command="penstock registry mode FILE shows the one that is set",
    )
