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
BLOCK = 16  # rows and columns of a block of the cube core
DIAGONAL = C * BLOCK  # elements in the blocks on the diagonal of a C x C matrix
FLOAT_BYTES = 4
READY = tile.Event("v", "mte3", 1)
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
def split(high, low, x, space, count):
    """``x``, float32, as two parts of 16 bits: rounded, and what that left out, which is all that ``x`` keeps."""
    tile.convert(high, x, count)
    tile.vector_barrier()
    tile.convert(space, high, count)
    tile.vector_barrier()
    tile.sub(x, x, space, count)
    tile.vector_barrier()
    tile.convert(low, x, count)


@T.macro
def make_diagonal_tables(pattern, factor_offsets, identity):
    """``pattern[i, j]`` is 1 where j = i % 16, else 0; ``factor_offsets[i, j]`` is where float i of a tensor lies."""
    for i in T.serial(C):
        tile.convert(tile.at(pattern, i * BLOCK), tile.at(identity, i % BLOCK * C), BLOCK)
    tile.sequence(factor_offsets, DIAGONAL)
    tile.vector_barrier()
    tile.shift_right(factor_offsets, factor_offsets, 4, DIAGONAL)
    tile.vector_barrier()
    tile.mul_scalar(factor_offsets, factor_offsets, FLOAT_BYTES, DIAGONAL)


@T.macro
def make_diagonal(parts, factors, pattern, factor_offsets, space):
    """Both parts of a diagonal matrix, each as its four blocks on the diagonal; ``space``: two of those in float32."""
    tile.gather(space, factors, factor_offsets, 0, DIAGONAL)
    tile.vector_barrier()
    tile.mul(space, space, pattern, DIAGONAL)
    tile.vector_barrier()
    split(parts, tile.at(parts, DIAGONAL), space, tile.at(space, DIAGONAL), DIAGONAL)


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
def make_diagonal_offsets(in_matrix, in_blocks, space):
    """Byte offsets of the diagonal of a C x C matrix of floats, and of one that is only its blocks on the diagonal."""
    tile.sequence(in_matrix, C)
    tile.vector_barrier()
    tile.shift_right(space, in_matrix, 4, C)
    tile.mul_scalar(in_blocks, in_matrix, (BLOCK + 1) * FLOAT_BYTES, C)
    tile.vector_barrier()
    tile.mul_scalar(space, space, -BLOCK * FLOAT_BYTES, C)
    tile.mul_scalar(in_matrix, in_matrix, (C + 1) * FLOAT_BYTES, C)
    tile.vector_barrier()
    tile.add(in_blocks, in_blocks, space, C)


@T.macro
def inverse_roots(norms, squares):
    """``norms = 1 / sqrt(squares + 1e-6)``; ``norms`` must hold ones."""
    tile.add_scalar(squares, squares, 1e-6, C)
    tile.vector_barrier()
    tile.sqrt(squares, squares, C)
    tile.vector_barrier()
    tile.div(norms, norms, squares, C)


@T.macro
def store_negative_identity(out, identity, space, rounded, vid):
    """Each vector core its half of ``out``."""
    tile.mul_scalar(space, identity, -1.0, SQUARE)
    tile.vector_barrier()
    tile.convert(rounded, space, SQUARE)
    order(READY)
    tile.store(tile.at(out, vid * (SQUARE // 2)), tile.at(rounded, vid * (SQUARE // 2)), SQUARE // 2, SQUARE // 2)


# Of a C x C matrix without anything above its diagonal, the upper right quarter is neither stored nor loaded.


@T.macro
def store_lower(out, matrix):
    tile.store(out, matrix, C // 2, C, rows=C // 2, max_rows=C // 2, pitch=C)
    tile.store(tile.at(out, SQUARE // 2), tile.at(matrix, SQUARE // 2), SQUARE // 2, SQUARE // 2)


@T.macro
def store_lower_pair(out, parts):
    """Both parts of such a matrix."""
    store_lower(out, parts)
    store_lower(tile.at(out, SQUARE), tile.at(parts, SQUARE))


@T.macro
def load_lower(matrix, src):
    tile.vector_barrier()
    tile.load(matrix, src, C // 2, C, rows=C // 2, max_rows=C // 2, pitch=C)
    tile.load(tile.at(matrix, SQUARE // 2), tile.at(src, SQUARE // 2), SQUARE // 2, SQUARE // 2)


@T.macro
def store_lower_product(out, sums):
    tile.store_product(out, sums, C, C, C, C // 2, C // 2)
    tile.store_product(tile.at(out, SQUARE // 2), tile.at(sums, tile.in_columns(C, C // 2, 0)), C, C, C, C // 2, C)


@T.macro
def store_diagonal_product(out, sums):
    """The four blocks on the diagonal."""
    for block in T.unroll(C // BLOCK):
        tile.store_product(
            tile.at(out, block * BLOCK * BLOCK), tile.at(sums, block * tile.in_columns(C, BLOCK, BLOCK)), C, C, BLOCK,
            BLOCK, BLOCK,
        )  # fmt: skip


# Operands of the cube core that are zero outside the blocks that are loaded lie behind each other in one buffer in L1,
# which is cleared once. Its first block is nobody's: a copy to the start of a buffer would clear that buffer.


def operand_rows(matrices: int) -> int:
    """Of 16 elements, for so many C x C matrices."""
    return BLOCK + matrices * (SQUARE // BLOCK)


def operand(buffer, number: int):
    return tile.at(buffer, BLOCK * BLOCK + number * SQUARE)


@T.macro
def load_tokens(dst, src, pitch, count):
    """A chunk of ``count`` tokens, or of C if there are more, as an operand."""
    tile.load_operand(dst, src, C, D, pitch, tile.smaller(C, count))


@T.macro
def load_lower_pair(dst, src):
    """Both parts of a matrix without anything above its diagonal."""
    for part in T.unroll(2):
        tile.load_block(tile.at(dst, part * SQUARE), tile.at(src, part * SQUARE), C, C // 2, C // 2, C)
        tile.load_block(
            tile.at(dst, part * SQUARE + tile.in_columns(C, C // 2, 0)), tile.at(src, part * SQUARE + SQUARE // 2), C,
            C // 2, C, C,
        )  # fmt: skip


@T.macro
def load_diagonal(dst, src):
    """Both parts of what ``make_diagonal`` made."""
    for part in T.unroll(2):
        for block in T.unroll(C // BLOCK):
            tile.load_block(
                tile.at(dst, part * SQUARE + block * tile.in_columns(C, BLOCK, BLOCK)),
                tile.at(src, part * DIAGONAL + block * BLOCK * BLOCK), C, BLOCK, BLOCK, BLOCK,
            )  # fmt: skip


@T.macro
def multiply_tokens(sums, pair, tokens, add):
    """``sums = pair tokens``, or ``+=``: both parts of a C x C matrix times C tokens."""
    tile.product(sums, pair, tokens, C, D, C, add=add)
    tile.product(sums, tile.at(pair, SQUARE), tokens, C, D, C, add=True)


@T.macro
def multiply_writes(sums, new, keys):
    """``sums = new^T keys``, both in two parts behind each other; the product of the rests does not count."""
    tile.product(sums, new, keys, D, D, C, a_transposed=True)
    tile.product(sums, new, tile.at(keys, TOKENS), D, D, C, a_transposed=True, add=True)
    tile.product(sums, tile.at(new, TOKENS), keys, D, D, C, a_transposed=True, add=True)


@T.macro
def multiply_weights(sums, weights, new):
    """``sums += weights new``, likewise."""
    multiply_tokens(sums, weights, new, True)
    tile.product(sums, weights, tile.at(new, TOKENS), C, D, C, add=True)


@T.macro
def keep_tokens(dst, sums):
    """C tokens in L0C as an operand of later products, which wait for every store out of L0C before them."""
    tile.keep_product(dst, sums, C, D)


@T.macro
def keep_multiplied(dst, sums, pair, tokens):
    """``dst = pair tokens``, rounded, as an operand."""
    multiply_tokens(sums, pair, tokens, False)
    keep_tokens(dst, sums)


@T.macro
def keep_rest(low, sums, high, negative_identity):
    """What rounding left out of ``high``, itself rounded; it is all that ``sums`` keeps."""
    tile.product(sums, negative_identity, high, C, D, C, add=True)
    keep_tokens(low, sums)
