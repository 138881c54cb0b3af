/* frame_convolutions.c with products of bfloat16, where the processor has an instruction that
 * multiplies and adds two of them at once (AVX512_BF16): twice the arithmetic in the same time. Sums
 * are float32. A product takes pairs of neighbors in memory, so everything is laid out in pairs:
 * weights and pixels of two channels, gradients of two filters, or of two pixels.
 */
#include "frame_layers.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>

#define LINES 2 /* rows of outputs at once */
typedef uint16_t half; /* the bits of a bfloat16 */
typedef __m512i pairs; /* 16 pairs */
typedef __m256i halves; /* 16 */

int sibe_has_halves(void) { return 1; }

INLINE pairs load_pairs(const half *from) { return _mm512_loadu_si512(from); }
INLINE halves load_halves(const half *from) { return _mm256_loadu_si256((const void *)from); }
INLINE void store_halves(half *to, halves values) { _mm256_storeu_si256((void *)to, values); }
INLINE halves rounded(vector values) { return (halves)_mm512_cvtneps_pbh((__m512)values); }

/* (low[i], high[i]) for each i. */
INLINE pairs pair_up(halves low, halves high) {
    pairs above = _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16);
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low), above);
}

INLINE vector widened(halves values) { return (vector)pair_up(_mm256_setzero_si256(), values); }

/* sums[i] + x[0] * both[i][0] + x[1] * both[i][1]. */
INLINE vector dot(vector sums, pairs both, const half *x) {
    int32_t two;
    memcpy(&two, x, sizeof two);
    return (vector)_mm512_dpbf16_ps((__m512)sums, (__m512bh)both, (__m512bh)_mm512_set1_epi32(two));
}

/* ReLU; what is not a number stays so, being the second operand. */
INLINE vector active(vector values) {
    return (vector)_mm512_max_ps(_mm512_setzero_ps(), (__m512)values);
}

/* Keeps the compiler from holding an address for each of the numbers at a constant distance of it. */
#define KEPT(address) __asm__("" : "+r"(address))

INLINE int64_t half_of(int64_t number) { return (number + 1) / 2; }

/* Bytes are exact. After the last come BLOCK zeros: a pair may reach one beyond. */
INLINE void to_halves(const uint8_t *from, int64_t length, half *to) {
    int64_t i = 0;
    for (; i + BLOCK <= length; i += BLOCK) {
        __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(from + i)));
        store_halves(to + i, rounded((vector)_mm512_cvtepi32_ps(wide)));
    }
    for (; i < length; i++) {
        float value = from[i];
        int32_t bits_of;
        memcpy(&bits_of, &value, sizeof value);
        to[i] = (half)(bits_of >> 16);
    }
    memset(to + length, 0, BLOCK * sizeof *to);
}

/* A block of filters and their ReLU at `pixels` neighbors of each of `lines` rows. x: under the
 * first of them; weight [3, pairs, filters, 2]; whole: the same as y in floats, or NULL. A layer
 * without y gets its outputs as they are, not rounded, in `whole`. */
INLINE void convolve(int lines, int pixels, int64_t step, const half *x, const half *weight,
                     const float *bias, half *y, float *whole, const Layer *s) {
    int64_t line = s->width * s->channels, down = s->stride * line;
    int64_t depth = half_of(KERNEL * s->channels);
    vector sums[LINES][ROWS];
    for (int l = 0; l < lines; l++)
        for (int p = 0; p < pixels; p++) sums[l][p] = load(bias);
    for (int k = 0; k < KERNEL; k++, x += line)
        for (int64_t m = 0; m < depth; m++, weight += 2 * s->filters) {
            pairs both = load_pairs(weight);
            const half *under[LINES] = {x + 2 * m, x + 2 * m + down};
            KEPT(under[0]);
            KEPT(under[1]);
#pragma GCC unroll 2
            for (int l = 0; l < lines; l++)
#pragma GCC unroll 12
                for (int p = 0; p < pixels; p++)
                    sums[l][p] = dot(sums[l][p], both, under[l] + p * step);
        }
    for (int l = 0; l < lines; l++)
        for (int p = 0; p < pixels; p++) {
            int64_t to = (l * s->out_width + p) * s->filters;
            vector value = active(sums[l][p]);
            if (y) {
                halves short_of = rounded(value);
                store_halves(y + to, short_of);
                if (whole) store(whole + to, widened(short_of));
            } else
                store(whole + to, value);
        }
}

/* `lines` rows of outputs from `row` on. */
INLINE void convolve_rows(int lines, int64_t step, int64_t row, const half *x, const half *weight,
                          const float *bias, half *y, float *whole, const Layer *s) {
    int64_t parts = (s->out_width + ROWS - 1) / ROWS; /* of a row, of about equal size */
    for (int64_t f = 0; f < s->filters; f += BLOCK)
        for (int64_t part = 0; part < parts; part++) {
            int64_t p = s->out_width * part / parts;
            int64_t pixels = s->out_width * (part + 1) / parts - p;
            int64_t to = (row * s->out_width + p) * s->filters + f;
            const half *from = x + s->stride * (row * s->width + p) * s->channels;
            half *y_to = y ? y + to : NULL;
            float *whole_to = whole ? whole + to : NULL;
#define DO(n) convolve(lines, n, step, from, weight + 2 * f, bias + f, y_to, whole_to, s)
            WITH_CONSTANT(pixels, DO)
#undef DO
        }
}

/* Two rows at a time for the usual distances between two pixels, which then are constants. */
static void convolve_image(const half *x, const half *weight, const float *bias, half *y,
                           float *whole, const Layer *s) {
    int64_t row = 0, step = s->stride * s->channels, pairs_of_rows = s->out_height / LINES * LINES;
#define TWO_ROWS(step) convolve_rows(LINES, step, row, x, weight, bias, y, whole, s)
    if (step == 6)
        for (; row < pairs_of_rows; row += LINES) TWO_ROWS(6);
    else if (step == 16)
        for (; row < pairs_of_rows; row += LINES) TWO_ROWS(16);
    else if (step == 32)
        for (; row < pairs_of_rows; row += LINES) TWO_ROWS(32);
#undef TWO_ROWS
    for (; row < s->out_height; row++) convolve_rows(1, step, row, x, weight, bias, y, whole, s);
}

/* What of the gradient g of a pixel passes the ReLU, whose output is y. */
INLINE vector passed(const float *g, const half *y) {
    return where_active(load(g), widened(load_halves(y)));
}

/* What of g [out_height, out_width, filters] passes the ReLU: in halves of the same shape, and in pairs
 * of neighboring pixels [out_height, half of out_width, filters, 2], what is missing being 0. Adds the
 * gradient of the bias. */
static void round_gradient(const float *g, const half *y, half *by_pixel, half *by_pair,
                           float *bias, const Layer *s) {
    int64_t filters = s->filters, across = half_of(s->out_width);
    for (int64_t f = 0; f < filters; f += BLOCK) {
        vector sum = load(bias + f);
        for (int64_t row = 0; row < s->out_height; row++) {
            int64_t at = row * s->out_width * filters + f;
            half *pair_to = by_pair + 2 * (row * across * filters + f);
            for (int64_t p = 0; p < s->out_width; p += 2, at += 2 * filters, pair_to += 2 * filters) {
                vector first = passed(g + at, y + at);
                halves low = rounded(first), high = _mm256_setzero_si256();
                sum += first;
                store_halves(by_pixel + at, low);
                if (p + 1 < s->out_width) {
                    vector second = passed(g + at + filters, y + at + filters);
                    high = rounded(second);
                    sum += second;
                    store_halves(by_pixel + at + filters, high);
                }
                _mm512_storeu_si512(pair_to, pair_up(low, high));
            }
        }
        store(bias + f, sum);
    }
}

/* Of a block of channels, the inputs under tap j of neighboring outputs, as by_pair above. */
static void pair_inputs(const half *x, int64_t j, half *to, const Layer *s) {
    int64_t step = s->stride * s->channels;
    for (int64_t row = 0; row < s->height; row++) {
        const half *from = x + (row * s->width + j) * s->channels;
        for (int64_t p = 0; p < s->out_width; p += 2, from += 2 * step, to += 2 * BLOCK) {
            halves high = _mm256_setzero_si256();
            if (p + 1 < s->out_width) high = load_halves(from + step);
            _mm512_storeu_si512(to, pair_up(load_halves(from), high));
        }
    }
}

/* Adds the gradient of weight [3, 3, filters, channels], a block of both and one tap at a time.
 * paired: room for the inputs of one tap. */
static void add_half_weight_gradient(const half *x, const half *by_pair, float *weight,
                                     half *paired, const Layer *s) {
    int64_t across = half_of(s->out_width), tap = s->filters * s->channels;
    for (int64_t c = 0; c < s->channels; c += BLOCK)
        for (int64_t j = 0; j < KERNEL; j++) {
            pair_inputs(x + c, j, paired, s);
            for (int64_t k = 0; k < KERNEL; k++)
                for (int64_t f = 0; f < s->filters; f += BLOCK) {
                    float *to = weight + (k * KERNEL + j) * tap + f * s->channels + c;
                    vector sums[BLOCK];
                    for (int i = 0; i < BLOCK; i++) sums[i] = load(to + i * s->channels);
                    for (int64_t row = 0; row < s->out_height; row++) {
                        const half *from = paired + (row * s->stride + k) * across * 2 * BLOCK;
                        const half *g = by_pair + 2 * (row * across * s->filters + f);
                        for (int64_t q = 0; q < across; q++, from += 2 * BLOCK, g += 2 * s->filters) {
                            pairs both = load_pairs(from);
#pragma GCC unroll 16
                            for (int i = 0; i < BLOCK; i++) sums[i] = dot(sums[i], both, g + 2 * i);
                        }
                    }
                    for (int i = 0; i < BLOCK; i++) store(to + i * s->channels, sums[i]);
                }
        }
}

/* What the gradients of `pixels` neighbors in each of `lines` rows add to a block of channels under
 * one tap of each. */
INLINE void add_to_input(int lines, int pixels, int64_t filters, const half *g, const half *weight,
                         float *gx, const Layer *s) {
    int64_t step = s->stride * s->channels, down = step * s->width;
    int64_t below = s->out_width * filters;
    vector sums[LINES][ROWS];
    for (int l = 0; l < lines; l++)
        for (int p = 0; p < pixels; p++) sums[l][p] = load(gx + l * down + p * step);
    for (int64_t f = 0; f < filters; f += 2, weight += 2 * s->channels) {
        pairs both = load_pairs(weight);
        const half *under[LINES] = {g + f, g + f + below};
        KEPT(under[0]);
        KEPT(under[1]);
#pragma GCC unroll 2
        for (int l = 0; l < lines; l++)
#pragma GCC unroll 12
            for (int p = 0; p < pixels; p++)
                sums[l][p] = dot(sums[l][p], both, under[l] + p * filters);
    }
    for (int l = 0; l < lines; l++)
        for (int p = 0; p < pixels; p++) store(gx + l * down + p * step, sums[l][p]);
}

/* `lines` rows of outputs from `row` on. */
INLINE void add_rows_to_input(int lines, int64_t filters, int64_t row, const half *g,
                              const half *weight, float *gx, const Layer *s) {
    int64_t parts = (s->out_width + ROWS - 1) / ROWS;
    for (int64_t part = 0; part < parts; part++) {
        int64_t p = s->out_width * part / parts;
        int64_t pixels = s->out_width * (part + 1) / parts - p;
        const half *from = g + (row * s->out_width + p) * filters, *w = weight;
        for (int64_t k = 0; k < KERNEL; k++)
            for (int64_t j = 0; j < KERNEL; j++, w += filters * s->channels)
                for (int64_t c = 0; c < s->channels; c += BLOCK) {
                    int64_t y = row * s->stride + k, x = p * s->stride + j;
                    float *to = gx + (y * s->width + x) * s->channels + c;
#define DO(n) add_to_input(lines, n, filters, from, w + 2 * c, to, s)
                    WITH_CONSTANT(pixels, DO)
#undef DO
                }
    }
}

/* gx, the gradient of the input, given that of the sums, g; weight [3, 3, pairs of filters,
 * channels, 2]. */
static void input_gradient(const half *g, const half *weight, float *gx, const Layer *s) {
    int64_t row = 0;
    memset(gx, 0, in_size(s) * sizeof(float));
    if (s->filters == BLOCK)
        for (; row + LINES <= s->out_height; row += LINES)
            add_rows_to_input(LINES, BLOCK, row, g, weight, gx, s);
    for (; row < s->out_height; row++) add_rows_to_input(1, s->filters, row, g, weight, gx, s);
}

/* As sibe_convolve_frames; what goes from layer to layer is rounded to halves. weights
 * [3, pairs, filters, 2]; outputs: of all layers but the last, which goes to `last_outputs` in floats;
 * maps: those of the last but one in floats. Any of the outputs may be NULL. scratch: of each thread,
 * one input and all outputs of an image, in floats. */
void sibe_convolve_halves(const uint8_t *x, const half *const *weights, const float *const *biases,
                          half *const *outputs, float *maps, float *last_outputs, float *peaks,
                          float *scratch, int64_t scratch_size, const Layer *layers, int number,
                          int64_t images, int threads) {
#pragma omp parallel num_threads(threads)
    {
        half *mine = (half *)(scratch + omp_get_thread_num() * scratch_size);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < images; i++) {
            const Layer *s = layers, *last = layers + number - 1;
            half *from = mine, *to = mine + in_size(s) + BLOCK;
            to_halves(x + i * in_size(s), in_size(s), mine);
            for (int layer = 0; layer < number - 1; layer++, s++) {
                float *whole = layer == number - 2 ? maps + i * out_size(s) : NULL;
                convolve_image(from, weights[layer], biases[layer], to, whole, s);
                /* All at once: a store of less than a cache line first reads the line from memory. */
                if (outputs[layer])
                    memcpy(outputs[layer] + i * out_size(s), to, out_size(s) * sizeof *to);
                from = to;
                to += out_size(s);
            }
            float *y = last_outputs ? last_outputs + i * out_size(last)
                                    : scratch + (omp_get_thread_num() + 1) * scratch_size - out_size(last);
            convolve_image(from, weights[number - 1], biases[number - 1], NULL, y, last);
            find_peaks(y, peaks + i * last->filters, last);
        }
    }
}

/* As sibe_frame_gradients. transposed: halves [3, 3, pairs of filters, channels, 2], of the pooled
 * layer floats [filters, 3, 3, channels]. sums: weights [3, 3, filters, channels], but of the first layer
 * [3, 3, channels, filters] and of the pooled one [filters, 3, 3, channels]. The gradient of the first
 * layer's weights is computed in floats: its few channels make no blocks. halves_of: of each thread,
 * room for the gradient of a layer in both layouts and for its paired inputs. */
void sibe_half_gradients(const uint8_t *x, const void *const *transposed, half *const *outputs,
                         const float *maps, const float *last_outputs, const float *peaks,
                         const float *g_maps, const float *g_peaks, float *sums, int64_t sums_size,
                         half *halves_of, int64_t halves_size, float *scratch, int64_t scratch_size,
                         const Layer *layers, int number, int64_t images, int threads) {
#pragma omp parallel num_threads(threads)
    {
        float *mine = scratch + omp_get_thread_num() * scratch_size;
        float *end = sums + (omp_get_thread_num() + 1) * sums_size;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < images; i++) {
            const Layer *s = layers + number - 1;
            int64_t first = out_size(layers);
            Ahead ahead = {.number = 0};
            if (i + 1 < images)
                fetch_later(&ahead, outputs[0] + (i + 1) * first, first * sizeof(half));
            float *g = mine + in_size(layers), *bias = end - s->filters;
            float *weight = bias - weight_size(s);
            memcpy(g, g_maps + i * in_size(s), in_size(s) * sizeof(float));
            add_pooled_gradient(maps + i * in_size(s), transposed[number - 1],
                                last_outputs + i * out_size(s), peaks + i * s->filters,
                                g_peaks + i * s->filters, weight, bias, g, s);
            for (int layer = number - 2; layer >= 0; layer--) {
                s = layers + layer;
                bias = weight - s->filters;
                weight = bias - weight_size(s);
                const half *y = outputs[layer] + i * out_size(s);
                if (!layer) {
                    for (int64_t j = 0; j < out_size(s); j += LANES) store(g + j, passed(g + j, y + j));
                    to_floats(x + i * in_size(s), in_size(s), mine);
                    add_weight_gradient(mine, g, weight, bias, &ahead, s);
                    break;
                }
                half *by_pixel = halves_of + omp_get_thread_num() * halves_size;
                half *by_pair = by_pixel + out_size(s);
                half *paired = by_pair + 2 * s->out_height * half_of(s->out_width) * s->filters;
                round_gradient(g, y, by_pixel, by_pair, bias, s);
                add_half_weight_gradient(outputs[layer - 1] + i * in_size(s), by_pair, weight,
                                         paired, s);
                input_gradient(by_pixel, transposed[layer], g + out_size(s), s);
                g += out_size(s);
            }
        }
    }
}
#else
int sibe_has_halves(void) { return 0; }
void sibe_convolve_halves(void) {}
void sibe_half_gradients(void) {}
#endif
