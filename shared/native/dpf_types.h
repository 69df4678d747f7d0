/* The arguments that the Python layer passes to the kernel: pointers into the caller's buffers, sizes checked. */
#ifndef SECEMB_DPF_TYPES_H
#define SECEMB_DPF_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernel reads numbers as they travel, little-endian; the portable backend serves this processor"
#endif

enum { BLOCK = 16, GROUP = 4, VECTOR = BLOCK * GROUP, ROUNDS = 10, MAX_DEPTH = 31, CHUNK_LEAVES = 256 };

enum { PROJECTIONS = 8 * BLOCK }; /* of the norm proof: one per bit of a block */

/* The keys that one party holds of several sessions. */
typedef struct {
    const uint8_t *keys;  /* (sessions, 3, 16): left child, right child, Convert */
    const uint8_t *roots; /* (sessions, slots, 16) */
    const uint8_t *left;  /* (sessions, depth, slots, 16): left correction words, control bit in the lowest bit */
    const uint8_t *right; /* (sessions, depth, slots): control bits of the right correction words */
    size_t sessions, slots;
    int depth, party;
} paths_t;

/* The item of each leaf of each bin; -1 past the end of a short bin. */
typedef struct {
    const int32_t *order; /* (bins, leaves), the bins of all tables one after the other */
    size_t bins, leaves, slots_per_bin, items;
} table_t;

/* The data for checking the leaves of several sessions. */
typedef struct {
    const uint8_t *leaf_keys;   /* (sessions, 16): public */
    const uint8_t *corrections; /* (sessions, slots, 48): public */
    const uint8_t *keys;        /* (4, 16): known only to the two servers */
    size_t first_slot;          /* of the session, if these are the slots of a range */
} checks_t;

enum { HASHES = 3, HASH = HASHES * BLOCK }; /* of one leaf */

/* The part of the work that one call does. */
typedef struct {
    size_t slot_from, slot_to, leaf_from, leaf_to;
} part_t;

/* One row of numbers: `width` ring elements of `element` bytes in `blocks` AES blocks. */
typedef struct {
    size_t width, element, bytes, blocks, full, tail; /* blocks = 4 * full + tail */
} row_t;

/* One implementation of every operation, for one instruction set. */
typedef struct {
    const char *name;
    int (*available)(void);
    void (*hash_blocks)(const uint8_t *key, const uint8_t *in, uint8_t *out, size_t blocks);
    void (*add_stream)(const uint8_t *key, uint8_t *values, size_t bytes, size_t element, int negative);
    void (*generate)(const uint8_t *keys, const uint8_t *roots0, const uint8_t *roots1, const int64_t *alpha,
                     size_t slots, int depth, uint8_t *left, uint8_t *right, uint8_t *leaf0, uint8_t *leaf1);
    int (*expand)(const paths_t *paths, size_t leaves, uint8_t *states);
    int (*convert_gen)(const uint8_t *key, const uint8_t *leaf0, const uint8_t *leaf1, const uint8_t *payload,
                       size_t slots, row_t row, uint8_t *words);
    int (*answer)(const paths_t *paths, const table_t *table, const part_t *part, const uint32_t *rows,
                  size_t columns, uint32_t *answers);
    int (*accumulate)(const paths_t *paths, const table_t *table, const part_t *part, const uint8_t *words, row_t row,
                      uint8_t *sums, uint8_t *slot_sums);
    void (*row_tags)(const uint8_t *key, const uint8_t *rows, const int64_t *items, size_t count, size_t width,
                     uint32_t *tags);
    void (*project)(const uint8_t *key, const uint8_t *values, size_t count, size_t element, uint8_t *out);
    void (*leaf_hashes)(const uint8_t *key, const uint8_t *nodes, const int64_t *leaves, size_t count, uint8_t *hashes);
    int (*answer_checked)(const paths_t *paths, const table_t *table, const checks_t *checks, const part_t *part,
                          const uint32_t *rows, size_t columns, uint32_t *answers, uint8_t *fingerprints);
} kernel_t;

static inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t round_up(size_t a, size_t multiple) { return (a + multiple - 1) / multiple * multiple; }

/* Memory aligned to a cache line; every size here is a multiple of 64. */
static inline uint8_t *take_lines(size_t bytes) {
    uint8_t *p = aligned_alloc(VECTOR, round_up(bytes + VECTOR, VECTOR));
    if (p) memset(p, 0, round_up(bytes + VECTOR, VECTOR));
    return p;
}

#endif
