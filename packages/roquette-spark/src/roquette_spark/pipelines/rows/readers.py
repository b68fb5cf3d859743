"""Which reader a form's bodies need."""

from roquette_spark.pipelines.kit.message_rows import RowForm
from roquette_spark.pipelines.rows.decoder import BodyReader


def body_reader(form: RowForm, registry: str = "") -> BodyReader | None:
    """A reader for one task; None for bodies that stay as they are.

    Args:
        registry: address of the one that has the schemas, where bodies name theirs.
    """
    if form.kind == "raw":
        return None
    if form.kind == "json":
        from roquette_spark.pipelines.rows.json_rows import JsonReader

        return JsonReader(form.body_schema)
    if form.kind == "registry":
        from roquette_spark.pipelines.rows.registry_rows import RegistryReader
        from roquette_spark.registry import Registry

        return RegistryReader(form.body_schema, Registry(registry))
    from roquette_spark.pipelines.rows.avro_rows import AvroReader

    return AvroReader(form.body_schema, form.avro_schema)
