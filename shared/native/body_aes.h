/* AES, the block hash and the stream. Included by dpf_body.h, once per instruction set. */

/* ---- AES and the hash H_K(x) = AES_K(sigma(x)) ^ sigma(x) ---- */

TARGET static void NAME(schedule)(const uint8_t *key, uint8_t out[(ROUNDS + 1) * BLOCK]) {
    uint32_t w[4 * (ROUNDS + 1)];
    uint32_t constant = 1;
    memcpy(w, key, BLOCK);
    for (int i = 4; i < 4 * (ROUNDS + 1); i++) {
        uint32_t t = w[i - 1];
        if (i % 4 == 0) {
            t = NAME(sub_word)((t >> 8) | (t << 24)) ^ constant;
            constant = (constant << 1) ^ (constant & 0x80 ? 0x11B : 0);
        }
        w[i] = w[i - 4] ^ t;
    }
    memcpy(out, w, sizeof w);
}

TARGET static NAME(key) NAME(load_key)(const uint8_t *schedule) {
    NAME(key) key;
    for (int i = 0; i <= ROUNDS; i++) key.k[i] = NAME(v_bcast)(schedule + BLOCK * i);
    return key;
}

TARGET static NAME(key) NAME(make_key)(const uint8_t *bytes) {
    uint8_t schedule[(ROUNDS + 1) * BLOCK];
    NAME(schedule)(bytes, schedule);
    return NAME(load_key)(schedule);
}

/* sigma of the seed part of a node. */
LANE_FN V4 NAME(sigma_seed)(V4 node) {
    return NAME(v_sigma)(NAME(v_and)(node, NAME(v_bcast)(NAME(seed_bits))), NAME(v_bcast)(NAME(high_half)));
}

/* The middle of n AES computations that are already whitened. */
#define AES_MIDDLE(x, n, key)                                                                      \
    for (int round = 1; round < ROUNDS; round++)                                                   \
        for (int j = 0; j < (n); j++) (x)[j] = NAME(v_aes)((x)[j], (key)->k[round])

LANE_FN void NAME(hash_some)(const NAME(key) *key, const uint8_t *in, uint8_t *out, const int n) {
    V4 s[IN_FLIGHT], x[IN_FLIGHT];
    for (int j = 0; j < n; j++) {
        s[j] = NAME(v_sigma)(NAME(v_load)(in + VECTOR * j), NAME(v_bcast)(NAME(high_half)));
        x[j] = NAME(v_xor)(s[j], key->k[0]);
    }
    AES_MIDDLE(x, n, key);
    for (int j = 0; j < n; j++)
        NAME(v_store)(out + VECTOR * j, NAME(v_aeslast)(x[j], NAME(v_xor)(s[j], key->k[ROUNDS])));
}

TARGET static void NAME(hash_blocks)(const uint8_t *bytes, const uint8_t *in, uint8_t *out, size_t blocks) {
    const NAME(key) key = NAME(make_key)(bytes);
    size_t at = 0;
    for (; at + IN_FLIGHT * GROUP <= blocks; at += IN_FLIGHT * GROUP)
        NAME(hash_some)(&key, in + at * BLOCK, out + at * BLOCK, IN_FLIGHT);
    for (; at < blocks; at += GROUP) {
        uint8_t four[VECTOR] = {0};
        const size_t some = smaller(GROUP, blocks - at) * BLOCK;
        memcpy(four, in + at * BLOCK, some);
        NAME(hash_some)(&key, four, four, 1);
        memcpy(out + at * BLOCK, four, some);
    }
}

/* ---- additive shares from a seed: values += or -= AES_K(0), AES_K(1), ... ---- */

LANE_FN V4 NAME(ring_add)(V4 a, V4 b, const size_t element) {
    return element == 8 ? NAME(v_add64)(a, b) : NAME(v_add32)(a, b);
}

LANE_FN V4 NAME(ring_sub)(V4 a, V4 b, const size_t element) {
    return element == 8 ? NAME(v_sub64)(a, b) : NAME(v_sub32)(a, b);
}

LANE_FN void NAME(stream_vectors)(const NAME(key) *key, uint64_t counter, V4 *x) {
    uint64_t counters[IN_FLIGHT * GROUP * 2];
    for (int i = 0; i < IN_FLIGHT * GROUP; i++) counters[2 * i] = counter + (uint64_t)i, counters[2 * i + 1] = 0;
    for (int j = 0; j < IN_FLIGHT; j++)
        x[j] = NAME(v_xor)(NAME(v_load)((const uint8_t *)counters + VECTOR * j), key->k[0]);
    AES_MIDDLE(x, IN_FLIGHT, key);
    for (int j = 0; j < IN_FLIGHT; j++) x[j] = NAME(v_aeslast)(x[j], key->k[ROUNDS]);
}

LANE_FN void NAME(stream_step)(const NAME(key) *key, uint64_t counter, uint8_t *values, const size_t element,
                               const int negative) {
    V4 x[IN_FLIGHT];
    NAME(stream_vectors)(key, counter, x);
    for (int j = 0; j < IN_FLIGHT; j++) {
        const V4 value = NAME(v_load)(values + VECTOR * j);
        NAME(v_store)(values + VECTOR * j, negative ? NAME(ring_sub)(value, x[j], element)
                                                    : NAME(ring_add)(value, x[j], element));
    }
}

TARGET static void NAME(add_stream)(const uint8_t *bytes, uint8_t *values, size_t size, size_t element, int negative) {
    const NAME(key) key = NAME(make_key)(bytes);
    const size_t step = IN_FLIGHT * VECTOR;
    size_t at = 0;
    for (; at + step <= size; at += step) NAME(stream_step)(&key, at / BLOCK, values + at, element, negative);
    if (at < size) {
        uint8_t rest[IN_FLIGHT * VECTOR] = {0};
        memcpy(rest, values + at, size - at);
        NAME(stream_step)(&key, at / BLOCK, rest, element, negative);
        memcpy(values + at, rest, size - at);
    }
}
