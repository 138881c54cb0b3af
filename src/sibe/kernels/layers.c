/* The robot laid over a picture and blocks of pixels averaged, in one pass over the bytes.
 * layers.py says what the arguments are. */
#include <stdint.h>
#include <string.h>

/* One row of `width` pixels: out = robot + (1 - coverage) * picture, in whole numbers. */
static void lay_row(const uint8_t *robot, const uint8_t *picture, int64_t width, uint8_t *out) {
    memcpy(out, picture, 3 * width);
    for (int64_t x = 0; x < width; x++, robot += 4, picture += 3, out += 3) {
        unsigned through = 255 - robot[3];
        if (through == 255) continue;
        for (int c = 0; c < 3; c++) {
            unsigned sum = robot[c] + (picture[c] * through + 127) / 255;
            out[c] = sum > 255 ? 255 : sum;
        }
    }
}

/* `side` is a constant where it is called with one: dividing by it is then no division. */
static inline __attribute__((always_inline)) void
lay_over(const uint8_t *robot, int64_t robot_step, const uint8_t *picture, uint8_t *out,
         int64_t height, int64_t width, uint32_t side) {
    int64_t columns = width / side;
    uint8_t row[3 * width];
    uint32_t sums[3 * columns], area = side * side;
    for (int64_t y = 0; y < height; y++, robot += robot_step, picture += 3 * width) {
        lay_row(robot, picture, width, row);
        if (y % side == 0) memset(sums, 0, sizeof sums);
        for (int64_t x = 0; x < columns; x++)
            for (uint32_t i = 0; i < side; i++)
                for (int c = 0; c < 3; c++) sums[3 * x + c] += row[3 * (x * side + i) + c];
        if (y % side < side - 1) continue;
        for (int64_t i = 0; i < 3 * columns; i++) *out++ = (sums[i] + area / 2) / area;
    }
}

/* out [height / side, width / side, 3]: the means of blocks of side * side pixels, rounded.
 * robot [height, width, 4], rows robot_step bytes apart; picture [height, width, 3]. */
void sibe_lay_over(const uint8_t *robot, int64_t robot_step, const uint8_t *picture, uint8_t *out,
                   int64_t height, int64_t width, int64_t side) {
    if (side == 1)
        for (int64_t y = 0; y < height; y++)
            lay_row(robot + y * robot_step, picture + 3 * y * width, width, out + 3 * y * width);
    else if (side == 2)
        lay_over(robot, robot_step, picture, out, height, width, 2);
    else
        lay_over(robot, robot_step, picture, out, height, width, side);
}

/* out [pixels, 3 * number]: the pixels of `number` frames [pixels, 3] side by side. */
void sibe_side_by_side(const uint8_t *const *frames, int64_t number, int64_t pixels, uint8_t *out) {
    for (int64_t i = 0; i < number; i++) {
        const uint8_t *from = frames[i];
        uint8_t *to = out + 3 * i;
        for (int64_t p = 0; p < pixels; p++, from += 3, to += 3 * number)
            for (int c = 0; c < 3; c++) to[c] = from[c];
    }
}
