/* What is done to every parameter of a network, for all its tensors in one call.
 * parameters.py says what the arguments are. */
#include <math.h>
#include <stdint.h>

/* One step of Adam. step: how many there were, of each tensor. */
void sibe_adam(float *const *parameters, const float *const *gradients, float *const *means,
               float *const *squares, float *const *steps, const int64_t *sizes, int number,
               double lr, double beta1, double beta2, double eps) {
    for (int i = 0; i < number; i++) {
        double step = ++*steps[i];
        float size = lr / (1 - pow(beta1, step)), correction = 1 / sqrt(1 - pow(beta2, step));
        float rest1 = 1 - beta1, keep2 = beta2, rest2 = 1 - beta2, small = eps;
        float *restrict p = parameters[i], *restrict m = means[i], *restrict v = squares[i];
        const float *restrict g = gradients[i];
        for (int64_t k = 0; k < sizes[i]; k++) {
            m[k] += rest1 * (g[k] - m[k]);
            v[k] = keep2 * v[k] + rest2 * g[k] * g[k];
            p[k] -= size * m[k] / (sqrtf(v[k]) * correction + small);
        }
    }
}

/* target += tau * (online - target). */
void sibe_lerp(float *const *targets, const float *const *online, const int64_t *sizes, int number,
               double tau) {
    float weight = tau;
    for (int i = 0; i < number; i++) {
        float *restrict to = targets[i];
        const float *restrict from = online[i];
        for (int64_t k = 0; k < sizes[i]; k++) to[k] += weight * (from[k] - to[k]);
    }
}
