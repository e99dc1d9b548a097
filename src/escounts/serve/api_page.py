"""`/docs`: the API's own description (OpenAPI) as a page to read, made here and without anything from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

METHODS = ("get", "post", "put", "delete")
DEEPEST = 6
"""Levels of an example; what lies deeper is left out."""


def api_page(document: dict[str, Any]) -> str:
    """An OpenAPI document as HTML: requests by their tags, each with what it takes, what it answers, and a curl."""
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method in METHODS:
            if method in operations:
                operation = operations[method]
                tag = (operation.get("tags") or ["service"])[0]
                groups.setdefault(tag, []).append(_operation(document, method, path, operation))
    body = "".join(f"<section><h2>{escape(tag)}</h2>{''.join(parts)}</section>" for tag, parts in groups.items())
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>escounts API</title>'
        '<link rel="stylesheet" href="/css/api.css"></head><body><main>'
        f"<h1>escounts {escape(info['version'])}: the API</h1><p>{_text(info.get('description', ''))}</p>"
        '<p>For programs: <a href="/api/openapi.json">openapi.json</a>. <a href="/">The page</a>.</p>'
        f"{body}{_errors(document)}</main></body></html>"
    )


def _operation(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    summary = (operation.get("description") or operation.get("summary", "")).strip()
    first, _, rest = summary.partition("\n")
    parts = [
        f'<details id="{escape(operation["operationId"])}"><summary><b class="{method}">{method.upper()}</b> '
        f"<code>{escape(path)}</code> <span>{_text(first)}</span></summary>",
        f"<p>{_text(rest)}</p>" if rest.strip() else "",
        _parameters(document, operation),
        _body(document, operation),
        _answers(document, operation),
        f"<pre>{escape(_curl(document, method, path, operation))}</pre></details>",
    ]
    return "".join(parts)


def _parameters(document: dict[str, Any], operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td>"
        f"<td>{escape(_kind(document, one.get('schema', {})))}{'' if one.get('required') else ', optional'}</td>"
        f"<td>{_text(one.get('description') or one.get('schema', {}).get('description', ''))}</td></tr>"
        for one in operation.get("parameters", ())
    ]
    return f"<h3>Parameters</h3><table>{''.join(rows)}</table>" if rows else ""


def _body(document: dict[str, Any], operation: dict[str, Any]) -> str:
    body = operation.get("requestBody")
    if body is None:
        return ""
    kinds = ", ".join(body["content"])
    example = _json_example(document, body["content"])
    shown = f"<pre>{escape(example)}</pre>" if example else ""
    return f"<h3>Body</h3><p>{_text(body.get('description', ''))} <code>{escape(kinds)}</code></p>{shown}"


def _answers(document: dict[str, Any], operation: dict[str, Any]) -> str:
    """What comes back when all goes well, with an example; of the rest only the statuses."""
    rows, errors = [], []
    for status, answer in sorted(operation["responses"].items()):
        if status >= "400":
            errors.append(status)
            continue
        example = _json_example(document, answer.get("content", {}))
        shown = f"<pre>{escape(example)}</pre>" if example else ""
        rows.append(f"<tr><td>{escape(status)}</td><td>{_text(answer.get('description', ''))}{shown}</td></tr>")
    return f"<h3>Answers</h3><table>{''.join(rows)}</table><p>Errors: {', '.join(errors)}</p>"


def _errors(document: dict[str, Any]) -> str:
    """What each status means, once for all requests."""
    meanings = {
        status: answer.get("description", "")
        for operations in document["paths"].values()
        for operation in operations.values()
        for status, answer in operation["responses"].items()
        if status >= "400"
    }
    rows = [f"<tr><td>{escape(status)}</td><td>{_text(text)}</td></tr>" for status, text in sorted(meanings.items())]
    shape = '<p><code>{"detail": "one sentence"}</code></p>'
    return f"<section><h2>Errors</h2>{shape}<table>{''.join(rows)}</table></section>"


def _curl(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    words = ["curl"] if method == "get" else ["curl -X", method.upper(), "-H 'X-Escounts: 1'"]
    content = operation.get("requestBody", {}).get("content", {})
    example = _json_example(document, content, indent=None)
    if example:
        words.append(f"--json '{example}'")
    elif content:
        words.append(f"-H 'Content-Type: {next(iter(content))}' --data-binary @FILE")
    return " ".join([*words, f"http://127.0.0.1:8765{path}"])


def _json_example(document: dict[str, Any], content: dict[str, Any], *, indent: int | None = 1) -> str:
    schema = content.get("application/json", {}).get("schema")
    return "" if not schema else json.dumps(_example(document, schema, DEEPEST), indent=indent, ensure_ascii=False)


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema behind a reference, and of several that are allowed the first that is not null."""
    while True:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        elif "anyOf" in schema:
            schema = next((one for one in schema["anyOf"] if one.get("type") != "null"), {})
        else:
            return schema


def _example(document: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    """A value that a schema describes."""
    schema = _resolved(document, schema)
    for name in ("examples", "enum"):
        if schema.get(name):
            return schema[name][0]
    if "const" in schema:
        return schema["const"]
    kind = schema.get("type")
    if kind == "object" and depth > 0:
        return {name: _example(document, one, depth - 1) for name, one in schema.get("properties", {}).items()}
    if kind == "array":
        return [_example(document, schema.get("items", {}), depth - 1)] if depth > 0 else []
    return {"integer": 0, "number": 0.0, "boolean": True, "string": "…"}.get(str(kind), {})


def _kind(document: dict[str, Any], schema: dict[str, Any]) -> str:
    schema = _resolved(document, schema)
    if schema.get("enum"):
        return " | ".join(json.dumps(value) for value in schema["enum"])
    return str(schema.get("type", "anything"))


def _text(text: str) -> str:
    """Escaped, with `code` as code."""
    parts = escape(" ".join(text.split())).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
