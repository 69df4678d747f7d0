/* Random projections of the norm proof. Included by dpf_body.h, once per instruction set. */

/* ---- projections: out[k] = sum of v[k, i] * values[i] with entries v of -1, 0, 0, +1 ----
 *
 * Element i takes two blocks of the key's stream: bit k of the first is +1 for projection k, bit k of the second -1.
 * The stream is computed for PROJECT_BATCH elements at a time; then a few vectors of projections stay in registers
 * while all elements of the batch are added to them.
 */
#define PROJECT_BATCH (32 * IN_FLIGHT) /* elements; their blocks are a whole number of stream steps */

LANE_FN V4 NAME(v_every)(const uint8_t *value, const size_t element) {
    uint8_t block[BLOCK];
    for (size_t at = 0; at < BLOCK; at += element) memcpy(block + at, value, element);
    return NAME(v_bcast)(block);
}

LANE_FN void NAME(project_batch)(const uint8_t *bits, const uint8_t *values, size_t count, V4 *sums,
                                 const size_t element) {
    enum { WIDE = REGISTERS == 1 ? 8 : REGISTERS == 2 ? 2 : 1 };
    const size_t a_vector = VECTOR / element / 8, vectors = PROJECTIONS / 8 / a_vector; /* bytes of bits; total */
    for (size_t v = 0; v < vectors; v += WIDE) {
        V4 sum[WIDE];
        for (int w = 0; w < WIDE; w++) sum[w] = sums[v + (size_t)w];
        for (size_t i = 0; i < count; i++) {
            const V4 value = NAME(v_every)(values + i * element, element);
            for (int w = 0; w < WIDE; w++) {
                const uint8_t *plus = bits + 2 * i * BLOCK + (v + (size_t)w) * a_vector, *minus = plus + BLOCK;
                if (element == 8) {
                    sum[w] = NAME(v_add64_where)(sum[w], plus, value);
                    sum[w] = NAME(v_sub64_where)(sum[w], minus, value);
                } else {
                    sum[w] = NAME(v_add32_where)(sum[w], plus, value);
                    sum[w] = NAME(v_sub32_where)(sum[w], minus, value);
                }
            }
        }
        for (int w = 0; w < WIDE; w++) sums[v + (size_t)w] = sum[w];
    }
}

TARGET static void NAME(project)(const uint8_t *bytes, const uint8_t *values, size_t count, size_t element,
                                 uint8_t *out) {
    const NAME(key) key = NAME(make_key)(bytes);
    uint8_t bits[2 * PROJECT_BATCH * BLOCK + 8] = {0}; /* padded, because the last bits are read as a whole lane */
    V4 sums[PROJECTIONS * 8 / VECTOR];
    memset(sums, 0, sizeof sums);
    for (size_t first = 0; first < count; first += PROJECT_BATCH) {
        const size_t some = smaller(PROJECT_BATCH, count - first);
        for (size_t at = 0; at < 2 * some; at += IN_FLIGHT * GROUP) {
            V4 x[IN_FLIGHT];
            NAME(stream_vectors)(&key, 2 * first + at, x);
            for (int j = 0; j < IN_FLIGHT; j++) NAME(v_store)(bits + (at + GROUP * (size_t)j) * BLOCK, x[j]);
        }
        if (element == 8)
            NAME(project_batch)(bits, values + first * 8, some, sums, 8);
        else
            NAME(project_batch)(bits, values + first * 4, some, sums, 4);
    }
    memcpy(out, sums, PROJECTIONS * element);
}
