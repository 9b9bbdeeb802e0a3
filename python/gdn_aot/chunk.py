"""What the kernels of the chunked gated delta rule share: sizes, tasks, and the work of a vector core on one chunk.

Rows are cut into chunks of C tokens from their own start. Chunk c of row n has the number
``query_start_loc[n] // C + n + c``: unique, below ``T // C + N``, and known without a look at other rows. Intermediate
tensors are indexed by it and hold whole chunks; tokens past the end of a row count as zeros there.
"""

import tilelang.language as T

from gdn_aot import tile

C = 64  # tokens a chunk
D = 128  # elements a head
SQUARE = C * C
TOKENS = C * D
STATE = D * D
MAX_HEADS = 64
MASKED = -1e30  # added to exponents that do not count
LOWEST_GATE = -100.0  # e^-100 is 0 next to any float32 that is not; keeps sums of gates finite


@T.macro
def order(event):
    """``event.consumer`` waits here for everything that ``event.producer`` was given."""
    tile.signal(event)
    tile.wait(event)


@T.macro
def cumulate(sums, width):
    """Adds up C rows of ``width`` floats, inclusively and pairwise. ``sums`` has room for two such tiles."""
    tile.max_scalar(sums, sums, LOWEST_GATE, C * width)
    for step in T.unroll(6):
        tile.vector_barrier()
        tile.convert(tile.at(sums, (1 - step % 2) * (C * width)), tile.at(sums, step % 2 * (C * width)), C * width)
        tile.vector_barrier()
        tile.add(
            tile.at(sums, (1 - step % 2) * (C * width) + (1 << step) * width),
            tile.at(sums, (1 - step % 2) * (C * width) + (1 << step) * width),
            tile.at(sums, step % 2 * (C * width)),
            (C - (1 << step)) * width,
        )


@T.macro
def make_mask(mask, diagonal):
    """0 where j < i + diagonal, else MASKED; ``diagonal`` 0 leaves out the diagonal, 1 keeps it."""
    tile.fill(mask, MASKED, SQUARE)
    tile.vector_barrier()
    for i in T.serial(C - 1 + diagonal):
        tile.fill(tile.at(mask, (i + 1 - diagonal) * C), 0.0, i + 1)


@T.macro
def make_identity(identity, space):
    """``space``: C x C floats."""
    tile.fill(identity, 0.0, SQUARE)
    tile.fill(space, 0.0, SQUARE)
    tile.vector_barrier()
    for i in T.serial(C):
        tile.fill(tile.at(identity, i * C), 1.0, i + 1)
    for i in T.serial(C - 1):
        tile.fill(tile.at(space, (i + 1) * C), 1.0, i + 1)
    tile.vector_barrier()
    tile.sub(identity, identity, space, SQUARE)


@T.macro
def decay_between(decay, minus_gates, mask, space):
    """``decay[i, j] = exp(G_i - G_j + mask[i, j])`` from -G."""
    for i in T.serial(C):
        tile.convert(tile.at(decay, i * C), minus_gates, C)
    tile.subtract_from_rows(decay, decay, minus_gates, space, C)
    tile.vector_barrier()
    tile.add(decay, decay, mask, SQUARE)
    tile.vector_barrier()
    tile.exp(decay, decay, SQUARE)


@T.macro
def scale_columns(dst, src, factors):
    """``dst[i, j] = src[i, j] * factors[j]``."""
    for i in T.serial(C):
        tile.mul(tile.at(dst, i * C), tile.at(src, i * C), factors, C)


@T.macro
def solve_rows(x, lower, identity, products, space, first, count, rows, halvings):
    """Rows ``first`` to ``first + count`` of the inverse from the ``rows`` rows above and around them."""
    for i in T.serial(count):
        tile.scale_rows(products, x, tile.at(lower, (first + i) * C), space, rows)
        for step in T.serial(halvings):
            tile.vector_barrier()
            tile.add(products, products, tile.at(products, (rows >> (step + 1)) * C), (rows >> (step + 1)) * C)
        tile.vector_barrier()
        tile.sub(tile.at(x, (first + i) * C), tile.at(identity, (first + i) * C), products, C)


@T.macro
def invert(x, lower, identity, products, space):
    """``x = (I + lower)^-1`` by forward substitution in float32; only ``lower``'s elements below the diagonal count."""
    tile.fill(x, 0.0, SQUARE)
    solve_rows(x, lower, identity, products, space, 0, 16, 16, 4)
    solve_rows(x, lower, identity, products, space, 16, 16, 32, 5)
    solve_rows(x, lower, identity, products, space, 32, 32, 64, 6)


@T.macro
def make_pairs(pairs):
    """Byte offsets 0, 0, 4, 4, 8, 8, .. of 2 C factors: a row of D floats is two rows of 64."""
    tile.sequence(pairs, 2 * C)
    tile.vector_barrier()
    tile.shift_right(pairs, pairs, 1, 2 * C)
    tile.vector_barrier()
    tile.mul_scalar(pairs, pairs, 4, 2 * C)


@T.macro
def scale_tokens(tokens, factors, pairs, factors_twice, space):
    """``tokens[i, :] *= factors[i]``; C rows of D floats."""
    tile.gather(factors_twice, factors, pairs, 0, 2 * C)
    tile.vector_barrier()
    tile.scale_rows(tokens, tokens, factors_twice, space, 2 * C)


@T.macro
def key_factors(factors, gates, last_gate):
    """``exp(G_last - G_i)``: what is left of a token's write at the end of its chunk."""
    tile.mul_scalar(factors, gates, -1.0, C)
    tile.vector_barrier()
    tile.add_scalar(factors, factors, last_gate, C)
    tile.vector_barrier()
    tile.exp(factors, factors, C)


@T.macro
def query_factors(factors, gates, scale):
    """``scale exp(G_i)``: with what a token reads the state before its chunk."""
    tile.exp(factors, gates, C)
    tile.vector_barrier()
    tile.mul_scalar(factors, factors, scale, C)


@T.macro
def advance(state, writes, decay):
    """Half a state: ``state = decay state + writes``."""
    tile.mul_scalar(state, state, decay, STATE // 2)
    tile.vector_barrier()
    tile.add(state, state, writes, STATE // 2)


@T.macro
def store_zero_tokens(out, zeros, first, count, worker, workers, heads):
    """Zeros in tokens ``first`` to ``first + count`` of ``out [T, heads, D]``, shared out to ``workers``."""
    for t in T.serial(T.ceildiv(count - worker, workers)):
        tile.store(tile.at(out, (first + worker + t * workers) * heads * D), zeros, heads * D, MAX_HEADS * D)


@T.macro
def inverse_norms(norms, tokens, squares, sums):
    """``norms[i] = 1 / sqrt(|tokens[i]|^2 + 1e-6)`` for C rows of D floats; half of them at a time go to ``squares``.

    ``norms`` must hold ones; ``sums``: 2 C floats.
    """
    for half in T.serial(2):
        tile.mul(squares, tile.at(tokens, half * (TOKENS // 2)), tile.at(tokens, half * (TOKENS // 2)), TOKENS // 2)
        tile.vector_barrier()
        tile.sum_rows(tile.at(sums, half * (C // 2)), squares, C // 2, 16)
        tile.sum_rows(tile.at(sums, C + half * (C // 2)), tile.at(squares, 64), C // 2, 16)
        tile.vector_barrier()
    tile.add(sums, sums, tile.at(sums, C), C)
    tile.vector_barrier()
    tile.add_scalar(sums, sums, 1e-6, C)
    tile.vector_barrier()
    tile.sqrt(sums, sums, C)
    tile.vector_barrier()
    tile.div(norms, norms, sums, C)
