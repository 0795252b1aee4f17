"""Make trace.csv: invented jobs with tenants, sizes and durations like those of Philly.

    python examples/philly/make_trace.py > examples/philly/trace.csv

No row is one of Philly's. An entry of MIX is a kind of job: durations are quantiles of a lognormal distribution, and
submissions are uniform over four hours. The same bytes on every machine.
"""

import random
from datetime import datetime, timedelta
from math import exp, log
from statistics import NormalDist

SPAN_S = 4 * 3600
LONGEST_S = 20 * 86400
BEGIN = datetime(2017, 10, 16)

MIX = (
    # tenant, GPUs, jobs, median of durations in seconds, sigma of their logarithm
    ("b436b2", 1, 1008, 1400, 0.6), ("b436b2", 4, 14, 30000, 1.8), ("b436b2", 8, 7, 100000, 1.0),
    ("b436b2", 16, 7, 400000, 0.2),
    ("6c71a0", 1, 975, 1300, 1.8), ("6c71a0", 2, 14, 200, 0.7), ("6c71a0", 4, 126, 200, 1.4),
    ("6c71a0", 8, 49, 18000, 1.6),
    ("6214e9", 1, 526, 250, 2.6), ("6214e9", 4, 35, 38000, 1.6), ("6214e9", 8, 14, 22000, 1.0),
    ("11cb48", 1, 309, 70, 2.6), ("11cb48", 2, 196, 20, 2.0), ("11cb48", 4, 7, 130000, 1.3),
    ("11cb48", 16, 7, 6000, 0.9),
    ("0e4a51", 1, 68, 200, 2.6), ("0e4a51", 2, 28, 140000, 1.2), ("0e4a51", 4, 56, 145000, 1.3),
    ("ee9e8c", 1, 23, 42000, 0.9), ("ee9e8c", 2, 14, 98000, 0.5), ("ee9e8c", 4, 28, 55000, 1.1),
    ("ee9e8c", 8, 70, 190000, 0.8), ("ee9e8c", 16, 14, 130000, 0.8),
    ("103959", 1, 26, 400, 2.4), ("103959", 2, 7, 260000, 0.3), ("103959", 4, 42, 90000, 0.9),
    ("7f04ca", 1, 10, 5400, 1.8), ("7f04ca", 4, 98, 35000, 1.2), ("7f04ca", 8, 28, 90000, 1.3),
    ("ed69ec", 1, 22, 70000, 0.3),
    ("e13805", 1, 4, 4600, 2.0), ("e13805", 4, 21, 800, 2.0), ("e13805", 8, 7, 75000, 1.0),
    ("e13805", 12, 14, 600, 1.2), ("e13805", 24, 7, 430, 0.3), ("e13805", 32, 7, 360, 0.1),
    ("2869ce", 1, 3, 10000, 0.2), ("2869ce", 8, 21, 190000, 0.3), ("2869ce", 32, 7, 70000, 0.1),
)  # fmt: skip


def main() -> None:
    """Print the table, in the columns of Philly's condensed one."""
    source = random.Random("philly")
    rows = []
    for tenant, gpus, count, median_s, sigma in MIX:
        for number in range(count):
            quantile = NormalDist(log(median_s), sigma).inv_cdf((number + 0.5) / count)
            duration_s = round(min(LONGEST_S, max(10.0, exp(quantile))))
            submitted = BEGIN + timedelta(seconds=int(source.random() * SPAN_S))
            rows.append((submitted, duration_s, gpus, tenant))
    print("timestamp,duration,num_gpus,gpu_time,cluster")
    for submitted, duration_s, gpus, tenant in sorted(rows):
        print(f"{submitted},{duration_s},{gpus},{duration_s * gpus},{tenant}")


if __name__ == "__main__":
    main()
