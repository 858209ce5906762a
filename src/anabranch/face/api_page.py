"""One page about what the API can do. It loads nothing from elsewhere and runs no script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #94a3b855 }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 860px; padding: 0 1rem }
h3 { font-family: ui-monospace, monospace; font-size: 1rem; margin: 1.6rem 0 .2rem }
td, th { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid var(--line) }
pre { overflow: auto; background: #94a3b81a; padding: .6rem } p { margin: .3rem 0 }
"""


def api_page(schema: Mapping[str, Any]) -> str:
    """`schema` as OpenAPI has it."""
    info = schema["info"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>",
        "<p>Every request carries <code>Authorization: Bearer TOKEN</code>, but those for"
        " <code>/health</code> and <code>/ready</code>. The same for programs:"
        " <code>/api/openapi.json</code>.</p>",
    ]
    tag = ""
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                parts.append(f"<h2>{escape(tag.capitalize())}</h2>")
            parts += _operation(method.upper(), path, operation, schema)
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'><title>Anabranch API</title>"
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _operation(
    method: str, path: str, operation: Mapping[str, Any], schema: Mapping[str, Any]
) -> Iterator[str]:
    yield f"<h3>{method} {escape(path)}</h3><p>{escape(operation.get('description', ''))}</p>"
    if parameters := operation.get("parameters"):
        rows = "".join(_parameter(one) for one in parameters)
        yield f"<table><tr><th>parameter</th><th>type</th><th></th></tr>{rows}</table>"
    if body := operation.get("requestBody"):
        wanted = _resolved(body["content"]["application/json"]["schema"], schema)
        fields = {name: _kind(one) for name, one in wanted.get("properties", {}).items()}
        yield f"<p>JSON:</p><pre>{escape(json.dumps(fields, indent=2))}</pre>"
    answers = ", ".join(
        f"{code} {one['description']}" for code, one in operation["responses"].items()
    )
    yield f"<p>Answers: {escape(answers)}</p>"


def _parameter(parameter: Mapping[str, Any]) -> str:
    name = f"{parameter['name']}{'' if parameter.get('required') else ' (optional)'}"
    cells = (name, _kind(parameter["schema"]), parameter.get("description", ""))
    return f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in cells)}</tr>"


def _kind(wanted: Mapping[str, Any]) -> str:
    kinds = [one.get("type", "") for one in wanted.get("anyOf", [wanted])]
    limits = [
        f"{name} {wanted[name]}"
        for name in ("minimum", "maximum", "maxLength", "default")
        if name in wanted
    ]
    return ", ".join([" or ".join(kind for kind in kinds if kind != "null"), *limits])


def _resolved(wanted: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = wanted.get("$ref", "").rpartition("/")[2]
    resolved: Mapping[str, Any] = schema["components"]["schemas"][name] if name else wanted
    return resolved
