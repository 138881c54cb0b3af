/* Sums of (a number) * (a block of VECTORS vectors) for up to ROWS numbers at once, kept in registers.
 * The file that includes this defines LANES, VECTORS and ROWS. */
#include "vectors.h"

/* Calls DO(number) with a constant, so that the sums stay in registers. */
#define ONE(DO, n) case n: DO(n); break;
#define SIX(DO) ONE(DO, 1) ONE(DO, 2) ONE(DO, 3) ONE(DO, 4) ONE(DO, 5) ONE(DO, 6)
#if ROWS == 12
#define ALL(DO) SIX(DO) ONE(DO, 7) ONE(DO, 8) ONE(DO, 9) ONE(DO, 10) ONE(DO, 11) ONE(DO, 12)
#else
#define ALL(DO) SIX(DO)
#endif
#define WITH_CONSTANT(number, DO) switch (number) { ALL(DO) }

INLINE void load_sums(int rows, vector sums[][VECTORS], const float *from, int64_t step) {
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = load(from + r * step + v * LANES);
}

INLINE void store_sums(int rows, vector sums[][VECTORS], float *to, int64_t step) {
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) store(to + r * step + v * LANES, sums[r][v]);
}

/* sums[r] += x[r * step] * b, b a block. */
INLINE void add_products(int rows, vector sums[][VECTORS], const float *x, int64_t step,
                         const float *b) {
    vector block[VECTORS];
    for (int v = 0; v < VECTORS; v++) block[v] = load(b + v * LANES);
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] += x[r * step] * block[v];
}
