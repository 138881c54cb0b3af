/* What PyTorch and NumPy do at a fraction of the processor's speed: the weight gradient of a small
 * convolution, a convolution of bytes, and cropped, stacked frames. library.py compiles this file;
 * the callers beside it say what the arguments are, and everything here has a plain twin in Python.
 *
 * Images are [height, width, channels] without gaps. For a 3x3 kernel the pixels under one row of
 * it are then 3 * channels numbers in a row, and so are the filters of one output: both products
 * below are sums of (a number) * (a few vectors of filters), kept in registers.
 */
#include <omp.h>
#include <string.h>

#define LANES 8 /* floats in a vector */
#define PAIR (2 * LANES)
#define ROWS 6 /* times two vectors of sums: as many as 16 registers hold beside the operands */
#include "vectors.h"

typedef struct {
    int64_t images, height, width, channels, stride, out_height, out_width, filters;
} Shape;

/* The first of the input's rows under a row of the output. */
INLINE int64_t top_row(const Shape *s, int64_t row) {
    return row / s->out_height * s->height + row % s->out_height * s->stride;
}

/* out[m, :] += sum over pixels of x[pixel, m] * g[pixel, :], m < rows, for a PAIR of filters. */
INLINE void add_products(int rows, int64_t pixels, const float *x, int64_t step, const float *g,
                         int64_t filters, float *out) {
    vector sums[ROWS][2];
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < 2; v++) sums[m][v] = load(out + m * filters + v * LANES);
    for (int64_t p = 0; p < pixels; p++, x += step, g += filters) {
        vector g0 = load(g), g1 = load(g + LANES);
#pragma GCC unroll 6
        for (int m = 0; m < rows; m++) {
            sums[m][0] += x[m] * g0;
            sums[m][1] += x[m] * g1;
        }
    }
    for (int m = 0; m < rows; m++)
        for (int v = 0; v < 2; v++) store(out + m * filters + v * LANES, sums[m][v]);
}

/* What row `row` of the output, with gradient g [out_width, filters], adds to weight
 * [3, 3 * channels, filters] and bias [filters]. */
static void add_row(const void *x, int bytes, const float *g, float *weight, float *bias,
                    const Shape *s, int64_t row) {
    int64_t length = s->width * s->channels, depth = KERNEL * s->channels, filters = s->filters;
    int64_t step = s->stride * s->channels, width = s->out_width;
    int64_t parts = (depth + ROWS - 1) / ROWS; /* of about equal size */
    float buffer[length];
    for (int64_t k = 0; k < KERNEL; k++) {
        int64_t begin = (top_row(s, row) + k) * length;
        const float *from = bytes ? buffer : (const float *)x + begin;
        if (bytes) to_floats((const uint8_t *)x + begin, length, buffer);
        for (int64_t part = 0; part < parts; part++) {
            int64_t m = depth * part / parts, rows = depth * (part + 1) / parts - m;
            for (int64_t f = 0; f < filters; f += PAIR) {
                float *to = weight + (k * depth + m) * filters + f;
                switch (rows) { /* a constant each, so that the sums stay in registers */
                case 6: add_products(6, width, from + m, step, g + f, filters, to); break;
                case 5: add_products(5, width, from + m, step, g + f, filters, to); break;
                case 4: add_products(4, width, from + m, step, g + f, filters, to); break;
                default: add_products(3, width, from + m, step, g + f, filters, to);
                }
            }
        }
    }
    for (int64_t f = 0; f < filters; f += LANES) {
        vector sum = load(bias + f);
        for (int64_t p = 0; p < width; p++) sum += load(g + p * filters + f);
        store(bias + f, sum);
    }
}

/* g, y [images, out_height, out_width, filters]: the gradient and the value of the ReLU's output.
 * What passes the ReLU is written to `passed`, of the same shape, unless that is NULL.
 * sums [threads, 9 * channels + 1, filters]: each thread's own share of weight and bias. */
void sibe_weight_gradient(const void *x, int bytes, const float *g, const float *y, float *passed,
                          float *sums, const Shape *s, int threads) {
    int64_t weights = KERNEL * KERNEL * s->channels * s->filters;
    int64_t length = s->out_width * s->filters;
#pragma omp parallel num_threads(threads)
    {
        float *mine = sums + omp_get_thread_num() * (weights + s->filters), buffer[length];
#pragma omp for schedule(static)
        for (int64_t row = 0; row < s->images * s->out_height; row++) {
            float *here = passed ? passed + row * length : buffer;
            for (int64_t i = row * length, k = 0; k < length; i += LANES, k += LANES)
                store(here + k, where_active(load(g + i), load(y + i)));
            add_row(x, bytes, here, mine, mine + weights, s, row);
        }
    }
}

/* A PAIR of filters and their ReLU at `pixels` neighbors; x: the three rows under the first of them. */
INLINE void convolve(int pixels, const float *const *x, int64_t step, int64_t depth,
                     const float *weight, const float *bias, int64_t filters, float *y) {
    vector sums[ROWS][2];
    for (int p = 0; p < pixels; p++)
        for (int v = 0; v < 2; v++) sums[p][v] = load(bias + v * LANES);
    for (int k = 0; k < KERNEL; k++)
        for (int64_t m = 0; m < depth; m++, weight += filters) {
            vector w0 = load(weight), w1 = load(weight + LANES);
#pragma GCC unroll 6
            for (int p = 0; p < pixels; p++) {
                sums[p][0] += x[k][p * step + m] * w0;
                sums[p][1] += x[k][p * step + m] * w1;
            }
        }
    for (int p = 0; p < pixels; p++)
        for (int v = 0; v < 2; v++)
            store(y + p * filters + v * LANES, where_active(sums[p][v], sums[p][v]));
}

static void convolve_row(const uint8_t *x, const float *weight, const float *bias, float *y,
                         const Shape *s, int64_t row) {
    int64_t length = s->width * s->channels, depth = KERNEL * s->channels, filters = s->filters;
    int64_t step = s->stride * s->channels, top = top_row(s, row);
    float buffer[KERNEL][length];
    for (int k = 0; k < KERNEL; k++) to_floats(x + (top + k) * length, length, buffer[k]);
    y += row * s->out_width * filters;
    for (int64_t p = 0; p < s->out_width; p += ROWS) {
        const float *under[KERNEL] = {buffer[0] + p * step, buffer[1] + p * step,
                                      buffer[2] + p * step};
        int64_t left = s->out_width - p < ROWS ? s->out_width - p : ROWS;
        for (int64_t f = 0; f < filters; f += PAIR) {
            const float *w = weight + f, *b = bias + f;
            float *to = y + p * filters + f;
            switch (left) { /* a constant each, so that the sums stay in registers */
            case 6: convolve(6, under, step, depth, w, b, filters, to); break;
            case 5: convolve(5, under, step, depth, w, b, filters, to); break;
            case 4: convolve(4, under, step, depth, w, b, filters, to); break;
            case 3: convolve(3, under, step, depth, w, b, filters, to); break;
            case 2: convolve(2, under, step, depth, w, b, filters, to); break;
            default: convolve(1, under, step, depth, w, b, filters, to);
            }
        }
    }
}

/* y [images, out_height, out_width, filters] = ReLU(bias + weight * x), x bytes,
 * weight [3, 3 * channels, filters]. */
void sibe_convolve_bytes(const uint8_t *x, const float *weight, const float *bias, float *y,
                         const Shape *s, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < s->images * s->out_height; row++)
        convolve_row(x, weight, bias, y, s, row);
}

typedef struct {
    int64_t states, stack, height, width, frame_bytes, row_bytes;
} Stacks;

/* One row of a state: pixel after pixel, 3 bytes of each frame. They travel as 4; the byte too many
 * is overwritten by what comes next, and left out at the end of the row. */
INLINE void interleave(int64_t stack, int64_t width, const uint8_t *const *rows, uint8_t *out) {
    for (int64_t x = 0; x < width - 1; x++)
        for (int64_t k = 0; k < stack; k++, out += 3) memcpy(out, rows[k] + 3 * x, 4);
    for (int64_t k = 0; k < stack; k++, out += 3) memcpy(out, rows[k] + 3 * (width - 1), 3);
}

/* Crops of frames of 3 channels: slots [states, stack], corners [states] in bytes from a frame's
 * start, out [states, height, width, stack, 3]. */
void sibe_stack_crops(const uint8_t *frames, const int64_t *slots, const int64_t *corners,
                      uint8_t *out, const Stacks *s, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < s->states * s->height; row++) {
        int64_t n = row / s->height, offset = corners[n] + row % s->height * s->row_bytes;
        const uint8_t *rows[s->stack];
        for (int64_t k = 0; k < s->stack; k++)
            rows[k] = frames + slots[n * s->stack + k] * s->frame_bytes + offset;
        uint8_t *to = out + row * s->width * s->stack * 3;
        if (s->stack == 1) memcpy(to, rows[0], 3 * s->width);
        else if (s->stack == 3) interleave(3, s->width, rows, to);
        else interleave(s->stack, s->width, rows, to);
    }
}
