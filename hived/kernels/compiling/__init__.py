"""Kernels compiled by numba and LLVM."""
