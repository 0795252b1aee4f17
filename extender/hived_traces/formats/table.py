"""All formats, in the order in which a file is tried: the particular ones first."""

from hived_traces.formats import (
    alibaba,
    gavel,
    generic,
    helios,
    kubernetes,
    openpai,
    philly,
    prometheus,
    record,
    slurm,
)
from hived_traces.formats.format import Format

FORMATS: tuple[Format, ...] = (
    philly.TABLE,
    philly.JSON,
    helios.HELIOS,
    helios.ACME,
    alibaba.PAI,
    alibaba.GPU_2023,
    alibaba.SPOT_2026,
    gavel.FORMAT,
    slurm.FORMAT,
    openpai.FORMAT,
    prometheus.FORMAT,
    kubernetes.FORMAT,
    record.FORMAT,
    generic.FORMAT,
)
