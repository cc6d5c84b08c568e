"""Tools made of the operations of an OpenAPI document (3.0 and 3.1). Pure."""
