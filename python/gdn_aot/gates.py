"""The gates of a Gated DeltaNet layer as vector statements, shared by the kernels that need them."""

import tilelang.language as T

from gdn_aot import tile

MAX_HEADS = 64  # elements between the gates of two tokens in the unified buffer
LOG1P_TERMS = 8  # of 2 z (1 + z^2 / 3 + z^4 / 5 + ...) at z <= 1/3: below 1e-8


@T.macro
def gates(x, strength, y, z, series, bias, minus_rate, tokens, tile_tokens):
    """x: a -> ``g = -exp(A_log) softplus(a + dt_bias)``; strength: b -> ``sigmoid(b)``; y, z, series: space.

    softplus(x) = max(x, 0) + log1p(e^-|x|), and log1p(y) = 2 artanh(y / (2 + y)): exact to float32 for every x. All are
    ``tile_tokens`` rows of MAX_HEADS floats, of which ``tokens`` count; ``minus_rate`` is -exp(A_log). The caller
    orders what it did before and does after.
    """
    for t in T.serial(tokens):
        tile.add(tile.at(x, t * MAX_HEADS), tile.at(x, t * MAX_HEADS), bias, MAX_HEADS)
    tile.mul_scalar(strength, strength, -1.0, tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    tile.absolute(y, x, tile_tokens * MAX_HEADS)
    tile.exp(strength, strength, tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    tile.mul_scalar(y, y, -1.0, tile_tokens * MAX_HEADS)
    tile.max_scalar(x, x, 0.0, tile_tokens * MAX_HEADS)
    tile.add_scalar(strength, strength, 1.0, tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    tile.exp(y, y, tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    tile.add_scalar(z, y, 2.0, tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    tile.div(z, y, z, tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    tile.mul(y, z, z, tile_tokens * MAX_HEADS)
    tile.fill(series, 1.0 / (2 * LOG1P_TERMS + 1), tile_tokens * MAX_HEADS)
    for term in T.unroll(LOG1P_TERMS):
        tile.vector_barrier()
        tile.mul(series, series, y, tile_tokens * MAX_HEADS)
        tile.vector_barrier()
        tile.add_scalar(series, series, T.float32(1) / (2 * (LOG1P_TERMS - term) - 1), tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    tile.mul(series, series, z, tile_tokens * MAX_HEADS)
    tile.fill(y, 1.0, tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    tile.mul_scalar(series, series, 2.0, tile_tokens * MAX_HEADS)
    tile.div(strength, y, strength, tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    tile.add(x, x, series, tile_tokens * MAX_HEADS)
    tile.vector_barrier()
    for t in T.serial(tokens):
        tile.mul(tile.at(x, t * MAX_HEADS), tile.at(x, t * MAX_HEADS), minus_rate, MAX_HEADS)
