/* Vectors of LANES floats, which the file that includes this defines. */
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define KERNEL 3 /* height and width of all convolutions */

typedef float vector __attribute__((vector_size(4 * LANES)));
typedef int32_t bits __attribute__((vector_size(4 * LANES)));
typedef float anywhere __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE vector load(const float *from) { return *(const anywhere *)from; }
INLINE void store(float *to, vector value) { *(anywhere *)to = value; }

/* `value` where `y` is above 0, else 0; a y that is not a number lets it pass, as PyTorch does. */
INLINE vector where_active(vector value, vector y) { return (vector)((bits)value & ~(y <= 0)); }

INLINE void to_floats(const uint8_t *from, int64_t length, float *to) {
    for (int64_t i = 0; i < length; i++) to[i] = from[i];
}
