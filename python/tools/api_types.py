#!/usr/bin/env python3
"""Writes ringway/api.py: the types of the administration API, from its description /openapi.json.

Usage: tools/api_types.py <openapi.json >ringway/api.py
"""

import json
import sys
import textwrap
from keyword import iskeyword
from typing import Any

HEAD = '''"""The objects of the administration API, as `/openapi.json` describes them: see `ringway.Client`.

tools/api_types.py writes this file.
"""

from __future__ import annotations

from typing import {names}


{body}
'''

Schema = dict[str, Any]


def type_of(schema: Schema) -> str:
    """The Python type of a schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if alternatives := schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf"):
        return " | ".join(dict.fromkeys(type_of(one) for one in alternatives))
    kinds = schema.get("type", "any")
    return " | ".join(simple(kind, schema) for kind in (kinds if isinstance(kinds, list) else [kinds]))


def simple(kind: str, schema: Schema) -> str:
    if kind == "array":
        return f"list[{type_of(schema.get('items', {}))}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {type_of(values) if isinstance(values, dict) else 'Any'}]"
    return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}.get(kind, "Any")


def fields_of(schema: Schema, schemas: dict[str, Schema]) -> tuple[dict[str, Schema], set[str]]:
    """All fields of an object, also those of the schemas that it consists of, and the names of the required ones."""
    if "$ref" in schema:
        return fields_of(schemas[type_of(schema)], schemas)
    fields, required = dict(schema.get("properties", {})), set(schema.get("required", ()))
    for part in schema.get("allOf", ()):
        more, needed = fields_of(part, schemas)
        fields |= more
        required |= needed
    return fields, required


def docstring(text: str) -> str:
    text = text.replace("\\", "\\\\") + ("." if text.endswith('"') else "")
    return textwrap.fill(f'"""{text}"""', 118, initial_indent="    ", subsequent_indent="    ")


def field_type(schema: Schema, required: bool) -> str:
    kind = type_of(schema)
    return f"Required[{kind}]" if required else kind


def definition(name: str, schema: Schema, schemas: dict[str, Schema]) -> str:
    fields, required = fields_of(schema, schemas)
    if any(not field.isidentifier() or iskeyword(field) for field in fields):
        # A class cannot have such a field.
        pairs = (f'    "{field}": "{field_type(kind, field in required)}",' for field, kind in fields.items())
        return "\n".join([f'{name} = TypedDict("{name}", {{', *pairs, "}, total=False)"])
    lines = [f"class {name}(TypedDict, total=False):"]
    if description := schema.get("description"):
        lines += [docstring(description), ""]
    for field, kind in fields.items():
        lines.append(f"    {field}: {field_type(kind, field in required)}")
        if description := kind.get("description"):
            lines.append(docstring(description))
    if not fields:
        lines.append("    pass")
    return "\n".join(lines)


def write(description: Schema) -> str:
    """The module for an API with this description."""
    schemas: dict[str, Schema] = description["components"]["schemas"]
    parts = [definition(name, schemas[name], schemas) for name in sorted(schemas)]
    body = "\n\n\n".join(parts)
    names = ", ".join(name for name in ("Any", "Required", "TypedDict") if name in body)
    return HEAD.format(names=names, body=body)


if __name__ == "__main__":
    sys.stdout.write(write(json.load(sys.stdin)))
