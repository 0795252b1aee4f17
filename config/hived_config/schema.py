"""The JSON schema (draft 7) of the scheduler's configuration file, for editors.

A schema judges keys and kinds of values one by one; whether cells exist, fit and are given once is for the loader to
say. Every file that the loader accepts is valid here, too: names may look like numbers (`cellAddress: 4`), and a key
without a value counts as left out. Beside the words of JSON schema, `x-default` is a default that is no value but a
rule.
"""

from hived_config.kinds import Schema
from hived_config.loader import DOCUMENT, RECORDS

SCHEMA: Schema = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "HiveD scheduler configuration",
    **DOCUMENT.definition(),
    "definitions": {record.name: record.definition() for record in RECORDS},
}
