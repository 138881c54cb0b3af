/* Networks of fully connected layers with ReLU between them, forward or back in one call.
 * fully_connected.py says what the arguments are.
 *
 * The samples of a batch go through in panels of PANEL, each through all layers before the next.
 * A panel is [features, PANEL]: every product below is a sum of (a number) * (PANEL numbers), and
 * weights [outputs, inputs] are read as they lie. What is beyond the last sample is 0.
 */
#ifdef __AVX512F__
#define LANES 16
#define ROWS 12
#else
#define LANES 8
#define ROWS 6 /* times two vectors: as many sums as 16 registers hold beside the operands */
#endif
#define VECTORS 2
#define PANEL (VECTORS * LANES)

#include "products.h"
#include <omp.h>
#include <string.h>

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* sums[r] += the sum over k of a[r * row + k * step] * b[k * next], b[…] a panel's row. */
INLINE void add_sum(int rows, vector sums[][VECTORS], const float *a, int64_t row, int64_t step,
                    const float *b, int64_t next, int64_t length) {
    for (int64_t k = 0; k < length; k++, a += step, b += next) add_products(rows, sums, a, row, b);
}

/* Calls DO(rows, first) for all of `number` rows, in parts of about equal size. */
#define IN_PARTS(number, DO) \
    for (int64_t parts = ((number) + ROWS - 1) / ROWS, part = 0; part < parts; part++) { \
        int64_t first = (number) * part / parts, rows = (number) * (part + 1) / parts - first; \
        WITH_CONSTANT(rows, DO) \
    }

INLINE void forward_rows(int rows, const float *x, const float *weight, const float *bias,
                         int64_t inputs, float *y, int active) {
    vector sums[ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = bias[r] - (vector){0};
    add_sum(rows, sums, weight, inputs, 1, x, PANEL, inputs);
    if (active)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECTORS; v++) sums[r][v] = where_active(sums[r][v], sums[r][v]);
    store_sums(rows, sums, y, PANEL);
}

/* y [outputs, PANEL] = bias + weight * x [inputs, PANEL], and its ReLU if `active`. */
static void layer_forward(const float *x, const float *weight, const float *bias, int64_t inputs,
                          int64_t outputs, float *y, int active) {
#define DO(n) \
    forward_rows(n, x, weight + first * inputs, bias + first, inputs, y + first * PANEL, active)
    IN_PARTS(outputs, DO)
#undef DO
}

INLINE void back_rows(int rows, const float *g, const float *weight, int64_t inputs,
                      int64_t outputs, const float *x, float *gx) {
    vector sums[ROWS][VECTORS];
    memset(sums, 0, sizeof sums);
    add_sum(rows, sums, weight, 1, inputs, g, PANEL, outputs);
    if (x)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECTORS; v++)
                sums[r][v] = where_active(sums[r][v], load(x + r * PANEL + v * LANES));
    store_sums(rows, sums, gx, PANEL);
}

/* gx [inputs, PANEL], given g [outputs, PANEL]; where x, the ReLU's output, is 0, so is gx. */
static void layer_back(const float *g, const float *weight, int64_t inputs, int64_t outputs,
                       const float *x, float *gx) {
#define DO(n) \
    back_rows(n, g, weight + first, inputs, outputs, x ? x + first * PANEL : 0, gx + first * PANEL)
    IN_PARTS(inputs, DO)
#undef DO
}

INLINE void weight_rows(int rows, const float *g, int64_t outputs, const float *x, int64_t width,
                        int64_t panels, float *to, int64_t inputs, int64_t columns) {
    vector sums[ROWS][VECTORS];
    memset(sums, 0, sizeof sums);
    for (int64_t p = 0; p < panels; p++, g += outputs * PANEL, x += width * PANEL)
        add_sum(rows, sums, g, PANEL, 1, x, width, PANEL);
    if (columns >= PANEL) {
        store_sums(rows, sums, to, inputs);
        return;
    }
    float part[ROWS * PANEL];
    store_sums(rows, sums, part, PANEL);
    for (int r = 0; r < rows; r++)
        memcpy(to + r * inputs, part + r * PANEL, columns * sizeof(float));
}

/* Rows `from` to `to` of the gradients of weight [outputs, inputs] and bias, given all panels of
 * g [outputs, PANEL] and of the layer's input, turned: x [PANEL, width], width >= inputs. */
static void weight_gradient(const float *g, const float *x, int64_t panels, int64_t inputs,
                            int64_t outputs, int64_t width, int64_t from, int64_t to, float *weight,
                            float *bias) {
    for (int64_t i = 0; i < inputs; i += PANEL) {
#define DO(n) \
    weight_rows(n, g + (from + first) * PANEL, outputs, x + i, width, panels, \
                weight + (from + first) * inputs + i, inputs, inputs - i)
        IN_PARTS(to - from, DO)
#undef DO
    }
    for (int64_t o = from; o < to; o++) {
        vector sum = {0};
        for (int64_t p = 0; p < panels; p++)
            for (int v = 0; v < VECTORS; v++) sum += load(g + (p * outputs + o) * PANEL + v * LANES);
        float total = 0;
        for (int v = 0; v < LANES; v++) total += sum[v];
        bias[o] = total;
    }
}

/* Samples [samples, features] -> panel [features, PANEL]. */
static void to_panel(const float *x, int64_t samples, int64_t features, float *panel) {
    if (samples < PANEL) memset(panel, 0, features * PANEL * sizeof(float));
    for (int64_t n = 0; n < samples; n++)
        for (int64_t f = 0; f < features; f++) panel[f * PANEL + n] = x[n * features + f];
}

/* Panel [features, PANEL] -> samples, `width` >= features numbers apart; 0 in between. */
static void from_panel(const float *panel, int64_t samples, int64_t features, float *x,
                       int64_t width) {
    for (int64_t from = 0; from < width; from += LANES) /* a few features: they stay in the cache */
        for (int64_t n = 0; n < samples; n++)
            for (int64_t f = from; f < least(from + LANES, width); f++)
                x[n * width + f] = f < features ? panel[f * PANEL + n] : 0;
}

/* One layer of one network, and where panels of its input, of the gradient of its output and of its
 * input turned ([PANEL, width]) are. The latter two are for gradients only. */
typedef struct {
    int64_t inputs, outputs, width;
    const float *weight;
    float *input, *g_output, *turned;
} Layer;

int sibe_panel(void) { return PANEL; }

/* Fills in the layers of the first network, then of the next; the first ones share their input. */
static void lay_out(Layer *layers, const float *const *weights, const int64_t *sizes,
                       int number, int networks, int64_t panels, float *kept, float *room) {
    float *inputs = kept + sizes[0] * panels * PANEL;
    for (Layer *s = layers; s < layers + networks * number; s++) {
        int l = (s - layers) % number;
        *s = (Layer){sizes[l], sizes[l + 1], (sizes[l] + PANEL - 1) / PANEL * PANEL,
                     weights[s - layers], kept, room, 0};
        s->turned = room += s->outputs * panels * PANEL;
        room += s->width * panels * PANEL;
        if (!l) continue;
        s->input = inputs;
        inputs += s->inputs * panels * PANEL;
    }
}

/* Networks of equal sizes [number + 1] on the same x [samples, sizes[0]]. weights, biases: those of
 * the first network's layers, then of the next's. kept: room for panels of x, and of all hidden
 * layers of all networks. y: [networks, samples, sizes[number]]. */
void sibe_networks(const float *x, const float *const *weights, const float *const *biases,
                   const int64_t *sizes, int number, int networks, int64_t samples, float *kept,
                   float *y, int threads) {
    int64_t panels = (samples + PANEL - 1) / PANEL, last = sizes[number];
    Layer layers[networks * number];
    lay_out(layers, weights, sizes, number, networks, panels, kept, 0);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t p = 0; p < panels; p++)
            to_panel(x + p * PANEL * sizes[0], least(samples - p * PANEL, PANEL), sizes[0],
                     kept + p * sizes[0] * PANEL);
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < panels * networks; unit++) {
            int64_t net = unit / panels, p = unit % panels;
            const Layer *s = layers + net * number, *end = s + number;
            const float *const *bias = biases + net * number;
            float out[last * PANEL];
            for (; s < end; s++, bias++) {
                int hidden = s + 1 < end;
                float *to = hidden ? s[1].input + p * s->outputs * PANEL : out;
                layer_forward(s->input + p * s->inputs * PANEL, s->weight, *bias, s->inputs,
                              s->outputs, to, hidden);
            }
            from_panel(out, least(samples - p * PANEL, PANEL), last,
                       y + (net * samples + p * PANEL) * last, last);
        }
    }
}

/* The gradients of weights and biases, unless g_weights is NULL, and of each network's x [networks,
 * samples, sizes[0]], unless gx is NULL, given those of y, and what was kept. room: for panels of
 * the gradients of all outputs, and of all inputs, turned. */
void sibe_network_gradients(const float *g, const float *const *weights, const int64_t *sizes,
                            int number, int networks, int64_t samples, float *kept, float *room,
                            float *const *g_weights, float *const *g_biases, float *gx,
                            int threads) {
    int64_t panels = (samples + PANEL - 1) / PANEL, last = sizes[number], first = sizes[0];
    Layer layers[networks * number];
    lay_out(layers, weights, sizes, number, networks, panels, kept, room);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t unit = 0; unit < panels * networks; unit++) {
            int64_t net = unit / panels, p = unit % panels;
            int64_t here = least(samples - p * PANEL, PANEL);
            const Layer *begin = layers + net * number, *s = begin + number - 1;
            float of_x[first * PANEL];
            to_panel(g + (net * samples + p * PANEL) * last, here, last,
                     s->g_output + p * last * PANEL);
            for (; s >= begin; s--) {
                const float *x = s->input + p * s->inputs * PANEL;
                if (g_weights)
                    from_panel(x, PANEL, s->inputs, s->turned + p * s->width * PANEL, s->width);
                if (s == begin && !gx) break;
                float *to = s > begin ? s[-1].g_output + p * s->inputs * PANEL : of_x;
                layer_back(s->g_output + p * s->outputs * PANEL, s->weight, s->inputs, s->outputs,
                           s > begin ? x : 0, to);
            }
            if (gx)
                from_panel(of_x, here, first, gx + (net * samples + p * PANEL) * first, first);
        }
        /* Each thread some rows of every weight: no sum depends on the number of threads. */
        int64_t mine = omp_get_thread_num(), all = omp_get_num_threads();
        for (int i = 0; g_weights && i < networks * number; i++) {
            const Layer *s = layers + i;
            weight_gradient(s->g_output, s->turned, panels, s->inputs, s->outputs, s->width,
                            s->outputs * mine / all, s->outputs * (mine + 1) / all, g_weights[i],
                            g_biases[i]);
        }
    }
}
