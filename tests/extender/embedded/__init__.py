"""Tests of the embedded cluster: everything over real sockets, except what is a pure function."""
