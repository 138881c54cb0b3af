/* The convolutions of the late-fusion encoder, one frame through all layers, forward and back,
 * before the next: what lies between the layers of a small frame stays in a core's cache.
 * frame_convolutions.py says what the arguments are.
 */
#include "frame_layers.h"

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
                              const float *bias, float *y, Ahead *ahead, const Layer *s) {
    int64_t parts = (s->out_width + ROWS - 1) / ROWS; /* of a row, of about equal size */
    for (int64_t f = 0; f < s->filters; f += blocks * BLOCK)
        for (int64_t row = 0; row < s->out_height; row++) {
            fetch_some(ahead);
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
}

/* y = ReLU(bias + weight * x), weight [3, 3, channels, filters]. The usual distances between two
 * pixels are constants: they then are part of the instructions. Where there are registers for it,
 * two blocks of filters share what is read of x. */
static void convolve_image(const float *x, const float *weight, const float *bias, float *y,
                           Ahead *ahead, const Layer *s) {
    int64_t step = s->stride * s->channels;
    if (step == 16 && s->filters % (MOST_BLOCKS * BLOCK) == 0)
        convolve_image_by(16, MOST_BLOCKS, x, weight, bias, y, ahead, s);
    else if (step == 6)
        convolve_image_by(6, 1, x, weight, bias, y, ahead, s);
    else if (step == 16)
        convolve_image_by(16, 1, x, weight, bias, y, ahead, s);
    else if (step == 32)
        convolve_image_by(32, 1, x, weight, bias, y, ahead, s);
    else
        convolve_image_by(step, 1, x, weight, bias, y, ahead, s);
}

/* What the gradients of `pixels` neighbors add to a block of channels under one tap of each. */
INLINE void add_to_input(int pixels, int64_t step, int64_t filters, const float *g,
                         const float *weight, float *gx, const Layer *s) {
    vector sums[ROWS][VECTORS];
    load_sums(pixels, sums, gx, step);
    for (int64_t f = 0; f < filters; f++)
        add_products(pixels, sums, g + f, filters, weight + f * s->channels);
    store_sums(pixels, sums, gx, step);
}

INLINE void input_gradient_by(int64_t step, int64_t filters, const float *g, const float *weight,
                              float *gx, const Layer *s) {
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
#define DO(n) add_to_input(n, step, filters, from, w, to, s)
                        WITH_CONSTANT(pixels, DO)
#undef DO
                    }
        }
}

/* gx, the gradient of the input, given that of the sums, g; weight [3, 3, filters, channels]. Usual
 * sizes are constants, as above. */
static void input_gradient(const float *g, const float *weight, float *gx, const Layer *s) {
    int64_t step = s->stride * s->channels;
    if (step == 32 && s->filters == 16)
        input_gradient_by(32, 16, g, weight, gx, s);
    else if (step == 16 && s->filters == 16)
        input_gradient_by(16, 16, g, weight, gx, s);
    else
        input_gradient_by(step, s->filters, g, weight, gx, s);
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
            Ahead ahead = {.number = 0};
            if (i + 1 < images) fetch_later(&ahead, x + (i + 1) * in_size(s), in_size(s));
            to_floats(x + i * in_size(s), in_size(s), mine);
            for (int layer = 0; layer < number; layer++, s++) {
                float *y = outputs[layer] ? outputs[layer] + i * out_size(s) : to;
                convolve_image(from, weights[layer], biases[layer], y, &ahead, s);
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
            Ahead ahead = {.number = 0};
            if (i + 1 < images) {
                for (int layer = number - 1; layer >= 0; layer--) {
                    int64_t size = out_size(layers + layer);
                    fetch_later(&ahead, outputs[layer] + (i + 1) * size, size * sizeof(float));
                }
                fetch_later(&ahead, x + (i + 1) * in_size(layers), in_size(layers));
            }
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
                add_weight_gradient(from, g, weight, bias, &ahead, s);
                if (layer) input_gradient(g, transposed[layer], g + out_size(s), s);
                g += out_size(s);
            }
        }
    }
}
