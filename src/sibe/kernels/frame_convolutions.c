/* The convolutions of the late-fusion encoder, one frame through all layers, forward and back,
 * before the next: what lies between the layers of a small frame stays in a core's cache.
 * frame_convolutions.py says what the arguments are.
 *
 * Images are [height, width, channels] without gaps. Every product below is a sum of (a number) *
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

/* `blocks` blocks of filters and their ReLU at `pixels` neighbors, `step` numbers apart; x: under
 * the first of them. */
INLINE void convolve(int pixels, int blocks, int64_t step, const float *x, const float *weight,
                     const float *bias, float *y, const Layer *s) {
    int64_t line = s->width * s->channels;
    vector sums[MOST_BLOCKS][ROWS][VECTORS];
    for (int b = 0; b < blocks; b++) load_sums(pixels, sums[b], bias + b * BLOCK, 0);
    for (int k = 0; k < KERNEL; k++, x += line)
        for (int64_t m = 0; m < KERNEL * s->channels; m++, weight += s->filters)
            for (int b = 0; b < blocks; b++)
                add_products(pixels, sums[b], x + m, step, weight + b * BLOCK);
    for (int b = 0; b < blocks; b++) {
        for (int p = 0; p < pixels; p++)
            for (int v = 0; v < VECTORS; v++)
                sums[b][p][v] = where_active(sums[b][p][v], sums[b][p][v]);
        store_sums(pixels, sums[b], y + b * BLOCK, s->filters);
    }
}

INLINE void convolve_image_by(int64_t step, int blocks, const float *x, const float *weight,
                              const float *bias, float *y, const Layer *s) {
    int64_t parts = (s->out_width + ROWS - 1) / ROWS; /* of a row, of about equal size */
    for (int64_t f = 0; f < s->filters; f += blocks * BLOCK)
        for (int64_t row = 0; row < s->out_height; row++)
            for (int64_t part = 0; part < parts; part++) {
                int64_t p = s->out_width * part / parts;
                int64_t pixels = s->out_width * (part + 1) / parts - p;
                const float *from = x + s->stride * (row * s->width + p) * s->channels;
                float *to = y + (row * s->out_width + p) * s->filters + f;
#define DO(n) convolve(n, blocks, step, from, weight + f, bias + f, to, s)
                WITH_CONSTANT(pixels, DO)
#undef DO
            }
}

/* y = ReLU(bias + weight * x), weight [3, 3, channels, filters]. The usual distances between two
 * pixels are constants: they then are part of the instructions. Where there are registers for it,
 * two blocks of filters share what is read of x. */
static void convolve_image(const float *x, const float *weight, const float *bias, float *y,
                           const Layer *s) {
    int64_t step = s->stride * s->channels;
    if (step == 16 && s->filters % (MOST_BLOCKS * BLOCK) == 0)
        convolve_image_by(16, MOST_BLOCKS, x, weight, bias, y, s);
    else if (step == 6)
        convolve_image_by(6, 1, x, weight, bias, y, s);
    else if (step == 16)
        convolve_image_by(16, 1, x, weight, bias, y, s);
    else if (step == 32)
        convolve_image_by(32, 1, x, weight, bias, y, s);
    else
        convolve_image_by(step, 1, x, weight, bias, y, s);
}

/* What an image adds to `rows` neighbors in one row of the kernel, for a block of filters. */
INLINE void add_to_weights(int rows, const float *x, const float *g, float *weight,
                           const Layer *s) {
    int64_t step = s->stride * s->channels, down = s->stride * s->width * s->channels;
    vector sums[ROWS][VECTORS];
    load_sums(rows, sums, weight, s->filters);
    for (int64_t row = 0; row < s->out_height; row++, x += down)
        for (int64_t p = 0; p < s->out_width; p++, g += s->filters)
            add_products(rows, sums, x + p * step, 1, g);
    store_sums(rows, sums, weight, s->filters);
}

/* Adds the gradients of weight [3, 3, channels, filters] and bias, given that of the sums, g. */
static void add_weight_gradient(const float *x, const float *g, float *weight, float *bias,
                                const Layer *s) {
    int64_t depth = KERNEL * s->channels, parts = (depth + ROWS - 1) / ROWS;
    for (int64_t f = 0; f < s->filters; f += BLOCK) {
        for (int64_t k = 0; k < KERNEL; k++)
            for (int64_t part = 0; part < parts; part++) {
                int64_t m = depth * part / parts, rows = depth * (part + 1) / parts - m;
                const float *from = x + k * s->width * s->channels + m;
                float *to = weight + (k * depth + m) * s->filters + f;
#define DO(n) add_to_weights(n, from, g + f, to, s)
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

/* What the gradients of `pixels` neighbors add to a block of channels under one tap of each. */
INLINE void add_to_input(int pixels, const float *g, const float *weight, float *gx,
                         const Layer *s) {
    int64_t step = s->stride * s->channels;
    vector sums[ROWS][VECTORS];
    load_sums(pixels, sums, gx, step);
    for (int64_t f = 0; f < s->filters; f++)
        add_products(pixels, sums, g + f, s->filters, weight + f * s->channels);
    store_sums(pixels, sums, gx, step);
}

/* gx, the gradient of the input, given that of the sums, g; weight [3, 3, filters, channels]. */
static void input_gradient(const float *g, const float *weight, float *gx, const Layer *s) {
    int64_t parts = (s->out_width + ROWS - 1) / ROWS, tap = s->filters * s->channels;
    memset(gx, 0, in_size(s) * sizeof(float));
    for (int64_t row = 0; row < s->out_height; row++)
        for (int64_t part = 0; part < parts; part++) {
            int64_t p = s->out_width * part / parts;
            int64_t pixels = s->out_width * (part + 1) / parts - p;
            const float *from = g + (row * s->out_width + p) * s->filters;
            for (int64_t k = 0; k < KERNEL; k++)
                for (int64_t j = 0; j < KERNEL; j++)
                    for (int64_t c = 0; c < s->channels; c += BLOCK) {
                        int64_t y = row * s->stride + k, x = p * s->stride + j;
                        const float *w = weight + (k * KERNEL + j) * tap + c;
                        float *to = gx + (y * s->width + x) * s->channels + c;
#define DO(n) add_to_input(n, from, w, to, s)
                        WITH_CONSTANT(pixels, DO)
#undef DO
                    }
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

/* All layers of all images; the last one is pooled. outputs: where each layer's go, NULL for
 * nowhere. scratch: of each thread, one input and all outputs of an image. */
void sibe_convolve_frames(const uint8_t *x, const float *const *weights, const float *const *biases,
                          float *const *outputs, float *peaks, float *scratch, int64_t scratch_size,
                          const Layer *layers, int number, int64_t images, int threads) {
#pragma omp parallel num_threads(threads)
    {
        float *mine = scratch + omp_get_thread_num() * scratch_size;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < images; i++) {
            const Layer *s = layers, *last = layers + number - 1;
            float *from = mine, *to = mine + in_size(s);
            to_floats(x + i * in_size(s), in_size(s), mine);
            for (int layer = 0; layer < number; layer++, s++) {
                float *y = outputs[layer] ? outputs[layer] + i * out_size(s) : to;
                convolve_image(from, weights[layer], biases[layer], y, s);
                from = y;
                to += out_size(s);
            }
            find_peaks(from, peaks + i * last->filters, last);
        }
    }
}

/* The gradients, given those of the last layer but one (g_maps) and of the peaks. sums: of each
 * thread, weight and bias of each layer in turn. transposed: weights [3, 3, filters, channels], of
 * the pooled layer [filters, 3, 3, channels]. scratch as above. */
void sibe_frame_gradients(const uint8_t *x, const float *const *transposed,
                          const float *const *outputs, const float *peaks, const float *g_maps,
                          const float *g_peaks, float *sums, int64_t sums_size, float *scratch,
                          int64_t scratch_size, const Layer *layers, int number, int64_t images,
                          int threads) {
#pragma omp parallel num_threads(threads)
    {
        float *mine = scratch + omp_get_thread_num() * scratch_size;
        float *end = sums + (omp_get_thread_num() + 1) * sums_size;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < images; i++) {
            const Layer *s = layers + number - 1;
            float *g = mine + in_size(layers), *bias = end - s->filters;
            float *weight = bias - weight_size(s);
            memcpy(g, g_maps + i * in_size(s), in_size(s) * sizeof(float));
            add_pooled_gradient(outputs[number - 2] + i * in_size(s), transposed[number - 1],
                                outputs[number - 1] + i * out_size(s), peaks + i * s->filters,
                                g_peaks + i * s->filters, weight, bias, g, s);
            to_floats(x + i * in_size(layers), in_size(layers), mine);
            for (int layer = number - 2; layer >= 0; layer--) {
                s = layers + layer;
                bias = weight - s->filters;
                weight = bias - weight_size(s);
                const float *y = outputs[layer] + i * out_size(s);
                const float *from = layer ? outputs[layer - 1] + i * in_size(s) : mine;
                for (int64_t j = 0; j < out_size(s); j += LANES)
                    store(g + j, where_active(load(g + j), load(y + j)));
                add_weight_gradient(from, g, weight, bias, s);
                if (layer) input_gradient(g, transposed[layer], g + out_size(s), s);
                g += out_size(s);
            }
        }
    }
}
