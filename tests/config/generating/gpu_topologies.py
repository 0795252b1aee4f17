"""The output of `nvidia-smi topo -m` on machines of several kinds, written for these tests."""

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def printed(rows: str, escapes: bool = False) -> str:
    """A matrix as the program prints it: tabs between columns, a legend, perhaps an underlined header.

    A column whose heading has two words is written with `_` between them.
    """
    lines = rows.strip("\n").split("\n")
    header = "\t" + "\t".join(lines[0].split()).replace("_Affinity", " Affinity").replace("_NUMA_ID", " NUMA ID")
    body = [line.replace("|", " ").split() for line in lines[1:]]
    text = [f"\x1b[4m{header}\x1b[0m" if escapes else header]
    text += ["\t".join(" X " if word == "X" else word for word in line) for line in body]
    return "\n".join(text) + "\n" + LEGEND


# Eight GPUs in a hybrid cube mesh, two by two on PCIe switches with a network adapter each, four by four on sockets.
CUBE_MESH = printed(
    """
     GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 NIC0 NIC1 NIC2 NIC3 CPU_Affinity NUMA_Affinity
GPU0 X    NV1  NV1  NV2  NV2  SYS  SYS  SYS  PIX  PHB  SYS  SYS  0-19,40-59   0
GPU1 NV1  X    NV2  NV1  SYS  NV2  SYS  SYS  PIX  PHB  SYS  SYS  0-19,40-59   0
GPU2 NV1  NV2  X    NV2  SYS  SYS  NV1  SYS  PHB  PIX  SYS  SYS  0-19,40-59   0
GPU3 NV2  NV1  NV2  X    SYS  SYS  SYS  NV1  PHB  PIX  SYS  SYS  0-19,40-59   0
GPU4 NV2  SYS  SYS  SYS  X    NV1  NV1  NV2  SYS  SYS  PIX  PHB  20-39,60-79  1
GPU5 SYS  NV2  SYS  SYS  NV1  X    NV2  NV1  SYS  SYS  PIX  PHB  20-39,60-79  1
GPU6 SYS  SYS  NV1  SYS  NV1  NV2  X    NV2  SYS  SYS  PHB  PIX  20-39,60-79  1
GPU7 SYS  SYS  SYS  NV1  NV2  NV1  NV2  X    SYS  SYS  PHB  PIX  20-39,60-79  1
NIC0 PIX  PIX  PHB  PHB  SYS  SYS  SYS  SYS  X    PHB  SYS  SYS
NIC1 PHB  PHB  PIX  PIX  SYS  SYS  SYS  SYS  PHB  X    SYS  SYS
NIC2 SYS  SYS  SYS  SYS  PIX  PIX  PHB  PHB  SYS  SYS  X    PHB
NIC3 SYS  SYS  SYS  SYS  PHB  PHB  PIX  PIX  SYS  SYS  PHB  X
""",
    escapes=True,
)

# Eight GPUs that all reach each other through NVSwitches; every two share adapters and are near to a NUMA node.
SWITCHED = printed(
    """
     GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 NIC0 NIC1 NIC2 NIC3 CPU_Affinity   NUMA_Affinity GPU_NUMA_ID
GPU0 X    NV12 NV12 NV12 NV12 NV12 NV12 NV12 PXB  SYS  SYS  SYS  48-63,176-191  3  N/A
GPU1 NV12 X    NV12 NV12 NV12 NV12 NV12 NV12 PXB  SYS  SYS  SYS  48-63,176-191  3  N/A
GPU2 NV12 NV12 X    NV12 NV12 NV12 NV12 NV12 SYS  PXB  SYS  SYS  16-31,144-159  1  N/A
GPU3 NV12 NV12 NV12 X    NV12 NV12 NV12 NV12 SYS  PXB  SYS  SYS  16-31,144-159  1  N/A
GPU4 NV12 NV12 NV12 NV12 X    NV12 NV12 NV12 SYS  SYS  PXB  SYS  112-127        7  N/A
GPU5 NV12 NV12 NV12 NV12 NV12 X    NV12 NV12 SYS  SYS  PXB  SYS  112-127        7  N/A
GPU6 NV12 NV12 NV12 NV12 NV12 NV12 X    NV12 SYS  SYS  SYS  PXB  80-95          5  N/A
GPU7 NV12 NV12 NV12 NV12 NV12 NV12 NV12 X    SYS  SYS  SYS  PXB  80-95          5  N/A
NIC0 PXB  PXB  SYS  SYS  SYS  SYS  SYS  SYS  X    SYS  SYS  SYS
NIC1 SYS  SYS  PXB  PXB  SYS  SYS  SYS  SYS  SYS  X    SYS  SYS
NIC2 SYS  SYS  SYS  SYS  PXB  PXB  SYS  SYS  SYS  SYS  X    SYS
NIC3 SYS  SYS  SYS  SYS  SYS  SYS  PXB  PXB  SYS  SYS  SYS  X

NIC Legend:

  NIC0: mlx5_0
"""
)

# Four cards in a workstation with one socket.
WORKSTATION = printed(
    """
     GPU0 GPU1 GPU2 GPU3 CPU_Affinity NUMA_Affinity GPU_NUMA_ID
GPU0 X    PHB  PHB  PHB  0-63         0             N/A
GPU1 PHB  X    PHB  PHB  0-63         0             N/A
GPU2 PHB  PHB  X    PHB  0-63         0             N/A
GPU3 PHB  PHB  PHB  X    0-63         0             N/A
"""
)

# Four cards, bridged across: 0 with 2, 1 with 3. Two sockets; the driver is old and says SOC.
BRIDGED = printed(
    """
     GPU0 GPU1 GPU2 GPU3 mlx4_0 CPU_Affinity
GPU0 X    SOC  NV4  SOC  PHB    0-9,20-29
GPU1 SOC  X    SOC  NV4  SOC    10-19,30-39
GPU2 NV4  SOC  X    SOC  PHB    0-9,20-29
GPU3 SOC  NV4  SOC  X    SOC    10-19,30-39
mlx4_0 PHB SOC PHB  SOC  X
"""
)

# Eight cards on PCIe, copied from a terminal: blanks instead of tabs, and the command line before it.
PASTED = (
    "me@gpu-1:~$ nvidia-smi topo -m\n"
    + printed(
        """
     GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 CPU_Affinity NUMA_Affinity
GPU0 X    PIX  PXB  PXB  SYS  SYS  SYS  SYS  0-23         0
GPU1 PIX  X    PXB  PXB  SYS  SYS  SYS  SYS  0-23         0
GPU2 PXB  PXB  X    PIX  SYS  SYS  SYS  SYS  0-23         0
GPU3 PXB  PXB  PIX  X    SYS  SYS  SYS  SYS  0-23         0
GPU4 SYS  SYS  SYS  SYS  X    PIX  NODE NODE 24-47        1
GPU5 SYS  SYS  SYS  SYS  PIX  X    NODE NODE 24-47        1
GPU6 SYS  SYS  SYS  SYS  NODE NODE X    PIX  24-47        1
GPU7 SYS  SYS  SYS  SYS  NODE NODE PIX  X    24-47        1
"""
    )
).expandtabs()

# Three cards on one socket and one on the other.
LOPSIDED = printed(
    """
     GPU0 GPU1 GPU2 GPU3 CPU_Affinity NUMA_Affinity
GPU0 X    NODE NODE SYS  0-15         0
GPU1 NODE X    NODE SYS  0-15         0
GPU2 NODE NODE X    SYS  0-15         0
GPU3 SYS  SYS  SYS  X    16-31        1
"""
)
