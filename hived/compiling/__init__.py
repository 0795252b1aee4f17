"""numba compiles the kernels: in a running process, and into the linked library when hived is built."""
