"""The declared schema of a topic: field names, types, and which of them must be there."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic import Field as Described
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from penstock.spec import types
from penstock.spec.types import Array, Epoch, Map, Member, Scalar, Struct, Type


def _short_form(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


class _ShortFormToo:
    """Tells the JSON Schema that a field may be just its type."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "description": "The type; short for {type: ...}."}, handler(core)]}


class Field(BaseModel):
    """One field. `amount: double` is short for `amount: {type: double}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str = Described(
        description="A Spark type: `string`, `boolean`, `tinyint`, `smallint`, `int`, `bigint`, `float`, "
        "`double`, `decimal(p,s)`, `date`, `timestamp`, `timestamp_ntz`, `binary`, `array<type>`, "
        "`map<string,type>`, `struct<name:type,...>`; or `struct` "
        "with `fields`, `array` with `items`, `map` with `values`."
    )
    required: bool = Described(False, description="The field must be there and must not be null.")
    epoch: Epoch | None = Described(
        None, description="A timestamp written as a number: seconds, milliseconds or microseconds."
    )
    fields: dict[str, FieldOrType] | None = Described(None, description="The fields of a `struct`.")
    items: FieldOrType | None = Described(None, description="The items of an `array`.")
    values: FieldOrType | None = Described(None, description="The values of a `map`; its keys are strings.")

    @model_validator(mode="after")
    def _is_a_type(self) -> Field:
        try:
            self.resolved()
        except types.TypeMistake as mistake:
            raise PydanticCustomError("type", "{text}", {"text": str(mistake)}) from None
        return self

    def resolved(self) -> Type:
        nested = {"struct": self.fields, "array": self.items, "map": self.values}
        for kind, given in nested.items():
            if given is not None and self.type != kind:
                part = {"struct": "fields", "array": "items", "map": "values"}[kind]
                raise types.TypeMistake(f"`{part}` belongs to type '{kind}', not to '{self.type}'")
        if self.fields is not None:
            return struct_of(self.fields)
        if self.items is not None:
            return Array(self.items.resolved())
        if self.values is not None:
            return Map(self.values.resolved())
        if self.type in nested:
            raise types.TypeMistake(
                {
                    "struct": "a struct needs `fields`, or write struct<name:type,...>",
                    "array": "an array needs `items`, or write array<type>",
                    "map": "a map needs `values`, or write map<string,type>",
                }[self.type]
            )
        parsed = types.parse(self.type)
        if self.epoch is None:
            return parsed
        if parsed not in (Scalar("timestamp"), Scalar("timestamp_ntz")):
            raise types.TypeMistake(f"`epoch` belongs to a timestamp, not to '{self.type}'")
        return Scalar(parsed.ddl(), self.epoch)


FieldOrType = Annotated[Field, BeforeValidator(_short_form), _ShortFormToo()]
Field.model_rebuild()


def struct_of(fields: dict[str, Field]) -> Struct:
    if not fields:
        raise types.TypeMistake("a struct needs at least one field")
    spelled: dict[str, str] = {}
    for name in fields:
        if not name:
            raise types.TypeMistake("a field needs a name")
        other = spelled.setdefault(name.lower(), name)
        if other != name:
            raise types.TypeMistake(
                f"fields '{other}' and '{name}' differ only in case, and SQL does not tell them apart"
            )
    return Struct(tuple(Member(name, field.resolved(), field.required) for name, field in fields.items()))


class Schema(BaseModel):
    """The declared fields of a record. Fields that are not declared are left out without an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    fields: dict[str, FieldOrType] = Described(min_length=1, description="Field name to type.")

    @model_validator(mode="after")
    def _is_a_struct(self) -> Schema:
        try:
            self.struct()
        except types.TypeMistake as mistake:
            raise PydanticCustomError("type", "{text}", {"text": str(mistake)}) from None
        return self

    def struct(self) -> Struct:
        return struct_of(self.fields)
