"""Everything between a checkout and what is delivered: locks and their checks, bills of materials, wheel, chart."""
