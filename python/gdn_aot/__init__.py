"""Ahead-of-time compiler of the Ascend kernels. Used to build the package, never installed with it."""
