/* What frame_convolutions.c and half_convolutions.c share: sizes of a layer, sums in registers, the weight
 * gradient in float32, and the max-pooled last layer.
 *
 * Images are [height, width, channels] without gaps. Every product is a sum of (a number) *
 * (the 16 filters, or channels, of a block), for up to ROWS such numbers at once, kept in registers.
 */
#ifdef __AVX512F__
#define LANES 16
#define ROWS 12
#define MOST_BLOCKS 2
#else
#define LANES 8
#define ROWS 6 /* times two vectors: as many sums as 16 registers hold beside the operands */
#define MOST_BLOCKS 1
#endif
#define BLOCK 16
#define VECTORS (BLOCK / LANES)

#include "vectors.h"
#include <omp.h>
#include <string.h>

typedef struct {
    int64_t height, width, channels, stride, out_height, out_width, filters;
} Layer;

INLINE int64_t in_size(const Layer *s) { return s->height * s->width * s->channels; }
INLINE int64_t out_size(const Layer *s) { return s->out_height * s->out_width * s->filters; }
INLINE int64_t weight_size(const Layer *s) { return KERNEL * KERNEL * s->channels * s->filters; }

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

/* What the next image will read: fetched into the cache a few lines at a time, between other work. */
#define FETCHED 8 /* pieces; of deeper networks the rest, which is small, is not fetched */
typedef struct {
    const char *at[FETCHED], *end[FETCHED];
    int now, number;
} Ahead;

INLINE void fetch_later(Ahead *ahead, const void *from, int64_t bytes) {
    if (ahead->number == FETCHED) return;
    ahead->at[ahead->number] = from;
    ahead->end[ahead->number++] = (const char *)from + bytes;
}

INLINE void fetch_some(Ahead *ahead) {
    for (int line = 0; line < 6 && ahead->now < ahead->number; line++) {
        __builtin_prefetch(ahead->at[ahead->now]);
        ahead->at[ahead->now] += 64;
        if (ahead->at[ahead->now] >= ahead->end[ahead->now]) ahead->now++;
    }
}

/* What an image adds to `rows` neighbors in one row of the kernel, for a block of filters. */
INLINE void add_to_weights(int rows, const float *x, const float *g, float *weight, Ahead *ahead,
                           const Layer *s) {
    int64_t step = s->stride * s->channels, down = s->stride * s->width * s->channels;
    vector sums[ROWS][VECTORS];
    load_sums(rows, sums, weight, s->filters);
    for (int64_t row = 0; row < s->out_height; row++, x += down) {
        fetch_some(ahead);
        for (int64_t p = 0; p < s->out_width; p++, g += s->filters)
            add_products(rows, sums, x + p * step, 1, g);
    }
    store_sums(rows, sums, weight, s->filters);
}

/* Adds the gradients of weight [3, 3, channels, filters] and bias, given that of the sums, g. */
static void add_weight_gradient(const float *x, const float *g, float *weight, float *bias,
                                Ahead *ahead, const Layer *s) {
    int64_t depth = KERNEL * s->channels, parts = (depth + ROWS - 1) / ROWS;
    for (int64_t f = 0; f < s->filters; f += BLOCK) {
        for (int64_t k = 0; k < KERNEL; k++)
            for (int64_t part = 0; part < parts; part++) {
                int64_t m = depth * part / parts, rows = depth * (part + 1) / parts - m;
                const float *from = x + k * s->width * s->channels + m;
                float *to = weight + (k * depth + m) * s->filters + f;
#define DO(n) add_to_weights(n, from, g + f, to, ahead, s)
                WITH_CONSTANT(rows, DO)
#undef DO
            }
        vector sums[1][VECTORS];
        load_sums(1, sums, bias + f, 0);
        for (int64_t p = f; p < out_size(s); p += s->filters)
            for (int v = 0; v < VECTORS; v++) sums[0][v] += load(g + p + v * LANES);
        store_sums(1, sums, bias + f, 0);
    }
}

/* The largest value of each filter over all places. */
static void find_peaks(const float *y, float *peaks, const Layer *s) {
    for (int64_t f = 0; f < s->filters; f += LANES) {
        vector best = load(y + f);
        for (int64_t p = f + s->filters; p < out_size(s); p += s->filters) {
            vector here = load(y + p);
            bits take = (here > best) | (here != here); /* not a number wins, as in PyTorch */
            best = (vector)(((bits)here & take) | ((bits)best & ~take));
        }
        store(peaks + f, best);
    }
}

/* How many places have a filter's peak, and the last of them, for each filter of a vector. */
INLINE void find_places(const float *y, const float *peaks, int32_t *number, int32_t *last,
                        const Layer *s) {
    vector peak = load(peaks);
    bits count = {0}, place = {0};
    for (int32_t p = 0; p < s->out_height * s->out_width; p++, y += s->filters) {
        bits here = load(y) == peak; /* -1 where it is */
        count -= here;
        place = (here & p) | (~here & place);
    }
    memcpy(number, &count, sizeof count);
    memcpy(last, &place, sizeof place);
}

/* What one place adds to the gradients of a pooled filter and of the input under it. */
INLINE void add_place(float share, const float *x, const float *weight, float *g_weight, float *gx,
                      const Layer *s) {
    int64_t line = s->width * s->channels, span = KERNEL * s->channels;
    for (int64_t k = 0; k < KERNEL; k++, x += line, gx += line)
        for (int64_t m = 0; m < span; m += LANES, weight += LANES, g_weight += LANES) {
            store(g_weight, load(g_weight) + share * load(x + m));
            store(gx + m, load(gx + m) + share * load(weight));
        }
}

/* Adds the gradients of the pooled layer's weight [filters, 3, 3, channels], bias and input x.
 * Only the places of a filter's peak have any: they share it evenly, as in PyTorch. */
static void add_pooled_gradient(const float *x, const float *weight, const float *y,
                                const float *peaks, const float *g_peaks, float *g_weight,
                                float *g_bias, float *gx, const Layer *s) {
    int64_t tap = KERNEL * KERNEL * s->channels;
    int32_t number[LANES], last[LANES];
    for (int64_t f = 0; f < s->filters; f++, weight += tap, g_weight += tap) {
        if (f % LANES == 0) find_places(y + f, peaks + f, number, last, s);
        if (peaks[f] <= 0) continue; /* the ReLU lets nothing pass */
        float share = g_peaks[f] / number[f % LANES];
        g_bias[f] += g_peaks[f];
        /* Nearly always there is one place, the last. */
        int32_t end = last[f % LANES];
        for (int32_t p = number[f % LANES] == 1 ? end : 0; p <= end; p++) {
            if (y[p * s->filters + f] != peaks[f]) continue;
            int64_t row = p / s->out_width * s->stride, column = p % s->out_width * s->stride;
            int64_t under = (row * s->width + column) * s->channels;
            add_place(share, x + under, weight, g_weight, gx + under, s);
        }
    }
}
