/* Where a device's items go: the public permutation, and the matching of items to slots.
 *
 * The definitions are secemb_shared/layout/permutation.py and placement.py. Plain C, one copy for all instruction sets;
 * the tables of the permutation come from the stream that `kernel_t` computes. Nothing here leaves the device and, like
 * the definition, it does not run in constant time.
 */
#ifndef SECEMB_PLACEMENT_H
#define SECEMB_PLACEMENT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dpf_types.h"

enum { PERMUTATION_ROUNDS = 6 };

/* A Feistel network on `rows` × `columns` places; round i shifts by table[i], which has one entry for each value of the
 * half that is kept. */
typedef struct {
    uint32_t items, rows, columns;
    uint32_t *words, *table[PERMUTATION_ROUNDS];
} permutation_t;

static uint32_t square_root_above(uint32_t items) {
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << 16; bit; bit >>= 1)
        if ((root + bit) * (root + bit) < items) root += bit;
    return (uint32_t)root + 1;
}

static int open_permutation(const kernel_t *kernel, const uint8_t key[BLOCK], uint32_t items, permutation_t *p) {
    const uint32_t rows = square_root_above(items), columns = (items + rows - 1) / rows;
    const size_t count = (size_t)(PERMUTATION_ROUNDS / 2) * (rows + columns);
    *p = (permutation_t){items, rows, columns, calloc(round_up(count, 4), sizeof(uint32_t)), {0}};
    if (!p->words) return -1;
    kernel->add_stream(key, (uint8_t *)p->words, round_up(count, 4) * sizeof(uint32_t), sizeof(uint32_t), 0);
    uint32_t *next = p->words;
    for (int round = 0; round < PERMUTATION_ROUNDS; round++) {
        const uint32_t size = round % 2 ? rows : columns, modulus = round % 2 ? columns : rows;
        p->table[round] = next;
        for (uint32_t place = 0; place < size; place++) next[place] %= modulus;
        next += size;
    }
    return 0;
}

static inline uint32_t shift_forward(uint32_t half, uint32_t by, uint32_t modulus) {
    const uint32_t sum = half + by;
    return sum >= modulus ? sum - modulus : sum;
}

static inline uint32_t shift_back(uint32_t half, uint32_t by, uint32_t modulus) {
    return half >= by ? half - by : half + modulus - by;
}

static inline uint32_t turn_forward(const permutation_t *p, uint32_t value) {
    uint32_t left = value / p->columns, right = value % p->columns;
    for (int round = 0; round < PERMUTATION_ROUNDS; round += 2) {
        left = shift_forward(left, p->table[round][right], p->rows);
        right = shift_forward(right, p->table[round + 1][left], p->columns);
    }
    return left * p->columns + right;
}

static inline uint32_t turn_back(const permutation_t *p, uint32_t value) {
    uint32_t left = value / p->columns, right = value % p->columns;
    for (int round = PERMUTATION_ROUNDS - 2; round >= 0; round -= 2) {
        right = shift_back(right, p->table[round + 1][left], p->columns);
        left = shift_back(left, p->table[round][right], p->rows);
    }
    return left * p->columns + right;
}

/* Replace each value, which is below `items`, by its image or its preimage; return -1 if out of memory. */
static int permute(const kernel_t *kernel, const uint8_t key[BLOCK], uint32_t items, int backwards, int64_t *values,
                   size_t count) {
    permutation_t p;
    if (open_permutation(kernel, key, items, &p)) return -1;
    for (size_t i = 0; i < count; i++) {
        uint32_t value = (uint32_t)values[i];
        do value = backwards ? turn_back(&p, value) : turn_forward(&p, value);
        while (value >= items);
        values[i] = value;
    }
    free(p.words);
    return 0;
}

enum { NOBODY = -1 };

/* A matching under construction. A search visits a slot once and records from which item: `reached_by`. */
typedef struct {
    const int64_t *choices; /* (items, each), slots */
    size_t items, each, slots;
    int64_t *slot_of;                        /* by item */
    int64_t *holder, *reached_by, *reached;  /* by slot; the slots of this search in order */
    int64_t *queue, *unserved;               /* items */
    uint8_t *dead;                           /* slots that do not lead to a free slot and never will */
} matching_t;

/* Give each item its first free slot; return how many items have none. */
static size_t match_greedily(matching_t *m) {
    size_t unserved = 0;
    for (size_t item = 0; item < m->items; item++) {
        const int64_t *choice = m->choices + item * m->each, *end = choice + m->each;
        while (choice < end && m->holder[*choice] != NOBODY) choice++;
        m->slot_of[item] = choice < end ? *choice : NOBODY;
        if (choice < end)
            m->holder[*choice] = (int64_t)item;
        else
            m->unserved[unserved++] = (int64_t)item;
    }
    return unserved;
}

/* Move each item of the chain that ends in a free slot to the next slot. */
static void shift_chain(matching_t *m, int64_t slot) {
    while (slot != NOBODY) {
        const int64_t item = m->reached_by[slot], left = m->slot_of[item];
        m->holder[slot] = item;
        m->slot_of[item] = slot;
        slot = left;
    }
}

/* Return the free slot at the end of the shortest chain from `start`, or NOBODY; set how many slots were visited. */
static int64_t search_free(matching_t *m, int64_t start, size_t *entered) {
    size_t queued = 1;
    m->queue[0] = start;
    for (size_t next = 0; next < queued; next++) {
        const int64_t item = m->queue[next];
        for (size_t k = 0; k < m->each; k++) {
            const int64_t slot = m->choices[(size_t)item * m->each + k];
            if (m->reached_by[slot] != NOBODY || m->dead[slot]) continue;
            m->reached_by[slot] = item;
            m->reached[(*entered)++] = slot;
            if (m->holder[slot] == NOBODY) return slot;
            m->queue[queued++] = m->holder[slot];
        }
    }
    return NOBODY;
}

/* Set `slot_of` to one of its choices for each item, or -1; return -1 if out of memory. */
static int match(const int64_t *choices, size_t items, size_t each, size_t slots, int64_t *slot_of) {
    int64_t *memory = malloc((3 * slots + 2 * items + 1) * sizeof(int64_t));
    uint8_t *dead = calloc(slots + 1, 1);
    if (memory && dead) {
        matching_t m = {choices, items, each, slots, slot_of, memory, memory + slots, memory + 2 * slots,
                        memory + 3 * slots, memory + 3 * slots + items, dead};
        memset(memory, 0xff, 2 * slots * sizeof(int64_t)); /* no slot is held or reached: NOBODY */
        const size_t unserved = match_greedily(&m);
        for (size_t i = 0; i < unserved; i++) {
            size_t entered = 0;
            const int64_t free_slot = search_free(&m, m.unserved[i], &entered);
            shift_chain(&m, free_slot);
            for (size_t k = 0; k < entered; k++) {
                m.reached_by[m.reached[k]] = NOBODY;
                m.dead[m.reached[k]] = free_slot == NOBODY;
            }
        }
    }
    const int failed = memory && dead ? 0 : -1;
    free(memory), free(dead);
    return failed;
}

#endif
